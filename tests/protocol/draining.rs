//! *Drain*: the end of a run.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cast::{
    Worker, finish, only, prompts, soon, train, trajectory, until_expired, until_somebody_waits, without,
};
use crate::journal::{events, is_sound};
use crate::support::{Ledger, Response, Run};

async fn drain(run: &Run, on: bool) -> Value {
    run.post("drain", json!({ "drain": on })).await.ok()
}

#[tokio::test]
async fn the_last_prompts_of_a_data_set_fill_half_a_batch() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 1 })).await;
    run.reserve(0, "a b c d e f").await.ok();

    assert_eq!(
        drain(&run, true).await,
        json!({ "draining": true, "finished": false, "reserved": 6 })
    );
    let refused = run.reserve(0, "g").await.ok();
    assert_eq!(
        only(&refused, &["granted", "blocked_by", "finished"]),
        json!({ "granted": [], "blocked_by": "draining", "finished": false })
    );
    for prompt in ["a", "b", "c", "d", "e"] {
        run.occupy(prompt).await.ok();
    }
    let full = run.take().await.ok();
    assert_eq!(
        (prompts(&full["batch"]["trajectories"]), &full["batch"]["final"]),
        ("a b c d".to_owned(), &json!(false))
    );
    run.publish(1).await.ok();
    assert_eq!(run.take().await.ok()["batch"], json!(null), "f is still generated");
    run.occupy("f").await.ok();

    let last = run.take().await.ok();
    assert_eq!(prompts(&last["batch"]["trajectories"]), "e f");
    assert_eq!(
        without(last["batch"].clone(), &["trajectories"]),
        json!({ "version": 1, "redelivered": false, "replayed": false, "offset": 0, "complete": true, "final": true })
    );
    assert_eq!(run.take().await.ok()["batch"]["final"], true, "given again");
    assert_eq!(
        run.get("").await.ok()["finished"],
        false,
        "its version is not published"
    );
    run.publish(2).await.ok();

    let done = run.take().await.ok();
    assert_eq!(
        only(&done, &["batch", "finished"]),
        json!({ "batch": null, "finished": true })
    );
    let listed = run.get("batches").await.ok()["batches"][1].clone();
    assert_eq!(
        only(&listed, &["entries", "final", "state"]),
        json!({ "entries": 2, "final": true, "state": "trained" })
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn every_answer_says_that_the_run_is_finished() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let finished = async || {
        [
            run.get("").await.ok(),
            run.put("", json!({ "batch_size": 1, "max_staleness": 0 })).await.ok(),
            run.take().await.ok(),
            run.post("batches/next", json!({ "stream": true, "from_offset": 0 }))
                .await
                .ok(),
            run.get("versions/latest").await.ok(),
            worker.heartbeat(json!({})).await.ok(),
            worker.reserve(json!({ "version": 0, "count": 1 })).await.ok(),
        ]
        .map(|answer| answer["finished"].clone())
    };
    drain(&run, true).await;
    assert_eq!(finished().await, [(); 7].map(|()| json!(true)));
    assert_eq!(drain(&run, false).await["finished"], false);
    let answers = finished().await;
    assert_eq!(answers, [(); 7].map(|()| json!(false)));
}

/// Calls of every kind that wait for something that will never come.
async fn wait(ledger: &Ledger, run: &Run) -> Vec<(&'static str, JoinHandle<Response>)> {
    let worker = Worker::of(run, "rollout-1");
    let reserve = worker.waits_for_a_place(ledger, 0, "z").await;
    let post = |path: &'static str, body: Value| {
        let run = run.clone();
        tokio::spawn(async move { run.post(path, body).await })
    };
    let take = post("batches/next", json!({ "wait_ms": 60_000 }));
    let stream = post(
        "batches/next",
        json!({ "stream": true, "from_offset": 0, "min_entries": 9, "wait_ms": 60_000 }),
    );
    let beat = post(
        "workers/rollout-2/heartbeat",
        json!({ "session": "s", "version": 5, "wait_ms": 60_000 }),
    );
    let latest = {
        let run = run.clone();
        tokio::spawn(async move { run.get("versions/latest?after=9&wait_ms=60000").await })
    };
    for topic in ["admission", "batch", "cancelled", "version"] {
        until_somebody_waits(ledger, run, topic).await;
    }
    vec![
        ("reserve", reserve),
        ("take", take),
        ("stream", stream),
        ("heartbeat", beat),
        ("latest", latest),
    ]
}

async fn all_are_told(calls: Vec<(&'static str, JoinHandle<Response>)>) {
    for (what, call) in calls {
        assert_eq!(soon(call).await.ok()["finished"], true, "{what}");
    }
}

#[tokio::test]
async fn every_waiting_call_is_told_when_a_drain_finishes_the_run_at_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 }))
        .await;
    run.reserve(0, "a").await.ok();
    let calls = wait(&ledger, &run).await;
    drain(&run, true).await;
    for (what, call) in &calls {
        assert!(!call.is_finished(), "{what}");
    }

    run.discard("a", "failed").await.ok();

    all_are_told(calls).await;
}

#[tokio::test]
async fn every_waiting_call_is_told_when_the_last_version_is_published() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    let batch = run.take().await.ok();
    assert_eq!(batch["batch"]["version"], 0);
    drain(&run, true).await;
    let worker = Worker::of(&run, "rollout-1");
    let reserve = worker.waits_for_a_place(&ledger, 0, "z").await;
    let beat = tokio::spawn({
        let worker = worker.clone();
        async move { worker.heartbeat(json!({ "version": 0, "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "cancelled").await;

    run.publish(1).await.ok();

    assert_eq!(soon(beat).await.ok()["finished"], true);
    // Its weights are too old by now; a process that asks again is told.
    soon(reserve).await.problem(409, "version_too_stale");
    assert_eq!(worker.reserve(json!({ "version": 1 })).await.ok()["finished"], true);
}

#[tokio::test]
async fn a_waiting_take_is_given_the_last_batch_when_nothing_more_is_to_come() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    run.reserve(0, "b").await.ok();
    drain(&run, true).await;
    let take = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "batch").await;
    assert!(!take.is_finished());

    run.discard("b", "failed").await.ok();

    let last = soon(take).await.ok();
    assert_eq!(
        (prompts(&last["batch"]["trajectories"]), &last["batch"]["final"]),
        ("a".to_owned(), &json!(true))
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn what_is_left_over_is_discarded_if_the_run_wants_full_batches_only() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 80, "max_staleness": 0, "final_batch": "discard" }))
        .await;
    let prompts: Vec<_> = (0..60).map(|number| format!("p{number}")).collect();
    let worker = Worker::of(&run, "rollout-1");
    let granted = worker.reserve(json!({ "version": 0, "prompts": prompts })).await.ok();
    let finished: Vec<_> = granted["granted"]
        .as_array()
        .expect("grants")
        .iter()
        .map(|grant| json!({ "id": grant["id"] }))
        .collect();
    run.post("occupy", worker.says(json!({ "trajectories": finished })))
        .await
        .ok();
    drain(&run, true).await;

    let answer = run.take().await.ok();

    assert_eq!(
        only(&answer, &["batch", "finished"]),
        json!({ "batch": null, "finished": true })
    );
    assert_eq!(run.get("").await.ok()["totals"]["discarded"], json!({ "drained": 60 }));
    let discards: Vec<_> = events(&run)
        .await
        .into_iter()
        .filter(|event| event.reason.as_ref().is_some_and(|reason| reason.as_str() == "drained"))
        .map(|event| event.ids.len())
        .collect();
    assert_eq!(discards, [50, 10], "in steps");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_streamed_batch_ends_with_an_empty_piece_that_is_final() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 4, "max_staleness": 0, "final_batch": "discard" }))
        .await;
    finish(&run, 0, "a b").await;
    let stream = async |from: u64| {
        let body = json!({ "stream": true, "from_offset": from });
        run.post("batches/next", body).await.ok()["batch"].clone()
    };
    assert_eq!(prompts(&stream(0).await["trajectories"]), "a b");
    drain(&run, true).await;

    let end = stream(2).await;
    assert_eq!(
        end,
        json!({ "version": 0, "redelivered": false, "replayed": false, "offset": 2, "complete": true, "final": true,
                "trajectories": [] })
    );
    run.publish(1).await.ok();
    assert_eq!(run.get("").await.ok()["finished"], true);
    is_sound(&run).await;
}

#[tokio::test]
async fn a_drain_that_is_called_off_admits_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    drain(&run, true).await;
    let seq = run.get("").await.seq();
    drain(&run, true).await;
    assert_eq!(run.get("").await.seq(), seq, "said again, it changes nothing");
    let reserve = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "b").await;

    assert_eq!(
        drain(&run, false).await,
        json!({ "draining": false, "finished": false, "reserved": 0 })
    );

    assert_eq!(soon(reserve).await.ok()["granted"][0]["prompt"], "b");
    assert_eq!(run.take().await.ok()["batch"], json!(null), "no shorter batch");
    run.occupy("b").await.ok();
    train(&run, 0).await;

    // A shorter batch that was taken stays one, and the run goes on behind it.
    finish(&run, 1, "c").await;
    drain(&run, true).await;
    train(&run, 1).await;
    drain(&run, false).await;
    finish(&run, 2, "d e").await;
    let batch = run.take().await.ok()["batch"].clone();
    assert_eq!(
        (prompts(&batch["trajectories"]), &batch["final"]),
        ("d e".to_owned(), &json!(false))
    );
    assert_eq!(run.get("batches/1").await.ok()["final"], true);
    is_sound(&run).await;
}

#[tokio::test]
async fn a_late_occupy_is_welcome_until_the_run_is_finished() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b] = [worker.gets(0, "a").await, worker.gets(0, "b").await];
    until_expired(&run, &a).await;
    until_expired(&run, &b).await;
    assert_eq!(worker.occupy(&a, json!({})).await.ok()["late"], true);
    drain(&run, true).await;
    train(&run, 0).await;

    let refused = worker.occupy(&b, json!({})).await.problem(409, "trajectory_discarded");

    assert_eq!(refused["reason"], "lease_expired");
    assert_eq!(trajectory(&run, &b).await["state"], "discarded");
    is_sound(&run).await;
}
