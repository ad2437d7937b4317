//! The distribution: what was trained, filtered and discarded, so that a bias to short samples can be seen.

use serde_json::{Value, json};

use crate::cast::{Worker, each, only, until_expired};
use crate::support::{Ledger, Run, TestServer, Trainer, eventually};

async fn distribution(run: &Run) -> Value {
    run.get("distribution").await.ok()
}

/// Reserves and finishes an entry of each length, under `version`; returns the ids.
async fn finish(worker: &Worker, version: u64, lengths: &[u64]) -> Vec<String> {
    let mut ids = Vec::new();
    for tokens in lengths {
        let id = worker.gets(version, &tokens.to_string()).await;
        worker.occupy(&id, json!({ "tokens": tokens })).await.ok();
        ids.push(id);
    }
    ids
}

/// `entries` and `mean_tokens` of a share.
fn counted(share: &Value) -> Value {
    json!([share["entries"], share["mean_tokens"]])
}

/// `[up_to_tokens, trained, filtered, discarded]` of each quarter.
fn quarters(distribution: &Value) -> Value {
    each(&distribution["quarters"])
        .map(|quarter| {
            let entries = |share: &str| quarter[share]["entries"].clone();
            json!([
                quarter["up_to_tokens"],
                entries("trained"),
                entries("filtered"),
                entries("discarded")
            ])
        })
        .collect()
}

/// Two short entries are trained at once; of two long ones one is filtered, one waits; one more is given up.
#[tokio::test]
async fn what_became_of_the_entries_is_told_by_quarters_of_their_lengths() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let ids = finish(&worker, 0, &[10, 20, 3_000, 4_095]).await;
    run.take().await.ok();
    worker.discard(&ids[2], "no_gradient").await.ok();
    let given_up = worker.gets(0, "x").await;
    worker.discard(&given_up, "failed").await.ok();

    let shown = distribution(&run).await;

    // A boundary is exact to a sixteenth.
    assert_eq!(
        quarters(&shown),
        json!([[10, 1, 0, 0], [20, 1, 0, 0], [3_071, 0, 1, 0], [4_095, 0, 0, 0]])
    );
    assert_eq!(counted(&shown["admitted"]), json!([5, 1_781.25]));
    assert_eq!(counted(&shown["finished"]), json!([4, 1_781.25]));
    assert_eq!(counted(&shown["trained"]), json!([2, 15.0]));
    assert_eq!(counted(&shown["filtered"]), json!([1, 3_000.0]));
    assert_eq!(counted(&shown["discarded"]), json!([1, null]));
    assert_eq!(counted(&shown["by_reason"]["no_gradient"]), json!([1, 3_000.0]));
    assert_eq!(counted(&shown["by_reason"]["failed"]), json!([1, null]));
    assert_eq!(
        only(&shown["filtered"], &["mean_staleness"]),
        json!({ "mean_staleness": 1.0 })
    );
    let waited = &shown["trained"]["mean_queued_ms"];
    assert!(waited.as_f64().is_some_and(|ms| ms >= 0.0), "{shown:#}");
    assert_eq!(shown["by_reason"]["failed"]["mean_queued_ms"], json!(null));
}

#[tokio::test]
async fn a_run_in_which_nothing_happened_has_no_quarters_and_no_means() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let none = json!({ "entries": 0, "mean_tokens": null, "mean_staleness": null, "mean_queued_ms": null });

    assert_eq!(
        distribution(&run).await,
        json!({ "quarters": [], "admitted": none, "finished": none, "trained": none, "filtered": none, "discarded": none,
                "by_reason": {} })
    );
}

/// Batches are forgotten in the background; what was trained stays trained, and every server says the same of it.
#[tokio::test]
async fn forgetting_batches_changes_nothing_of_what_was_trained() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let other = TestServer::start(&ledger.database.url()).await;
    let elsewhere = run.through(&other.client());
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    for version in 0..4 {
        finish(&worker, version, &[100 * (version + 1), 1_000]).await;
        trainer.trains(version).await;
    }
    let before = distribution(&run).await;
    assert_eq!(counted(&before["trained"]), json!([8, 625.0]));
    assert_eq!(distribution(&elsewhere).await, before);

    trainer.checkpoint(3).await.ok();
    eventually("three batches are forgotten", async || {
        let log = run.get("events?limit=1000").await.ok();
        each(&log["events"]).filter(|event| event["type"] == "prune").count() == 3
    })
    .await;

    assert_eq!(distribution(&run).await, before);
    assert_eq!(distribution(&elsewhere).await, before);
}

#[tokio::test]
async fn a_rewind_takes_back_what_it_gives_back_to_the_tables() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    for version in 0..3 {
        finish(&worker, version, &[100 * (version + 1)]).await;
        trainer.trains(version).await;
    }
    assert_eq!(counted(&distribution(&run).await["trained"]), json!([3, 200.0]));

    // What version 2 generated is of abandoned weights; what version 1 generated waits again.
    let trainer = Trainer::rewinding(&run, "second", 1).await;

    let shown = distribution(&run).await;
    assert_eq!(counted(&shown["trained"]), json!([1, 100.0]));
    assert_eq!(counted(&shown["by_reason"]["rewound"]), json!([1, 300.0]));
    assert_eq!(counted(&shown["discarded"]), json!([1, 300.0]));
    assert_eq!(counted(&shown["finished"]), json!([3, 200.0]));
    assert_eq!(
        quarters(&shown),
        json!([[103, 1, 0, 0], [207, 0, 0, 0], [303, 0, 0, 1], [303, 0, 0, 0]])
    );

    trainer.trains(1).await;
    assert_eq!(counted(&distribution(&run).await["trained"]), json!([2, 150.0]));
}

/// It was discarded, and then saved: both happened.
#[tokio::test]
async fn a_late_occupy_counts_as_admitted_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let id = worker.gets(0, "a").await;
    until_expired(&run, &id).await;
    worker.occupy(&id, json!({ "tokens": 7 })).await.ok();
    run.take().await.ok();

    let shown = distribution(&run).await;

    assert_eq!(shown["admitted"]["entries"], 2);
    assert_eq!(counted(&shown["by_reason"]["lease_expired"]), json!([1, null]));
    assert_eq!(counted(&shown["trained"]), json!([1, 7.0]));
}
