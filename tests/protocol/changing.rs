//! What of a run may change (`PATCH`), and what may not.

use serde_json::{Value, json};

use crate::cast::{Worker, only, prompts, soon};
use crate::support::Ledger;

#[tokio::test]
async fn what_can_change_of_a_run_is_changed_and_the_rest_stays() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 1, "max_concurrency": 3 }))
        .await;
    let changed = async |changes: Value| {
        let status = run.patch("", changes).await.ok();
        only(&status["config"], &["lease_ms", "max_concurrency", "keep_batches"])
    };

    assert_eq!(
        changed(json!({ "lease_ms": 5_000, "keep_batches": 9 })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": 3, "keep_batches": 9 })
    );
    assert_eq!(
        changed(json!({ "max_concurrency": null })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": null, "keep_batches": 9 })
    );
    let seq = run.get("").await.seq();
    assert_eq!(
        changed(json!({ "lease_ms": 5_000 })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": null, "keep_batches": 9 })
    );
    assert_eq!(run.get("").await.seq(), seq, "nothing was changed");
    let next = run.reserve(0, "a").await.ok();
    assert_eq!(next["lease_expires_in_ms"], 5_000);
}

#[tokio::test]
async fn what_cannot_change_of_a_run_is_not_changed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let before = run.get("").await.ok();

    for (field, value) in [
        ("batch_size", json!(3)),
        ("max_staleness", json!(2)),
        ("slots_per_buffer", json!(3)),
        ("initial_version", json!(1)),
        ("lease_ms", json!(999)),
        ("lease_ms", json!(null)),
        ("max_concurrency", json!(0)),
        ("keep_batches", json!(0)),
        ("keep_batches", json!(null)),
        ("reservation_timeout_ms", json!(0)),
        ("stuck_timeout_ms", json!(0)),
        ("stuck_max_reserved", json!(0)),
        ("group_size", json!(2)),
        ("prompt_queue", json!(true)),
    ] {
        let refusal = run.patch("", json!({ field: value })).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], field);
    }

    assert_eq!(run.get("").await.ok(), before);
}

#[tokio::test]
async fn a_higher_limit_lets_those_who_wait_in() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 }))
        .await;
    run.reserve(0, "a").await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "b").await;

    run.patch("", json!({ "max_concurrency": 2 })).await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "b");
    assert_eq!(run.tables().await, "b a");
}
