//! *Checkpoint*: batches that a durable checkpoint covers are let go of.

use serde_json::{Value, json};

use crate::cast::{each, only, train_batches};
use crate::support::{Ledger, Run, Trainer, resume};

async fn kept(run: &Run) -> Value {
    let status = run.get("").await.ok();
    only(&status, &["kept_batches", "oldest_kept"])
}

#[tokio::test]
async fn a_checkpoint_lets_go_of_the_batches_below_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let trainer = Trainer::first(&run).await;
    assert_eq!(trainer.checkpoint(0).await.ok(), json!({ "oldest_kept": null }));
    train_batches(&run, &trainer, 0..4).await;
    assert_eq!(kept(&run).await, json!({ "kept_batches": 4, "oldest_kept": 0 }));

    assert_eq!(trainer.checkpoint(3).await.ok(), json!({ "oldest_kept": 3 }));

    assert_eq!(kept(&run).await, json!({ "kept_batches": 1, "oldest_kept": 3 }));
    run.get("batches/2").await.problem(410, "batch_pruned");
    run.get("batches/3").await.ok();
    for mode in ["replay", "rewind"] {
        let refused = resume(&run, "second", json!({ "resume_from": 2, "mode": mode })).await;
        refused.problem(410, "batch_pruned");
    }

    assert_eq!(trainer.checkpoint(4).await.ok(), json!({ "oldest_kept": null }));
    assert_eq!(kept(&run).await, json!({ "kept_batches": 0, "oldest_kept": null }));
    let next = Trainer::from(&run, "second", 4).await;
    assert_eq!(next.opened["epoch"], 2);
}

#[tokio::test]
async fn a_checkpoint_sent_again_or_late_lets_go_of_nothing_and_is_no_event() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let trainer = Trainer::first(&run).await;
    train_batches(&run, &trainer, 0..3).await;
    trainer.checkpoint(2).await.ok();

    for version in [2, 1, 0] {
        assert_eq!(trainer.checkpoint(version).await.ok(), json!({ "oldest_kept": 2 }));
    }

    let log = run.get("events?limit=1000").await.ok();
    let checkpoints = each(&log["events"]).filter(|event| event["type"] == "checkpoint");
    assert_eq!(checkpoints.count(), 1);
}

#[tokio::test]
async fn there_is_no_checkpoint_of_a_version_that_the_trainer_has_not_reached() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let trainer = Trainer::first(&run).await;
    train_batches(&run, &trainer, 0..3).await;

    trainer.checkpoint(4).await.problem(409, "version_not_published");
    // While batches are trained again, the trainer stands below what is published.
    let replaying = Trainer::from(&run, "second", 1).await;
    for version in [2, 3] {
        replaying
            .checkpoint(version)
            .await
            .problem(409, "version_not_published");
    }
    assert_eq!(replaying.checkpoint(1).await.ok(), json!({ "oldest_kept": 1 }));
    assert_eq!(replaying.is_given().await, "1: a1, replayed");
    replaying.publish(2).await.ok();
    assert_eq!(replaying.checkpoint(2).await.ok(), json!({ "oldest_kept": 2 }));
    assert_eq!(replaying.is_given().await, "2: a2, replayed");
}
