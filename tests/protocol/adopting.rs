//! *Adoption*, beside the plain case: grants that are repeated or get lost, claims, and what takes a group from the tables.

use serde_json::json;

use crate::cast::{Worker, each, ids, only, soon, trajectory, until_somebody_waits};
use crate::groups::cancelled;
use crate::support::{Ledger, Run, eventually};

/// A group of the two candidates that it needs, one of them complete, whose worker has started again.
async fn orphan(run: &Run, prompt: &str) -> String {
    let worker = Worker::of(run, "lost");
    let id = worker.gets(0, prompt).await;
    worker.member(&id, 0, json!({ "payload": "file:///0" })).await.ok();
    worker.restarted().heartbeat(json!({})).await.ok();
    id
}

fn config() -> serde_json::Value {
    json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "adopt_groups": true })
}

#[tokio::test]
async fn a_repeated_request_is_answered_with_the_same_adoption() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(config()).await;
    let a = orphan(&run, "a").await;
    let worker = Worker::of(&run, "rollout-1");
    let request = json!({ "version": 0, "count": 2, "prompts": ["b", "c"], "request_id": "r" });

    let first = worker.reserve(request.clone()).await.ok();
    let again = worker.reserve(request).await.ok();

    assert_eq!(first, again);
    assert_eq!(first["granted"][0]["id"], json!(a));
    assert_eq!(run.get("").await.ok()["totals"]["adopted"], 1);
    let otherwise = json!({ "version": 0, "count": 2, "prompts": ["b", "c"], "request_id": "r", "adopt": false });
    worker.reserve(otherwise).await.problem(409, "request_id_reused");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn prompts_are_used_in_their_order_however_many_groups_are_adopted() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 120, "max_staleness": 0, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let lost = Worker::of(&run, "lost");
    let granted = lost.reserve(json!({ "version": 0, "count": 3 })).await.ok();
    for id in ids(&granted["granted"]) {
        lost.member(&id, 1, json!({})).await.ok();
    }
    lost.restarted().heartbeat(json!({})).await.ok();
    let prompts: Vec<_> = (0..100).map(|number| format!("q-{number}")).collect();

    let body = json!({ "version": 0, "count": 103, "prompts": prompts });
    let answer = Worker::of(&run, "rollout-1").reserve(body).await.ok();

    let granted: Vec<_> = each(&answer["granted"]).collect();
    assert_eq!(granted.len(), 103);
    let own: Vec<_> = granted.iter().filter_map(|grant| grant["prompt"].as_str()).collect();
    assert_eq!(own, prompts);
    assert!(granted[..3].iter().all(|grant| grant["adopted"] == true));
    crate::journal::is_lawful(&run).await;
}

#[tokio::test]
async fn an_adopted_group_that_its_worker_does_not_list_waits_for_another_owner_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let mut config = config();
    config["lease_ms"] = json!(1_000);
    let run = ledger.run(config).await;
    let a = orphan(&run, "a").await;
    let worker = Worker::of(&run, "rollout-1");
    worker.reserve(json!({ "version": 0 })).await.ok();

    eventually("the grant counts as lost", async || {
        worker.heartbeat(json!({ "holding": [] })).await.ok();
        trajectory(&run, &a).await["orphaned"] == true
    })
    .await;

    let granted = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0 }))
        .await
        .ok();
    assert_eq!(ids(&granted["granted"]), [a]);
    crate::journal::is_sound(&run).await;
}

/// A server finds out that a client is gone only when it has an answer for it.
#[tokio::test]
async fn a_group_that_was_adopted_for_a_client_that_hung_up_waits_for_another_owner_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let mut config = config();
    config["batch_size"] = json!(1);
    let run = ledger.run(config).await;
    let holder = Worker::of(&run, "lost");
    let a = holder.gets(0, "a").await;
    holder.member(&a, 0, json!({})).await.ok();
    let gone = Worker::of(&run, "rollout-1");
    let call = tokio::spawn(async move { gone.reserve(json!({ "version": 0, "wait_ms": 60_000 })).await });
    until_somebody_waits(&ledger, &run, "admission").await;
    call.abort();
    let _ = call.await;

    holder.restarted().heartbeat(json!({})).await.ok();

    eventually("somebody who is there gets it", async || {
        let asked = Worker::of(&run, "rollout-2")
            .reserve(json!({ "version": 0 }))
            .await
            .ok();
        ids(&asked["granted"]) == [a.clone()]
    })
    .await;
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_without_an_owner_is_claimed_like_any_reservation() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(config()).await;
    let a = orphan(&run, "a").await;
    let worker = Worker::of(&run, "rollout-1");

    let claimed = worker.claim(&a).await.ok();

    assert_eq!(
        only(&claimed, &["state", "worker"]),
        json!({ "state": "reserved", "worker": "rollout-1" })
    );
    assert_eq!(claimed.get("orphaned"), None);
    let events = run.get("events").await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    assert_eq!(
        (&last["type"], &last["effects"]),
        (&json!("claim"), &json!([{ "effect": "adopted", "id": a }]))
    );
    assert_eq!(
        ids(&run.get("trajectories?worker=rollout-1").await.ok()["trajectories"]),
        [a]
    );
    let asked = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0, "prompts": ["b"] }))
        .await
        .ok();
    assert_eq!(asked["granted"][0]["prompt"], "b");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_without_an_owner_is_discarded_by_a_client_like_any_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(config()).await;
    let a = orphan(&run, "a").await;

    let discarded = Worker::of(&run, "rollout-1").discard(&a, "failed").await.ok();

    assert_eq!(discarded["discarded_from"], "reserved");
    assert_eq!(run.tables().await, ". .");
    let status = run.get("").await.ok();
    assert_eq!((&status["reserved"], &status["generating"]), (&json!(0), &json!(0)));
    let asked = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0, "prompts": ["b"] }))
        .await
        .ok();
    assert_eq!(asked["granted"][0]["prompt"], "b");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_filled_group_that_awaits_post_processing_outlives_its_worker_too() {
    let Some(ledger) = Ledger::start().await else { return };
    let mut config = config();
    config["auto_occupy"] = json!(false);
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "lost");
    let a = worker.gets(0, "a").await;
    worker.finishes(&a, 0..2).await;
    worker.restarted().heartbeat(json!({})).await.ok();

    let other = Worker::of(&run, "rollout-1");
    let granted = other.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(
        only(&granted["granted"][0], &["id", "members_done", "members_failed"]),
        json!({ "id": a, "members_done": [0, 1], "members_failed": [] })
    );
    assert_eq!(other.occupy(&a, json!({})).await.ok()["state"], "occupied");
    crate::journal::is_sound(&run).await;
}

/// Its slots are gone with the surplus rule: there is nothing left to adopt, and a former holder that is only slow is told.
#[tokio::test]
async fn a_group_without_an_owner_that_becomes_surplus_is_cancelled_to_its_former_holder() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "slots_per_buffer": 2, "group_size": 2,
                         "adopt_groups": true, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let (slow, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = slow.gets(0, "a").await;
    slow.member(&a, 0, json!({})).await.ok();
    crate::adoption::until_orphaned(&run, &a).await;
    let granted = other
        .reserve(json!({ "version": 0, "adopt": false, "prompts": ["b"] }))
        .await
        .ok();
    let b = ids(&granted["granted"]).remove(0);

    other.finishes(&b, 0..2).await;

    assert_eq!(trajectory(&run, &a).await["reason"], "surplus");
    assert_eq!(cancelled(&slow).await, json!([[a, "surplus", null]]));
    let asked = other.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(asked["granted"], json!([]));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_waiting_reserve_is_not_told_of_an_adoption_that_another_call_got() {
    let Some(ledger) = Ledger::start().await else { return };
    let mut config = config();
    config["batch_size"] = json!(1);
    let run = ledger.run(config).await;
    let holder = Worker::of(&run, "lost");
    let a = holder.gets(0, "a").await;
    holder.member(&a, 0, json!({})).await.ok();
    let [one, two] = ["rollout-1", "rollout-2"].map(|name| {
        let worker = Worker::of(&run, name);
        tokio::spawn(async move { worker.reserve(json!({ "version": 0, "wait_ms": 60_000 })).await })
    });
    eventually("both wait", async || {
        each(&run.get("workers").await.ok()["workers"]).count() == 3
    })
    .await;
    holder.restarted().heartbeat(json!({})).await.ok();
    eventually("one of them has it", async || one.is_finished() || two.is_finished()).await;

    // The other one waits on, and gets the place that is freed.
    Worker::of(&run, "rollout-3").discard(&a, "failed").await.ok();
    for call in [one, two] {
        let answer = soon(call).await.ok();
        assert_eq!(answer["granted"].as_array().map(Vec::len), Some(1), "{answer}");
    }
    assert_eq!(run.get("").await.ok()["totals"]["adopted"], 1);
    crate::journal::is_lawful(&run).await;
}
