//! *The trainer*: sessions, epochs, and a trainer that is killed at any point.

use serde_json::json;
use tokio::task::JoinSet;

use crate::cast::{finish, only, soon, train_batches, until_somebody_waits};
use crate::support::{Ledger, Response, Run, TestServer, Trainer, resume};

/// A run of batches of two, and its first trainer.
async fn begin(ledger: &Ledger) -> (Run, Trainer) {
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let trainer = Trainer::first(&run).await;
    (run, trainer)
}

/// Take, publish and checkpoint, with what `body` says beside.
async fn calls(run: &Run, epoch: Option<u64>) -> [Response; 3] {
    let with = |mut body: serde_json::Value| {
        if let Some(epoch) = epoch {
            body["epoch"] = json!(epoch);
        }
        body
    };
    [
        run.post("batches/next", with(json!({}))).await,
        run.post("versions", with(json!({ "version": 0 }))).await,
        run.post("checkpoints", with(json!({ "version": 0 }))).await,
    ]
}

#[tokio::test]
async fn the_first_trainer_needs_no_checkpoint() {
    let Some(ledger) = Ledger::start().await else { return };

    let (run, trainer) = begin(&ledger).await;

    assert_eq!(
        trainer.opened,
        json!({ "epoch": 1, "trainer_version": 0, "policy_version": 0, "lineage": 0, "weights": null })
    );
    assert_eq!(
        only(&run.get("").await.ok()["trainer"], &["name", "epoch"]),
        json!({ "name": "t0", "epoch": 1 })
    );
    let second = Trainer::open(&run, "second", json!({})).await;
    assert_eq!(second.opened["epoch"], 2);
}

#[tokio::test]
async fn once_a_version_was_published_a_trainer_must_say_what_it_goes_on_from() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer) = begin(&ledger).await;
    train_batches(&run, &trainer, 0..1).await;
    let seq = run.get("").await.seq();

    let refused = resume(&run, "second", json!({})).await;

    assert_eq!(refused.seq(), seq);
    assert_eq!(refused.problem(400, "invalid_request")["field"], "resume_from");
    let second = Trainer::from(&run, "second", 1).await;
    assert_eq!(
        second.opened,
        json!({ "epoch": 2, "trainer_version": 1, "policy_version": 1, "lineage": 0, "weights": "file:///step-1" })
    );
}

/// Also through another server, and with another body: the token is what counts.
#[tokio::test]
async fn the_same_session_sent_again_gets_its_first_answer_and_opens_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer) = begin(&ledger).await;
    let other = TestServer::start(&ledger.database.url()).await;
    train_batches(&run, &trainer, 0..2).await;
    let seq = run.get("").await.seq();

    for run in [&run, &run.through(&other.client())] {
        for body in [json!({}), json!({ "resume_from": 0, "mode": "rewind" })] {
            let again = resume(run, "first", body).await;
            assert_eq!(again.seq(), seq);
            assert_eq!(again.ok(), trainer.opened);
        }
    }
    train_batches(&run, &trainer, 2..3).await;
}

#[tokio::test]
async fn a_session_that_a_newer_one_replaced_is_fenced_when_it_is_sent_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _) = begin(&ledger).await;
    let second = Trainer::from(&run, "second", 0).await;
    let seq = run.get("").await.seq();

    let zombie = resume(&run, "first", json!({ "resume_from": 0 })).await;

    assert_eq!(zombie.seq(), seq);
    zombie.problem(409, "fenced");
    assert_eq!(
        resume(&run, "second", json!({ "resume_from": 0 })).await.ok(),
        second.opened
    );
}

#[tokio::test]
async fn a_trainer_that_was_replaced_can_neither_take_nor_publish_nor_let_go_of_batches() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, zombie) = begin(&ledger).await;
    finish(&run, 0, "a b").await;
    zombie.take().await.ok();
    let trainer = Trainer::from(&run, "second", 0).await;
    let seq = run.get("").await.seq();

    for refused in [zombie.take().await, zombie.publish(1).await, zombie.checkpoint(0).await] {
        assert_eq!(refused.seq(), seq);
        refused.problem(409, "fenced");
    }

    assert_eq!(trainer.is_given().await, "0: a b, redelivered");
    trainer.publish(1).await.ok();
}

#[tokio::test]
async fn a_take_that_waits_is_fenced_when_a_new_session_opens() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, zombie) = begin(&ledger).await;
    let call = {
        let (run, body) = (run.clone(), zombie.says(json!({ "wait_ms": 60_000 })));
        tokio::spawn(async move { run.post("batches/next", body).await })
    };
    until_somebody_waits(&ledger, &run, "batch").await;

    let trainer = Trainer::from(&run, "second", 0).await;

    soon(call).await.problem(409, "fenced");
    finish(&run, 0, "a b").await;
    assert_eq!(trainer.is_given().await, "0: a b");
}

#[tokio::test]
async fn calls_need_an_epoch_once_there_was_a_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    for epoch in [None, Some(0)] {
        for answer in calls(&run, epoch).await {
            answer.ok();
        }
    }

    Trainer::first(&run).await;

    for epoch in [None, Some(0)] {
        for refused in calls(&run, epoch).await {
            refused.problem(409, "fenced");
        }
    }
    for answer in calls(&run, Some(1)).await {
        answer.ok();
    }
}

#[tokio::test]
async fn an_epoch_above_the_runs_says_that_the_database_lost_a_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer) = begin(&ledger).await;
    let seq = run.get("").await.seq();

    for refused in calls(&run, Some(2)).await {
        assert_eq!(refused.seq(), seq);
        refused.problem(409, "ledger_behind");
    }

    // Whoever said it may be mistaken: nobody else is concerned.
    assert_eq!(trainer.is_given().await, "nothing");
}

#[tokio::test]
async fn of_trainers_that_start_at_once_each_has_its_epoch_and_the_last_one_trains() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let other = TestServer::start(&ledger.database.url()).await;
    finish(&run, 0, "a").await;
    let servers = [run.clone(), run.through(&other.client())];

    let mut starts = JoinSet::new();
    for number in 0..10 {
        let run = servers[number % 2].clone();
        starts.spawn(async move { Trainer::open(&run, &format!("s{number}"), json!({ "resume_from": 0 })).await });
    }
    let mut trainers = starts.join_all().await;

    trainers.sort_by_key(|trainer| trainer.opened["epoch"].as_u64());
    let epochs: Vec<_> = trainers.iter().map(|trainer| trainer.opened["epoch"].clone()).collect();
    assert_eq!(epochs, (1..=10).map(|epoch| json!(epoch)).collect::<Vec<_>>());
    let last = trainers.pop().expect("a trainer");
    for zombie in trainers {
        zombie.take().await.problem(409, "fenced");
    }
    assert_eq!(last.is_given().await, "0: a");
}

#[tokio::test]
async fn a_session_sent_ten_times_at_once_over_two_servers_opens_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let other = TestServer::start(&ledger.database.url()).await;
    let servers = [run.clone(), run.through(&other.client())];

    let mut starts = JoinSet::new();
    for number in 0..10 {
        let run = servers[number % 2].clone();
        starts.spawn(async move { resume(&run, "only", json!({})).await.ok() });
    }
    let answers = starts.join_all().await;

    assert_eq!(answers[0]["epoch"], 1);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert_eq!(run.get("").await.ok()["seq"], 2);
}

#[tokio::test]
async fn a_trainer_killed_before_it_took_a_batch_is_followed_by_one_that_takes_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _killed) = begin(&ledger).await;
    finish(&run, 0, "a b").await;

    let trainer = Trainer::from(&run, "second", 0).await;

    assert_eq!(trainer.is_given().await, "0: a b");
}

#[tokio::test]
async fn a_trainer_killed_after_it_took_a_batch_is_followed_by_one_that_gets_the_same() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, killed) = begin(&ledger).await;
    finish(&run, 0, "a b c d").await;
    let taken = killed.take().await.ok()["batch"]["trajectories"].clone();

    let trainer = Trainer::from(&run, "second", 0).await;
    let expected = trainer.publish(1).await.problem(409, "publish_out_of_order")["expected"].clone();
    let again = trainer.take().await.ok()["batch"].clone();

    assert_eq!(expected, 1, "not before the batch was delivered to this trainer");
    assert_eq!(again["trajectories"], taken);
    assert_eq!(
        only(&again, &["version", "redelivered", "replayed", "complete"]),
        json!({ "version": 0, "redelivered": true, "replayed": false, "complete": true })
    );
    trainer.publish(1).await.ok();
    assert_eq!(trainer.is_given().await, "1: c d");
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 4);
}

#[tokio::test]
async fn a_trainer_killed_after_it_published_is_followed_by_one_that_takes_the_next_batch() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, killed) = begin(&ledger).await;
    finish(&run, 0, "a b c d").await;
    killed.trains(0).await;

    let trainer = Trainer::from(&run, "second", 1).await;

    assert_eq!(trainer.is_given().await, "1: c d");
}

/// Its checkpoint is one ahead of what the ledger knows, and nothing is wrong.
#[tokio::test]
async fn a_trainer_killed_between_its_checkpoint_and_its_publish_has_published() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, killed) = begin(&ledger).await;
    finish(&run, 0, "a b c d").await;
    killed.take().await.ok();
    assert_eq!(run.tables().await, "C D");

    let trainer = Trainer::from(&run, "second", 1).await;

    assert_eq!(
        trainer.opened,
        json!({ "epoch": 2, "trainer_version": 1, "policy_version": 1, "lineage": 0, "weights": null })
    );
    assert_eq!(run.tables().await, "C D | . .");
    // The reference that the killed one did not bring any more.
    let late = trainer.says(json!({ "version": 1, "weights": "file:///step-1" }));
    run.post("versions", late).await.ok();
    assert_eq!(run.get("versions/latest").await.ok()["weights"], "file:///step-1");
    assert_eq!(trainer.is_given().await, "1: c d");
}

/// The same checkpoint without a batch that could have been trained into it is another matter.
#[tokio::test]
async fn a_checkpoint_one_ahead_is_believed_only_if_its_batch_was_taken() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _) = begin(&ledger).await;
    finish(&run, 0, "a b").await;
    let seq = run.get("").await.seq();

    let refused = resume(&run, "second", json!({ "resume_from": 1 })).await;

    assert_eq!(refused.seq(), seq);
    assert_eq!(refused.problem(409, "ledger_behind")["policy_version"], 0);
}

#[tokio::test]
async fn a_trainer_killed_between_its_publish_and_its_checkpoint_trains_the_batch_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, killed) = begin(&ledger).await;
    finish(&run, 0, "a b c d").await;
    killed.trains(0).await;

    let trainer = Trainer::from(&run, "second", 0).await;

    assert_eq!(
        trainer.opened,
        json!({ "epoch": 2, "trainer_version": 0, "policy_version": 1, "lineage": 0, "weights": "file:///step-1" })
    );
    assert_eq!(trainer.is_given().await, "0: a b, replayed");
    assert_eq!(
        trainer.publish(1).await.ok(),
        json!({ "policy_version": 1, "trainer_version": 1, "lineage": 0 })
    );
    assert_eq!(trainer.is_given().await, "1: c d");
}
