//! *Take* and *Publish*: the trainer's side.

use serde_json::{Value, json};

use crate::cast::{finish, only, prompts, train, without};
use crate::support::{Ledger, Response, Run};

#[tokio::test]
async fn a_batch_is_taken_only_when_it_is_ready() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let not_ready = async |state: &str, occupied: u64| {
        let answer = run.take().await.status(200);
        assert_eq!(
            without(answer, &["waiting_for_ms"]),
            json!({ "batch": null, "buffer_state": state, "occupied": occupied, "needed": 2, "finished": false })
        );
    };

    not_ready("pending", 0).await;
    run.reserve(0, "a b c d").await.ok();
    not_ready("stuck", 0).await;
    run.occupy("a").await.ok();
    not_ready("stuck", 1).await;
    assert_eq!(run.tables().await, "A c | b d");
    run.occupy("c").await.ok();

    let answer = run.take().await.ok();
    assert_eq!(
        only(&answer, &["buffer_state", "finished"]),
        json!({ "buffer_state": "ready", "finished": false })
    );
    assert_eq!(
        without(answer["batch"].clone(), &["trajectories"]),
        json!({ "version": 0, "redelivered": false, "replayed": false, "offset": 0, "complete": true, "final": false })
    );
    assert_eq!(prompts(&answer["batch"]["trajectories"]), "a c");
    assert_eq!(run.tables().await, "b d");
}

#[tokio::test]
async fn a_batch_taken_again_before_its_version_is_published_is_the_same_in_the_same_order() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 1 })).await;
    finish(&run, 0, "a b c d e f").await;
    let first = run.take().await.ok()["batch"].clone();

    let again = run.take().await;

    assert_eq!(again.seq(), run.get("").await.seq());
    let again = again.ok()["batch"].clone();
    assert_eq!(again["redelivered"], true);
    assert_eq!(again["trajectories"], first["trajectories"]);
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 3);
    assert_eq!(run.tables().await, "D E F");
}

#[tokio::test]
async fn publishing_opens_a_buffer_and_lets_the_next_batch_be_taken() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    finish(&run, 0, "a b").await;
    run.take().await.ok();
    assert_eq!(run.tables().await, "B");

    let answer = run.publish(1).await.ok();

    assert_eq!(
        answer,
        json!({ "policy_version": 1, "trainer_version": 1, "lineage": 0 })
    );
    assert_eq!(run.tables().await, "B | .");
    assert_eq!(prompts(&run.take().await.ok()["batch"]["trajectories"]), "b");
}

#[tokio::test]
async fn a_version_is_published_only_when_its_batch_was_taken_and_none_is_skipped() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let refused = |answer: Response| answer.problem(409, "publish_out_of_order")["expected"].clone();
    finish(&run, 0, "a").await;

    assert_eq!(refused(run.publish(1).await), 1);
    run.take().await.ok();
    assert_eq!(refused(run.publish(2).await), 1);

    run.publish(1).await.ok();
    assert_eq!(refused(run.publish(2).await), 2);
    assert_eq!(run.get("").await.ok()["policy_version"], 1);
}

#[tokio::test]
async fn publishing_a_version_again_changes_nothing_and_succeeds() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    finish(&run, 0, "a").await;
    train(&run, 0).await;
    let seq = run.get("").await.seq();

    for version in [1, 0] {
        let again = run.publish(version).await;
        assert_eq!(again.seq(), seq);
        assert_eq!(
            again.ok(),
            json!({ "policy_version": 1, "trainer_version": 1, "lineage": 0 })
        );
    }
    assert_eq!(run.tables().await, ". | .");
}

#[tokio::test]
async fn weights_are_set_once_and_never_replaced() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let published = async |weights: &str| {
        let body = json!({ "version": 0, "weights": weights });
        run.post("versions", body).await.ok();
        run.get("versions/latest").await.ok()["weights"].clone()
    };
    assert_eq!(run.get("versions/latest").await.ok()["weights"], json!(null));

    assert_eq!(published("file:///base").await, "file:///base");
    assert_eq!(published("file:///other").await, "file:///base");

    let long = json!({ "version": 0, "weights": "x".repeat(2_049) });
    let refusal = run.post("versions", long).await.problem(400, "invalid_request");
    assert_eq!(refusal["field"], "weights");
}

#[tokio::test]
async fn a_slow_rank_never_reads_the_next_batch_by_mistake() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let take = async |version: u64| run.post("batches/next", json!({ "version": version })).await;
    finish(&run, 0, "a b").await;

    assert_eq!(take(1).await.problem(409, "other_batch")["expected"], 0);
    assert_eq!(prompts(&take(0).await.ok()["batch"]["trajectories"]), "a");
    assert_eq!(prompts(&take(0).await.ok()["batch"]["trajectories"]), "a");
    run.publish(1).await.ok();
    assert_eq!(take(0).await.problem(409, "other_batch")["expected"], 1);
    assert_eq!(prompts(&take(1).await.ok()["batch"]["trajectories"]), "b");
}

/// Generate, train, generate with the new weights: nothing overlaps, and nothing is stale.
#[tokio::test]
async fn without_staleness_training_is_synchronous() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;

    for version in 0..3 {
        assert_eq!(run.tables().await, ". .");
        run.reserve(version, "a b").await.ok();
        assert_eq!(run.tables().await, "b a");
        run.occupy("b").await.ok();
        run.occupy("a").await.ok();
        assert_eq!(run.tables().await, "B A");

        let batch = run.take().await.ok()["batch"].clone();
        assert_eq!(prompts(&batch["trajectories"]), "b a");
        assert_eq!(batch["trajectories"][0]["staleness"], 0);

        // While it trains no buffer is open.
        assert_eq!(run.tables().await, "");
        assert_eq!(run.reserve(version, "c").await.ok()["blocked_by"], "staleness");
        run.publish(version + 1).await.ok();
        run.reserve(version, "c").await.problem(409, "version_too_stale");
    }

    let batches = run.get("batches").await.ok();
    assert_eq!(
        composition(&batches),
        json!([[0, { "0": 2 }, "trained"], [1, { "0": 2 }, "trained"], [2, { "0": 2 }, "trained"]])
    );
}

#[tokio::test]
async fn the_staleness_of_each_batch_is_listed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;
    finish(&run, 0, "a b c").await;
    train(&run, 0).await;
    finish(&run, 1, "d").await;
    train(&run, 1).await;
    finish(&run, 0, "e").await;
    finish(&run, 2, "f").await;
    run.take().await.ok();

    let page = run.get("batches").await.ok();

    assert_eq!(
        composition(&page),
        json!([[0, { "0": 2 }, "trained"], [1, { "0": 1, "1": 1 }, "trained"], [2, { "0": 1, "2": 1 }, "taken"]])
    );
    assert_eq!(page["next"], json!(null));
    let (trained, taken) = (&page["batches"][0], &page["batches"][2]);
    assert_eq!(
        only(trained, &["entries", "final"]),
        json!({ "entries": 2, "final": false })
    );
    assert!(trained["published_at_ms"].as_u64() >= trained["taken_at_ms"].as_u64());
    assert_eq!(taken["published_at_ms"], json!(null));
}

#[tokio::test]
async fn batches_are_listed_in_pages() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    for version in 0..3 {
        finish(&run, version, "a").await;
        train(&run, version).await;
    }
    let versions = |page: &Value| {
        let batches = composition(page);
        let listed: Vec<Value> = batches
            .as_array()
            .expect("a list")
            .iter()
            .map(|batch| batch[0].clone())
            .collect();
        (Value::from(listed), page["next"].clone())
    };

    let first = run.get("batches?limit=2").await.ok();
    let last = run.get("batches?limit=2&after=1").await.ok();

    assert_eq!(versions(&first), (json!([0, 1]), json!(1)));
    assert_eq!(versions(&last), (json!([2]), json!(null)));
}

#[tokio::test]
async fn a_part_of_a_taken_batch_can_be_looked_at() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    finish(&run, 0, "a b c d").await;
    let taken = run.take().await.ok()["batch"]["trajectories"].clone();
    let part = async |query: &str| {
        let batch = run.get(&format!("batches/0{query}")).await.ok();
        let all = prompts(&batch["trajectories"]);
        json!([batch["version"], batch["offset"], batch["complete"], all])
    };

    assert_eq!(part("").await, json!([0, 0, true, "a b c d"]));
    assert_eq!(part("?max_entries=2").await, json!([0, 0, false, "a b"]));
    assert_eq!(part("?from_offset=1&max_entries=2").await, json!([0, 1, false, "b c"]));
    assert_eq!(part("?from_offset=2&max_entries=2").await, json!([0, 2, true, "c d"]));
    assert_eq!(part("?from_offset=4").await, json!([0, 4, true, ""]));
    assert_eq!(run.get("batches/0").await.ok()["trajectories"], taken);
}

#[tokio::test]
async fn a_batch_that_was_not_taken_yet_is_unknown() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    finish(&run, 0, "a").await;

    run.get("batches/0").await.problem(404, "unknown_batch");
    run.take().await.ok();
    run.get("batches/0").await.ok();
    run.get("batches/1").await.problem(404, "unknown_batch");
}

#[tokio::test]
async fn the_status_says_what_the_trainer_does() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    assert_eq!(
        run.get("").await.ok()["trainer"],
        json!({ "name": null, "epoch": 0, "state": "never_seen", "since_at_ms": null, "last_call_at_ms": null })
    );

    run.take().await.ok();
    assert_eq!(state_of_trainer(&run).await, json!(["waiting", true]));

    finish(&run, 0, "a").await;
    run.take().await.ok();
    assert_eq!(state_of_trainer(&run).await, json!(["training", true]));
}

async fn state_of_trainer(run: &Run) -> Value {
    let trainer = run.get("").await.ok()["trainer"].clone();
    let is_in_order = trainer["since_at_ms"]
        .as_u64()
        .is_some_and(|since| Some(since) <= trainer["last_call_at_ms"].as_u64());
    json!([trainer["state"], is_in_order])
}

/// `[[version, staleness, state] …]`
fn composition(page: &Value) -> Value {
    let batches = page["batches"].as_array().expect("a list");
    batches
        .iter()
        .map(|batch| json!([batch["version"], batch["staleness"], batch["state"]]))
        .collect()
}
