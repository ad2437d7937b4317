//! *Drain* with *Groups* and *The prompt queue*: what is in flight finishes, whoever holds it, and nobody is left to wait.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::adoption::until_orphaned;
use crate::cast::{Worker, ids, only, prompts, soon, until_somebody_waits};
use crate::journal::is_lawful;
use crate::prompt_fates::gets;
use crate::prompts::{counts, feed, with_queue};
use crate::support::{Ledger, Response, Run, Trainer};

async fn drain(run: &Run, queue: &str) -> Value {
    run.post("drain", json!({ "drain": true, "queue": queue })).await.ok()
}

/// A drained run, with a group that has lost its owner and one more prompt that stays queued: the run and the group.
async fn orphaned_and_drained(ledger: &Ledger) -> (Run, String) {
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b").await.ok();
    let lost = Worker::of(&run, "lost");
    let a = gets(&lost, 0).await;
    lost.member(&a, 1, json!({ "reward": 1 })).await.ok();
    lost.restarted().heartbeat(json!({})).await.ok();
    until_orphaned(&run, &a).await;
    drain(&run, "keep").await;
    (run, a)
}

/// An adoption is no admission: it is what lets the run end.
#[tokio::test]
async fn a_drained_run_has_its_groups_adopted_and_ends_with_them() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, a) = orphaned_and_drained(&ledger).await;
    let waiting = run.take().await.ok();
    assert_eq!(
        only(&waiting, &["batch", "finished"]),
        json!({ "batch": null, "finished": false })
    );

    let worker = Worker::of(&run, "rollout-1");
    let answer = worker.reserve(json!({ "version": 0, "count": 2 })).await.ok();

    assert_eq!(ids(&answer["granted"]), [a.clone()]);
    assert_eq!(answer["blocked_by"], "draining");
    worker.finishes(&a, 0..1).await;
    let last = run.take().await.ok()["batch"].clone();
    assert_eq!(
        (prompts(&last["trajectories"]), &last["final"]),
        ("a".to_owned(), &json!(true))
    );
    run.publish(1).await.ok();
    assert_eq!(run.take().await.ok()["finished"], true);
    assert_eq!(counts(&run).await, json!({ "queued": 1, "trained": 1 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_reserve_that_waits_in_a_drained_run_is_given_the_group_that_loses_its_owner() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let (holder, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = holder.gets(0, "a").await;
    holder.finishes(&a, 0..1).await;
    run.post("drain", json!({ "drain": true })).await.ok();
    let waiting = other.waits_for_a_place(&ledger, 0, "z").await;

    holder.restarted().heartbeat(json!({})).await.ok();

    assert_eq!(ids(&soon(waiting).await.ok()["granted"]), [a]);
    is_lawful(&run).await;
}

/// Nobody adopts it: the trainer's stuck timeout, or the run's reservation timeout, lets the run end all the same.
#[tokio::test]
async fn a_group_that_nobody_adopts_does_not_hold_up_the_end_of_a_run() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _) = orphaned_and_drained(&ledger).await;
    let take = trainer_waits(&ledger, &run).await;

    run.patch("", json!({ "stuck_timeout_ms": 200 })).await.ok();

    assert_eq!(
        only(&soon(take).await.ok(), &["batch", "finished"]),
        json!({ "batch": null, "finished": true })
    );
    assert_eq!(
        run.get("").await.ok()["totals"]["discarded"],
        json!({ "stuck_timeout": 1 })
    );
    assert_eq!(counts(&run).await, json!({ "queued": 2 }));
    is_lawful(&run).await;
}

/// Every call of a rollout process that can wait, each for what will not come any more.
async fn workers_wait(ledger: &Ledger, run: &Run, version: u64) -> Vec<(&'static str, JoinHandle<Response>)> {
    let post = |path: &'static str, body: Value| {
        let run = run.clone();
        tokio::spawn(async move { run.post(path, body).await })
    };
    let reserve = Worker::of(run, "waiting").says(json!({ "version": version, "wait_ms": 60_000 }));
    let beat = json!({ "session": "s", "version": version, "wait_ms": 60_000 });
    let latest = {
        let run = run.clone();
        tokio::spawn(async move { run.get("versions/latest?after=9&wait_ms=60000").await })
    };
    let calls = vec![
        ("reserve", post("reservations", reserve)),
        ("heartbeat", post("workers/beating/heartbeat", beat)),
        ("latest", latest),
    ];
    for topic in ["admission", "cancelled", "version"] {
        until_somebody_waits(ledger, run, topic).await;
    }
    calls
}

async fn trainer_waits(ledger: &Ledger, run: &Run) -> JoinHandle<Response> {
    let call = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(ledger, run, "batch").await;
    call
}

async fn all_are_told(calls: Vec<(&'static str, JoinHandle<Response>)>) {
    for (what, call) in calls {
        assert_eq!(soon(call).await.ok()["finished"], true, "{what}");
    }
}

#[tokio::test]
async fn every_waiting_call_is_told_when_the_last_group_of_a_prompt_queue_is_trained() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2 });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    feed(&run, "a b c").await.ok();
    drain(&run, "finish").await;
    for _ in ["a", "b", "c"] {
        let id = gets(&worker, 0).await;
        worker.finishes(&id, 0..2).await;
    }
    trainer.trains(0).await;
    let last = trainer.take().await.ok()["batch"].clone();
    assert_eq!(
        (prompts(&last["trajectories"]), &last["final"]),
        ("c".to_owned(), &json!(true))
    );
    let other_ranks = trainer.says(json!({ "stream": true, "from_offset": 1 }));
    let end = run.post("batches/next", other_ranks).await.ok()["batch"].clone();
    assert_eq!(
        only(&end, &["offset", "trajectories", "complete", "final"]),
        json!({ "offset": 1, "trajectories": [], "complete": true, "final": true })
    );

    // A worker whose heartbeat waits is told of the version, too: the run is finished in the same step.
    let waiting = workers_wait(&ledger, &run, 1).await;

    trainer.publish(2).await.ok();

    all_are_told(waiting).await;
    assert_eq!(trainer.take().await.ok()["finished"], true);
    assert_eq!(counts(&run).await, json!({ "trained": 3 }));
    is_lawful(&run).await;
}

/// A member of the last group fails, and so do the group and its prompt, while everybody waits for it.
#[tokio::test]
async fn every_waiting_call_is_told_when_the_last_prompt_of_a_drained_run_fails() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2, "max_attempts": 1 });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    feed(&run, "a").await.ok();
    drain(&run, "finish").await;
    let a = gets(&worker, 0).await;
    let mut waiting = workers_wait(&ledger, &run, 0).await;
    waiting.push(("take", trainer_waits(&ledger, &run).await));

    worker.member(&a, 0, json!({ "failed": true })).await.ok();

    all_are_told(waiting).await;
    assert_eq!(counts(&run).await, json!({ "failed": 1 }));
    is_lawful(&run).await;
}
