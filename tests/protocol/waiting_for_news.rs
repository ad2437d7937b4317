//! *Waiting* for a batch, a version, a cancellation, an event.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cast::{Worker, finish, only, prompts, soon, until_somebody_waits};
use crate::support::{Ledger, Response, Run, TestServer};

/// Sends a call that waits a minute at most, and returns once somebody waits for `topic`.
async fn waits(
    ledger: &Ledger,
    run: &Run,
    topic: &str,
    call: impl Future<Output = Response> + Send + 'static,
) -> JoinHandle<Response> {
    let call = tokio::spawn(call);
    until_somebody_waits(ledger, run, topic).await;
    call
}

fn get(run: &Run, path: &'static str) -> impl Future<Output = Response> + Send + 'static {
    let run = run.clone();
    async move { run.get(path).await }
}

fn take(run: &Run) -> impl Future<Output = Response> + Send + 'static {
    let run = run.clone();
    async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
}

fn heartbeat(worker: &Worker, body: Value) -> impl Future<Output = Response> + Send + 'static {
    let worker = worker.clone();
    async move { worker.heartbeat(body).await }
}

#[tokio::test]
async fn a_waiting_take_gets_the_batch_when_it_is_ready_and_not_before() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    run.reserve(0, "a b").await.ok();
    let call = waits(&ledger, &run, "batch", take(&run)).await;
    assert_eq!(run.get("").await.ok()["trainer"]["state"], "waiting");

    run.occupy("b").await.ok();
    assert!(!call.is_finished());
    run.occupy("a").await.ok();

    let batch = soon(call).await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "b a");
    assert_eq!(batch["redelivered"], false);
    assert_eq!(run.get("").await.ok()["trainer"]["state"], "training");
}

#[tokio::test]
async fn when_its_time_is_over_a_waiting_take_is_told_what_is_missing() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    run.reserve(0, "a b c").await.ok();
    run.occupy("a").await.ok();
    let began = Instant::now();

    let answer = run.post("batches/next", json!({ "wait_ms": 300 })).await.ok();

    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(
        only(&answer, &["batch", "buffer_state", "occupied", "needed", "finished"]),
        json!({ "batch": null, "buffer_state": "stuck", "occupied": 1, "needed": 3, "finished": false })
    );
    assert!(answer["waiting_for_ms"].as_u64() > Some(0), "{answer}");
}

#[tokio::test]
async fn one_that_publishes_wakes_who_waits_for_the_next_batch() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    finish(&run, 0, "a").await;
    run.take().await.ok();
    run.publish(1).await.ok();
    let call = waits(&ledger, &run, "batch", take(&run)).await;

    finish(&run, 1, "b").await;

    assert_eq!(soon(call).await.ok()["batch"]["version"], 1);
}

#[tokio::test]
async fn who_waits_for_a_newer_version_gets_it_with_its_weights() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    run.take().await.ok();
    let latest = get(&run, "versions/latest?after=0&wait_ms=60000");
    let call = waits(&ledger, &run, "version", latest).await;
    assert!(!call.is_finished());

    let new = json!({ "version": 1, "weights": "file:///ckpt/step-1" });
    run.post("versions", new).await.ok();

    let answer = soon(call).await.ok();
    assert_eq!(
        only(&answer, &["policy_version", "lineage", "weights", "finished"]),
        json!({ "policy_version": 1, "lineage": 0, "weights": "file:///ckpt/step-1", "finished": false })
    );
    // Who has an older one need not wait at all.
    let at_once = run.get("versions/latest?after=0&wait_ms=60000").await.ok();
    assert_eq!(at_once, answer);
}

#[tokio::test]
async fn when_nothing_newer_came_in_time_the_latest_version_is_the_answer() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let began = Instant::now();

    let answer = run.get("versions/latest?after=0&wait_ms=300").await.status(200);

    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(
        only(&answer, &["policy_version", "lineage", "weights", "finished"]),
        json!({ "policy_version": 0, "lineage": 0, "weights": null, "finished": false })
    );
}

#[tokio::test]
async fn a_waiting_heartbeat_tells_of_a_cancellation_when_there_is_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let (worker, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let (a, b) = (worker.gets(0, "a").await, other.gets(0, "b").await);
    let beat = heartbeat(&worker, json!({ "version": 0, "wait_ms": 60_000 }));
    let call = waits(&ledger, &run, "cancelled", beat).await;

    // The other's is none of its business.
    run.post(&format!("trajectories/{b}/discard"), json!({ "reason": "failed" }))
        .await
        .ok();
    assert_eq!(other.is_told().await, json!([[b, "failed"]]));
    assert!(!call.is_finished());
    other.discard(&a, "too_long").await.ok();

    let answer = soon(call).await.ok();
    assert_eq!(
        answer["cancelled"],
        json!([{ "id": a, "reason": "too_long", "members": null }])
    );
}

#[tokio::test]
async fn a_waiting_heartbeat_tells_of_a_newer_version() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    finish(&run, 0, "a").await;
    run.take().await.ok();
    let beat = heartbeat(&worker, json!({ "version": 0, "wait_ms": 60_000 }));
    let call = waits(&ledger, &run, "version", beat).await;
    assert!(!call.is_finished());

    run.publish(1).await.ok();

    assert_eq!(soon(call).await.ok()["policy_version"], 1);
    // A worker that says an older one is told at once.
    let at_once = worker.heartbeat(json!({ "version": 0, "wait_ms": 60_000 })).await.ok();
    assert_eq!(at_once["policy_version"], 1);
}

#[tokio::test]
async fn when_its_time_is_over_a_waiting_heartbeat_has_nothing_to_tell() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let began = Instant::now();

    let answer = Worker::of(&run, "rollout-1")
        .heartbeat(json!({ "version": 0, "wait_ms": 300 }))
        .await;

    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    let expected = json!({ "lease_expires_in_ms": 30_000, "policy_version": 0, "lineage": 0, "next_buffer": 0,
                           "cancelled": [], "finished": false });
    assert_eq!(answer.ok(), expected);
}

#[tokio::test]
async fn who_waits_for_events_gets_the_next_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let call = waits(&ledger, &run, "events", get(&run, "events?after=1&wait_ms=60000")).await;
    assert!(!call.is_finished());

    run.patch("", json!({ "keep_batches": 7 })).await.ok();

    let page = soon(call).await.ok();
    assert_eq!(
        only(&page["events"][0], &["seq", "type"]),
        json!({ "seq": 2, "type": "run_changed" })
    );
}

#[tokio::test]
async fn what_happens_through_one_server_wakes_who_waits_on_another() {
    let Some(ledger) = Ledger::start().await else { return };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let there = run.through(&other.client());
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let b = worker.gets(0, "b").await;
    let batch = waits(&ledger, &run, "batch", take(&there)).await;
    let beat = heartbeat(
        &worker.through(&other.client()),
        json!({ "version": 0, "wait_ms": 60_000 }),
    );
    let told = waits(&ledger, &run, "cancelled", beat).await;

    worker.occupy(&a, json!({})).await.ok();
    assert_eq!(prompts(&soon(batch).await.ok()["batch"]["trajectories"]), "a");
    run.post(&format!("trajectories/{b}/discard"), json!({ "reason": "too_long" }))
        .await
        .ok();
    assert_eq!(soon(told).await.ok()["cancelled"][0]["id"], json!(b));

    let latest = get(&there, "versions/latest?after=0&wait_ms=60000");
    let version = waits(&ledger, &run, "version", latest).await;
    let seq = run.get("").await.seq();
    let events = {
        let there = there.clone();
        async move { there.get(&format!("events?after={seq}&wait_ms=60000")).await }
    };
    let events = waits(&ledger, &run, "events", events).await;
    run.publish(1).await.ok();
    assert_eq!(soon(version).await.ok()["policy_version"], 1);
    assert_eq!(soon(events).await.ok()["events"][0]["type"], "publish");
}

#[tokio::test]
async fn all_who_wait_on_a_run_that_is_deleted_are_told_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let mut calls = vec![
        waits(&ledger, &run, "batch", take(&run)).await,
        waits(
            &ledger,
            &run,
            "version",
            get(&run, "versions/latest?after=0&wait_ms=60000"),
        )
        .await,
        waits(
            &ledger,
            &run,
            "cancelled",
            heartbeat(&worker, json!({ "wait_ms": 60_000 })),
        )
        .await,
        waits(&ledger, &run, "events", get(&run, "events?after=99&wait_ms=60000")).await,
    ];
    calls.push(Worker::of(&run, "rollout-2").waits_for_a_place(&ledger, 0, "b").await);

    run.delete().await.status(204);

    for call in calls {
        soon(call).await.problem(404, "unknown_run");
    }
}

#[tokio::test]
async fn a_server_that_stops_answers_all_who_wait_on_it() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 }))
        .await;
    run.reserve(0, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let batch = waits(&ledger, &run, "batch", take(&run)).await;
    let version = waits(
        &ledger,
        &run,
        "version",
        get(&run, "versions/latest?after=0&wait_ms=60000"),
    )
    .await;
    let beat = waits(
        &ledger,
        &run,
        "cancelled",
        heartbeat(&worker, json!({ "wait_ms": 60_000 })),
    )
    .await;
    let events = waits(&ledger, &run, "events", get(&run, "events?after=99&wait_ms=60000")).await;
    let place = Worker::of(&run, "rollout-2").waits_for_a_place(&ledger, 0, "b").await;

    let ended = ledger.server.stop().await;

    assert!(ended.success(), "{ended}");
    assert_eq!(soon(batch).await.ok()["buffer_state"], "pending");
    assert_eq!(soon(version).await.ok()["policy_version"], 0);
    assert_eq!(soon(beat).await.ok()["cancelled"], json!([]));
    assert_eq!(soon(events).await.ok()["events"], json!([]));
    assert_eq!(soon(place).await.ok()["blocked_by"], "concurrency");
}
