//! *Waiting* for a place: Reserve with `wait_ms`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cast::{Worker, each, finish, ids, ledger_with_places_to_wait, only, prompts, soon, until_somebody_waits};
use crate::support::{Client, Ledger, Proxy, TestServer, Traffic, eventually};

#[tokio::test]
async fn a_waiting_reserve_is_answered_when_a_place_is_free_and_not_before() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    run.reserve(0, "a b").await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "c").await;

    // A step that frees no place.
    run.occupy("a").await.ok();
    assert!(!call.is_finished());
    run.discard("b", "failed").await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "c");
    assert_eq!(run.tables().await, "A c");
}

#[tokio::test]
async fn a_waiting_reserve_is_answered_with_what_there_is_as_soon_as_that_is_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let body = json!({ "version": 0, "prompts": ["a", "b", "c"], "wait_ms": 60_000 });

    let answer = Worker::of(&run, "rollout-1").reserve(body).await.ok();

    assert_eq!(prompts(&answer["granted"]), "a b");
    assert_eq!(answer["blocked_by"], "staleness");
}

#[tokio::test]
async fn when_its_time_is_over_a_waiting_reserve_is_told_what_blocks_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let waits = async || {
        let began = Instant::now();
        let answer = worker.reserve(json!({ "version": 0, "wait_ms": 300 })).await.ok();
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
        only(&answer, &["granted", "blocked_by"])
    };
    run.reserve(0, "a").await.ok();

    assert_eq!(waits().await, json!({ "granted": [], "blocked_by": "concurrency" }));

    run.occupy("a").await.ok();
    finish(&run, 0, "b").await;
    assert_eq!(waits().await, json!({ "granted": [], "blocked_by": "staleness" }));
}

#[tokio::test]
async fn a_place_that_concurrency_held_back_is_given_when_one_finishes() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "max_concurrency": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a").await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "b").await;

    run.occupy("a").await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "b");
    assert_eq!(run.tables().await, "A . . b");
}

#[tokio::test]
async fn a_version_that_is_published_opens_places_for_those_who_wait() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    finish(&run, 0, "a b").await;
    run.take().await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "c").await;

    run.publish(1).await.ok();
    run.discard("b", "filtered").await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "c");
    assert_eq!(run.tables().await, "c | .");
}

/// Its weights have become too old while it waited: waiting on is no use.
#[tokio::test]
async fn a_waiting_reserve_is_refused_when_its_version_becomes_too_stale() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "b").await;

    run.occupy("a").await.ok();
    run.take().await.ok();
    run.publish(1).await.ok();

    soon(call).await.problem(409, "version_too_stale");
}

#[tokio::test]
async fn waiting_reserves_are_served_in_the_order_of_their_arrival() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let mut calls = Vec::new();
    for name in ["b", "c", "d"] {
        calls.push(Worker::of(&run, name).waits_for_a_place(&ledger, 0, name).await);
    }

    for (held, next) in ["a", "b", "c"].into_iter().zip(["b", "c", "d"]) {
        run.discard(held, "failed").await.ok();
        assert_eq!(prompts(&soon(calls.remove(0)).await.ok()["granted"]), next);
        assert!(calls.iter().all(|call| !call.is_finished()));
    }
}

/// An older version is blocked where a newer one is not: whoever waits behind it is not held up.
#[tokio::test]
async fn one_that_cannot_be_served_yet_does_not_hold_up_the_others() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a").await.ok();
    run.reserve(1, "b").await.ok();
    let old = Worker::of(&run, "old").waits_for_a_place(&ledger, 0, "c").await;
    let new = Worker::of(&run, "new").waits_for_a_place(&ledger, 1, "d").await;

    run.discard("b", "failed").await.ok();

    assert_eq!(prompts(&soon(new).await.ok()["granted"]), "d");
    assert!(!old.is_finished());
    assert_eq!(run.tables().await, "a | d");
}

#[tokio::test]
async fn a_place_that_becomes_free_through_one_server_is_given_to_who_waits_on_another() {
    let Some(ledger) = Ledger::start().await else { return };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1").through(&other.client());
    let call = worker.waits_for_a_place(&ledger, 0, "b").await;

    run.discard("a", "failed").await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "b");
}

#[tokio::test]
async fn the_call_of_a_replaced_session_is_fenced_while_it_waits() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let call = worker.waits_for_a_place(&ledger, 0, "b").await;

    worker.restarted().heartbeat(json!({})).await.ok();

    soon(call).await.problem(409, "fenced");
}

/// The one place to wait is free again when the server has noticed that the client is gone.
#[tokio::test]
async fn a_client_without_a_request_id_that_hangs_up_is_granted_nothing() {
    let Some(ledger) = ledger_with_places_to_wait(1).await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let gone = Worker::of(&run, "rollout-1").through(&ledger.client());
    let call = gone.waits_for_a_place(&ledger, 0, "b").await;

    call.abort();
    let latest = run.path("versions/latest?after=0&wait_ms=1");
    eventually("the hang-up is noticed", async || {
        run.client().get(&latest).await.status == 200
    })
    .await;
    let call = Worker::of(&run, "rollout-2").waits_for_a_place(&ledger, 0, "c").await;
    run.discard("a", "failed").await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "c");
    assert_eq!(run.tables().await, "c");
    assert_eq!(run.get("").await.ok()["totals"]["reserved"], 2);
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_stands_if_it_has_a_request_id() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let proxy = Proxy::to_http(ledger.server.url()).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "worker": "rollout-1", "session": worker.session(), "version": 0, "prompts": ["b"],
                       "wait_ms": 60_000, "request_id": "r-1" });
    run.reserve(0, "a").await.ok();
    let lost = {
        let (client, path, body) = (Client::new(&proxy.http_url()), run.path("reservations"), body.clone());
        tokio::spawn(async move { client.attempt(hyper::Method::POST, &path, Some(body)).await })
    };
    until_somebody_waits(&ledger, &run, "admission").await;

    proxy.set(Traffic::CutAnswers);
    run.discard("a", "failed").await.ok();

    let lost = tokio::time::timeout(Duration::from_secs(30), lost).await;
    lost.expect("an answer is due")
        .expect("a call")
        .expect_err("its answer is cut");
    assert_eq!(run.tables().await, "b");
    let again = worker
        .reserve(json!({ "version": 0, "prompts": ["b"], "request_id": "r-1" }))
        .await;
    assert_eq!(ids(&again.ok()["granted"]), [run.id_of("b").await]);
    assert_eq!(run.tables().await, "b");
}

#[tokio::test]
async fn a_call_that_waits_longer_than_a_minute_is_not_allowed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");

    let refusals = [
        worker.reserve(json!({ "version": 0, "wait_ms": 60_001 })).await,
        worker.heartbeat(json!({ "wait_ms": 60_001 })).await,
        run.post("batches/next", json!({ "wait_ms": 60_001 })).await,
        run.get("versions/latest?wait_ms=60001").await,
        run.get("events?wait_ms=60001").await,
    ];

    for refusal in refusals {
        assert_eq!(refusal.problem(400, "invalid_request")["field"], "wait_ms");
    }
}

#[tokio::test]
async fn a_server_lets_no_more_calls_wait_than_it_was_told_and_serves_all_others() {
    let Some(ledger) = ledger_with_places_to_wait(1).await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let waiting = Worker::of(&run, "rollout-2").waits_for_a_place(&ledger, 0, "b").await;

    let refusals = [
        worker.reserve(json!({ "version": 0, "wait_ms": 1 })).await,
        worker.heartbeat(json!({ "wait_ms": 1 })).await,
        run.post("batches/next", json!({ "wait_ms": 1 })).await,
        run.get("versions/latest?after=0&wait_ms=1").await,
        run.get("events?after=100&wait_ms=1").await,
    ];
    for refusal in refusals {
        refusal.problem(429, "too_many_waiting");
    }

    let blocked = worker.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(blocked["blocked_by"], "staleness");
    run.discard("a", "failed").await.ok();
    assert_eq!(prompts(&soon(waiting).await.ok()["granted"]), "b");
    let held = run.get("trajectories").await.ok();
    assert_eq!(each(&held["trajectories"]).count(), 1);
}
