//! *Idempotency* of Reserve: one `request_id`, one answer.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cast::{Worker, each, finish, ids, prompts, train};
use crate::support::{Ledger, TestServer};

#[tokio::test]
async fn a_repeated_request_gets_its_first_answer_verbatim_and_nothing_more() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "version": 0, "prompts": ["a", "b"], "request_id": "r-1" });
    let first = worker.reserve(body.clone()).await.ok();

    // Meanwhile the world goes on: c and d are trained, and a finishes.
    finish(&run, 0, "c d").await;
    train(&run, 0).await;
    run.occupy("a").await.ok();

    assert_eq!(worker.reserve(body).await.ok(), first);
    assert_eq!(run.tables().await, "A b | . .");
}

#[tokio::test]
async fn a_request_is_known_to_other_servers_and_after_a_restart() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "version": 0, "count": 2, "request_id": "r-1" });
    let first = worker.reserve(body.clone()).await.ok();
    let other = TestServer::start(&ledger.database.url()).await;

    let through_other = worker.through(&other.client()).reserve(body.clone()).await.ok();
    ledger.server.stop().await;
    ledger.server = TestServer::start(&ledger.database.url()).await;
    let after_restart = worker.through(&ledger.client()).reserve(body).await.ok();

    assert_eq!(through_other, first);
    assert_eq!(after_restart, first);
    let status = run.through(&ledger.client()).get("").await.ok();
    assert_eq!(status["reserved"], 2);
}

#[tokio::test]
async fn another_body_under_the_same_request_id_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "version": 1, "prompts": ["a"], "request_id": "r-1" });
    worker.reserve(body.clone()).await.ok();

    for (field, other) in [("version", json!(0)), ("prompts", json!(["b"])), ("count", json!(2))] {
        let mut changed = body.clone();
        changed[field] = other;
        worker.reserve(changed).await.problem(409, "request_id_reused");
    }

    assert_eq!(run.tables().await, ". . . . | . . . a");
}

/// How long a client is ready to wait says nothing about what it asks for.
#[tokio::test]
async fn a_repetition_may_wait_longer_than_the_first_call() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let first = worker.reserve(json!({ "version": 0, "request_id": "r-1" })).await.ok();

    let again = json!({ "version": 0, "request_id": "r-1", "wait_ms": 60_000 });

    assert_eq!(worker.reserve(again).await.ok(), first);
}

#[tokio::test]
async fn a_request_id_is_known_per_worker_and_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = |prompt: &str| json!({ "version": 0, "prompts": [prompt], "request_id": "r-1" });

    worker.reserve(body("a")).await.ok();
    Worker::of(&run, "rollout-2").reserve(body("b")).await.ok();
    assert_eq!(run.tables().await, ". . b a");

    worker.restarted().reserve(body("c")).await.ok();
    assert_eq!(run.tables().await, ". . c b");
}

#[tokio::test]
async fn an_answer_that_granted_nothing_is_not_remembered() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "version": 0, "prompts": ["b"], "request_id": "r-1" });
    run.reserve(0, "a").await.ok();

    let nothing = worker.reserve(body.clone()).await.ok();
    assert_eq!(nothing["granted"], json!([]));
    run.discard("a", "failed").await.ok();

    assert_eq!(prompts(&worker.reserve(body).await.ok()["granted"]), "b");
    assert_eq!(run.tables().await, "b");
}

#[tokio::test]
async fn the_same_reserve_sent_ten_times_at_once_over_two_servers_grants_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let body = json!({ "version": 0, "prompts": ["a", "b"], "request_id": "r-1" });

    let answers = sent_ten_times(&ledger, &Worker::of(&run, "rollout-1"), &body).await;

    assert_eq!(prompts(&answers[0]["granted"]), "a b");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert_eq!(run.tables().await, ". . b a");
}

/// Which step of the first call a repetition meets is a matter of chance: it ends there, for all of them.
#[tokio::test]
async fn so_does_one_that_is_granted_in_many_steps() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 600, "max_staleness": 0 })).await;
    let body = json!({ "version": 0, "count": 500, "request_id": "r-1" });

    let answers = sent_ten_times(&ledger, &Worker::of(&run, "rollout-1"), &body).await;

    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    let mut granted = ids(&answers[0]["granted"]);
    let tables = run.get("buffers?slots=true").await.ok();
    let reserved = each(&tables["buffers"][0]["slots"]).filter(|slot| slot["state"] == "reserved");
    let mut reserved: Vec<_> = reserved.filter_map(|slot| slot["id"].as_str()).collect();
    granted.sort_unstable();
    reserved.sort_unstable();
    assert_eq!(granted, reserved);
}

async fn sent_ten_times(ledger: &Ledger, worker: &Worker, body: &Value) -> Vec<Value> {
    let other = TestServer::start(&ledger.database.url()).await;
    let mut calls = JoinSet::new();
    for number in 0..10 {
        let server = if number % 2 == 0 { &ledger.server } else { &other };
        let (worker, body) = (worker.through(&server.client()), body.clone());
        calls.spawn(async move { worker.reserve(body).await.ok() });
    }
    calls.join_all().await
}
