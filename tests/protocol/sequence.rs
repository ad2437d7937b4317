//! *Sequence*, from the client's side: the header `berth-seq` says what it has seen.

use serde_json::json;

use crate::cast::{Worker, train_batches};
use crate::support::{Ledger, Run, Trainer, resume};

async fn at_version_1(ledger: &Ledger) -> (Run, Trainer, u64) {
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let trainer = Trainer::first(&run).await;
    train_batches(&run, &trainer, 0..1).await;
    let seq = run.get("").await.seq();
    (run, trainer, seq)
}

#[tokio::test]
async fn a_client_that_has_seen_no_more_than_there_is_is_served() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer, seq) = at_version_1(&ledger).await;

    for seen in [0, seq] {
        let client = run.client().having_seen(&seen);
        trainer.through(&client).take().await.ok();
        let worker = Worker::of(&run, "rollout-1").through(&client);
        worker.heartbeat(json!({})).await.ok();
    }
}

#[tokio::test]
async fn the_calls_of_a_client_that_has_seen_more_are_refused_and_nobody_elses() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer, _) = at_version_1(&ledger).await;
    let worker = Worker::of(&run, "rollout-1");
    let (id, kept) = (worker.gets(1, "b").await, run.tables().await);
    let seq = run.get("").await.seq();
    let ahead = run.client().having_seen(&(seq + 1));
    let (run_ahead, trainer_ahead, worker_ahead) =
        (run.through(&ahead), trainer.through(&ahead), worker.through(&ahead));

    let refusals = [
        run_ahead.patch("", json!({ "lease_ms": 5_000 })).await,
        worker_ahead.reserve(json!({ "version": 1 })).await,
        worker_ahead.occupy(&id, json!({})).await,
        run_ahead
            .post("occupy", worker.says(json!({ "trajectories": [{ "id": id }] })))
            .await,
        worker_ahead.discard(&id, "failed").await,
        worker_ahead.claim(&id).await,
        worker_ahead.heartbeat(json!({ "version": 1 })).await,
        trainer_ahead.take().await,
        trainer_ahead.publish(1).await,
        trainer_ahead.checkpoint(1).await,
    ];

    for refusal in refusals {
        assert_eq!(refusal.seq(), seq);
        refusal.problem(409, "ledger_behind");
    }
    assert_eq!(run_ahead.get("").await.ok()["seq"], seq);
    run_ahead
        .put("", json!({ "batch_size": 1, "max_staleness": 1 }))
        .await
        .status(200);
    assert_eq!(run.tables().await, kept);
    worker.occupy(&id, json!({})).await.ok();
}

/// The run goes on above what the client has seen, and the versions above the latest are abandoned.
#[tokio::test]
async fn a_trainer_that_has_seen_more_opens_a_session_and_with_it_all_is_well() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, seq) = at_version_1(&ledger).await;
    let ahead = run.client().having_seen(&(seq + 100));
    let run_ahead = run.through(&ahead);

    let answer = resume(&run_ahead, "second", json!({ "resume_from": 1 })).await;

    assert_eq!(answer.seq(), seq + 101);
    assert_eq!(
        answer.ok(),
        json!({ "epoch": 2, "trainer_version": 1, "policy_version": 1, "lineage": 1, "weights": "file:///step-1" })
    );
    let worker = Worker::of(&run, "rollout-1").through(&ahead);
    worker.reserve(json!({ "version": 1, "lineage": 0 })).await.ok();
}

#[tokio::test]
async fn the_same_session_sent_again_does_not_begin_another_lineage() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, seq) = at_version_1(&ledger).await;
    let run_ahead = run.through(&run.client().having_seen(&(seq + 100)));
    let resumed = json!({ "resume_from": 1 });
    let first = resume(&run_ahead, "second", resumed.clone()).await.ok();

    let again = resume(&run_ahead, "second", resumed).await;

    assert_eq!(again.seq(), seq + 101);
    assert_eq!(again.ok(), first);
}

#[tokio::test]
async fn a_header_that_is_no_sequence_number_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, trainer, _) = at_version_1(&ledger).await;

    for header in ["-1", "1.5", "many", "", "9007199254740993"] {
        let client = run.client().having_seen(&header);
        let refusals = [
            trainer.through(&client).take().await,
            Worker::of(&run, "rollout-1")
                .through(&client)
                .heartbeat(json!({}))
                .await,
            resume(&run.through(&client), "second", json!({ "resume_from": 1 })).await,
        ];
        for refusal in refusals {
            assert_eq!(refusal.problem(400, "invalid_request")["field"], "berth-seq");
        }
    }
}
