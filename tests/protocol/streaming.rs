//! *Stream*: a batch in pieces.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cast::{Worker, finish, only, prompts, soon, trajectory, until_somebody_waits, without};
use crate::journal::{events, is_sound};
use crate::support::{Ledger, Response, Run, Trainer};

/// Asks for all that has finished behind the first `from` entries.
async fn stream(run: &Run, from: u64) -> Response {
    pieces(run, from, json!({})).await
}

/// Asks for a piece behind the first `from` entries; `body` says more of it.
async fn pieces(run: &Run, from: u64, mut body: Value) -> Response {
    body["stream"] = json!(true);
    body["from_offset"] = json!(from);
    run.post("batches/next", body).await
}

/// The piece that is given, as in `0+2: c d, complete`: its batch, its offset, its prompts and its marks.
fn piece(answer: &Value) -> String {
    let batch = &answer["batch"];
    if batch.is_null() {
        return String::from("nothing");
    }
    let mut text = format!(
        "{}+{}: {}",
        batch["version"],
        batch["offset"],
        prompts(&batch["trajectories"])
    );
    for mark in ["complete", "final", "redelivered", "replayed"] {
        if batch[mark] == true {
            text = format!("{text}, {mark}");
        }
    }
    text
}

async fn streamed(run: &Run, from: u64) -> String {
    piece(&stream(run, from).await.ok())
}

/// The same, of a trainer with a session.
async fn streams(run: &Run, trainer: &Trainer, from: u64) -> String {
    let body = trainer.says(json!({ "max_entries": 1 }));
    piece(&pieces(run, from, body).await.ok())
}

#[tokio::test]
async fn a_batch_is_taken_in_pieces_while_its_last_entries_are_still_generated() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    run.reserve(0, "d c b a").await.ok();
    for prompt in ["a", "b"] {
        run.occupy(prompt).await.ok();
    }

    let first = stream(&run, 0).await.ok();
    assert_eq!(
        without(first["batch"].clone(), &["trajectories"]),
        json!({ "version": 0, "redelivered": false, "replayed": false, "offset": 0, "complete": false, "final": false })
    );
    assert_eq!(
        only(&first, &["buffer_state", "finished"]),
        json!({ "buffer_state": "stuck", "finished": false })
    );
    assert_eq!(prompts(&first["batch"]["trajectories"]), "a b");
    assert_eq!(first["batch"]["trajectories"][0]["state"], "taken");
    assert_eq!(run.tables().await, "A* B* c d");

    // What is taken is shown as a part of a batch, and the other slots go on as before.
    let part = run.get("batches/0?from_offset=1").await.ok();
    assert_eq!(piece(&json!({ "batch": part })), "0+1: b, redelivered");
    let listed = run.get("batches").await.ok()["batches"][0].clone();
    assert_eq!(
        only(&listed, &["version", "entries", "final", "state"]),
        json!({ "version": 0, "entries": 2, "final": false, "state": "partial" })
    );
    let status = run.get("").await.ok();
    assert_eq!(
        (&status["occupied"], &status["totals"]["trained"]),
        (&json!(0), &json!(2))
    );
    run.publish(1).await.problem(409, "publish_out_of_order");

    run.occupy("c").await.ok();
    assert_eq!(streamed(&run, 2).await, "0+2: c");
    let nothing = stream(&run, 3).await.ok();
    assert_eq!(
        without(nothing, &["waiting_for_ms"]),
        json!({ "batch": null, "buffer_state": "stuck", "occupied": 3, "needed": 4, "finished": false })
    );
    run.occupy("d").await.ok();
    assert_eq!(streamed(&run, 3).await, "0+3: d, complete");
    assert_eq!(run.get("batches").await.ok()["batches"][0]["state"], "taken");
    run.publish(1).await.ok();
    assert_eq!(run.tables().await, ". . . .");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_streamed_entry_is_taken_and_nobody_filters_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    finish(&run, 0, "a b").await;
    let (a, b) = (run.id_of("a").await, run.id_of("b").await);
    pieces(&run, 0, json!({ "max_entries": 1 })).await.ok();

    run.discard("a", "filtered").await.problem(409, "trajectory_taken");
    let shown = trajectory(&run, &a).await;
    assert_eq!(shown["state"], "taken");
    assert!(shown["taken_at_ms"].is_u64());
    let other = trajectory(&run, &b).await;
    assert_eq!(
        only(&other, &["state", "taken_at_ms"]),
        json!({ "state": "occupied", "taken_at_ms": null })
    );
    for (state, expected) in [("taken", "a"), ("occupied", "b")] {
        let page = run.get(&format!("trajectories?state={state}")).await.ok();
        assert_eq!(prompts(&page["trajectories"]), expected);
    }

    run.discard("b", "filtered").await.ok();
    assert_eq!(run.tables().await, "A* . .");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_waiting_stream_is_answered_once_as_many_have_finished_as_it_asked_for() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 5, "max_staleness": 0 })).await;
    run.reserve(0, "a b c d e").await.ok();
    let asks = |from| {
        let run = run.clone();
        let two = json!({ "min_entries": 2, "max_entries": 2, "wait_ms": 60_000 });
        tokio::spawn(async move { pieces(&run, from, two).await })
    };
    let call = asks(0);
    until_somebody_waits(&ledger, &run, "batch").await;
    run.occupy("a").await.ok();
    assert!(!call.is_finished());
    run.occupy("b").await.ok();
    assert_eq!(piece(&soon(call).await.ok()), "0+0: a b");

    let call = asks(2);
    run.occupy("c").await.ok();
    run.occupy("d").await.ok();
    assert_eq!(piece(&soon(call).await.ok()), "0+2: c d");

    // The batch lacks one more, which is less.
    let call = asks(4);
    run.occupy("e").await.ok();
    assert_eq!(piece(&soon(call).await.ok()), "0+4: e, complete");
}

#[tokio::test]
async fn a_rank_that_waits_is_woken_also_when_another_was_given_an_earlier_piece_meanwhile() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 6, "max_staleness": 0 })).await;
    let two = json!({ "min_entries": 2, "max_entries": 2 });
    run.reserve(0, "a b c d e f").await.ok();
    run.occupy("a").await.ok();
    run.occupy("b").await.ok();
    assert_eq!(piece(&pieces(&run, 0, two.clone()).await.ok()), "0+0: a b");
    let first_rank = {
        let (run, mut two) = (run.clone(), two.clone());
        two["wait_ms"] = json!(60_000);
        tokio::spawn(async move { pieces(&run, 2, two).await })
    };
    until_somebody_waits(&ledger, &run, "batch").await;

    assert_eq!(piece(&pieces(&run, 0, two).await.ok()), "0+0: a b, redelivered");
    run.occupy("c").await.ok();
    run.occupy("d").await.ok();
    assert_eq!(piece(&soon(first_rank).await.ok()), "0+2: c d");
}

#[tokio::test]
async fn a_lost_answer_in_the_middle_of_a_streamed_batch_is_given_again_and_nothing_is_skipped() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 6, "max_staleness": 0 })).await;
    let two = json!({ "min_entries": 2, "max_entries": 2 });
    finish(&run, 0, "a b c d").await;
    assert_eq!(piece(&pieces(&run, 0, two.clone()).await.ok()), "0+0: a b");
    // Nobody heard this answer.
    pieces(&run, 2, two.clone()).await.ok();
    let steps = run.get("").await.seq();

    finish(&run, 0, "e").await;
    assert_eq!(piece(&pieces(&run, 2, two.clone()).await.ok()), "0+2: c d, redelivered");
    assert_eq!(run.get("").await.seq(), steps + 2, "e, and nothing else");
    assert_eq!(piece(&pieces(&run, 4, two.clone()).await.ok()), "nothing");
    finish(&run, 0, "f").await;
    // Nor this one, of the batch's end.
    pieces(&run, 4, two.clone()).await.ok();
    assert_eq!(
        piece(&pieces(&run, 4, two.clone()).await.ok()),
        "0+4: e f, complete, redelivered"
    );
    assert_eq!(piece(&pieces(&run, 6, two).await.ok()), "0+6: , complete, redelivered");
    run.publish(1).await.ok();
    is_sound(&run).await;
}

/// A rank takes pieces of two until the batch is complete.
fn rank(run: &Run, version: u64) -> JoinHandle<Vec<String>> {
    let run = run.clone();
    tokio::spawn(async move {
        let (mut had, mut from) = (Vec::new(), 0);
        loop {
            let body = json!({ "version": version, "min_entries": 2, "max_entries": 2, "wait_ms": 60_000 });
            let answer = pieces(&run, from, body).await.ok();
            let entries = answer["batch"]["trajectories"].as_array().expect("entries").clone();
            from += entries.len() as u64;
            had.push(prompts(&answer["batch"]["trajectories"]));
            if answer["batch"]["complete"] == true {
                return had;
            }
        }
    })
}

#[tokio::test]
async fn four_ranks_that_stream_the_same_batch_get_the_same_pieces() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 7, "max_staleness": 0 })).await;
    run.reserve(0, "a b c d e f g").await.ok();
    let ranks = [(); 4].map(|()| rank(&run, 0));

    for prompt in ["c", "a", "g", "b", "e", "d", "f"] {
        run.occupy(prompt).await.ok();
    }

    for rank in ranks {
        let had = rank.await.expect("a rank that ends");
        assert_eq!(had, ["c a", "g b", "e d", "f"]);
    }
    let types: Vec<_> = events(&run).await.iter().map(|event| event.event_type).collect();
    let streams = types.iter().filter(|each| **each == berth::protocol::EventType::Stream);
    assert_eq!(streams.count(), 4, "each piece is taken once");

    // A slow rank does not read the next batch by mistake.
    run.publish(1).await.ok();
    finish(&run, 1, "h i").await;
    let late = pieces(&run, 0, json!({ "version": 0 }))
        .await
        .problem(409, "other_batch");
    assert_eq!(late["expected"], 1);
}

#[tokio::test]
async fn what_cannot_be_a_piece_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    finish(&run, 0, "a b").await;
    stream(&run, 0).await.ok();
    let field = |answer: Response| answer.problem(400, "invalid_request")["field"].clone();

    assert_eq!(field(stream(&run, 3).await), "from_offset");
    for (body, at_fault) in [
        (json!({ "stream": true }), "from_offset"),
        (json!({ "from_offset": 0 }), "from_offset"),
        (json!({ "min_entries": 1 }), "min_entries"),
        (json!({ "max_entries": 1 }), "max_entries"),
        (
            json!({ "stream": true, "from_offset": 0, "min_entries": 0 }),
            "min_entries",
        ),
        (
            json!({ "stream": true, "from_offset": 0, "max_entries": 0 }),
            "max_entries",
        ),
        (
            json!({ "stream": true, "from_offset": 0, "min_entries": 3, "max_entries": 2 }),
            "max_entries",
        ),
    ] {
        assert_eq!(field(run.post("batches/next", body).await), at_fault);
    }
    run.get("batches/1").await.problem(404, "unknown_batch");
}

#[tokio::test]
async fn a_plain_take_of_a_partly_streamed_batch_waits_and_returns_all_of_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    run.reserve(0, "a b").await.ok();
    run.occupy("a").await.ok();
    stream(&run, 0).await.ok();
    assert_eq!(run.take().await.ok()["batch"], json!(null));

    run.occupy("b").await.ok();
    let batch = run.take().await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "a b");
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 2);
    is_sound(&run).await;
}

#[tokio::test]
async fn another_trainer_session_is_given_the_pieces_from_the_first_and_publishes_after_the_last() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    finish(&run, 0, "a b").await;
    let first = Trainer::first(&run).await;
    assert_eq!(streams(&run, &first, 0).await, "0+0: a");

    let second = Trainer::from(&run, "second", 0).await;
    pieces(&run, 1, first.says(json!({}))).await.problem(409, "fenced");
    assert_eq!(streams(&run, &second, 0).await, "0+0: a, redelivered");
    assert_eq!(streams(&run, &second, 1).await, "0+1: b, complete");

    let third = Trainer::from(&run, "third", 0).await;
    third.publish(1).await.problem(409, "publish_out_of_order");
    assert_eq!(streams(&run, &third, 0).await, "0+0: a, redelivered");
    third.publish(1).await.problem(409, "publish_out_of_order");
    assert_eq!(streams(&run, &third, 1).await, "0+1: b, complete, redelivered");
    third.publish(1).await.ok();
    is_sound(&run).await;
}

#[tokio::test]
async fn a_replay_streams_whole_batches_and_then_the_pieces_of_the_open_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    finish(&run, 0, "a b c d").await;
    let trainer = Trainer::first(&run).await;
    trainer.trains(0).await;
    assert_eq!(streams(&run, &trainer, 0).await, "1+0: c");

    let trainer = Trainer::from(&run, "replaying", 0).await;
    assert_eq!(streams(&run, &trainer, 0).await, "0+0: a, replayed");
    assert_eq!(streams(&run, &trainer, 1).await, "0+1: b, complete, replayed");
    trainer.publish(1).await.ok();
    assert_eq!(streams(&run, &trainer, 0).await, "1+0: c, redelivered");
    assert_eq!(streams(&run, &trainer, 1).await, "1+1: d, complete");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_rewind_places_the_pieces_of_a_batch_anew() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    finish(&run, 0, "a b c").await;
    let trainer = Trainer::first(&run).await;
    trainer.trains(0).await;
    assert_eq!(streams(&run, &trainer, 0).await, "1+0: c");
    assert_eq!(run.tables().await, "C* . | . .");

    Trainer::rewinding(&run, "rewinding", 0).await;

    assert_eq!(run.tables().await, "A B | C .");
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 0);
    run.get("batches/1").await.problem(404, "unknown_batch");
    is_sound(&run).await;
}

#[tokio::test]
async fn what_was_taken_of_a_batch_stays_taken_when_the_trainer_is_ahead_of_the_ledger() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 2 })).await;
    finish(&run, 0, "a b").await;
    pieces(&run, 0, json!({ "max_entries": 1 })).await.ok();
    let a = run.id_of("a").await;

    Trainer::open(&run, "ahead", json!({ "resume_from": 2, "force": true })).await;

    assert_eq!(run.tables().await, "B . . | . . . | . . .");
    run.get(&format!("trajectories/{a}"))
        .await
        .problem(404, "unknown_trajectory");
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 1);
    is_sound(&run).await;
}

#[tokio::test]
async fn the_piece_that_completes_a_batch_tells_workers_at_once_what_is_surplus() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "slots_per_buffer": 3, "max_staleness": 0 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b, c] = [
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    ];
    worker.occupy(&a, json!({})).await.ok();
    stream(&run, 0).await.ok();
    let beat = tokio::spawn({
        let worker = worker.clone();
        async move { worker.heartbeat(json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "cancelled").await;

    worker.occupy(&b, json!({})).await.ok();

    assert_eq!(
        soon(beat).await.ok()["cancelled"][0],
        json!({ "id": c, "reason": "surplus", "members": null })
    );
    assert_eq!(streamed(&run, 1).await, "0+1: b, complete");
    is_sound(&run).await;
}

/// Whichever comes first: it is filtered and not in the batch, or in the batch and not filtered.
#[tokio::test]
async fn a_filter_and_a_take_of_the_same_entry_at_the_same_time() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let mut version = 0;
    for round in 0..40 {
        finish(&run, version, "a").await;
        let a = run.id_of("a").await;
        let taken = async {
            match round % 2 {
                0 => run.take().await,
                _ => stream(&run, 0).await,
            }
        };
        let (filtered, taken) = tokio::join!(worker.discard(&a, "filtered"), taken);

        let taken = taken.ok();
        if filtered.status == 200 {
            assert_eq!(taken["batch"], json!(null));
            assert_eq!(run.tables().await, ".");
        } else {
            filtered.problem(409, "trajectory_taken");
            assert_eq!(prompts(&taken["batch"]["trajectories"]), "a");
            version += 1;
            run.publish(version).await.ok();
        }
    }
    is_sound(&run).await;
}
