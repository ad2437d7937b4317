//! *Explain* of groups, of batches in pieces, and of a drained run with a prompt queue.

use serde_json::{Value, json};

use crate::cast::{Worker, finish, only};
use crate::prompt_fates::gets;
use crate::prompts::{feed, with_queue};
use crate::support::{Ledger, Run};

/// Why the trainer waits, once it has asked.
async fn explain(run: &Run) -> Value {
    run.take().await.ok();
    run.get("explain").await.ok()
}

/// The summary, with `…` for each length of time.
fn said(explanation: &Value) -> String {
    let summary = explanation["summary"].as_str().expect("a sentence");
    let mut words: Vec<&str> = summary.split(' ').collect();
    while let Some(at) = words.windows(2).position(|pair| {
        let is_number = pair[0].parse::<f64>().is_ok();
        is_number && matches!(pair[1].trim_end_matches(['.', ',']), "ms" | "s" | "min")
    }) {
        words[at] = "…";
        words.remove(at + 1);
    }
    words.join(" ")
}

#[tokio::test]
async fn a_group_is_told_with_its_complete_members_and_then_that_it_waits_to_be_adopted() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 8, "adopt_groups": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-3");
    let a = worker.gets(0, "q-17").await;
    worker.finishes(&a, 0..7).await;
    let held = explain(&run).await;
    worker.restarted().heartbeat(json!({})).await.ok();

    let orphaned = explain(&run).await;

    let fields = ["id", "worker", "members_complete", "frees_at_ms", "freed_by"];
    assert_eq!(
        only(&held["waiting_on"][0], &fields),
        json!({ "id": a, "worker": "rollout-3", "members_complete": 7, "frees_at_ms": null, "freed_by": null })
    );
    assert_eq!(
        only(&orphaned["waiting_on"][0], &fields),
        json!({ "id": a, "worker": null, "members_complete": 7, "frees_at_ms": null, "freed_by": null })
    );
    assert_eq!(
        said(&orphaned),
        format!(
            "Buffer 0 has 0 of 1. {a}, which waits to be adopted with 7 members complete, reserved … ago, is still out. \
             Nothing will free it: stuck_timeout_ms is not set."
        )
    );
}

#[tokio::test]
async fn a_batch_in_pieces_is_told_with_what_is_taken_of_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    let slow = Worker::of(&run, "rollout-3");
    let c = slow.gets(0, "c").await;
    finish(&run, 0, "a b").await;
    let body = json!({ "stream": true, "from_offset": 0, "max_entries": 1 });
    run.post("batches/next", body).await.ok();

    let explanation = explain(&run).await;

    assert_eq!(
        only(&explanation, &["buffer", "buffer_state", "occupied", "needed"]),
        json!({ "buffer": 0, "buffer_state": "stuck", "occupied": 2, "needed": 3 })
    );
    let summary = said(&explanation);
    let begins = format!("Buffer 0 has 2 of 3, 1 of them taken. {c} on rollout-3, reserved … ago, is still out;");
    assert!(summary.starts_with(&begins), "{summary}");
}

#[tokio::test]
async fn a_drained_run_is_told_to_its_end_though_prompts_are_kept() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "group_size": 2 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b c d").await.ok();
    let (worker, lost) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "lost"));
    let (a, b) = (gets(&worker, 0).await, gets(&lost, 0).await);
    lost.finishes(&b, 0..1).await;
    lost.restarted().heartbeat(json!({})).await.ok();
    worker.finishes(&a, 0..2).await;
    let body = json!({ "drain": true, "queue": "keep" });
    run.post("drain", body).await.ok();

    let waiting = explain(&run).await;
    assert_eq!(waiting["admission"]["blocked_by"], "draining");
    assert_eq!(
        said(&waiting),
        format!(
            "Buffer 0 has 1 of 3, 1 is still out and 1 slot is empty: the run is draining, and admits nothing more. It is \
             {b}, which waits to be adopted with 1 member complete, reserved … ago. Nothing will free it: \
             stuck_timeout_ms is not set."
        )
    );

    assert_eq!(gets(&worker, 0).await, b);
    worker.finishes(&b, 1..2).await;
    let drained = run.get("explain").await.ok();
    assert_eq!(
        said(&drained),
        "The run is draining, and nothing more will come: buffer 0 with its 2 entries is the last batch, and can be taken."
    );
    run.take().await.ok();
    run.publish(1).await.ok();
    assert_eq!(
        said(&run.get("explain").await.ok()),
        "The run is finished: version 1 is its last, and every process may exit."
    );
}

/// What is queued is still handed out: it is somebody who asks for it that is missing.
#[tokio::test]
async fn a_run_whose_queue_is_being_finished_waits_for_those_who_ask() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    feed(&run, "a").await.ok();
    run.post("drain", json!({ "drain": true })).await.ok();

    let explanation = explain(&run).await;

    assert_eq!(explanation["admission"]["blocked_by"], Value::Null);
    assert_eq!(
        said(&explanation),
        "Buffer 0 has 0 of 2, and 2 slots are empty: no worker has a lease."
    );
}
