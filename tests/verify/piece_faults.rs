//! A run whose batches are taken in pieces, and which is drained, holds; with a fault planted into one of them it does not.

use serde_json::{Value, json};

use crate::logs::{LogFile, events, page, verify};
use crate::planting::{is_found, position, renumber};
use crate::support::{Client, Ledger, Run, Trainer};

/// Batch 0 is taken in two pieces, between which another session opens and an entry is filtered; a third session is given all
/// of it again. The run is drained, which is called off, and drained again; its last batch is a piece and an end.
async fn pieces_job(client: &Client) -> Run {
    let config = json!({ "batch_size": 3, "max_staleness": 1, "keep_batches": 100 });
    let run = Run::create(client, config).await;
    let trainer = Trainer::first(&run).await;
    run.reserve(0, "a b c d").await.ok();
    run.occupy("a").await.ok();
    stream(&run, &trainer, 0, 1).await;
    run.occupy("b").await.ok();
    run.discard("b", "filtered").await.ok();
    run.occupy("c").await.ok();
    run.occupy("d").await.ok();
    let trainer = Trainer::from(&run, "again", 0).await;
    stream(&run, &trainer, 0, 1).await;
    stream(&run, &trainer, 1, 2).await;
    let trainer = Trainer::from(&run, "and-again", 0).await;
    stream(&run, &trainer, 0, 2).await;
    stream(&run, &trainer, 2, 1).await;
    trainer.publish(1).await.ok();

    drain(&run, true).await;
    drain(&run, false).await;
    run.reserve(1, "e f").await.ok();
    run.occupy("e").await.ok();
    stream(&run, &trainer, 0, 1).await;
    drain(&run, true).await;
    run.discard("f", "failed").await.ok();
    stream(&run, &trainer, 1, 1).await;
    trainer.publish(2).await.ok();
    run
}

/// Takes a piece behind the first `from` entries.
async fn stream(run: &Run, trainer: &Trainer, from: u64, most: u64) {
    let body = json!({ "stream": true, "from_offset": from, "max_entries": most });
    let answer = run.post("batches/next", trainer.says(body)).await.ok();
    assert!(answer["batch"].is_object(), "{answer:#}");
}

async fn drain(run: &Run, on: bool) {
    run.post("drain", json!({ "drain": on })).await.ok();
}

async fn good_log() -> Option<Vec<Value>> {
    let ledger = Ledger::start().await?;
    let run = pieces_job(&ledger.client()).await;
    Some(events(&run, 0).await)
}

fn seq(log: &[Value], at: usize) -> u64 {
    log[at]["seq"].as_u64().expect("a number")
}

/// The field of the event is another one, and that breaks the invariant at this event.
async fn is_found_with(log: &[Value], at: usize, field: &str, value: Value, invariant: &str) {
    let mut spoilt = log.to_vec();
    assert_ne!(spoilt[at][field], value, "nothing is planted");
    spoilt[at][field] = value;
    is_found(&spoilt, invariant, seq(log, at)).await;
}

/// The log without that event; what breaks the invariant is the `nth` event of this type of those that are left.
async fn is_found_without(log: &[Value], at: usize, invariant: &str, (kind, nth): (&str, usize)) {
    let mut spoilt = log.to_vec();
    spoilt.remove(at);
    renumber(&mut spoilt);
    is_found(&spoilt, invariant, seq(&spoilt, position(&spoilt, kind, nth))).await;
}

#[tokio::test]
async fn a_run_of_streamed_batches_that_is_drained_holds_and_its_page_tells_both() {
    let Some(log) = good_log().await else { return };
    let file = LogFile::of(&log);
    let (status, found) = verify(&["--events", &file.name()]).await;
    assert_eq!((status, &found["ok"]), (Some(0), &json!(true)), "{found:#}");
    let of_run = &found["runs"][0];
    assert_eq!(
        json!([of_run["batches"], of_run["pieces"], of_run["redelivered"]]),
        json!([2, 4, 1])
    );

    let (_, good) = page(&file).await;
    let line = "  batches    2 taken (4 streamed pieces in all), 2 published";
    assert!(good.lines().any(|each| each == line), "no `{line}` in:\n{good}");
}

#[tokio::test]
async fn batches_complete_a_piece_that_does_not_follow_on_what_was_taken() {
    let Some(log) = good_log().await else { return };
    is_found_with(
        &log,
        position(&log, "stream", 1),
        "offset",
        json!(0),
        "batches complete",
    )
    .await;
}

#[tokio::test]
async fn batches_complete_a_piece_of_more_entries_than_there_are() {
    let Some(log) = good_log().await else { return };
    is_found_with(
        &log,
        position(&log, "stream", 0),
        "entries",
        json!(2),
        "batches complete",
    )
    .await;
}

#[tokio::test]
async fn batches_complete_a_piece_that_is_skipped() {
    let Some(log) = good_log().await else { return };
    let first_of_the_last_batch = position(&log, "stream", 2);
    is_found_without(&log, first_of_the_last_batch, "batches complete", ("stream", 2)).await;
}

#[tokio::test]
async fn batches_complete_an_end_that_is_not_the_runs() {
    let Some(log) = good_log().await else { return };
    let last = position(&log, "stream", 3);
    is_found_with(&log, last, "final", json!(false), "batches complete").await;
    // Without the drain there is more to come.
    is_found_without(&log, position(&log, "drain", 2), "batches complete", ("stream", 3)).await;
}

#[tokio::test]
async fn once_a_taken_entry_that_is_filtered() {
    let Some(mut log) = good_log().await else { return };
    let filter = position(&log, "discard", 0);
    let a = log[position(&log, "occupy", 0)]["ids"][0].clone();
    log[filter]["ids"][0] = a.clone();
    log[filter]["effects"] =
        json!([{ "effect": "discarded", "id": a, "reason": "filtered", "from": { "buffer": 0, "slot": 0 } }]);
    is_found(&log, "steps", seq(&log, filter)).await;
    is_found(&log, "once", seq(&log, filter)).await;
}

#[tokio::test]
async fn replays_identical_pieces_of_another_batch_that_are_delivered_again() {
    let Some(log) = good_log().await else { return };
    is_found_with(
        &log,
        position(&log, "deliver", 0),
        "version",
        json!(1),
        "replays identical",
    )
    .await;
}

#[tokio::test]
async fn versions_a_batch_that_is_trained_before_all_of_it_was_taken() {
    let Some(log) = good_log().await else { return };
    let second = position(&log, "stream", 1);
    is_found_without(&log, second, "versions", ("publish", 0)).await;
}

#[tokio::test]
async fn steps_an_admission_in_a_drained_run() {
    let Some(log) = good_log().await else { return };
    let called_off = position(&log, "drain", 1);
    is_found_without(&log, called_off, "steps", ("reserve", 1)).await;
}

#[tokio::test]
async fn steps_a_drain_that_changes_nothing() {
    let Some(log) = good_log().await else { return };
    let called_off = position(&log, "drain", 1);
    is_found_with(&log, called_off, "drain", json!(true), "steps").await;
}
