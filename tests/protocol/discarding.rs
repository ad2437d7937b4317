//! *Discard*, how its gap is settled, and *the surplus rule*.

use serde_json::{Value, json};

use crate::cast::{Worker, finish, only, prompts, trajectory};
use crate::support::Ledger;

#[tokio::test]
async fn a_reservation_that_is_given_up_frees_the_front() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    run.reserve(0, "a b c").await.ok();
    assert_eq!(run.tables().await, ". c | b a");

    let answer = run.discard("a", "failed").await.ok();

    assert_eq!(answer, json!({ "discarded_from": "reserved", "promoted": [] }));
    assert_eq!(run.tables().await, ". . | b c");
}

/// a to d have older weights and may not leave buffer 1, so that e had to go to buffer 2 although it was finished.
#[tokio::test]
async fn a_finished_one_moves_forward_into_the_place_of_one_that_was_given_up() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a b c d").await.ok();
    run.reserve(1, "e f g h").await.ok();
    let e = run.id_of("e").await;
    run.occupy("e").await.ok();
    assert_eq!(run.tables().await, "d c b a | E g f h");

    let answer = run.discard("c", "failed").await.ok();

    assert_eq!(
        answer,
        json!({ "discarded_from": "reserved", "promoted": [{ "id": e, "from": 2, "to": 1 }] })
    );
    assert_eq!(run.tables().await, "E d b a | . g f h");
}

#[tokio::test]
async fn a_filtered_one_is_replaced_from_the_next_buffers() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;
    finish(&run, 0, "a b c d e").await;
    let (d, e) = (run.id_of("d").await, run.id_of("e").await);
    assert_eq!(run.tables().await, "A B | C D | E .");

    let answer = run.discard("a", "filtered").await.ok();

    let promoted = json!([{ "id": d, "from": 1, "to": 0 }, { "id": e, "from": 2, "to": 1 }]);
    assert_eq!(answer, json!({ "discarded_from": "occupied", "promoted": promoted }));
    assert_eq!(run.tables().await, "B D | C E | . .");
}

#[tokio::test]
async fn a_discarded_one_says_by_whom_and_why() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let a = Worker::of(&run, "rollout-1").gets(0, "a").await;

    let body = json!({ "reason": "no_gradient", "note": "all rewards are 1" });
    run.post(&format!("trajectories/{a}/discard"), body).await.ok();

    let shown = trajectory(&run, &a).await;
    assert_eq!(
        only(
            &shown,
            &["state", "reason", "note", "worker", "buffer", "slot", "staleness"]
        ),
        json!({ "state": "discarded", "reason": "no_gradient", "note": "all rewards are 1", "worker": "rollout-1",
                "buffer": null, "slot": null, "staleness": null })
    );
}

#[tokio::test]
async fn a_discard_sent_again_is_a_success_that_changes_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);
    worker.occupy(&a, json!({})).await.ok();
    worker.occupy(&b, json!({})).await.ok();
    let first = worker.discard(&a, "filtered").await;
    let seq = first.seq();
    assert_eq!(first.ok()["promoted"], json!([{ "id": b, "from": 1, "to": 0 }]));

    let again = worker.discard(&a, "failed").await;

    assert_eq!(again.seq(), seq);
    assert_eq!(again.ok(), json!({ "discarded_from": "occupied", "promoted": [] }));
    assert_eq!(trajectory(&run, &a).await["reason"], "filtered");
    assert_eq!(run.tables().await, "B | .");
    assert_eq!(totals(&run.get("").await.ok()), json!({ "filtered": 1 }));
}

#[tokio::test]
async fn what_was_taken_cannot_be_discarded() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.occupy(&a, json!({})).await.ok();
    run.take().await.ok();

    worker.discard(&a, "filtered").await.problem(409, "trajectory_taken");

    assert_eq!(trajectory(&run, &a).await["state"], "taken");
}

#[tokio::test]
async fn the_reasons_of_the_ledger_are_not_for_clients() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let too_long = "x".repeat(65);

    for reason in [
        "lease_expired",
        "worker_restarted",
        "abandoned",
        "surplus",
        "rewound",
        "too_stale",
        "stuck_timeout",
        "timed_out",
        "group_failed",
        "group_filled",
        "zero_variance",
        "drained",
        "",
        "Filtered",
        "no gradient",
        &too_long,
    ] {
        let refusal = worker.discard(&a, reason).await.problem(400, "invalid_request");
        assert_eq!(refusal["field"], "reason", "{reason}");
    }
    assert_eq!(run.tables().await, "a");
}

#[tokio::test]
async fn a_run_counts_32_reasons_of_its_clients_and_all_others_as_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 40, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let words: Vec<_> = ('a'..='z').chain('a'..='h').zip(0..).collect();

    for (letter, number) in &words {
        let id = worker.gets(0, "q").await;
        let reason = format!("{}{letter}", if *number < 26 { "x_" } else { "y_" });
        worker.discard(&id, &reason).await.ok();
    }
    let id = worker.gets(0, "q").await;
    worker.discard(&id, "x_a").await.ok();

    // 26 of x_ and 6 of y_ have a count of their own; y_g and y_h came too late.
    let mut expected: serde_json::Map<_, _> = words[..32]
        .iter()
        .map(|(letter, number)| (format!("{}{letter}", if *number < 26 { "x_" } else { "y_" }), json!(1)))
        .collect();
    expected["x_a"] = json!(2);
    expected.insert("other".to_owned(), json!(2));
    assert_eq!(totals(&run.get("").await.ok()), Value::Object(expected));
}

#[tokio::test]
async fn the_holder_is_told_what_somebody_else_discarded_and_not_what_it_discarded_itself() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    worker.discard(&a, "failed").await.ok();
    Worker::of(&run, "reward-1").discard(&b, "too_long").await.ok();

    assert_eq!(worker.is_told().await, json!([[b, "too_long"]]));
}

#[tokio::test]
async fn with_spare_slots_the_reservations_that_a_ready_buffer_leaves_without_a_place_are_surplus() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "slots_per_buffer": 3, "max_staleness": 0 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b, c) = (
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    );
    assert_eq!(run.tables().await, "c b a");

    worker.occupy(&b, json!({})).await.ok();
    assert_eq!(run.tables().await, "B c a");
    let place = worker.occupy(&a, json!({})).await.ok();

    assert_eq!(place["buffer_state"], "ready");
    assert_eq!(run.tables().await, "B A .");
    assert_eq!(worker.is_told().await, json!([[c, "surplus"]]));
    assert_eq!(totals(&run.get("").await.ok()), json!({ "surplus": 1 }));
    let refusal = worker.occupy(&c, json!({})).await.problem(409, "trajectory_discarded");
    assert_eq!(refusal["reason"], "surplus");
}

/// b and c may still be trained in buffer 1, so they stay when buffer 0 becomes ready, and go when buffer 1 does.
#[tokio::test]
async fn a_reservation_is_surplus_only_when_all_its_buffers_are_ready() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "slots_per_buffer": 2, "max_staleness": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a b c d").await.ok();
    assert_eq!(run.tables().await, "d c | b a");

    run.occupy("a").await.ok();
    assert_eq!(run.tables().await, "A c | b d");

    run.occupy("d").await.ok();
    assert_eq!(run.tables().await, "A . | D .");
    assert_eq!(totals(&run.get("").await.ok()), json!({ "surplus": 2 }));
}

#[tokio::test]
async fn a_batch_with_spare_slots_has_exactly_batch_size_entries() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "slots_per_buffer": 4, "max_staleness": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a b c d e f g h").await.ok();
    for prompt in ["h", "a", "b"] {
        run.occupy(prompt).await.ok();
    }
    assert_eq!(run.tables().await, "H A d e | B c f g");

    let taken = run.take().await.ok();

    assert_eq!(prompts(&taken["batch"]["trajectories"]), "h a");
    let status = run.get("").await.ok();
    assert_eq!(
        status["totals"],
        json!({ "reserved": 8, "occupied": 3, "trained": 2, "late": 0, "adopted": 0, "discarded": { "surplus": 2 } })
    );
    assert_eq!(run.tables().await, "B c f g");
}

fn totals(status: &Value) -> Value {
    status["totals"]["discarded"].clone()
}
