//! A run with every kind of trainer session holds, and with a fault planted into one of them it does not.

use serde_json::{Value, json};

use crate::logs::{LogFile, events, page, verify};
use crate::planting::{is_found, position, renumber};
use crate::support::{Client, Ledger, Run, Trainer, eventually};

/// The trainer sessions, as positions among the events that opened one.
const REPLAY: usize = 1;
const REWIND: usize = 3;
const AFTER_LOST_WRITES: usize = 4;

/// A run in which each kind of trainer session was opened once, but that three went on from the latest version. The rewind
/// abandoned version 3, which had generated g and h, and laid out e and f, of a batch, and i, which is reserved.
async fn trainers_job(client: &Client) -> Run {
    let config = json!({ "batch_size": 2, "max_staleness": 1, "keep_batches": 100 });
    let run = Run::create(client, config).await;
    let trainer = Trainer::first(&run).await;
    for (version, prompts) in [(0, "a b"), (1, "c d")] {
        finish(&run, version, prompts).await;
        trainer.trains(version).await;
    }

    let trainer = Trainer::from(&run, "replays", 1).await;
    assert_eq!(trainer.is_given().await, "1: c d, replayed");
    trainer.publish(2).await.ok();
    finish(&run, 2, "e f").await;
    assert_eq!(trainer.is_given().await, "2: e f");
    let trainer = Trainer::from(&run, "goes-on", 2).await;
    assert_eq!(trainer.is_given().await, "2: e f, redelivered");
    trainer.publish(3).await.ok();

    run.reserve(2, "i").await.ok();
    run.reserve(3, "h g").await.ok();
    run.occupy("g").await.ok();
    assert_eq!(run.tables().await, "G i | . h");
    let trainer = Trainer::rewinding(&run, "rewinds", 2).await;
    assert_eq!(run.tables().await, "E F | . i");
    trainer.trains(2).await;
    run.names_lineage(1).await;
    run.reserve(3, "j k").await.ok();
    run.occupy("i").await.ok();
    run.occupy("j").await.ok();
    trainer.trains(3).await;
    trainer.checkpoint(3).await.ok();

    // What a client says that it saw is all that is left of writes that were lost.
    let seen = run.get("").await.seq() + 20;
    let who_saw = run.through(&client.having_seen(&seen));
    let trainer = Trainer::from(&who_saw, "after-lost-writes", 4).await;
    assert_eq!(trainer.opened["lineage"], 2);
    let trainer = Trainer::open(&run, "insists", json!({ "resume_from": 7, "force": true })).await;
    run.names_lineage(3).await;
    finish(&run, 7, "l m").await;
    trainer.trains(7).await;
    // What the checkpoint made unnecessary is forgotten in the background.
    eventually("batches 0 to 2 are forgotten", async || {
        let log = events(&run, 0).await;
        log.iter().filter(|event| event["type"] == "prune").count() == 3
    })
    .await;
    run
}

async fn finish(run: &Run, version: u64, prompts: &str) {
    run.reserve(version, prompts).await.ok();
    for prompt in prompts.split(' ') {
        run.occupy(prompt).await.ok();
    }
}

async fn good_log() -> Option<Vec<Value>> {
    let ledger = Ledger::start().await?;
    let run = trainers_job(&ledger.client()).await;
    Some(events(&run, 0).await)
}

fn opened(log: &[Value], session: usize) -> usize {
    position(log, "trainer_opened", session)
}

fn seq(log: &[Value], at: usize) -> u64 {
    log[at]["seq"].as_u64().expect("a number")
}

fn effects(event: &mut Value) -> &mut Vec<Value> {
    event["effects"].as_array_mut().expect("a list")
}

/// The field of the event is another one, and that breaks the invariant at this event.
async fn is_found_with(log: &[Value], at: usize, field: &str, value: Value, invariant: &str) {
    let mut spoilt = log.to_vec();
    assert_ne!(spoilt[at][field], value, "nothing is planted");
    spoilt[at][field] = value;
    is_found(&spoilt, invariant, seq(log, at)).await;
}

#[tokio::test]
async fn a_run_with_every_kind_of_trainer_session_holds_and_they_are_told_by_kind() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = trainers_job(&ledger.client()).await;
    let file = LogFile::of(&events(&run, 0).await);

    let (status, found) = verify(&["--events", &file.name()]).await;
    assert_eq!((status, &found["ok"]), (Some(0), &json!(true)), "{found:#}");
    let of_run = &found["runs"][0];
    assert_eq!(
        json!([of_run["trainer_sessions"], of_run["redelivered"], of_run["replayed"]]),
        json!([{ "continued": 3, "replay": 1, "rewind": 1, "forced": 1, "behind": 1 }, 1, 1])
    );
    assert_eq!(of_run["discarded"]["rewound"], 2);
    let (status, of_server) = verify(&["--run", run.name(), "--url", ledger.server.url()]).await;
    assert_eq!((status, &of_server), (Some(0), &found));

    let (_, text) = page(&file).await;
    let line = "  trainer    6 sessions (continued: 3, forced: 1, replay: 1, rewind: 1; 1 after lost writes), 1 redelivery, \
                1 replayed batch";
    assert!(text.lines().any(|each| each == line), "no `{line}` in:\n{text}");
}

#[tokio::test]
async fn replays_identical_a_batch_is_delivered_that_is_not_the_trainers_next() {
    let Some(log) = good_log().await else { return };
    let replayed = position(&log, "deliver", 0);

    is_found_with(&log, replayed, "version", json!(0), "replays identical").await;
}

#[tokio::test]
async fn replays_identical_a_batch_is_delivered_twice_to_one_session() {
    let Some(log) = good_log().await else { return };
    let replayed = position(&log, "deliver", 0);
    let mut doubled = log[..=replayed].to_vec();
    doubled.push(log[replayed].clone());
    renumber(&mut doubled);

    is_found(&doubled, "replays identical", replayed as u64 + 2).await;
}

#[tokio::test]
async fn replays_identical_a_delivery_whose_mark_is_wrong() {
    let Some(log) = good_log().await else { return };
    let (replayed, redelivered) = (position(&log, "deliver", 0), position(&log, "deliver", 1));

    is_found_with(&log, replayed, "replayed", json!(false), "replays identical").await;
    is_found_with(&log, redelivered, "replayed", json!(true), "replays identical").await;
}

/// c is forgotten when the batch that it was taken with is to be trained again.
#[tokio::test]
async fn replays_identical_a_batch_that_has_changed_since_it_was_taken() {
    let Some(log) = good_log().await else { return };
    let replayed = position(&log, "deliver", 0);
    let c = log[position(&log, "reserve", 1)]["ids"][0].clone();
    let mut prune = log[replayed].clone();
    prune["type"] = json!("prune");
    prune["replayed"] = json!(false);
    prune["effects"] = json!([{ "effect": "pruned", "id": c }]);
    let mut spoilt = log[..=replayed].to_vec();
    spoilt.insert(replayed, prune);
    renumber(&mut spoilt);

    is_found(&spoilt, "replays identical", replayed as u64 + 2).await;
}

#[tokio::test]
async fn versions_a_batch_is_trained_that_was_not_delivered_to_the_session() {
    let Some(log) = good_log().await else { return };
    let replayed = position(&log, "deliver", 0);
    let mut spoilt = log[..=replayed + 1].to_vec();
    spoilt.remove(replayed);
    renumber(&mut spoilt);

    is_found(&spoilt, "versions", replayed as u64 + 1).await;
}

#[tokio::test]
async fn versions_an_epoch_that_does_not_rise() {
    let Some(log) = good_log().await else { return };
    let before = log[opened(&log, REPLAY - 1)]["epoch"].clone();

    is_found_with(&log, opened(&log, REPLAY), "epoch", before, "versions").await;
}

#[tokio::test]
async fn versions_a_lineage_that_does_not_rise_at_a_rewind() {
    let Some(log) = good_log().await else { return };

    is_found_with(&log, opened(&log, REWIND), "lineage", json!(0), "versions").await;
}

#[tokio::test]
async fn versions_a_policy_version_that_the_resume_does_not_lead_to() {
    let Some(log) = good_log().await else { return };

    is_found_with(&log, opened(&log, REPLAY), "policy_version", json!(1), "versions").await;
    is_found_with(&log, opened(&log, REWIND), "policy_version", json!(3), "versions").await;
}

#[tokio::test]
async fn versions_a_resume_that_was_to_be_refused() {
    let Some(log) = good_log().await else { return };
    let insists = opened(&log, AFTER_LOST_WRITES + 1);

    is_found_with(&log, insists, "force", json!(false), "versions").await;
}

#[tokio::test]
async fn versions_a_reservation_under_abandoned_weights() {
    let Some(log) = good_log().await else { return };
    let of_version_3 = log
        .iter()
        .rposition(|event| event["lineage"] == 1 && event["type"] == "reserve");

    is_found_with(&log, of_version_3.expect("j and k"), "lineage", json!(0), "versions").await;
}

#[tokio::test]
async fn versions_a_checkpoint_of_what_the_trainer_has_not_trained() {
    let Some(log) = good_log().await else { return };

    is_found_with(&log, position(&log, "checkpoint", 0), "version", json!(5), "versions").await;
}

#[tokio::test]
async fn steps_an_entry_is_placed_anew_in_another_slot() {
    let Some(log) = good_log().await else { return };
    let rewind = opened(&log, REWIND);
    let mut edited = log.clone();
    let last = effects(&mut edited[rewind]).last_mut().expect("where i is now");
    assert_eq!(last["to"], json!({ "buffer": 3, "slot": 1 }));
    last["to"]["slot"] = json!(0);

    is_found(&edited, "steps", seq(&log, rewind)).await;
    is_found(&edited, "packed", seq(&log, rewind)).await;
}

#[tokio::test]
async fn steps_nothing_is_said_of_an_entry_that_was_placed_anew() {
    let Some(log) = good_log().await else { return };
    let rewind = opened(&log, REWIND);
    let mut edited = log.clone();
    let left_out = effects(&mut edited[rewind]).pop().expect("where i is now");
    assert_eq!(left_out["effect"], "replaced");

    is_found(&edited, "steps", seq(&log, rewind)).await;
}

#[tokio::test]
async fn a_place_for_everyone_an_entry_is_placed_anew_outside_the_tables() {
    let Some(log) = good_log().await else { return };
    let rewind = opened(&log, REWIND);
    let mut edited = log.clone();
    effects(&mut edited[rewind]).last_mut().expect("where i is now")["to"]["buffer"] = json!(4);

    is_found(&edited, "a place for everyone", seq(&log, rewind)).await;
}

/// g would sit in a buffer that there is after the rewind too, h in one that there is not.
#[tokio::test]
async fn versions_and_a_place_for_everyone_a_rewind_that_leaves_out_what_abandoned_weights_generated() {
    let Some(log) = good_log().await else { return };
    let rewind = opened(&log, REWIND);
    for (left_out, invariant) in [(0, "versions"), (1, "a place for everyone")] {
        let mut edited = log.clone();
        let rewound = effects(&mut edited[rewind]).remove(left_out);
        assert_eq!(rewound["reason"], "rewound");

        is_found(&edited, "steps", seq(&log, rewind)).await;
        is_found(&edited, invariant, seq(&log, rewind)).await;
    }
}

#[tokio::test]
async fn sequence_a_number_that_is_said_to_have_risen_from_another_one() {
    let Some(log) = good_log().await else { return };
    let at = opened(&log, AFTER_LOST_WRITES);
    assert_eq!(log[at]["raised_from"], log[at - 1]["seq"]);

    is_found_with(&log, at, "raised_from", log[at - 2]["seq"].clone(), "sequence").await;
    is_found_with(&log, at, "raised_from", Value::Null, "sequence").await;
    is_found_with(&log, at, "behind", json!(false), "sequence").await;
}
