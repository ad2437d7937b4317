//! How a run with a prompt queue ends: the last prompts, in a drained run, and what a piece of a batch takes.

use serde_json::{Value, json};

use crate::cast::{Worker, ids, prompts};
use crate::journal::is_lawful;
use crate::prompt_fates::{gets, given_a};
use crate::prompts::{counts, feed, in_state, takes, with_queue};
use crate::support::{Ledger, Run, Trainer};

async fn drain(run: &Run, queue: &str) -> Value {
    run.post("drain", json!({ "drain": true, "queue": queue })).await.ok()
}

#[tokio::test]
async fn the_last_prompts_of_a_data_set_fill_half_a_batch_and_the_run_ends() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    feed(&run, "a b c").await.ok();
    drain(&run, "finish").await;
    feed(&run, "d").await.problem(409, "draining");
    // What was fed before may be sent again.
    let again = json!({ "offset": 1, "prompts": [{ "id": "b" }, { "id": "c" }] });
    assert_eq!(run.post("prompts", again).await.ok(), json!({ "fed": 3 }));

    let granted = worker.reserve(json!({ "version": 0, "count": 2 })).await.ok()["granted"].clone();
    for id in ids(&granted) {
        worker.occupy(&id, json!({})).await.ok();
    }
    let first = trainer.take().await.ok();
    assert_eq!(
        (first["batch"]["final"].clone(), first["finished"].clone()),
        (json!(false), json!(false))
    );
    trainer.publish(1).await.ok();
    let waiting = trainer.take().await.ok();
    assert_eq!(
        (waiting["batch"].clone(), waiting["finished"].clone()),
        (Value::Null, json!(false))
    );
    let c = gets(&worker, 1).await;
    let blocked = worker.reserve(json!({ "version": 1 })).await.ok();
    assert_eq!(blocked["blocked_by"], "draining");
    worker.occupy(&c, json!({})).await.ok();
    let last = trainer.take().await.ok();

    assert_eq!(prompts(&last["batch"]["trajectories"]), "c");
    assert_eq!(last["batch"]["final"], true);
    trainer.publish(2).await.ok();
    assert_eq!(trainer.take().await.ok()["finished"], true);
    assert_eq!(worker.reserve(json!({ "version": 2 })).await.ok()["finished"], true);
    assert_eq!(counts(&run).await, json!({ "trained": 3 }));
    is_lawful(&run).await;
}

/// The worker that has the last prompt dies: the run is not at its end.
#[tokio::test]
async fn a_drained_run_waits_for_a_prompt_that_comes_back() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    feed(&run, "a b").await.ok();
    drain(&run, "finish").await;
    let a = gets(&worker, 0).await;
    worker.occupy(&a, json!({})).await.ok();
    gets(&worker, 0).await;
    let worker = worker.restarted();
    worker.heartbeat(json!({})).await.ok();

    let waiting = run.take().await.ok();
    assert_eq!(
        (waiting["batch"].clone(), waiting["finished"].clone()),
        (Value::Null, json!(false))
    );
    assert_eq!(takes(&worker, 0, 1).await, "b");
}

#[tokio::test]
async fn the_queue_of_a_drained_run_may_be_kept() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 2, "max_staleness": 0 })))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    feed(&run, "a b c").await.ok();
    let a = gets(&worker, 0).await;
    drain(&run, "keep").await;

    let blocked = worker.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(blocked["blocked_by"], "draining");
    worker.occupy(&a, json!({})).await.ok();
    assert_eq!(trainer.take().await.ok()["batch"]["final"], true);
    trainer.publish(1).await.ok();
    assert_eq!(trainer.take().await.ok()["finished"], true);
    assert_eq!(counts(&run).await, json!({ "queued": 2, "trained": 1 }));

    run.post("drain", json!({ "drain": false })).await.ok();
    assert_eq!(takes(&worker, 1, 2).await, "b c");
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_last_batch_that_is_discarded_drops_its_prompts() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "final_batch": "discard" });
    let run = ledger.run(with_queue(config)).await;
    let worker = Worker::of(&run, "rollout-1");
    feed(&run, "a").await.ok();
    drain(&run, "finish").await;
    let a = gets(&worker, 0).await;
    worker.occupy(&a, json!({})).await.ok();

    assert_eq!(run.take().await.ok()["finished"], true);

    assert_eq!(in_state(&run, "dropped").await, "a 1");
    assert_eq!(counts(&run).await, json!({ "dropped": 1 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_is_streamed_is_trained() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 2, "max_staleness": 0 })).await;
    gets(&worker, 0).await;
    worker.occupy(&a, json!({})).await.ok();

    let body = json!({ "stream": true, "from_offset": 0 });
    let piece = run.post("batches/next", body).await.ok()["batch"].clone();

    assert_eq!(prompts(&piece["trajectories"]), "a");
    assert_eq!(counts(&run).await, json!({ "queued": 2, "in_flight": 1, "trained": 1 }));
    assert_eq!(in_state(&run, "trained").await, "a 1");
}
