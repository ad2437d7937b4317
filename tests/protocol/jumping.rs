//! *Resume*, forced: the trainer's checkpoint is of a version that the database does not know, because it lost its newest writes.

use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, only, train_batches, trajectory};
use crate::journal::{is_lawful, is_sound};
use crate::support::{Ledger, Run, Trainer, resume};

/// `B = 1`, `η = 3`, version 2: Y is of version 2, z of version 0, x of version 1.
async fn at_version_2(ledger: &Ledger) -> (Run, Worker, String) {
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 3 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    let worker = Worker::of(&run, "rollout-1");
    let z = worker.gets(0, "z").await;
    worker.gets(1, "x").await;
    finish(&run, 2, "y").await;
    assert_eq!(run.tables().await, "Y | z | x | .");
    (run, worker, z)
}

async fn kept(run: &Run) -> Value {
    let page = run.get("batches").await.ok();
    each(&page["batches"]).map(|batch| batch["version"].clone()).collect()
}

#[tokio::test]
async fn a_checkpoint_that_the_database_does_not_know_is_refused_and_changes_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = at_version_2(&ledger).await;
    let before = run.get("").await;

    for (checkpoint, mode) in [(4, "replay"), (4, "rewind"), (3, "replay")] {
        let refused = resume(&run, "second", json!({ "resume_from": checkpoint, "mode": mode })).await;
        assert_eq!(refused.seq(), before.seq());
        assert_eq!(refused.problem(409, "ledger_behind")["policy_version"], 2);
    }

    assert_eq!(run.get("").await.ok(), before.ok());
    assert_eq!(run.tables().await, "Y | z | x | .");
    is_sound(&run).await;
}

#[tokio::test]
async fn forced_the_run_goes_on_from_the_checkpoint_with_what_is_not_too_stale() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, z) = at_version_2(&ledger).await;

    let trainer = Trainer::open(&run, "second", json!({ "resume_from": 4, "force": true })).await;

    assert_eq!(
        trainer.opened,
        json!({ "epoch": 2, "trainer_version": 4, "policy_version": 4, "lineage": 1, "weights": null })
    );
    // z could have been in buffer 3 at the latest.
    assert_eq!(run.tables().await, "x | Y | . | .");
    assert_eq!(trajectory(&run, &z).await["reason"], "too_stale");
    assert_eq!(worker.is_told().await, json!([[z, "too_stale"]]));
    let status = run.get("").await.ok();
    assert_eq!(
        only(&status, &["next_buffer", "kept_batches", "oldest_kept", "totals"]),
        json!({ "next_buffer": 4, "kept_batches": 2, "oldest_kept": 0,
                "totals": { "reserved": 5, "occupied": 3, "trained": 2, "discarded": { "too_stale": 1 }, "late": 0, "adopted": 0 } })
    );
    run.occupy("x").await.ok();
    assert_eq!(trainer.is_given().await, "4: x");
    trainer.publish(5).await.ok();
    assert_eq!(trainer.is_given().await, "5: y");
    is_sound(&run).await;
}

/// Both could have been in buffer 3, the last that is left for them; the finished one goes first.
#[tokio::test]
async fn entries_that_find_no_place_in_the_later_window_are_discarded_as_too_stale() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    let worker = Worker::of(&run, "rollout-1");
    let held = worker.gets(2, "x").await;
    finish(&run, 2, "y").await;
    assert_eq!(run.tables().await, "Y | x");

    Trainer::open(&run, "second", json!({ "resume_from": 3, "force": true })).await;

    assert_eq!(run.tables().await, "Y | .");
    assert_eq!(worker.is_told().await, json!([[held, "too_stale"]]));
    is_sound(&run).await;
}

#[tokio::test]
async fn the_numbers_that_were_jumped_over_never_were_batches() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = at_version_2(&ledger).await;
    let trainer = Trainer::open(&run, "second", json!({ "resume_from": 4, "force": true })).await;
    assert_eq!(kept(&run).await, json!([0, 1]));
    run.occupy("x").await.ok();
    trainer.trains(4).await;

    assert_eq!(kept(&run).await, json!([0, 1, 4]));
    for (batch, status) in [(0, 200), (1, 200), (2, 404), (3, 404), (4, 200), (5, 404)] {
        let answer = run.get(&format!("batches/{batch}")).await;
        assert_eq!(answer.status, status, "batch {batch}");
        if status == 404 {
            answer.problem(404, "unknown_batch");
        }
    }
    let page = run.get("batches?limit=2&after=0").await.ok();
    assert_eq!(page["next"], json!(null));
    // Nothing can be trained again across them.
    for (checkpoint, mode) in [(1, "replay"), (3, "replay"), (1, "rewind")] {
        let refused = resume(&run, "third", json!({ "resume_from": checkpoint, "mode": mode })).await;
        refused.problem(410, "batch_pruned");
    }
    assert_eq!(trainer.checkpoint(3).await.ok(), json!({ "oldest_kept": 4 }));
    assert_eq!(kept(&run).await, json!([4]));
    run.get("batches/1").await.problem(410, "batch_pruned");
    let again = Trainer::from(&run, "third", 4).await;
    assert_eq!(again.is_given().await, "4: x, replayed");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_rewind_into_the_gap_or_before_it_must_be_forced_and_forgets_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = at_version_2(&ledger).await;
    Trainer::open(&run, "second", json!({ "resume_from": 4, "force": true })).await;
    let rewind = |checkpoint: u64| json!({ "resume_from": checkpoint, "mode": "rewind", "force": true });

    let third = Trainer::open(&run, "third", rewind(3)).await;
    assert_eq!(third.opened["lineage"], 2);
    assert_eq!(run.tables().await, "Y | x | . | .");
    assert_eq!(kept(&run).await, json!([0, 1]));
    run.get("batches/2").await.problem(404, "unknown_batch");

    let fourth = Trainer::open(&run, "fourth", rewind(1)).await;
    assert_eq!(
        only(&fourth.opened, &["policy_version", "lineage", "weights"]),
        json!({ "policy_version": 1, "lineage": 3, "weights": "file:///step-1" })
    );
    // Batch 1 comes back; y was generated by version 2.
    assert_eq!(run.tables().await, "A1 | . | . | x");
    assert_eq!(kept(&run).await, json!([0]));
    assert_eq!(fourth.is_given().await, "1: a1");
    is_sound(&run).await;
}

/// It may have been the ledger's version 3 once; the one that is published now is another one.
#[tokio::test]
async fn the_weights_of_the_versions_above_are_abandoned() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, _) = at_version_2(&ledger).await;

    Trainer::open(&run, "second", json!({ "resume_from": 4, "force": true })).await;

    let of = |version: u64, lineage: u64| json!({ "version": version, "lineage": lineage });
    worker.reserve(of(5, 0)).await.problem(409, "version_not_published");
    worker
        .reserve(json!({ "version": 4 }))
        .await
        .problem(409, "version_not_published");
    worker.reserve(of(4, 1)).await.ok();
    worker.reserve(of(2, 0)).await.ok();
    is_lawful(&run).await;
}
