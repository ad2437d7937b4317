//! *Explain*: why the trainer waits, for a reader at 3 a.m.

use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, only, train, train_batches, without};
use crate::support::{Ledger, Run, Trainer, berth, eventually};

async fn explain(run: &Run) -> Value {
    run.get("explain").await.ok()
}

async fn summary(run: &Run) -> String {
    explain(run).await["summary"].as_str().expect("a sentence").to_owned()
}

#[track_caller]
fn assert_says(summary: &str, parts: &[&str]) {
    let mut rest = summary;
    for part in parts {
        let at = rest.find(part);
        let at = at.unwrap_or_else(|| panic!("`{part}` is not where it should be in `{summary}`"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test]
async fn a_straggler_behind_a_live_heartbeat_is_named_with_the_setting_that_would_free_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-3");
    let (quick, slow) = (worker.gets(0, "quick").await, worker.gets(0, "slow").await);
    worker.occupy(&quick, json!({})).await.ok();
    let trainer = Trainer::first(&run).await;
    trainer.take().await.ok();
    let seq = run.get("").await.seq();

    let answer = run.get("explain").await;

    assert_eq!(answer.seq(), seq, "looking is no step");
    let explanation = answer.ok();
    let said = explanation["summary"].as_str().expect("a sentence");
    let straggler = format!("Buffer 0 has 1 of 2. {slow} on rollout-3, reserved 0.");
    assert!(said.starts_with(&straggler), "{said}");
    let ending = " s old. Nothing will free it: stuck_timeout_ms is not set.";
    assert_says(said, &[" s ago, is still out; its heartbeat is 0.", ending]);
    assert_eq!(
        without(
            explanation["waiting_on"][0].clone(),
            &["reserved_at_ms", "heartbeat_at_ms"]
        ),
        json!({ "id": slow, "prompt": "slow", "slot": 1, "worker": "rollout-3", "version": 0, "attempt": 1,
                "members_complete": null, "frees_at_ms": null, "freed_by": null })
    );
    assert_eq!(
        without(explanation["trainer"].clone(), &["since_at_ms", "last_call_at_ms"]),
        json!({ "name": "t0", "epoch": 1, "state": "waiting" })
    );
    assert_eq!(
        without(explanation, &["summary", "at_ms", "waiting_on", "trainer"]),
        json!({ "buffer": 0, "buffer_state": "stuck", "occupied": 1, "needed": 2,
                "admission": { "blocked_by": "staleness", "free_slots": 0, "reserved": 1 },
                "workers": [{ "version": 0, "workers": 1, "last_refusal": null }] })
    );
}

#[tokio::test]
async fn the_lease_of_a_silent_worker_is_what_frees_its_slot_and_then_it_does() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 4_000 });
    let run = ledger.run(config).await;
    Worker::of(&run, "rollout-3").gets(0, "a").await;
    run.take().await.ok();
    assert_eq!(explain(&run).await["waiting_on"][0]["freed_by"], json!(null));

    let mut explanation = json!(null);
    eventually("half the lease passed in silence", async || {
        explanation = explain(&run).await;
        explanation["waiting_on"][0]["freed_by"] == "lease"
    })
    .await;

    let waiting = &explanation["waiting_on"][0];
    let lease = waiting["frees_at_ms"].as_u64().zip(waiting["heartbeat_at_ms"].as_u64());
    assert_eq!(lease.map(|(end, start)| end - start), Some(4_000));
    let said = explanation["summary"].as_str().expect("a sentence");
    assert_says(
        said,
        &["is still out; its heartbeat is ", "Its lease will free it in ", " s."],
    );
    eventually("the slot is free", async || run.tables().await == ".").await;
    assert_eq!(explain(&run).await["waiting_on"], json!([]));
}

#[tokio::test]
async fn a_reservation_timeout_is_said_before_it_frees_the_slot() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "reservation_timeout_ms": 3_600_000 });
    let run = ledger.run(config).await;
    Worker::of(&run, "rollout-3").gets(0, "a").await;
    run.take().await.ok();

    let explanation = explain(&run).await;

    let waiting = &explanation["waiting_on"][0];
    assert_eq!(waiting["freed_by"], "reservation_timeout");
    let said = explanation["summary"].as_str().expect("a sentence");
    assert_says(said, &["reservation_timeout_ms will free it in 59 min."]);
}

#[tokio::test]
async fn pending_behind_max_concurrency_says_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 });
    let run = ledger.run(config).await;
    Worker::of(&run, "rollout-3").gets(0, "a").await;
    run.take().await.ok();

    let explanation = explain(&run).await;

    assert_eq!(
        only(&explanation, &["buffer_state", "admission"]),
        json!({ "buffer_state": "pending",
                "admission": { "blocked_by": "concurrency", "free_slots": 1, "reserved": 1 } })
    );
    let said = explanation["summary"].as_str().expect("a sentence");
    let parts = [
        "Buffer 0 has 0 of 2, 1 is still out and 1 slot is empty: 1 trajectories are being generated, and max_concurrency is 1.",
        "on rollout-3",
        "Nothing will free it: stuck_timeout_ms is not set.",
    ];
    assert_says(said, &parts);
}

#[tokio::test]
async fn workers_that_lag_are_counted_with_what_they_were_refused_for() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-3");
    for prompt in ["a", "b"] {
        let id = worker.gets(0, prompt).await;
        worker.occupy(&id, json!({})).await.ok();
    }
    train(&run, 0).await;
    train(&run, 1).await;
    run.take().await.ok();
    let workers = async || explain(&run).await["workers"].clone();

    worker
        .reserve(json!({ "version": 0 }))
        .await
        .problem(409, "version_too_stale");

    assert_eq!(
        workers().await,
        json!([{ "version": 0, "workers": 1, "last_refusal": "version_too_stale" }])
    );
    let page = run.get("workers").await.ok();
    assert_eq!(page["workers"][0]["last_refusal"], "version_too_stale");
    assert_eq!(explain(&run).await["admission"]["blocked_by"], "staleness");
    assert_eq!(
        summary(&run).await,
        "Buffer 2 has 0 of 1, and 1 slot is empty: it admits no weights below version 1, the newest that a worker has are 0, \
         and version 2 is published."
    );

    worker.gets(2, "c").await;

    assert_eq!(
        workers().await,
        json!([{ "version": 2, "workers": 1, "last_refusal": null }])
    );
}

#[tokio::test]
async fn a_worker_must_say_its_version_again_after_a_rewind_and_is_shown_without_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let trainer = Trainer::first(&run).await;
    train_batches(&run, &trainer, 0..2).await;
    Trainer::rewinding(&run, "second", 1).await;

    let page = run.get("workers").await.ok();

    assert_eq!(page["workers"][0]["version"], json!(null));
    assert_eq!(
        explain(&run).await["workers"],
        json!([{ "version": null, "workers": 1, "last_refusal": null }])
    );
}

#[tokio::test]
async fn what_the_trainer_does_is_said_where_it_waits_for_nobody() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    assert_eq!(
        summary(&run).await,
        "No trainer has ever called. Buffer 0 has 0 of 1, and 1 slot is empty: no worker has a lease."
    );

    finish(&run, 0, "a").await;
    assert_eq!(
        summary(&run).await,
        "Buffer 0 is ready to be taken. No trainer has ever called."
    );

    let trainer = Trainer::first(&run).await;
    trainer.take().await.ok();
    let said = summary(&run).await;
    assert_says(
        &said,
        &["The trainer has had batch 0 for ", "has not published version 1"],
    );
    assert!(said.ends_with(" ago. Buffer 1 has 0 of 1."), "{said}");

    trainer.publish(1).await.ok();
    finish(&run, 1, "b").await;
    trainer.trains(1).await;
    Trainer::from(&run, "second", 0).await;
    assert_eq!(
        summary(&run).await,
        "The trainer trains again what is kept: it stands at version 0, and batches 0 to 1 are there for it. Nothing is \
         waited for."
    );
}

#[tokio::test]
async fn of_very_many_reservations_the_first_hundred_are_shown() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 150, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-3");
    worker.reserve(json!({ "version": 0, "count": 150 })).await.ok();
    run.take().await.ok();

    let explanation = explain(&run).await;

    let slots: Vec<_> = each(&explanation["waiting_on"])
        .map(|waiting| waiting["slot"].as_u64())
        .collect();
    assert_eq!(slots, (0..100).map(Some).collect::<Vec<_>>());
    let said = explanation["summary"].as_str().expect("a sentence");
    assert_says(said, &["Buffer 0 has 0 of 150. 150 are still out, for the longest "]);
}

#[tokio::test]
async fn a_terminal_shows_the_sentence_and_the_reservations() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let id = Worker::of(&run, "rollout-3").gets(0, "q-17").await;
    run.take().await.ok();
    let shown = async |arguments: &[&str]| {
        let name = ["--run", run.name(), "--server", run.client().url()];
        let output = berth(&[arguments, &name].concat()).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };

    let page = shown(&["explain"]).await;
    for part in ["Buffer 0 has 0 of 1. ", "stuck, 0 of 1", &id, "q-17", "by nothing"] {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
    let explanation: Value = serde_json::from_str(&shown(&["explain", "--json"]).await).expect("JSON");
    assert_eq!(explanation["waiting_on"][0]["id"], *id);

    let page = shown(&["status"]).await;
    assert!(
        page.contains("buffer     0 stuck: 0 occupied, 0 empty, 1 reserved"),
        "{page}"
    );
    let status: Value = serde_json::from_str(&shown(&["status", "--json"]).await).expect("JSON");
    assert_eq!(status["run"], run.name());

    let nobody = berth(&["explain", "--run", "nobody", "--url", run.client().url()]).await;
    assert_eq!(nobody.status.code(), Some(1));
    let nowhere = berth(&["explain", "--run", "nobody", "--url", "redis://localhost"]).await;
    assert_eq!(nowhere.status.code(), Some(2));
}
