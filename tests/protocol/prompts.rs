//! *The prompt queue*: in which order it hands out, and how it can be looked at. How it is fed is in `feeding.rs`, what becomes
//! of the prompts of discarded entries in `prompt_fates.rs`.

use serde_json::{Value, json};

use crate::cast::{Worker, each, ids, only, prompts, soon, until_somebody_waits};
use crate::journal::is_sound;
use crate::support::{Ledger, Response, Run, TestServer, Trainer};

/// The configuration with a prompt queue, and these fields beside.
pub(crate) fn with_queue(mut config: Value) -> Value {
    config["prompt_queue"] = json!(true);
    config
}

/// Feeds a prompt for each of the words, after all that was fed.
pub(crate) async fn feed(run: &Run, words: &str) -> Response {
    let prompts: Vec<_> = words.split_whitespace().map(|word| json!({ "id": word })).collect();
    run.post("prompts", json!({ "prompts": prompts })).await
}

/// What the worker is given when it asks for so many, as in `"q-1 q-2"`.
pub(crate) async fn takes(worker: &Worker, version: u64, count: u64) -> String {
    let answer = worker.reserve(json!({ "version": version, "count": count })).await;
    prompts(&answer.ok()["granted"])
}

/// The prompts in a state, each with its attempt, as in `"q-1 1, q-2 3"`.
pub(crate) async fn in_state(run: &Run, state: &str) -> String {
    let page = run.get(&format!("prompts?state={state}")).await.ok();
    let shown = each(&page["prompts"]).map(|prompt| {
        assert_eq!(prompt["state"], state);
        format!("{} {}", prompt["id"].as_str().expect("an id"), prompt["attempt"])
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The counts that are not 0, and that they add up to what was fed.
pub(crate) async fn counts(run: &Run) -> Value {
    let page = run.get("prompts").await.ok();
    let counts = run.get("").await.ok()["prompts"].clone();
    assert_eq!(page["counts"], counts);
    let numbers = counts.as_object().expect("counts");
    let sum: u64 = numbers.values().map(|number| number.as_u64().expect("a number")).sum();
    assert_eq!(page["fed"], sum, "{counts}");
    let not_zero = numbers.iter().filter(|(_, number)| **number != 0);
    not_zero
        .map(|(state, number)| (state.clone(), number.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test]
async fn each_reservation_takes_the_next_prompt_with_its_data() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 4, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let page = json!({ "offset": 0, "prompts": [
        { "id": "q-1", "data": { "text": "1 + 1 = ?", "answers": [2] } },
        { "id": "q-2", "data": ["a", "list"], "expected_tokens": 7 },
        { "id": "q-3" },
    ]});

    assert_eq!(run.post("prompts", page).await.status(200), json!({ "fed": 3 }));
    let answer = worker.reserve(json!({ "version": 0, "count": 4 })).await.ok();

    let granted: Vec<_> = each(&answer["granted"])
        .map(|grant| only(grant, &["prompt", "data", "attempt", "slot"]))
        .collect();
    assert_eq!(
        granted,
        [
            json!({ "prompt": "q-1", "data": { "text": "1 + 1 = ?", "answers": [2] }, "attempt": 1, "slot": 3 }),
            json!({ "prompt": "q-2", "data": ["a", "list"], "attempt": 1, "slot": 2 }),
            json!({ "prompt": "q-3", "data": null, "attempt": 1, "slot": 1 }),
        ]
    );
    assert_eq!(answer["blocked_by"], "prompts");
    assert_eq!(counts(&run).await, json!({ "in_flight": 3 }));
    is_sound(&run).await;
}

#[tokio::test]
async fn a_prompt_goes_from_queued_to_trained() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    feed(&run, "q-1 q-2 q-3").await.ok();
    assert_eq!(counts(&run).await, json!({ "queued": 3 }));

    let granted = worker.reserve(json!({ "version": 0, "count": 2 })).await.ok()["granted"].clone();
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 2 }));
    for id in ids(&granted) {
        worker.occupy(&id, json!({})).await.ok();
    }
    assert_eq!(counts(&run).await, json!({ "queued": 1, "occupied": 2 }));
    assert_eq!(in_state(&run, "occupied").await, "q-1 1, q-2 1");
    let batch = run.take().await.ok()["batch"].clone();

    assert_eq!(prompts(&batch["trajectories"]), "q-1 q-2");
    assert_eq!(counts(&run).await, json!({ "queued": 1, "trained": 2 }));
    assert_eq!(in_state(&run, "trained").await, "q-1 1, q-2 1");
    assert_eq!(in_state(&run, "queued").await, "q-3 1");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_run_without_a_queue_says_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    feed(&run, "q").await.problem(409, "no_prompt_queue");
    run.get("prompts").await.problem(409, "no_prompt_queue");
    let requeue = worker.says(json!({ "reason": "failed", "requeue": true }));
    let discard = run.post(&format!("trajectories/{a}/discard"), requeue).await;
    discard.problem(409, "no_prompt_queue");

    assert_eq!(run.get("").await.ok()["prompts"], Value::Null);
    assert_eq!(run.tables().await, "a");
}

#[tokio::test]
async fn a_client_may_not_name_the_prompts_that_the_ledger_hands_out() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 1, "max_staleness": 0 })))
        .await;
    feed(&run, "q").await.ok();

    let refusal = run.reserve(0, "mine").await.problem(400, "invalid_request");

    assert_eq!(refusal["field"], "prompts");
    assert_eq!(counts(&run).await, json!({ "queued": 1 }));
}

#[tokio::test]
async fn the_longest_go_first_within_each_window_and_unknown_lengths_last() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 8, "max_staleness": 0, "order": "longest_first", "order_window": 4 });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    let lengths = [Some(10), None, Some(300), Some(10), Some(9), None, Some(2_000), Some(0)];
    let prompts: Vec<_> = (0..)
        .zip(lengths)
        .map(|(number, length)| json!({ "id": format!("q-{number}"), "expected_tokens": length }))
        .collect();
    run.post("prompts", json!({ "prompts": prompts })).await.ok();

    assert_eq!(
        in_state(&run, "queued").await,
        "q-2 1, q-0 1, q-3 1, q-1 1, q-6 1, q-4 1, q-7 1, q-5 1"
    );
    assert_eq!(takes(&worker, 0, 3).await, "q-2 q-0 q-3");
    assert_eq!(takes(&worker, 0, 5).await, "q-1 q-6 q-4 q-7 q-5");
    is_sound(&run).await;
}

/// The window is `batch_size` by default.
#[tokio::test]
async fn a_window_that_is_fed_in_two_pages_is_sorted_as_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "order": "longest_first" });
    let run = ledger.run(with_queue(config)).await;
    for (id, length) in [("a", 1), ("b", 5), ("c", 9), ("d", 9), ("e", 100)] {
        let page = json!({ "prompts": [{ "id": id, "expected_tokens": length }] });
        run.post("prompts", page).await.ok();
    }

    assert_eq!(in_state(&run, "queued").await, "c 1, d 1, b 1, a 1, e 1");
}

#[tokio::test]
async fn the_queue_may_be_fed_while_the_run_goes_on() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 1 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let body = worker.says(json!({ "version": 0, "count": 2, "wait_ms": 60_000 }));
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.post("reservations", body).await }
    });
    until_somebody_waits(&ledger, &run, "admission").await;

    feed(&run, "q-1").await.ok();

    let answer = soon(waiting).await.ok();
    assert_eq!(prompts(&answer["granted"]), "q-1");
    assert_eq!(answer["blocked_by"], "prompts");
}

#[tokio::test]
async fn a_run_goes_through_its_data_several_times_with_the_same_ids() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    let mut batches = Vec::new();

    for version in 0..4 {
        if version % 2 == 0 {
            feed(&run, "a b c d").await.ok();
        }
        let granted = worker.reserve(json!({ "version": version, "count": 2 })).await.ok()["granted"].clone();
        for id in ids(&granted) {
            worker.occupy(&id, json!({})).await.ok();
        }
        let batch = trainer.take().await.ok()["batch"].clone();
        batches.push(prompts(&batch["trajectories"]));
        trainer.publish(version + 1).await.ok();
    }

    assert_eq!(batches, ["a b", "c d", "a b", "c d"]);
    assert_eq!(counts(&run).await, json!({ "trained": 8 }));
    is_sound(&run).await;
}

#[tokio::test]
async fn a_repeated_reserve_is_granted_the_same_prompts_with_their_data() {
    let Some(ledger) = Ledger::start().await else { return };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger
        .run(with_queue(json!({ "batch_size": 4, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let page = json!({ "prompts": [{ "id": "a", "data": { "n": 1 } }, { "id": "b", "data": { "n": 2 } }] });
    run.post("prompts", page).await.ok();
    let body = json!({ "version": 0, "count": 2, "request_id": "r-1" });

    let first = worker.reserve(body.clone()).await.ok();
    let again = worker.through(&other.client()).reserve(body).await.ok();

    assert_eq!(again, first);
    assert_eq!(first["granted"][1]["data"], json!({ "n": 2 }));
    assert_eq!(counts(&run).await, json!({ "in_flight": 2 }));
}

#[tokio::test]
async fn places_block_before_prompts_do() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "max_concurrency": 1 });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    let blocked = async || worker.reserve(json!({ "version": 0 })).await.ok()["blocked_by"].clone();

    assert_eq!(blocked().await, "prompts");
    feed(&run, "a").await.ok();
    takes(&worker, 0, 1).await;
    assert_eq!(blocked().await, "concurrency");
}

#[tokio::test]
async fn the_prompts_are_listed_page_by_page() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 8, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let page = json!({ "prompts": [{ "id": "a", "data": { "n": 1 }, "expected_tokens": 3 }] });
    run.post("prompts", page).await.ok();
    feed(&run, "b c d e f").await.ok();
    let granted = worker.reserve(json!({ "version": 0, "count": 3 })).await.ok()["granted"].clone();
    let a = ids(&granted).remove(0);
    worker.discard(&a, "broken").await.ok();

    let all = run.get("prompts?limit=100").await.ok();
    assert_eq!(
        all["prompts"][0],
        json!({ "id": "a", "position": 0, "state": "failed", "attempt": 1, "data": { "n": 1 }, "expected_tokens": 3,
                "reason": "broken", "trajectory": a })
    );
    assert_eq!(prompt_ids(&all), "a b c d e f");
    assert_eq!((all["fed"].clone(), all["next"].clone()), (json!(6), Value::Null));

    for state in ["", "state=queued&"] {
        let first = run.get(&format!("prompts?{state}limit=2")).await.ok();
        let next = first["next"].as_str().expect("there are more");
        let second = run.get(&format!("prompts?{state}limit=2&after={next}")).await.ok();
        let expected = if state.is_empty() { ("a b", "c d") } else { ("d e", "f") };
        assert_eq!((&*prompt_ids(&first), &*prompt_ids(&second)), expected);
    }
    // The prompt that a page ended with may have left the queue since.
    let first = run.get("prompts?state=queued&limit=2").await.ok();
    takes(&worker, 0, 2).await;
    let next = first["next"].as_str().expect("there are more");
    let second = run.get(&format!("prompts?state=queued&after={next}")).await.ok();
    assert_eq!(prompt_ids(&second), "f");

    for query in ["state=lost", "after=x", "after=1:2", "state=queued&after=1", "limit=0"] {
        run.get(&format!("prompts?{query}"))
            .await
            .problem(400, "invalid_request");
    }
}

fn prompt_ids(page: &Value) -> String {
    let ids = each(&page["prompts"]).map(|prompt| prompt["id"].as_str().expect("an id"));
    ids.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_run_that_is_created_again_begins_with_an_empty_queue() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = with_queue(json!({ "batch_size": 1, "max_staleness": 0 }));
    let run = ledger.run(config.clone()).await;
    feed(&run, "a b").await.ok();
    run.delete().await.ok();

    run.put("", config).await.status(201);

    assert_eq!(counts(&run).await, json!({}));
    assert_eq!(feed(&run, "c").await.ok(), json!({ "fed": 1 }));
}
