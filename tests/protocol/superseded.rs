//! *Late occupy* in a run with a prompt queue: the prompt leaves the queue, or has gone on without the entry.

use serde_json::{Value, json};

use crate::cast::{Worker, each, until_expired};
use crate::journal::is_lawful;
use crate::prompt_fates::{gets, given_a, until_discarded};
use crate::prompts::{counts, feed, in_state, with_queue};
use crate::support::Ledger;

#[tokio::test]
async fn a_late_occupy_takes_its_prompt_out_of_the_queue() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 1_000 });
    let (run, worker, a) = given_a(&ledger, config).await;
    until_expired(&run, &a).await;
    assert_eq!(in_state(&run, "queued").await, "a 2, b 1, c 1, d 1");

    assert_eq!(worker.occupy(&a, json!({})).await.ok()["late"], true);

    assert_eq!(in_state(&run, "queued").await, "b 1, c 1, d 1");
    assert_eq!(in_state(&run, "occupied").await, "a 1");
    is_lawful(&run).await;
}

#[tokio::test]
async fn a_timed_out_worker_and_its_replacement_both_finish_the_same_prompt_and_one_counts() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "reservation_timeout_ms": 500 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a").await.ok();
    let slow = Worker::of(&run, "slow");
    let first = gets(&slow, 0).await;
    until_discarded(&run, &first, "timed_out").await;
    let replacement = Worker::of(&run, "quick");
    let second = gets(&replacement, 0).await;

    slow.occupy(&first, json!({})).await.problem(409, "superseded");
    replacement.occupy(&second, json!({})).await.ok();
    slow.occupy(&first, json!({})).await.problem(409, "superseded");

    let many = slow.says(json!({ "trajectories": [{ "id": first }, { "id": second }] }));
    let results = run.post("occupy", many).await.ok()["results"].clone();
    let codes: Vec<_> = each(&results).map(|result| result["code"].clone()).collect();
    assert_eq!(codes, [json!("superseded"), Value::Null]);
    assert_eq!(counts(&run).await, json!({ "occupied": 1 }));
    is_lawful(&run).await;
}

/// What was given up on purpose is no late occupy, whatever became of its prompt.
#[tokio::test]
async fn what_a_client_gave_up_is_refused_with_its_reason() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = given_a(&ledger, json!({ "batch_size": 4, "max_staleness": 0 })).await;
    worker.discard(&a, "broken").await.ok();

    let refusal = worker.occupy(&a, json!({})).await.problem(409, "trajectory_discarded");

    assert_eq!(refusal["reason"], "broken");
    assert_eq!(counts(&run).await, json!({ "queued": 3, "failed": 1 }));
}
