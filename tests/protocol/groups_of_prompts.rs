//! *Groups* with *The prompt queue*: each group is of one prompt, which shares its fate.

use serde_json::{Value, json};

use crate::adoption::until_orphaned;
use crate::cast::{Worker, ids, only, prompts, soon, until_expired, until_somebody_waits};
use crate::journal::is_lawful;
use crate::prompt_fates::{gets, until_discarded};
use crate::prompts::{counts, feed, in_state, with_queue};
use crate::support::{Ledger, Run};

/// A run of groups of two with a prompt queue and these fields beside, the prompts a and b queued, and a worker that was
/// given a: the run, the worker and its group.
async fn given_a(ledger: &Ledger, mut config: Value) -> (Run, Worker, String) {
    config["group_size"] = json!(2);
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let a = gets(&worker, 0).await;
    (run, worker, a)
}

/// Fails the first candidate of the group, which then cannot be filled.
async fn fails(worker: &Worker, id: &str) -> Value {
    worker.member(id, 0, json!({ "failed": true })).await.ok()
}

#[tokio::test]
async fn a_group_takes_one_prompt_and_is_granted_its_data() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    let page = json!({ "prompts": [{ "id": "a", "data": { "text": "1 + 1 = ?" } }, { "id": "b", "data": 2 }] });
    run.post("prompts", page).await.ok();

    let answer = worker.reserve(json!({ "version": 0 })).await.ok();

    assert_eq!(
        only(&answer["granted"][0], &["prompt", "data", "attempt", "adopted"]),
        json!({ "prompt": "a", "data": { "text": "1 + 1 = ?" }, "attempt": 1, "adopted": null })
    );
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 1 }));
    let a = ids(&answer["granted"]).remove(0);
    worker.finishes(&a, 0..1).await;
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 1 }));
    worker.finishes(&a, 1..2).await;
    assert_eq!(counts(&run).await, json!({ "queued": 1, "occupied": 1 }));
    run.take().await.ok();
    assert_eq!(counts(&run).await, json!({ "queued": 1, "trained": 1 }));
    is_lawful(&run).await;
}

/// With a prompt queue, groups are adopted unless the run or the call says otherwise.
#[tokio::test]
async fn an_adopted_group_is_granted_with_its_prompt_and_its_data() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(with_queue(config)).await;
    let page = json!({ "prompts": [{ "id": "a", "data": { "n": 1 } }, { "id": "b", "data": { "n": 2 } }] });
    run.post("prompts", page).await.ok();
    let killed = Worker::of(&run, "rollout-1");
    let a = gets(&killed, 0).await;
    killed.finishes(&a, 0..1).await;
    killed.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 1 }));

    let other = Worker::of(&run, "rollout-2");
    let request = json!({ "version": 0, "count": 2, "request_id": "r" });
    let answer = other.reserve(request.clone()).await.ok();

    let fields = ["prompt", "data", "attempt", "adopted", "members_done", "members_failed"];
    assert_eq!(
        only(&answer["granted"][0], &fields),
        json!({ "prompt": "a", "data": { "n": 1 }, "attempt": 1, "adopted": true, "members_done": [0], "members_failed": [] })
    );
    assert_eq!(
        only(&answer["granted"][1], &["prompt", "data", "attempt", "adopted"]),
        json!({ "prompt": "b", "data": { "n": 2 }, "attempt": 1, "adopted": null })
    );
    assert_eq!(
        other.reserve(request).await.ok(),
        answer,
        "a lost answer is given again"
    );
    assert_eq!(counts(&run).await, json!({ "in_flight": 2 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn the_prompt_of_a_group_that_failed_goes_to_the_back_and_fails_after_its_last_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "max_attempts": 2 });
    let (run, worker, a) = given_a(&ledger, config).await;

    let answer = fails(&worker, &a).await;

    assert_eq!(
        only(&answer, &["state", "reason"]),
        json!({ "state": "discarded", "reason": "group_failed" })
    );
    assert_eq!(in_state(&run, "queued").await, "b 1, a 2");
    let granted = worker.reserve(json!({ "version": 0, "count": 2 })).await.ok()["granted"].clone();
    assert_eq!(
        only(&granted[1], &["prompt", "attempt"]),
        json!({ "prompt": "a", "attempt": 2 })
    );
    fails(&worker, &ids(&granted)[1]).await;

    assert_eq!(in_state(&run, "failed").await, "a 2");
    assert_eq!(counts(&run).await, json!({ "in_flight": 1, "failed": 1 }));
    // The entry of the first attempt is still known, and told so.
    let again = worker.member(&a, 1, json!({})).await.ok();
    assert_eq!(
        only(&again, &["counted", "reason"]),
        json!({ "counted": false, "reason": "group_failed" })
    );
    is_lawful(&run).await;
}

#[tokio::test]
async fn the_prompt_of_a_group_of_equal_rewards_is_filtered_and_the_next_takes_its_place() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "drop_zero_variance": true });
    let (run, worker, a) = given_a(&ledger, config).await;
    let blocked = worker.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(blocked["blocked_by"], "staleness");

    let body = json!({ "members": [{ "index": 0, "reward": 1.0 }, { "index": 1, "reward": 1.0 }] });
    let answer = worker.occupy(&a, body).await.ok();

    assert_eq!(answer, json!({ "state": "discarded", "reason": "zero_variance" }));
    assert_eq!(in_state(&run, "filtered").await, "a 1");
    let b = gets(&worker, 0).await;
    worker.finishes(&b, 0..2).await;
    assert_eq!(run.tables().await, "B");
    assert_eq!(counts(&run).await, json!({ "occupied": 1, "filtered": 1 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn members_and_occupy_of_a_late_group_whose_prompt_was_handed_out_again_are_refused_as_superseded() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "lease_ms": 1_000, "adopt_groups": false });
    let (run, slow, a) = given_a(&ledger, config).await;
    slow.finishes(&a, 0..1).await;
    until_expired(&run, &a).await;
    let replacement = Worker::of(&run, "rollout-2");
    let granted = replacement.reserve(json!({ "version": 0 })).await.ok()["granted"].clone();
    assert_eq!(
        only(&granted[0], &["prompt", "attempt"]),
        json!({ "prompt": "a", "attempt": 2 })
    );

    slow.member(&a, 1, json!({})).await.problem(409, "superseded");
    slow.member(&a, 1, json!({ "failed": true }))
        .await
        .problem(409, "superseded");
    slow.occupy(&a, json!({ "members": [{ "index": 1 }] }))
        .await
        .problem(409, "superseded");
    slow.occupy(&a, json!({})).await.problem(409, "superseded");

    replacement.finishes(&ids(&granted)[0], 0..2).await;
    slow.member(&a, 1, json!({})).await.problem(409, "superseded");
    assert_eq!(counts(&run).await, json!({ "queued": 1, "occupied": 1 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn the_member_that_completes_a_late_group_takes_its_prompt_out_of_the_queue() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "lease_ms": 1_000, "adopt_groups": false });
    let (run, slow, a) = given_a(&ledger, config).await;
    until_expired(&run, &a).await;
    slow.finishes(&a, 0..1).await;
    assert_eq!(in_state(&run, "queued").await, "a 2, b 1");

    let last = slow.member(&a, 1, json!({ "reward": 1 })).await.ok();

    assert_eq!(
        only(&last, &["state", "late"]),
        json!({ "state": "occupied", "late": true })
    );
    assert_eq!(in_state(&run, "queued").await, "b 1");
    assert_eq!(in_state(&run, "occupied").await, "a 1");
    is_lawful(&run).await;
}

/// It comes back to be looked at, and its rewards are all equal: the prompt is used up.
#[tokio::test]
async fn the_prompt_of_a_late_group_of_equal_rewards_is_filtered() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "lease_ms": 1_000, "adopt_groups": false,
                         "drop_zero_variance": true });
    let (run, slow, a) = given_a(&ledger, config).await;
    until_expired(&run, &a).await;
    slow.member(&a, 0, json!({ "reward": 0.0 })).await.ok();

    let last = slow.member(&a, 1, json!({ "reward": 0.0 })).await.ok();

    assert_eq!(
        only(&last, &["state", "reason"]),
        json!({ "state": "discarded", "reason": "zero_variance" })
    );
    assert_eq!(in_state(&run, "filtered").await, "a 1");
    assert_eq!(counts(&run).await, json!({ "queued": 1, "filtered": 1 }));
    is_lawful(&run).await;
}

/// Who holds it lives, or nobody holds it: it is given up with the members that it has, and its prompt waits behind all others.
#[tokio::test]
async fn a_group_with_complete_members_that_is_too_old_is_given_up_and_its_prompt_goes_to_the_back() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let lost = Worker::of(&run, "lost");
    let b = gets(&lost, 0).await;
    for (worker, id) in [(&worker, &a), (&lost, &b)] {
        worker.member(id, 0, json!({ "payload": "file:///0" })).await.ok();
    }
    lost.restarted().heartbeat(json!({})).await.ok();
    until_orphaned(&run, &b).await;

    run.patch("", json!({ "reservation_timeout_ms": 1 })).await.ok();
    until_discarded(&run, &a, "timed_out").await;
    until_discarded(&run, &b, "timed_out").await;
    run.patch("", json!({ "reservation_timeout_ms": null })).await.ok();

    assert_eq!(run.tables().await, ". .");
    assert_eq!(counts(&run).await, json!({ "queued": 2 }));
    assert_eq!(worker.is_told().await, json!([[a, "timed_out"]]));
    let events = run.get(&format!("events?trajectory={a}")).await.ok()["events"].clone();
    let given_up = events.as_array().and_then(|events| events.last()).expect("an event");
    let discarded = &given_up["effects"][0];
    assert_eq!(
        only(given_up, &["type", "reason"]),
        json!({ "type": "expire", "reason": "timed_out" })
    );
    assert_eq!(discarded["reason"], "timed_out");
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_group_one_member_of_which_never_finishes_is_given_up_while_the_trainer_waits_for_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 1, "max_staleness": 0 })).await;
    worker.finishes(&a, 0..1).await;
    let take = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "batch").await;

    run.patch("", json!({ "stuck_timeout_ms": 300 })).await.ok();
    until_discarded(&run, &a, "stuck_timeout").await;
    run.patch("", json!({ "stuck_timeout_ms": null })).await.ok();

    assert_eq!(in_state(&run, "queued").await, "b 1, a 2");
    let b = gets(&worker, 0).await;
    worker.finishes(&b, 0..2).await;
    let batch = soon(take).await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "b");
    // What was finished of the first attempt is not lost as long as there is a place for it and nobody else has its prompt.
    let last = worker
        .member(&a, 1, json!({}))
        .await
        .problem(409, "trajectory_discarded");
    assert_eq!(last["reason"], "stuck_timeout");
    is_lawful(&run).await;
}

/// An adoption is no attempt: a group of which one member kills each worker, and another was finished, is bounded by the stuck
/// timeout, which is.
#[tokio::test]
async fn a_group_that_kills_each_worker_that_adopts_it_fails_after_its_attempts_while_the_trainer_waits() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, first, a) = given_a(
        &ledger,
        json!({ "batch_size": 1, "max_staleness": 0, "max_attempts": 1 }),
    )
    .await;
    first.finishes(&a, 0..1).await;
    first.restarted().heartbeat(json!({})).await.ok();
    for name in ["rollout-2", "rollout-3"] {
        let next = Worker::of(&run, name);
        let granted = next.reserve(json!({ "version": 0 })).await.ok()["granted"].clone();
        assert_eq!(
            only(&granted[0], &["id", "adopted", "attempt"]),
            json!({ "id": a, "adopted": true, "attempt": 1 })
        );
        next.restarted().heartbeat(json!({})).await.ok();
    }
    let take = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "batch").await;

    run.patch("", json!({ "stuck_timeout_ms": 300 })).await.ok();
    until_discarded(&run, &a, "stuck_timeout").await;
    run.patch("", json!({ "stuck_timeout_ms": null })).await.ok();

    assert_eq!(in_state(&run, "failed").await, "a 1");
    let last = Worker::of(&run, "rollout-4");
    let b = gets(&last, 0).await;
    last.finishes(&b, 0..2).await;
    assert_eq!(prompts(&soon(take).await.ok()["batch"]["trajectories"]), "b");
    is_lawful(&run).await;
}
