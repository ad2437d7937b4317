//! *Sequence*: what the log says of trainer sessions.

use serde_json::{Value, json};

use crate::cast::{each, finish, train_batches, without};
use crate::support::{Ledger, Run, Trainer};

/// The events of the trainer's side, without what differs each time.
async fn told(run: &Run) -> Value {
    let log = run.get("events?limit=1000").await.ok();
    each(&log["events"])
        .filter(|event| {
            ["trainer_opened", "take", "deliver", "publish", "checkpoint"]
                .contains(&event["type"].as_str().unwrap_or(""))
        })
        .map(|event| without(event.clone(), &["seq", "at_ms", "mark", "ids"]))
        .collect()
}

fn opened(session: &str, epoch: u64, from: u64, policy_version: u64) -> Value {
    json!({ "type": "trainer_opened", "trainer": "t0", "session": session, "epoch": epoch, "resumed_from": from,
            "mode": "replay", "policy_version": policy_version, "effects": [] })
}

fn about(kind: &str, version: u64) -> Value {
    json!({ "type": kind, "version": version, "versions": [version], "effects": [] })
}

#[tokio::test]
async fn sessions_deliveries_and_checkpoints_are_told_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let first = Trainer::first(&run).await;
    finish(&run, 0, "a b").await;
    first.take().await.ok();
    first.take().await.ok();
    first.publish(1).await.ok();
    first.publish(1).await.ok();
    first.take().await.ok();

    let second = Trainer::from(&run, "second", 1).await;
    second.take().await.ok();
    second.take().await.ok();
    second.publish(2).await.ok();
    let third = Trainer::from(&run, "third", 0).await;
    for version in [0, 1] {
        third.take().await.ok();
        third.take().await.ok();
        third.publish(version + 1).await.ok();
    }
    third.checkpoint(1).await.ok();
    third.checkpoint(1).await.ok();
    third.checkpoint(0).await.ok();

    let replayed = |version: u64| {
        let mut event = about("deliver", version);
        event["replayed"] = json!(true);
        event
    };
    assert_eq!(
        told(&run).await,
        json!([
            opened("first", 1, 0, 0),
            about("take", 0),
            about("publish", 1),
            about("take", 1),
            opened("second", 2, 1, 1),
            about("deliver", 1),
            about("publish", 2),
            opened("third", 3, 0, 2),
            replayed(0),
            about("publish", 1),
            replayed(1),
            about("publish", 2),
            about("checkpoint", 1),
        ])
    );
}

#[tokio::test]
async fn a_forced_resume_says_so_and_which_lineage_began() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..1).await;

    Trainer::open(&run, "second", json!({ "resume_from": 3, "force": true })).await;

    let mut expected = opened("second", 2, 3, 3);
    expected["lineage"] = json!(1);
    expected["force"] = json!(true);
    assert_eq!(each(&told(&run).await).last(), Some(&expected));
}

/// The client has seen ten steps that the database lost: their numbers are not used again.
#[tokio::test]
async fn one_that_ends_that_the_run_is_behind_says_so_and_which_numbers_were_lost() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..1).await;
    let seq = run.get("").await.seq();
    let ahead = run.through(&run.client().having_seen(&(seq + 10)));

    Trainer::from(&ahead, "second", 1).await;

    let mut expected = opened("second", 2, 1, 1);
    expected["lineage"] = json!(1);
    expected["behind"] = json!(true);
    expected["raised_from"] = json!(seq);
    assert_eq!(each(&told(&run).await).last(), Some(&expected));
    let log = run.get(&format!("events?after={seq}")).await.ok();
    assert_eq!(log["events"][0]["seq"], seq + 11);
}
