//! *Occupy*: what a finished trajectory leaves, who may finish it, and what is refused.

use serde_json::json;

use crate::cast::{Worker, each, finish, only, trajectory, until_expired, without};
use crate::support::Ledger;
use crate::wire;

#[tokio::test]
async fn what_a_finished_trajectory_leaves_is_shown_wherever_it_is() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    let left =
        json!({ "reward": -0.25, "tokens": 5_120, "payload": "file:///dev/shm/a.npz", "meta": { "finish": "stop" } });
    let place = worker.occupy(&a, left).await.ok();

    assert_eq!(
        place,
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    let times = ["reserved_at_ms", "occupied_at_ms"];
    let shown = json!({
        "id": a, "prompt": "a", "state": "occupied", "reason": null, "note": null,
        "worker": "rollout-1", "session": "rollout-1-1", "version": 0, "deadline": 1, "staleness": 0,
        "buffer": 0, "slot": 0, "attempt": 1, "late": false,
        "reward": -0.25, "tokens": 5_120, "payload": "file:///dev/shm/a.npz", "meta": { "finish": "stop" },
        "segments": [{ "version": 0, "from_token": 0 }], "members": null, "taken_at_ms": null,
    });
    assert_eq!(without(trajectory(&run, &a).await, &times), shown);
    let buffers = run.get("buffers?slots=true").await.ok();
    assert_eq!(without(buffers["buffers"][0]["slots"][0].clone(), &times), shown);

    let taken = run.take().await.ok()["batch"]["trajectories"][0].clone();
    assert!(taken["taken_at_ms"].as_u64() >= taken["occupied_at_ms"].as_u64());
    assert!(taken["occupied_at_ms"].as_u64() >= taken["reserved_at_ms"].as_u64());
    assert_eq!(trajectory(&run, &a).await, taken);
    let mut expected = shown;
    expected["state"] = json!("taken");
    expected["taken_at_ms"] = taken["taken_at_ms"].clone();
    assert_eq!(without(taken, &times), expected);
}

#[tokio::test]
async fn nothing_has_to_be_left() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let a = Worker::of(&run, "rollout-1").gets(0, "a").await;

    run.post(&format!("trajectories/{a}/occupy"), json!({})).await.ok();

    let shown = trajectory(&run, &a).await;
    assert_eq!(
        only(&shown, &["state", "reward", "tokens", "payload", "meta"]),
        json!({ "state": "occupied", "reward": null, "tokens": null, "payload": null, "meta": null })
    );
}

/// Numbers that a double does not hold, key order, repeated keys: `meta` is the client's text and nobody reads it.
#[tokio::test]
async fn meta_comes_back_as_it_was_written() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let a = Worker::of(&run, "rollout-1").gets(0, "a").await;
    let meta = r#"{"z":1e300,"a":0.1,"n":12345678901234567890123,"one":1.0,"deep":{"list":[[],{},null,true,-0.0]},"text":"grün 猫 \u0000 \"quoted\" \/","a":2}"#;

    let url = format!(
        "{}{}",
        run.client().url(),
        run.path(&format!("trajectories/{a}/occupy"))
    );
    wire::post(&url, &format!(r#"{{ "reward": 0.1, "meta": {meta} }}"#)).await;

    let url = format!("{}{}", run.client().url(), run.path(&format!("trajectories/{a}")));
    let shown = wire::get(&url).await;
    assert!(shown.contains(&format!(r#""meta":{meta},"#)), "{shown}");
    let batch = run.take().await;
    assert_eq!(batch.ok()["batch"]["trajectories"][0]["reward"], 0.1);
    let url = format!("{}{}", run.client().url(), run.path("batches/0"));
    let shown = wire::get(&url).await;
    assert!(shown.contains(&format!(r#""meta":{meta},"#)), "{shown}");
}

#[tokio::test]
async fn a_reference_has_at_most_2_kib_and_meta_is_an_object_of_at_most_16() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let text = |bytes: usize| "x".repeat(bytes);

    for (field, value) in [
        ("payload", json!(text(2_049))),
        ("meta", json!({ "t": text(16 * 1_024 - 7) })),
        ("meta", json!([])),
        ("meta", json!("{}")),
    ] {
        let refusal = worker.occupy(&a, json!({ field: value })).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], field);
    }
    assert_eq!(run.tables().await, "a");

    let largest = json!({ "payload": text(2_048), "meta": { "t": text(16 * 1_024 - 8) } });
    worker.occupy(&a, largest).await.ok();
    assert_eq!(run.tables().await, "A");
}

#[tokio::test]
async fn an_occupy_sent_again_shows_the_current_place_and_changes_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    finish(&run, 0, "x").await;
    let a = worker.gets(0, "a").await;
    let first = worker.occupy(&a, json!({ "reward": 1.0 })).await;
    assert_eq!(
        first.status(200),
        json!({ "state": "occupied", "buffer": 1, "slot": 0, "buffer_state": "ready", "late": false })
    );

    // x is filtered, so that A moves to buffer 0, where it is taken.
    run.discard("x", "filtered").await.ok();
    let seq = run.get("").await.seq();
    let moved = worker.occupy(&a, json!({ "reward": 2.0 })).await;
    assert_eq!(moved.seq(), seq);
    assert_eq!(
        moved.ok(),
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    run.take().await.ok();
    let taken = worker.occupy(&a, json!({ "reward": 3.0 })).await.ok();
    assert_eq!(
        taken,
        json!({ "state": "taken", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    assert_eq!(trajectory(&run, &a).await["reward"], 1.0);
}

#[tokio::test]
async fn one_bad_id_among_many_spoils_no_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b, c) = (
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    );
    worker.discard(&b, "failed").await.ok();
    let unknown = "0197a000-0000-7000-8000-000000000000";

    let many = json!({ "trajectories": [
        { "id": c, "reward": 1.0 }, { "id": unknown }, { "id": b }, { "id": "no id at all" }, { "id": a }, { "id": c },
    ] });
    let answer = run.post("occupy", worker.says(many)).await.ok();

    let done = |id: &str, slot: u64| json!({ "id": id, "state": "occupied", "buffer": 0, "slot": slot, "buffer_state": "pending", "late": false });
    assert_eq!(
        answer,
        json!({ "results": [
            done(&c, 0),
            { "id": unknown, "code": "unknown_trajectory" },
            { "id": b, "code": "trajectory_discarded", "reason": "failed" },
            { "id": "no id at all", "code": "unknown_trajectory" },
            done(&a, 1),
            done(&c, 0),
        ] })
    );
    assert_eq!(run.tables().await, "C A . .");
}

#[tokio::test]
async fn from_1_to_1_024_are_finished_at_once_in_their_order() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1_024, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let granted = worker.reserve(json!({ "version": 0, "count": 1_024 })).await.ok();
    let many = |ids: Vec<serde_json::Value>| worker.says(json!({ "trajectories": ids }));
    let all: Vec<_> = each(&granted["granted"]).map(|grant| only(grant, &["id"])).collect();
    let one_more = all.iter().chain([&all[0]]).cloned().collect();

    for bad in [vec![], one_more] {
        let refusal = run.post("occupy", many(bad)).await.problem(400, "invalid_request");
        assert_eq!(refusal["field"], "trajectories");
    }
    let answer = run.post("occupy", many(all.clone())).await.ok();

    let slots: Vec<_> = each(&answer["results"])
        .map(|result| json!([result["id"], result["slot"]]))
        .collect();
    let expected: Vec<_> = (0..).zip(&all).map(|(slot, one)| json!([one["id"], slot])).collect();
    assert_eq!(slots, expected);
}

#[tokio::test]
async fn an_unknown_trajectory_is_not_found() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");

    for id in ["0197a000-0000-7000-8000-000000000000", "q-17"] {
        worker.occupy(id, json!({})).await.problem(404, "unknown_trajectory");
        worker.discard(id, "failed").await.problem(404, "unknown_trajectory");
        worker.claim(id).await.problem(404, "unknown_trajectory");
        let shown = run.get(&format!("trajectories/{id}")).await;
        shown.problem(404, "unknown_trajectory");
    }
}

#[tokio::test]
async fn a_discarded_trajectory_cannot_be_finished() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.discard(&a, "out_of_memory").await.ok();

    let refusal = worker.occupy(&a, json!({})).await.problem(409, "trajectory_discarded");

    assert_eq!(refusal["reason"], "out_of_memory");
    assert_eq!(run.tables().await, ".");
}

#[tokio::test]
async fn any_live_session_may_finish_a_trajectory_and_so_may_a_process_that_is_no_worker() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let (worker, reward) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "reward-1"));
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    reward.occupy(&a, json!({ "reward": 1.0 })).await.ok();
    run.post(&format!("trajectories/{b}/occupy"), json!({})).await.ok();

    assert_eq!(run.tables().await, "A B");
    assert_eq!(trajectory(&run, &a).await["worker"], "rollout-1");
}

#[tokio::test]
async fn the_late_occupy_of_a_worker_that_was_only_slow_is_kept_where_legal() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    until_expired(&run, &a).await;
    assert_eq!(run.tables().await, ". | .");

    let place = worker.occupy(&a, json!({ "reward": 0.5 })).await.ok();

    assert_eq!(
        place,
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": true })
    );
    assert_eq!(run.tables().await, "A | .");
    let shown = trajectory(&run, &a).await;
    assert_eq!(
        only(&shown, &["state", "reason", "late", "reward"]),
        json!({ "state": "occupied", "reason": null, "late": true, "reward": 0.5 })
    );
    assert_eq!(
        run.get("").await.ok()["totals"],
        json!({ "reserved": 1, "occupied": 1, "trained": 0, "late": 1, "adopted": 0, "discarded": { "lease_expired": 1 } })
    );
    assert_eq!(
        worker.is_told().await,
        json!([]),
        "it need not stop what it has finished"
    );
}

#[tokio::test]
async fn a_late_occupy_without_a_slot_is_refused_with_the_original_reason() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    until_expired(&run, &a).await;
    finish(&run, 0, "b").await;

    let refusal = worker.occupy(&a, json!({})).await.problem(409, "trajectory_discarded");

    assert_eq!(refusal["reason"], "lease_expired");
    assert_eq!(run.tables().await, "B");
}

#[tokio::test]
async fn concurrency_does_not_refuse_a_late_occupy() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 1_000, "max_concurrency": 1 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    until_expired(&run, &a).await;
    run.patch("", json!({ "lease_ms": 30_000 })).await.ok();
    run.reserve(0, "b").await.ok();

    let place = worker.occupy(&a, json!({})).await.ok();

    assert_eq!(place["late"], true);
    assert_eq!(run.tables().await, "A . . b");
}

#[tokio::test]
async fn what_a_replaced_session_held_cannot_be_finished_late() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.restarted().heartbeat(json!({})).await.ok();

    let refusal = Worker::of(&run, "reward-1").occupy(&a, json!({})).await;

    assert_eq!(
        refusal.problem(409, "trajectory_discarded")["reason"],
        "worker_restarted"
    );
    worker.occupy(&a, json!({})).await.problem(409, "fenced");
    assert_eq!(run.tables().await, ".");
}
