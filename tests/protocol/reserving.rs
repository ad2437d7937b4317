//! *Reserve*: which slot, and when none.

use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, ids, only, prompts, without};
use crate::support::Ledger;

#[tokio::test]
async fn a_grant_says_all_that_a_worker_needs_to_know() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 1 })).await;

    let answer = run.reserve(0, "q-17").await.ok();

    let id = ids(&answer["granted"]).remove(0);
    let expected = json!({
        "granted": [{ "id": id, "prompt": "q-17", "version": 0, "deadline": 1, "buffer": 1, "slot": 3, "attempt": 1 }],
        "blocked_by": null, "policy_version": 0, "lineage": 0, "next_buffer": 0,
        "lease_expires_in_ms": 30_000, "finished": false,
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn places_are_given_from_the_rear_of_the_latest_buffer_on() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;

    let granted = run.reserve(0, "a b c d e").await.ok();

    assert_eq!(prompts(&granted["granted"]), "a b c d e");
    assert_eq!(run.tables().await, ". e | d c | b a");
}

#[tokio::test]
async fn older_weights_are_given_buffers_up_to_their_deadline_only() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 2, "initial_version": 5 });
    let run = ledger.run(config).await;

    run.reserve(3, "a").await.ok();
    run.reserve(4, "b").await.ok();
    run.reserve(5, "c").await.ok();

    assert_eq!(run.tables().await, ". a | . b | . c");
}

#[tokio::test]
async fn a_buffer_that_is_full_is_passed_over_and_so_is_one_that_is_ready() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "slots_per_buffer": 2, "max_staleness": 1 });
    let run = ledger.run(config).await;

    finish(&run, 0, "a").await;
    run.reserve(0, "b c").await.ok();
    let blocked = run.reserve(0, "d").await.ok();

    assert_eq!(blocked["blocked_by"], "staleness");
    assert_eq!(run.tables().await, "A . | c b");
}

#[tokio::test]
async fn a_version_that_is_not_published_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;

    let refusal = run.reserve(1, "a").await.problem(409, "version_not_published");

    assert_eq!(refusal["policy_version"], 0);
    assert_eq!(run.tables().await, ". | .");
}

#[tokio::test]
async fn weights_whose_last_buffer_is_taken_are_too_stale() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a").await.ok();

    run.occupy("a").await.ok();
    run.take().await.ok();

    let refusal = run.reserve(0, "b").await.problem(409, "version_too_stale");
    assert_eq!(refusal["policy_version"], 1);
    assert_eq!(run.tables().await, ".");
}

/// It has the newest weights there are: fetching newer ones is no help, waiting is.
#[tokio::test]
async fn the_latest_version_is_blocked_and_not_refused_while_no_buffer_is_open() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    run.take().await.ok();

    let answer = run.reserve(0, "b").await.ok();

    let expected = json!({
        "granted": [], "blocked_by": "staleness", "policy_version": 0, "lineage": 0, "next_buffer": 1,
        "lease_expires_in_ms": 30_000, "finished": false,
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn the_version_is_the_one_that_the_session_said_last() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 4, "initial_version": 9 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let version_of = async |body: Value| worker.reserve(body).await.ok()["granted"][0]["version"].clone();

    worker.heartbeat(json!({ "version": 7 })).await.ok();
    assert_eq!(version_of(json!({})).await, 7);

    assert_eq!(version_of(json!({ "version": 8 })).await, 8);
    assert_eq!(version_of(json!({})).await, 8);

    worker.heartbeat(json!({ "version": 9 })).await.ok();
    assert_eq!(version_of(json!({})).await, 9);
}

#[tokio::test]
async fn a_version_is_never_guessed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.heartbeat(json!({})).await.ok();

    let refusal = worker.reserve(json!({})).await.problem(400, "invalid_request");

    assert_eq!(refusal["field"], "version");
    assert_eq!(run.tables().await, ". | .");
}

#[tokio::test]
async fn no_more_generate_at_once_than_max_concurrency_and_this_is_told_before_staleness() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "max_concurrency": 2 });
    let run = ledger.run(config).await;

    let first = run.reserve(0, "a b c").await.ok();
    assert_eq!(prompts(&first["granted"]), "a b");
    assert_eq!(first["blocked_by"], "concurrency");

    // One generates, and there is no slot: what is finished takes one and generates no more.
    run.occupy("a").await.ok();
    let second = run.reserve(0, "c").await.ok();
    assert_eq!(
        only(&second, &["granted", "blocked_by"]),
        json!({ "granted": [], "blocked_by": "staleness" })
    );
    assert_eq!(run.tables().await, "A | b");
}

#[tokio::test]
async fn fewer_than_asked_for_is_a_success_that_says_why() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;

    let answer = run.reserve(0, "a b c").await.status(200);

    assert_eq!(prompts(&answer["granted"]), "a b");
    assert_eq!(answer["blocked_by"], "staleness");
    assert_eq!(run.tables().await, "b a");
}

#[tokio::test]
async fn prompts_go_to_the_grants_in_their_order_and_the_rest_have_none() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");

    let body = json!({ "version": 0, "count": 4, "prompts": ["a", "b"] });
    let answer = worker.reserve(body).await.ok();

    let places: Vec<_> = each(&answer["granted"])
        .map(|grant| json!([grant["prompt"], grant["slot"]]))
        .collect();
    assert_eq!(json!(places), json!([["a", 3], ["b", 2], [null, 1], [null, 0]]));
}

#[tokio::test]
async fn the_count_is_from_1_to_1_024_and_not_below_the_number_of_prompts() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let field = async |body: Value| worker.reserve(body).await.problem(400, "invalid_request")["field"].clone();

    assert_eq!(field(json!({ "version": 0, "count": 0 })).await, "count");
    assert_eq!(field(json!({ "version": 0, "count": 1_025 })).await, "count");
    assert_eq!(
        field(json!({ "version": 0, "count": 1, "prompts": ["a", "b"] })).await,
        "prompts"
    );
    assert_eq!(run.tables().await, ". . . .");
}

#[tokio::test]
async fn a_thousand_and_more_are_granted_in_steps_of_at_most_100() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1_024, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let all: Vec<_> = (0..1_024).map(|number| format!("q-{number}")).collect();

    let answer = worker.reserve(json!({ "version": 0, "prompts": all })).await.ok();

    let granted: Vec<_> = each(&answer["granted"])
        .map(|grant| json!([grant["prompt"], grant["slot"]]))
        .collect();
    let expected: Vec<_> = (0..1_024)
        .map(|number| json!([format!("q-{number}"), 1_023 - number]))
        .collect();
    assert_eq!(granted, expected);
    let events = run.get("events?limit=1000").await.ok();
    let steps = each(&events["events"]).filter(|event| event["type"] == "reserve");
    let sizes: Vec<_> = steps.map(|event| each(&event["ids"]).count()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 1_024);
    assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
    let status = without(run.get("").await.ok()["totals"].clone(), &["discarded"]);
    assert_eq!(
        status,
        json!({ "reserved": 1_024, "occupied": 0, "trained": 0, "late": 0, "adopted": 0 })
    );
}
