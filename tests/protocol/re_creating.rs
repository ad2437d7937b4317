//! A run that is deleted and created again under its name, while the processes of the old one still call.

use serde_json::json;

use crate::cast::{Worker, finish, only, soon, train_batches, until_somebody_waits};
use crate::journal::{is_lawful, is_sound};
use crate::support::{Ledger, Run, Trainer, resume};

/// A run that had two trainers and a rewind, and was deleted and created again.
async fn created_again(ledger: &Ledger) -> (Run, Trainer, u64) {
    let config = json!({ "batch_size": 1, "max_staleness": 1 });
    let run = ledger.run(config.clone()).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    let old = Trainer::rewinding(&run, "second", 1).await;
    let seq = run.delete().await.seq();
    run.put("", config).await.status(201);
    (run, old, seq)
}

#[tokio::test]
async fn its_sequence_epoch_and_lineage_go_on() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, seq) = created_again(&ledger).await;

    let status = run.get("").await;

    assert_eq!(status.seq(), seq + 1);
    assert_eq!(
        only(
            &status.ok(),
            &["policy_version", "lineage", "trainer_version", "trainer"]
        ),
        json!({ "policy_version": 0, "lineage": 2, "trainer_version": 0,
                "trainer": { "name": null, "epoch": 2, "state": "never_seen", "since_at_ms": null, "last_call_at_ms": null } })
    );
    let log = run.get("events").await.ok();
    assert_eq!(
        only(&log["events"][0], &["seq", "type", "epoch", "lineage"]),
        json!({ "seq": seq + 1, "type": "run_created", "epoch": 2, "lineage": 2 })
    );
    let trainer = Trainer::first(&run).await;
    assert_eq!(
        trainer.opened,
        json!({ "epoch": 3, "trainer_version": 0, "policy_version": 0, "lineage": 2, "weights": null })
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn its_old_trainer_is_fenced_before_and_after_a_new_one_opened() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, old, _) = created_again(&ledger).await;
    let is_fenced = async || {
        for refused in [
            old.take().await,
            old.publish(1).await,
            old.checkpoint(0).await,
            run.take().await,
        ] {
            refused.problem(409, "fenced");
        }
    };

    is_fenced().await;
    Trainer::open(&run, "new", json!({})).await;
    is_fenced().await;
    is_sound(&run).await;
}

/// A new process may take its place; the checkpoint of the old run is of another history.
#[tokio::test]
async fn its_old_checkpoint_is_not_known() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = created_again(&ledger).await;

    let refused = resume(&run, "new", json!({ "resume_from": 1 })).await;

    refused.problem(409, "ledger_behind");
    is_sound(&run).await;
}

#[tokio::test]
async fn the_weights_of_its_old_workers_are_refused_until_they_name_the_new_lineage() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = created_again(&ledger).await;
    let old = Worker::of(&run, "rollout-0");
    let of = |version: u64, lineage: u64| json!({ "version": version, "lineage": lineage });

    for lineage in [0, 1] {
        old.reserve(of(0, lineage)).await.problem(409, "version_not_published");
        let beat = old.heartbeat(of(0, lineage)).await.ok();
        assert_eq!(
            only(&beat, &["policy_version", "lineage", "cancelled"]),
            json!({ "policy_version": 0, "lineage": 2, "cancelled": [] })
        );
    }
    // What it said in a heartbeat was not taken down.
    old.reserve(json!({})).await.problem(400, "invalid_request");
    assert_eq!(run.tables().await, ". | .");

    old.reserve(of(0, 2)).await.ok();
    old.reserve(json!({})).await.ok();
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_its_old_workers_hold_is_unknown() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1 });
    let run = ledger.run(config.clone()).await;
    let worker = Worker::of(&run, "rollout-1");
    let id = worker.gets(0, "a").await;
    run.delete().await.status(204);
    run.put("", config).await.status(201);

    worker.occupy(&id, json!({})).await.problem(404, "unknown_trajectory");
    is_sound(&run).await;
}

#[tokio::test]
async fn who_waits_for_a_version_of_the_old_run_is_told_that_it_is_gone() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1 });
    let run = ledger.run(config).await;
    finish(&run, 0, "a").await;
    let call = {
        let run = run.clone();
        tokio::spawn(async move { run.get("versions/latest?after=0&lineage=0&wait_ms=60000").await })
    };
    until_somebody_waits(&ledger, &run, "version").await;

    run.delete().await.status(204);

    soon(call).await.problem(404, "unknown_run");
}

#[tokio::test]
async fn a_process_of_the_old_run_must_name_the_new_lineage_and_a_new_one_need_not() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1 });
    let run = ledger.run(config.clone()).await;
    let old = Worker::of(&run, "rollout-1");
    old.gets(0, "a").await;
    let tokenless = json!({ "worker": "rollout-2", "version": 0 });
    run.post("reservations", tokenless.clone()).await.ok();
    run.delete().await.status(204);
    run.put("", config).await.status(201);

    let refused = old.reserve(json!({ "version": 0 })).await;
    refused.problem(409, "version_not_published");
    assert_eq!(run.tables().await, ". . | . .");

    old.reserve(json!({ "version": 0, "lineage": 1, "prompts": ["b"] }))
        .await
        .ok();
    old.restarted().gets(0, "c").await;
    // One that sends no token cannot be told from its successor.
    run.post("reservations", tokenless).await.ok();
    // And who was fenced before stays so.
    old.reserve(json!({ "version": 0 })).await.problem(409, "fenced");
}
