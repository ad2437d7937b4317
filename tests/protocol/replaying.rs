//! *Resume* from an older checkpoint in mode `replay`: the kept batches are trained again, and nothing else changes.

use serde_json::{Value, json};

use crate::cast::{each, finish, only, train_batches};
use crate::journal::is_sound;
use crate::support::{Ledger, Response, Run, Trainer, resume};

/// `[policy_version, trainer_version, next_buffer]`
async fn versions(run: &Run) -> Value {
    let status = run.get("").await.ok();
    json!([
        status["policy_version"],
        status["trainer_version"],
        status["next_buffer"]
    ])
}

fn expected(refusal: Response) -> Value {
    refusal.problem(409, "publish_out_of_order")["expected"].clone()
}

#[tokio::test]
async fn a_replay_of_five_batches_that_is_killed_twice_gives_each_of_them_as_it_was() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..5).await;
    let batches = async || {
        let mut batches = Vec::new();
        for version in 0..5 {
            batches.push(run.get(&format!("batches/{version}")).await.ok()["trajectories"].clone());
        }
        batches
    };
    let as_they_were = batches().await;

    let killed = Trainer::from(&run, "second", 0).await;
    for (version, given) in [(0, "0: a0 b0, replayed"), (1, "1: a1 b1, replayed")] {
        assert_eq!(killed.is_given().await, given);
        killed.publish(version + 1).await.ok();
    }
    assert_eq!(killed.is_given().await, "2: a2 b2, replayed");
    assert_eq!(versions(&run).await, json!([5, 2, 5]));

    // Its last checkpoint was of version 1.
    let killed_too = Trainer::from(&run, "third", 1).await;
    for version in 1..4 {
        let given = format!("{version}: a{version} b{version}, replayed");
        assert_eq!(killed_too.is_given().await, given);
        killed_too.publish(version + 1).await.ok();
    }
    assert_eq!(versions(&run).await, json!([5, 4, 5]));

    let last = Trainer::from(&run, "fourth", 0).await;
    for (version, as_it_was) in (0..5).zip(&as_they_were) {
        let batch = last.take().await.ok()["batch"].clone();
        assert_eq!(batch["version"], version);
        assert_eq!(batch["trajectories"], *as_it_was);
        assert_eq!(
            last.publish(version + 1).await.ok(),
            json!({ "policy_version": 5, "trainer_version": version + 1, "lineage": 0 })
        );
    }
    assert_eq!(last.is_given().await, "nothing");
    assert_eq!(batches().await, as_they_were);
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 10);
    is_sound(&run).await;
}

#[tokio::test]
async fn a_batch_that_is_replayed_is_redelivered_when_it_is_asked_for_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    let trainer = Trainer::from(&run, "second", 0).await;

    assert_eq!(trainer.is_given().await, "0: a0, replayed");
    let seq = run.get("").await.seq();
    assert_eq!(trainer.is_given().await, "0: a0, replayed, redelivered");
    assert_eq!(run.get("").await.seq(), seq);
    // To the next session it is new.
    let next = Trainer::from(&run, "third", 0).await;
    assert_eq!(next.is_given().await, "0: a0, replayed");
    is_sound(&run).await;
}

#[tokio::test]
async fn rollout_goes_on_with_the_newest_weights_while_the_trainer_catches_up() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    run.reserve(2, "held").await.ok();
    let trainer = Trainer::from(&run, "second", 0).await;
    assert_eq!(
        only(
            &run.get("versions/latest").await.ok(),
            &["policy_version", "lineage", "weights"]
        ),
        json!({ "policy_version": 2, "lineage": 0, "weights": "file:///step-2" })
    );

    assert_eq!(trainer.is_given().await, "0: a0, replayed");
    finish(&run, 2, "x").await;
    assert_eq!(run.tables().await, "X | held");
    trainer.publish(1).await.ok();
    // What is ready waits until its turn has come.
    assert_eq!(trainer.is_given().await, "1: a1, replayed");
    trainer.publish(2).await.ok();
    assert_eq!(run.tables().await, "X | held");

    assert_eq!(trainer.is_given().await, "2: x");
    trainer.publish(3).await.ok();
    assert_eq!(versions(&run).await, json!([3, 3, 3]));
    is_sound(&run).await;
}

#[tokio::test]
async fn in_a_replay_too_a_version_is_published_only_when_its_batch_was_delivered_in_this_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let first = Trainer::first(&run).await;
    train_batches(&run, &first, 0..3).await;
    let trainer = Trainer::from(&run, "second", 0).await;

    assert_eq!(expected(trainer.publish(1).await), 1);
    trainer.take().await.ok();
    assert_eq!(expected(trainer.publish(2).await), 1);
    trainer.publish(1).await.ok();
    assert_eq!(expected(trainer.publish(2).await), 2);
    assert_eq!(expected(trainer.publish(3).await), 2);
    // What it is past stays published.
    let seq = run.get("").await.seq();
    assert_eq!(trainer.publish(1).await.seq(), seq);

    assert_eq!(versions(&run).await, json!([3, 1, 3]));
    is_sound(&run).await;
}

/// Workers may hold them already: another file under the same version would be another policy.
#[tokio::test]
async fn the_references_of_weights_that_are_trained_again_stay() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let first = Trainer::first(&run).await;
    finish(&run, 0, "a").await;
    first.trains(0).await;
    let trainer = Trainer::from(&run, "second", 0).await;
    trainer.take().await.ok();

    let again = trainer.says(json!({ "version": 1, "weights": "file:///again" }));
    run.post("versions", again).await.ok();

    assert_eq!(run.get("versions/latest").await.ok()["weights"], "file:///step-1");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_batch_that_is_to_be_trained_again_stays_however_few_are_to_be_kept() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "keep_batches": 2 }))
        .await;
    train_batches(&run, &Trainer::first(&run).await, 0..4).await;
    let kept = async || {
        let page = run.get("batches").await.ok();
        each(&page["batches"])
            .map(|batch| batch["version"].clone())
            .collect::<Value>()
    };
    assert_eq!(kept().await, json!([2, 3]));
    for force in [false, true] {
        let refused = resume(&run, "second", json!({ "resume_from": 1, "force": force })).await;
        refused.problem(410, "batch_pruned");
    }

    let trainer = Trainer::from(&run, "second", 2).await;
    run.patch("", json!({ "keep_batches": 1 })).await.ok();

    assert_eq!(trainer.opened["epoch"], 2, "a refused one has no epoch");
    assert_eq!(kept().await, json!([2, 3]));
    assert_eq!(trainer.is_given().await, "2: a2, replayed");
    trainer.publish(3).await.ok();
    assert_eq!(kept().await, json!([3]));
    assert_eq!(trainer.is_given().await, "3: a3, replayed");
    is_sound(&run).await;
}
