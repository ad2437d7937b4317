//! Worker processes that are killed while they hold reservations.

use serde_json::json;

use crate::auditing::audit;
use crate::clients::ids;
use crate::support::{Ledger, Run, eventually};
use crate::worker_process::WorkerProcess;

/// Waits until the run has discarded so many entries for this reason, and no other.
async fn discarded(run: &Run, reason: &str, count: usize) {
    eventually(reason, async || {
        run.get("").await.ok()["totals"]["discarded"] == json!({ reason: count })
    })
    .await;
}

#[tokio::test]
async fn what_a_killed_worker_held_is_free_after_its_lease_and_the_trainer_goes_on() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 }))
        .await;
    let reserve = json!({ "worker": "victim", "session": "only", "version": 0, "count": 2 });
    let victim = WorkerProcess::start(&run, &reserve).await;
    let trainer = {
        let run = run.clone();
        tokio::spawn(async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await.ok() })
    };

    victim.kill().await;
    let mut spared = Vec::new();
    while spared.len() < 2 {
        let reserve = json!({ "worker": "spared", "version": 0, "count": 2, "wait_ms": 60_000 });
        let answer = run.post("reservations", reserve).await.ok();
        spared.extend(ids(&answer["granted"]));
    }
    for id in &spared {
        run.post(&format!("trajectories/{id}/occupy"), json!({})).await.ok();
    }

    let mut batch = ids(&trainer.await.expect("the trainer")["batch"]["trajectories"]);
    batch.sort();
    spared.sort();
    assert_eq!(batch, spared);
    assert_eq!(audit(&run).await.discarded, [("lease_expired".to_owned(), 2)].into());
}

#[tokio::test]
async fn what_a_killed_worker_finished_too_late_is_kept_where_there_is_a_legal_slot_and_refused_where_not() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 }))
        .await;
    let reserve = json!({ "worker": "victim", "session": "only", "version": 0, "prompts": ["a", "b"] });
    let victim = WorkerProcess::start(&run, &reserve).await;
    let [a, b] = &victim.granted.clone()[..] else {
        panic!("two grants")
    };
    victim.kill().await;
    discarded(&run, "lease_expired", 2).await;
    // A lease of its own, which must not run out: the calls that follow hold it.
    run.patch("", json!({ "lease_ms": 3_600_000 })).await.ok();
    run.reserve(0, "x").await.ok();
    assert_eq!(run.tables().await, ". x");

    let late = json!({ "worker": "victim", "session": "only" });
    let kept = run.post(&format!("trajectories/{a}/occupy"), late.clone()).await.ok();
    let refused = run.post(&format!("trajectories/{b}/occupy"), late.clone()).await;

    assert_eq!(
        kept,
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "stuck", "late": true })
    );
    let refused = refused.problem(409, "trajectory_discarded");
    assert_eq!(refused["reason"], "lease_expired");
    assert_eq!(run.tables().await, "A x");
    assert_eq!(
        run.post(&format!("trajectories/{a}/occupy"), late).await.ok(),
        kept,
        "and again"
    );
    let report = audit(&run).await;
    assert_eq!((report.reserved, report.occupied, report.late), (3, 1, 1));
}

#[tokio::test]
async fn a_killed_worker_that_restarts_under_its_name_has_its_places_free_at_once_and_its_zombie_is_fenced() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 3_600_000 }))
        .await;
    let reserve =
        |session, prompts: [_; 2]| json!({ "worker": "w", "session": session, "version": 0, "prompts": prompts });
    let victim = WorkerProcess::start(&run, &reserve("first", ["a", "b"])).await;
    let lost = victim.granted.clone();
    victim.kill().await;

    let successor = WorkerProcess::start(&run, &reserve("second", ["c", "d"])).await;

    assert_eq!(successor.granted.len(), 2);
    assert_eq!(run.tables().await, "d c");
    let zombie = json!({ "worker": "w", "session": "first" });
    let occupy = format!("trajectories/{}/occupy", lost[0]);
    run.post(&occupy, zombie.clone()).await.problem(409, "fenced");
    run.post("workers/w/heartbeat", json!({ "session": "first" }))
        .await
        .problem(409, "fenced");
    run.post("reservations", reserve("first", ["e", "f"]))
        .await
        .problem(409, "fenced");
    // Whoever speaks for it: the entry is gone, and for this reason it does not come back.
    let refused = run.post(&occupy, json!({})).await.problem(409, "trajectory_discarded");
    assert_eq!(refused["reason"], "worker_restarted");
    assert_eq!(run.tables().await, "d c");
    discarded(&run, "worker_restarted", 2).await;
    audit(&run).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_while_it_waits_for_a_place_leaves_nothing_reserved() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 3_600_000 }))
        .await;
    run.reserve(0, "a").await.ok();
    let reserve = json!({ "worker": "victim", "session": "only", "version": 0, "wait_ms": 60_000 });
    let victim = WorkerProcess::order(&run, &reserve);
    eventually("the victim waits", async || {
        let workers = run.get("workers").await.ok();
        workers["workers"].as_array().is_some_and(|workers| workers.len() == 2)
    })
    .await;

    victim.kill().await;
    run.discard("a", "failed").await.ok();
    let reserve = json!({ "worker": "spared", "version": 0, "prompts": ["b"], "wait_ms": 60_000 });
    let answer = run.post("reservations", reserve).await.ok();

    assert_eq!(answer["granted"][0]["prompt"], "b");
    assert_eq!(run.tables().await, "b");
    audit(&run).await;
}
