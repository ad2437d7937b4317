//! What others wait for too long, or in vain: *Reservation timeout*, *Stuck timeout*, and what must not hang.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cast::{Worker, finish, prompts, soon, told, train, trajectory, until_somebody_waits};
use crate::journal::is_sound;
use crate::support::{Ledger, Response, Run, TestServer, Trainer, eventually};

/// A Take that waits a minute, and is known to the ledger when this returns.
async fn waits_for_a_batch(ledger: &Ledger, run: &Run) -> JoinHandle<Response> {
    let call = tokio::spawn({
        let run = run.clone();
        async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(ledger, run, "batch").await;
    call
}

/// Returns once `id` was discarded for this reason.
async fn until_discarded(run: &Run, id: &str, reason: &str) {
    eventually("it is discarded", async || {
        trajectory(run, id).await["reason"] == reason
    })
    .await;
}

async fn set(run: &Run, field: &str, value: Value) {
    run.patch("", json!({ field: value })).await.ok();
}

#[tokio::test]
async fn a_reservation_that_is_too_old_makes_way_for_a_finished_entry_and_for_two_new_ones() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 1 })).await;
    let slow = Worker::of(&run, "rollout-1");
    let s = slow.gets(0, "s").await;
    run.reserve(0, "b c d e f g").await.ok();
    for prompt in ["e", "f", "g", "d"] {
        run.occupy(prompt).await.ok();
    }
    train(&run, 0).await;
    for prompt in ["b", "c"] {
        run.occupy(prompt).await.ok();
    }
    finish(&run, 1, "x y").await;
    assert_eq!(run.tables().await, "B C X s | Y . . .");

    set(&run, "reservation_timeout_ms", json!(1)).await;
    until_discarded(&run, &s, "timed_out").await;
    set(&run, "reservation_timeout_ms", json!(null)).await;

    assert_eq!(run.tables().await, "B C X Y | . . . .");
    assert_eq!(slow.is_told().await, json!([[s, "timed_out"]]));
    run.reserve(1, "p q").await.ok();
    assert_eq!(run.tables().await, "B C X Y | . . q p");
    assert_eq!(prompts(&run.take().await.ok()["batch"]["trajectories"]), "b c x y");
    // It was only slow, but version 0 has no place any more.
    slow.occupy(&s, json!({})).await.problem(409, "trajectory_discarded");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_timed_out_entry_may_still_finish_late_if_there_is_a_place() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "reservation_timeout_ms": 1 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    until_discarded(&run, &a, "timed_out").await;

    assert_eq!(worker.occupy(&a, json!({})).await.ok()["late"], true);

    assert_eq!(run.tables().await, "A .");
    is_sound(&run).await;
}

#[tokio::test]
async fn an_entry_filtered_out_of_the_next_buffer_is_replaced_by_one_of_the_buffer_after_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 1 })).await;
    run.reserve(0, "a b c d e f").await.ok();
    for prompt in ["f", "e", "c", "b"] {
        run.occupy(prompt).await.ok();
    }
    assert_eq!(run.tables().await, "F E C | B d a");
    let b = run.id_of("b").await;

    let answer = run.discard("e", "zero_gradient").await.ok();

    assert_eq!(
        answer,
        json!({ "discarded_from": "occupied", "promoted": [{ "id": b, "from": 1, "to": 0 }] })
    );
    assert_eq!(run.tables().await, "F C B | . d a");
    is_sound(&run).await;
}

#[tokio::test]
async fn one_finished_candidate_leaves_both_buffers_ready_and_the_others_are_cancelled_at_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "slots_per_buffer": 3, "max_staleness": 1 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let mut ids = Vec::new();
    for prompt in ["a", "b", "c", "d", "e", "f"] {
        ids.push(worker.gets(0, prompt).await);
    }
    for prompt in ["f", "e", "c"] {
        run.occupy(prompt).await.ok();
    }
    assert_eq!(run.tables().await, "F E d | C b a");
    let beat = tokio::spawn({
        let worker = worker.clone();
        async move { worker.heartbeat(json!({ "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "cancelled").await;

    run.occupy("b").await.ok();

    assert_eq!(run.tables().await, "F E . | C B .");
    let (a, d) = (&ids[0], &ids[3]);
    assert_eq!(told(&soon(beat).await.ok()), json!([[a, "surplus"], [d, "surplus"]]));
    is_sound(&run).await;
}

#[tokio::test]
async fn a_whole_batch_is_filtered_and_another_one_is_generated() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    finish(&run, 0, "a b").await;
    for prompt in ["a", "b"] {
        run.discard(prompt, "zero_gradient").await.ok();
    }
    let take = waits_for_a_batch(&ledger, &run).await;
    assert_eq!(run.tables().await, ". .");

    finish(&run, 0, "c d").await;

    assert_eq!(prompts(&soon(take).await.ok()["batch"]["trajectories"]), "c d");
    is_sound(&run).await;
}

#[tokio::test]
async fn every_slot_is_reserved_by_workers_that_died() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "lease_ms": 1_000 }))
        .await;
    for name in ["rollout-1", "rollout-2"] {
        Worker::of(&run, name).gets(0, "lost").await;
    }
    let take = waits_for_a_batch(&ledger, &run).await;
    let alive = Worker::of(&run, "rollout-3");
    for prompt in ["a", "b"] {
        let body = json!({ "version": 0, "prompts": [prompt], "wait_ms": 60_000 });
        let granted = alive.reserve(body).await.ok();
        let id = granted["granted"][0]["id"].as_str().expect("an id").to_owned();
        alive.occupy(&id, json!({})).await.ok();
    }

    assert_eq!(prompts(&soon(take).await.ok()["batch"]["trajectories"]), "a b");
    assert_eq!(
        run.get("").await.ok()["totals"]["discarded"],
        json!({ "lease_expired": 2 })
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn a_generation_that_hangs_behind_a_live_heartbeat_is_given_up_while_the_trainer_waits_for_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "stuck_timeout_ms": 300 });
    let run = ledger.run(config).await;
    let hung = Worker::of(&run, "rollout-1");
    run.reserve(0, "b c d").await.ok();
    let h = hung.gets(0, "h").await;
    for prompt in ["d", "c"] {
        run.occupy(prompt).await.ok();
    }
    assert_eq!(run.tables().await, "D C | h b");
    train(&run, 0).await;
    finish(&run, 1, "x").await;
    run.occupy("b").await.ok();
    assert_eq!(run.tables().await, "B h | X .", "X came when buffer 1 had no slot left");
    let beat = tokio::spawn({
        let hung = hung.clone();
        async move { hung.heartbeat(json!({ "version": 1, "wait_ms": 60_000 })).await }
    });
    until_somebody_waits(&ledger, &run, "cancelled").await;

    let take = waits_for_a_batch(&ledger, &run).await;

    let batch = soon(take).await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "b x");
    assert_eq!(told(&soon(beat).await.ok()), json!([[h, "stuck_timeout"]]));
    is_sound(&run).await;
}

#[tokio::test]
async fn all_reserved_work_hangs_behind_live_heartbeats_under_a_limit_that_leaves_the_next_buffer_pending() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "max_concurrency": 2, "stuck_timeout_ms": 300 });
    let run = ledger.run(config).await;
    let hung = Worker::of(&run, "rollout-1");
    let granted = hung.reserve(json!({ "version": 0, "prompts": ["a", "b"] })).await.ok();
    let b = granted["granted"][1]["id"].as_str().expect("an id").to_owned();
    assert_eq!(run.tables().await, ". . | b a");
    let take = waits_for_a_batch(&ledger, &run).await;
    let alive = Worker::of(&run, "rollout-2");

    // Of two that are as old as each other, the front-most makes way.
    let body = json!({ "version": 0, "prompts": ["c"], "wait_ms": 60_000 });
    let granted = alive.reserve(body).await.ok();
    assert_eq!(granted["granted"][0]["prompt"], "c");
    set(&run, "stuck_timeout_ms", json!(null)).await;
    assert_eq!(trajectory(&run, &b).await["reason"], "stuck_timeout");
    assert_eq!(hung.is_told().await[0], json!([b, "stuck_timeout"]));

    let c = granted["granted"][0]["id"].as_str().expect("an id").to_owned();
    alive.occupy(&c, json!({})).await.ok();
    let d = alive.gets(0, "d").await;
    alive.occupy(&d, json!({})).await.ok();
    assert_eq!(prompts(&soon(take).await.ok()["batch"]["trajectories"]), "c d");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_hung_entry_does_not_hold_up_the_end_of_a_run() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "stuck_timeout_ms": 300 });
    let run = ledger.run(config).await;
    run.reserve(0, "h").await.ok();
    finish(&run, 0, "a").await;
    assert_eq!(run.tables().await, "A . | . h");
    run.post("drain", json!({ "drain": true })).await.ok();

    let last = soon(waits_for_a_batch(&ledger, &run).await).await.ok();

    assert_eq!(
        (prompts(&last["batch"]["trajectories"]), &last["batch"]["final"]),
        ("a".to_owned(), &json!(true))
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn a_stuck_buffer_in_which_too_many_are_reserved_is_waited_for() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "stuck_timeout_ms": 200, "stuck_max_reserved": 1 });
    let run = ledger.run(config).await;
    run.reserve(0, "a b c").await.ok();
    run.occupy("a").await.ok();
    let c = run.id_of("c").await;

    eventually("the trainer has waited for long", async || {
        run.take().await.ok()["waiting_for_ms"].as_u64() > Some(1_000)
    })
    .await;
    assert_eq!(run.get("").await.ok()["reserved"], 2);

    run.occupy("b").await.ok();
    until_discarded(&run, &c, "stuck_timeout").await;
    assert_eq!(run.tables().await, "A B .");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_trainer_waits_across_polls_and_servers_until_another_session_opens() {
    let Some(ledger) = Ledger::start().await else { return };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let elsewhere = run.through(&other.client());
    let waiting = async |run: &Run, body: Value| {
        let answer = run.post("batches/next", body).await.ok();
        answer["waiting_for_ms"].as_u64().expect("a time")
    };
    assert_eq!(waiting(&run, json!({})).await, 0);
    eventually("time passes", async || waiting(&run, json!({})).await > 50).await;
    let before = waiting(&elsewhere, json!({})).await;
    assert!(before > 50, "as the other server says");
    let stream = json!({ "stream": true, "from_offset": 0 });
    assert!(waiting(&run, stream).await >= before, "whatever it asks for");

    let trainer = Trainer::first(&run).await;
    assert_eq!(waiting(&run, trainer.says(json!({}))).await, 0);
    finish(&run, 0, "a").await;
    trainer.trains(0).await;
    assert_eq!(
        waiting(&run, trainer.says(json!({}))).await,
        0,
        "it was answered meanwhile"
    );
}

#[tokio::test]
async fn with_no_staleness_a_worker_one_version_behind_is_told_to_fetch_weights_and_does_not_hang() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    run.take().await.ok();
    let lagging = Worker::of(&run, "rollout-1");
    let waiting = lagging.waits_for_a_place(&ledger, 0, "b").await;

    run.publish(1).await.ok();

    let refused = soon(waiting).await.problem(409, "version_too_stale");
    assert_eq!(refused["policy_version"], 1);
    lagging.gets(1, "b").await;
    assert_eq!(run.tables().await, "b");
}
