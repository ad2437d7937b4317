//! *Reserve*: a group counts its unfinished candidates against `max_concurrency`, and is admitted when all of them fit.

use serde_json::json;

use crate::cast::{Worker, soon};
use crate::support::Ledger;

#[tokio::test]
async fn a_group_is_admitted_when_all_its_candidates_fit() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 4, "max_staleness": 0, "group_size": 2, "group_candidates": 3, "max_concurrency": 7 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");

    let answer = worker
        .reserve(json!({ "version": 0, "prompts": ["a", "b", "c"] }))
        .await
        .ok();

    assert_eq!(answer["granted"].as_array().map(Vec::len), Some(2));
    assert_eq!(answer["blocked_by"], "concurrency");
    let status = run.get("").await.ok();
    assert_eq!((&status["reserved"], &status["generating"]), (&json!(2), &json!(6)));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn each_member_that_ends_makes_room_and_wakes_who_waits() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 4, "max_staleness": 0, "group_size": 2, "group_candidates": 3, "max_concurrency": 4 });
    let run = ledger.run(config).await;
    let (worker, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = worker.gets(0, "a").await;
    let waiting = other.waits_for_a_place(&ledger, 0, "b").await;

    worker.member(&a, 0, json!({ "failed": true })).await.ok();
    assert!(!waiting.is_finished(), "one of two that are needed");
    worker.member(&a, 1, json!({ "reward": 1.0 })).await.ok();

    let granted = soon(waiting).await.ok();
    assert_eq!(granted["granted"][0]["prompt"], "b");
    assert_eq!(run.get("").await.ok()["generating"], 4);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn what_leaves_the_tables_is_not_generating_any_more() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b, c] = [
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    ];
    let generating = async || run.get("").await.ok()["generating"].clone();
    assert_eq!(generating().await, 9);

    worker.member(&a, 0, json!({})).await.ok();
    worker.discard(&a, "failed").await.ok();
    assert_eq!(generating().await, 6);
    worker.finishes(&b, 0..2).await;
    assert_eq!(generating().await, 3);
    worker.discard(&b, "filtered").await.ok();
    assert_eq!(generating().await, 3);
    worker.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(generating().await, 0);
    assert_eq!(crate::cast::trajectory(&run, &c).await["reason"], "worker_restarted");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_concurrency_in_which_no_group_fits_is_an_invalid_request() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3, "max_concurrency": 6 });
    let run = ledger.run(config).await;

    let refused = run
        .patch("", json!({ "max_concurrency": 2 }))
        .await
        .problem(400, "invalid_request");

    assert_eq!(refused["field"], "max_concurrency");
    assert_eq!(run.get("").await.ok()["config"]["max_concurrency"], 6);
    let changed = run.patch("", json!({ "max_concurrency": 3 })).await.ok();
    assert_eq!(changed["config"]["max_concurrency"], 3);
    crate::journal::is_sound(&run).await;
}
