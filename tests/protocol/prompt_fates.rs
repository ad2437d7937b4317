//! *The prompt queue*: what becomes of the prompt of a discarded entry, row by row of the table.

use serde_json::{Value, json};

use crate::cast::{Worker, ids, only, prompts, trajectory, until_expired};
use crate::journal::{is_lawful, is_sound};
use crate::prompts::{counts, feed, in_state, takes, with_queue};
use crate::support::{Ledger, Response, Run, Trainer, eventually, resume};

/// A run with the prompts a to d queued, and a worker that was given a: the run, the worker and its entry.
pub(crate) async fn given_a(ledger: &Ledger, config: Value) -> (Run, Worker, String) {
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b c d").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let id = gets(&worker, 0).await;
    (run, worker, id)
}

/// The entry of the next prompt.
pub(crate) async fn gets(worker: &Worker, version: u64) -> String {
    let answer = worker.reserve(json!({ "version": version })).await.ok();
    ids(&answer["granted"]).remove(0)
}

async fn discard(run: &Run, id: &str, body: Value) -> Response {
    run.post(&format!("trajectories/{id}/discard"), body).await
}

pub(crate) async fn until_discarded(run: &Run, id: &str, reason: &str) {
    eventually("the entry is discarded", async || {
        trajectory(run, id).await["reason"] == reason
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_ran_out_puts_the_prompt_back_to_the_front_as_the_next_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 1_000 });
    let (run, worker, a) = given_a(&ledger, config).await;

    until_expired(&run, &a).await;

    assert_eq!(in_state(&run, "queued").await, "a 2, b 1, c 1, d 1");
    let answer = worker.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(
        only(&answer["granted"][0], &["prompt", "attempt"]),
        json!({ "prompt": "a", "attempt": 2 })
    );
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_worker_that_restarts_loses_an_attempt_at_what_it_held() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, _) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 0 })).await;
    gets(&worker, 0).await;

    worker.restarted().heartbeat(json!({})).await.ok();

    assert_eq!(in_state(&run, "queued").await, "a 2, b 2, c 1, d 1");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_client_that_wishes_so_puts_the_prompt_back_to_the_front_finished_or_not() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let b = gets(&worker, 0).await;
    worker.occupy(&b, json!({})).await.ok();
    let body = json!({ "reason": "preempted", "requeue": true });

    discard(&run, &b, body.clone()).await.ok();
    discard(&run, &a, body.clone()).await.ok();
    // Sent again, it counts once.
    discard(&run, &a, body).await.ok();

    assert_eq!(in_state(&run, "queued").await, "a 2, b 2, c 1, d 1");
    assert_eq!(counts(&run).await, json!({ "queued": 4 }));
    is_sound(&run).await;
}

#[tokio::test]
async fn a_grant_that_never_arrived_costs_no_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 1_000 });
    let (run, worker, a) = given_a(&ledger, config).await;

    eventually("what is not listed is abandoned", async || {
        worker.heartbeat(json!({ "holding": [] })).await.ok();
        trajectory(&run, &a).await["reason"] == "abandoned"
    })
    .await;

    assert_eq!(in_state(&run, "queued").await, "a 1, b 1, c 1, d 1");
    is_lawful(&run).await;
}

#[tokio::test]
async fn surplus_costs_no_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "slots_per_buffer": 2 });
    let (run, worker, a) = given_a(&ledger, config).await;
    let b = gets(&worker, 0).await;

    worker.occupy(&a, json!({})).await.ok();

    assert_eq!(trajectory(&run, &b).await["reason"], "surplus");
    assert_eq!(in_state(&run, "queued").await, "b 1, c 1, d 1");
    is_sound(&run).await;
}

/// Trains one batch of one entry for each of the versions, of the next prompts.
async fn train(worker: &Worker, trainer: &Trainer, versions: std::ops::Range<u64>) -> Vec<String> {
    let mut batches = Vec::new();
    for version in versions {
        let id = gets(worker, version).await;
        worker.occupy(&id, json!({})).await.ok();
        batches.push(prompts(&trainer.take().await.ok()["batch"]["trajectories"]));
        trainer.publish(version + 1).await.ok();
    }
    batches
}

#[tokio::test]
async fn a_rewind_restores_the_prompts_of_the_abandoned_batches_and_costs_no_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 1, "max_staleness": 1 })))
        .await;
    feed(&run, "a b c d e").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    assert_eq!(train(&worker, &trainer, 0..3).await, ["a", "b", "c"]);
    gets(&worker, 3).await;
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 1, "trained": 3 }));

    let trainer = Trainer::rewinding(&run, "second", 1).await;

    // b was generated by version 1 and is placed anew; c and d by later ones.
    assert_eq!(in_state(&run, "occupied").await, "b 1");
    assert_eq!(in_state(&run, "queued").await, "c 1, d 1, e 1");
    assert_eq!(counts(&run).await, json!({ "queued": 3, "occupied": 1, "trained": 1 }));
    let batch = trainer.take().await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "b");
    trainer.publish(2).await.ok();
    worker.heartbeat(json!({ "lineage": 1 })).await.ok();
    assert_eq!(
        train(&worker, &trainer, 2..5).await,
        ["c", "d", "e"],
        "none is skipped, and none is trained twice"
    );
    assert_eq!(counts(&run).await, json!({ "trained": 5 }));
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_forced_rewind_over_pruned_batches_leaves_their_prompts_trained() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "keep_batches": 1 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b c d").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let trainer = Trainer::first(&run).await;
    train(&worker, &trainer, 0..3).await;

    resume(&run, "second", json!({ "resume_from": 0, "mode": "rewind" }))
        .await
        .problem(410, "batch_pruned");
    let body = json!({ "resume_from": 0, "mode": "rewind", "force": true });
    Trainer::open(&run, "second", body).await;

    assert_eq!(counts(&run).await, json!({ "queued": 2, "trained": 2 }));
    assert_eq!(in_state(&run, "queued").await, "c 1, d 1");
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_a_forced_resume_finds_too_stale_costs_no_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 1 })).await;
    worker.occupy(&a, json!({})).await.ok();
    gets(&worker, 0).await;

    Trainer::open(&run, "second", json!({ "resume_from": 5, "force": true })).await;

    assert_eq!(in_state(&run, "queued").await, "a 1, b 1, c 1, d 1");
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_took_too_long_goes_behind_all_that_is_fed_as_the_next_attempt() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "reservation_timeout_ms": 500 });
    let (run, worker, a) = given_a(&ledger, config).await;
    let b = gets(&worker, 0).await;

    until_discarded(&run, &a, "timed_out").await;
    until_discarded(&run, &b, "timed_out").await;

    // Of two the front-most goes first: b was given the slot before a's.
    assert_eq!(in_state(&run, "queued").await, "c 1, d 1, b 2, a 2");
    feed(&run, "e").await.ok();
    assert_eq!(in_state(&run, "queued").await, "c 1, d 1, e 1, b 2, a 2");
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_the_trainer_waited_for_too_long_goes_behind_all_that_is_fed() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "stuck_timeout_ms": 300 });
    let (run, worker, a) = given_a(&ledger, config).await;
    let b = gets(&worker, 0).await;
    worker.occupy(&b, json!({})).await.ok();

    eventually("the trainer has waited for long enough", async || {
        run.take().await.ok();
        trajectory(&run, &a).await["reason"] == "stuck_timeout"
    })
    .await;

    assert_eq!(in_state(&run, "queued").await, "c 1, d 1, a 2");
    is_lawful(&run).await;
}

/// Buffer 0 has room, and there is no prompt to fill it with: only the worker that hangs could.
#[tokio::test]
async fn all_that_is_left_hangs_behind_a_live_heartbeat_and_is_given_to_another_worker() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "stuck_timeout_ms": 300 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a").await.ok();
    let hung = Worker::of(&run, "hung");
    let a = gets(&hung, 0).await;
    assert_eq!(run.take().await.ok()["buffer_state"], "pending");

    eventually("the trainer has waited for long enough", async || {
        run.take().await.ok();
        hung.heartbeat(json!({})).await.ok();
        trajectory(&run, &a).await["reason"] == "stuck_timeout"
    })
    .await;

    assert_eq!(hung.is_told().await, json!([[a, "stuck_timeout"]]));
    let other = Worker::of(&run, "other");
    let answer = other.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(
        only(&answer["granted"][0], &["prompt", "attempt"]),
        json!({ "prompt": "a", "attempt": 2 })
    );
    is_lawful(&run).await;
}

#[tokio::test]
async fn what_is_filtered_is_used_up_and_what_is_given_up_has_failed() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let b = gets(&worker, 0).await;
    worker.occupy(&a, json!({})).await.ok();

    worker.discard(&a, "no_gradient").await.ok();
    worker.discard(&b, "too_long").await.ok();

    assert_eq!(in_state(&run, "filtered").await, "a 1");
    assert_eq!(in_state(&run, "failed").await, "b 1");
    assert_eq!(counts(&run).await, json!({ "queued": 2, "filtered": 1, "failed": 1 }));
    assert_eq!(takes(&worker, 0, 4).await, "c d");
    is_sound(&run).await;
}

/// Each worker that touches it dies.
#[tokio::test]
async fn a_prompt_that_kills_its_workers_fails_after_so_many_attempts_and_can_be_seen() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, mut worker, _) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 0 })).await;
    for attempt in 2..=3 {
        worker = worker.restarted();
        let answer = worker.reserve(json!({ "version": 0 })).await.ok();
        let grant = only(&answer["granted"][0], &["prompt", "attempt"]);
        assert_eq!(grant, json!({ "prompt": "a", "attempt": attempt }));
    }

    worker = worker.restarted();

    assert_eq!(takes(&worker, 0, 1).await, "b", "the run goes on without it");
    let failed = run.get("prompts?state=failed").await.ok();
    assert_eq!(
        only(&failed["prompts"][0], &["id", "state", "attempt", "reason"]),
        json!({ "id": "a", "state": "failed", "attempt": 3, "reason": "worker_restarted" })
    );
    assert_eq!(counts(&run).await, json!({ "queued": 2, "in_flight": 1, "failed": 1 }));
    is_sound(&run).await;
}

#[tokio::test]
async fn drop_on_drops_the_stragglers_and_lists_them() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 4, "max_staleness": 0, "reservation_timeout_ms": 500, "drop_on": ["timed_out"] });
    let (run, worker, a) = given_a(&ledger, config).await;

    until_discarded(&run, &a, "timed_out").await;

    assert_eq!(in_state(&run, "dropped").await, "a 1");
    // For another reason it is tried again.
    gets(&worker, 0).await;
    worker.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(in_state(&run, "queued").await, "b 2, c 1, d 1");
    worker
        .restarted()
        .occupy(&a, json!({}))
        .await
        .problem(409, "superseded");
    is_lawful(&run).await;
}

/// The entries are forgotten an hour after they were discarded, which is over here.
#[tokio::test]
async fn filtered_prompts_are_forgotten_with_their_entries_and_failed_ones_stay_listed() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 1, "max_staleness": 0 })).await;
    worker.occupy(&a, json!({})).await.ok();
    worker.discard(&a, "no_gradient").await.ok();
    let b = gets(&worker, 0).await;
    worker.discard(&b, "broken").await.ok();
    let trainer = Trainer::first(&run).await;
    train(&worker, &trainer, 0..1).await;

    let mut connection = ledger.database.connection().await;
    for id in [&a, &b] {
        let mut over = redis::cmd("ZADD");
        over.arg(format!("berth:{{{}}}:forget", run.name()));
        over.arg(-1).arg(format!("entry:{id}"));
        let _: u64 = over.query_async(&mut connection).await.expect("a write");
    }
    for id in [&a, &b] {
        eventually("the entry is forgotten", async || {
            run.get(&format!("trajectories/{id}")).await.status == 404
        })
        .await;
    }

    assert_eq!(in_state(&run, "filtered").await, "");
    assert_eq!(in_state(&run, "failed").await, "b 1");
    assert_eq!(
        counts(&run).await,
        json!({ "queued": 1, "trained": 1, "filtered": 1, "failed": 1 })
    );
}
