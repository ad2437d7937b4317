//! Calls that wait while the members of a group end it: nobody polls.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::adoption::until_orphaned;
use crate::cast::{Worker, each, ids, only, prompts, soon, until_expired, until_somebody_waits};
use crate::journal::is_lawful;
use crate::prompt_fates::gets;
use crate::prompts::{feed, in_state, with_queue};
use crate::support::{Ledger, Response, Run, TestServer};

/// A heartbeat that waits a minute, and is known to the ledger when this returns.
async fn beats(ledger: &Ledger, run: &Run, worker: &Worker) -> JoinHandle<Response> {
    let worker = worker.clone();
    let call = tokio::spawn(async move { worker.heartbeat(json!({ "wait_ms": 60_000 })).await });
    until_somebody_waits(ledger, run, "cancelled").await;
    call
}

/// A Reserve for the next prompt that waits a minute, and is known to the ledger when this returns.
async fn waits_for_a_prompt(ledger: &Ledger, run: &Run, worker: &Worker) -> JoinHandle<Response> {
    let worker = worker.clone();
    let body = json!({ "version": 0, "wait_ms": 60_000 });
    let call = tokio::spawn(async move { worker.reserve(body).await });
    until_somebody_waits(ledger, run, "admission").await;
    call
}

/// The cancellations in a heartbeat's answer, as `[[id, reason, members] …]`.
fn told(beat: &Value) -> Value {
    each(&beat["cancelled"])
        .map(|one| json!([one["id"], one["reason"], one["members"]]))
        .collect()
}

#[tokio::test]
async fn the_holder_is_told_at_once_that_others_filled_its_group_through_another_server() {
    let Some(ledger) = Ledger::start().await else { return };
    let elsewhere = TestServer::start(&ledger.database.url()).await;
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 4 });
    let run = ledger.run(config).await;
    let (holder, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let other = other.through(&elsewhere.client());
    let a = holder.gets(0, "a").await;
    let beat = beats(&ledger, &run, &holder).await;

    other.member(&a, 3, json!({ "version": 0 })).await.ok();
    assert!(!beat.is_finished(), "nothing is to be stopped yet");
    other.member(&a, 1, json!({ "version": 0 })).await.ok();

    assert_eq!(told(&soon(beat).await.ok()), json!([[a, "group_filled", [0, 2]]]));
    is_lawful(&run).await;
}

#[tokio::test]
async fn the_holder_is_told_at_once_that_its_group_cannot_be_filled_any_more() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let (holder, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = holder.gets(0, "a").await;
    let beat = beats(&ledger, &run, &holder).await;

    for index in 0..2 {
        other.member(&a, index, json!({ "failed": true })).await.ok();
    }

    assert_eq!(told(&soon(beat).await.ok()), json!([[a, "group_failed", null]]));
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_waiting_take_is_given_the_batch_as_the_last_member_of_its_last_group_is_complete() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);
    worker.finishes(&a, 0..2).await;
    worker.finishes(&b, 0..1).await;
    let take = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "batch").await;

    worker.finishes(&b, 1..2).await;

    assert_eq!(prompts(&soon(take).await.ok()["batch"]["trajectories"]), "a b");
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_waiting_reserve_gets_the_place_that_a_group_of_equal_rewards_leaves() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "drop_zero_variance": true });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let a = gets(&worker, 0).await;
    let waiting = waits_for_a_prompt(&ledger, &run, &Worker::of(&run, "rollout-2")).await;

    for index in 0..2 {
        worker.member(&a, index, json!({ "reward": 1 })).await.ok();
    }

    assert_eq!(prompts(&soon(waiting).await.ok()["granted"]), "b");
    assert_eq!(in_state(&run, "filtered").await, "a 1");
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_waiting_reserve_gets_the_prompt_of_a_group_that_failed_as_its_next_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let a = gets(&worker, 0).await;
    let waiting = waits_for_a_prompt(&ledger, &run, &Worker::of(&run, "rollout-2")).await;

    worker.member(&a, 0, json!({ "failed": true })).await.ok();

    let granted = soon(waiting).await.ok()["granted"].clone();
    assert_eq!(
        only(&granted[0], &["prompt", "attempt"]),
        json!({ "prompt": "a", "attempt": 2 })
    );
    assert_ne!(ids(&granted), [a]);
    is_lawful(&run).await;
}

/// Workers die with all that is reserved: each group that has a member is finished by the next worker, each other one begins
/// again.
#[tokio::test]
async fn every_slot_is_reserved_by_groups_whose_workers_died() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "lease_ms": 1_000 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b").await.ok();
    let (first, second) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = gets(&first, 0).await;
    let b = gets(&second, 0).await;
    first.finishes(&a, 0..1).await;
    let take = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "batch").await;

    until_orphaned(&run, &a).await;
    until_expired(&run, &b).await;
    run.patch("", json!({ "lease_ms": 60_000 })).await.ok();
    let alive = Worker::of(&run, "rollout-3");
    for _ in ["a", "b"] {
        let granted = alive.reserve(json!({ "version": 0 })).await.ok()["granted"].clone();
        let id = ids(&granted).remove(0);
        for index in 0..2 {
            alive.member(&id, index, json!({ "reward": index })).await.ok();
        }
    }

    let batch = soon(take).await.ok()["batch"].clone();
    let mut trained: Vec<_> = each(&batch["trajectories"])
        .map(|group| format!("{} {}", group["prompt"], group["attempt"]))
        .collect();
    trained.sort();
    assert_eq!(trained, [r#""a" 1"#, r#""b" 2"#]);
    assert_eq!(
        only(&run.get("").await.ok()["totals"], &["adopted", "discarded"]),
        json!({ "adopted": 1, "discarded": { "lease_expired": 1 } })
    );
    is_lawful(&run).await;
}
