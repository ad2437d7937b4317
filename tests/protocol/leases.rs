//! *Leases*: who is silent loses what it holds, who lists what it holds loses what never arrived, and nobody else.

use serde_json::json;

use crate::cast::{Worker, only, soon, trajectory, until_expired, until_somebody_waits};
use crate::support::{Ledger, TestServer, eventually};

#[tokio::test]
async fn what_a_silent_worker_held_is_freed_when_its_lease_runs_out() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    until_expired(&run, &a).await;

    assert_eq!(run.tables().await, ". .");
    let status = run.get("").await.ok();
    assert_eq!(
        status["totals"],
        json!({ "reserved": 2, "occupied": 0, "trained": 0, "late": 0, "adopted": 0, "discarded": { "lease_expired": 2 } })
    );
    assert_eq!(status["workers"], 0);
    // It was only slow: it is told, and goes on in the same session.
    assert_eq!(
        worker.is_told().await,
        json!([[a, "lease_expired"], [b, "lease_expired"]])
    );
    worker.gets(0, "c").await;
}

#[tokio::test]
async fn a_worker_that_calls_keeps_what_it_holds() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 3_000 });
    let run = ledger.run(config).await;
    let (alive, silent) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    alive.gets(0, "a").await;
    let b = silent.gets(0, "b").await;

    eventually("the silent worker's lease runs out", async || {
        alive.heartbeat(json!({})).await.ok();
        trajectory(&run, &b).await["reason"] == "lease_expired"
    })
    .await;

    assert_eq!(run.tables().await, ". a");
}

/// The silent worker called last: whoever sweeps comes to the waiting one's lease first.
#[tokio::test]
async fn a_lease_is_held_while_one_of_its_calls_waits() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "lease_ms": 3_000 });
    let run = ledger.run(config).await;
    let [silent, beating, asking] = ["rollout-1", "rollout-2", "rollout-3"].map(|name| Worker::of(&run, name));
    let c = silent.gets(0, "c").await;
    let a = beating.gets(0, "a").await;
    let heartbeat = {
        let beating = beating.clone();
        tokio::spawn(async move { beating.heartbeat(json!({ "wait_ms": 60_000 })).await })
    };
    asking.gets(0, "b").await;
    let reserve = asking.waits_for_a_place(&ledger, 0, "d").await;
    until_somebody_waits(&ledger, &run, "cancelled").await;
    silent.heartbeat(json!({})).await.ok();

    until_expired(&run, &c).await;

    let answer = soon(reserve).await.ok();
    assert_eq!(answer["granted"][0]["prompt"], "d");
    assert_eq!(run.tables().await, "d a b");
    assert!(!heartbeat.is_finished());
    silent.discard(&a, "done").await.ok();
    assert_eq!(soon(heartbeat).await.ok()["cancelled"][0]["id"], json!(a));
}

#[tokio::test]
async fn any_number_of_servers_let_a_lease_run_out_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let _second = TestServer::start(&ledger.database.url()).await;
    let _third = TestServer::start(&ledger.database.url()).await;
    let config = json!({ "batch_size": 200, "max_staleness": 0, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.reserve(json!({ "version": 0, "count": 200 })).await.ok();

    eventually("all are freed", async || run.get("").await.ok()["reserved"] == 0).await;

    let totals = run.get("").await.ok()["totals"].clone();
    assert_eq!(totals["discarded"], json!({ "lease_expired": 200 }));
}

#[tokio::test]
async fn what_a_worker_does_not_list_was_abandoned_if_it_was_granted_more_than_a_lease_ago() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    // A moment ago: the answer with the grants may still be on its way.
    let just_granted = worker.heartbeat(json!({ "holding": [] })).await.ok();
    assert_eq!(just_granted["cancelled"], json!([]));
    assert_eq!(run.tables().await, ". . b a");

    run.patch("", json!({ "lease_ms": 1_000 })).await.ok();
    eventually("a was granted more than a lease ago", async || {
        worker.heartbeat(json!({ "holding": [b] })).await.ok();
        trajectory(&run, &a).await["state"] == "discarded"
    })
    .await;

    assert_eq!(trajectory(&run, &a).await["reason"], "abandoned");
    assert_eq!(worker.is_told().await, json!([[a, "abandoned"]]));
    assert_eq!(run.tables().await, ". . . b");
}

#[tokio::test]
async fn a_claim_is_a_grant_and_so_not_abandoned_at_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 3_000 });
    let run = ledger.run(config).await;
    let (worker, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);
    eventually("both were granted more than a lease ago", async || {
        worker.heartbeat(json!({ "holding": [a] })).await.ok();
        trajectory(&run, &b).await["reason"] == "abandoned"
    })
    .await;

    other.claim(&a).await.ok();
    other.heartbeat(json!({ "holding": [] })).await.ok();

    assert_eq!(run.tables().await, ". . . a");
}

#[tokio::test]
async fn what_was_abandoned_may_still_be_finished_late() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    eventually("a was granted more than a lease ago", async || {
        worker.heartbeat(json!({ "holding": [] })).await.ok();
        trajectory(&run, &a).await["reason"] == "abandoned"
    })
    .await;

    let place = worker.occupy(&a, json!({})).await.ok();

    assert_eq!(
        only(&place, &["state", "buffer", "slot", "late"]),
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "late": true })
    );
    assert_eq!(run.tables().await, "A .");
}
