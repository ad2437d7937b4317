//! The distribution of groups, each of which counts once, and of batches that are taken in pieces.

use serde_json::{Value, json};

use crate::cast::{Worker, each};
use crate::support::{Ledger, Run};

/// `entries` and `mean_tokens` of a share.
fn counted(share: &Value) -> Value {
    json!([share["entries"], share["mean_tokens"]])
}

async fn distribution(run: &Run) -> Value {
    run.get("distribution").await.ok()
}

/// Reserves a group and finishes both members with these rewards and lengths.
async fn finish(worker: &Worker, prompt: &str, members: [(f64, u64); 2]) {
    let id = worker.gets(0, prompt).await;
    for (index, (reward, tokens)) in (0..).zip(members) {
        let body = json!({ "reward": reward, "tokens": tokens });
        worker.member(&id, index, body).await.ok();
    }
}

/// A group is as long as its members together. One of equal rewards has finished, too, and is filtered; one that failed has no
/// length.
#[tokio::test]
async fn a_group_counts_once_with_the_tokens_of_its_members() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1, "group_size": 2, "drop_zero_variance": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    finish(&worker, "a", [(0.0, 100), (1.0, 200)]).await;
    finish(&worker, "b", [(1.0, 1_000), (1.0, 2_000)]).await;
    let c = worker.gets(0, "c").await;
    worker.member(&c, 0, json!({ "reward": 1, "tokens": 9 })).await.ok();
    worker.member(&c, 1, json!({ "failed": true })).await.ok();
    run.take().await.ok();

    let shown = distribution(&run).await;

    assert_eq!(counted(&shown["admitted"]), json!([3, 1_650.0]));
    assert_eq!(counted(&shown["finished"]), json!([2, 1_650.0]));
    assert_eq!(counted(&shown["trained"]), json!([1, 300.0]));
    assert_eq!(counted(&shown["filtered"]), json!([1, 3_000.0]));
    assert_eq!(counted(&shown["discarded"]), json!([1, null]));
    assert_eq!(counted(&shown["by_reason"]["zero_variance"]), json!([1, 3_000.0]));
    assert_eq!(counted(&shown["by_reason"]["group_failed"]), json!([1, null]));
    let quarters: Value = each(&shown["quarters"])
        .map(|quarter| {
            let entries = |share: &str| quarter[share]["entries"].clone();
            json!([
                quarter["up_to_tokens"],
                entries("finished"),
                entries("trained"),
                entries("filtered")
            ])
        })
        .collect();
    assert_eq!(
        quarters,
        json!([[303, 1, 1, 0], [303, 0, 0, 0], [3_071, 1, 0, 1], [3_071, 0, 0, 0]])
    );
}

/// What is taken in a piece is trained from then on, and counts once when the batch is whole.
#[tokio::test]
async fn the_pieces_of_a_batch_count_as_trained_as_they_are_taken() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 3, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    for tokens in [10, 20, 60] {
        let id = worker.gets(0, "a").await;
        worker.occupy(&id, json!({ "tokens": tokens })).await.ok();
    }
    let mut trained = Vec::new();
    for from in 0..3 {
        let body = json!({ "stream": true, "from_offset": from, "max_entries": 1 });
        run.post("batches/next", body).await.ok();
        trained.push(counted(&distribution(&run).await["trained"]));
    }

    assert_eq!(trained, [json!([1, 10.0]), json!([2, 15.0]), json!([3, 30.0])]);
    run.publish(1).await.ok();
    let shown = distribution(&run).await;
    assert_eq!(counted(&shown["trained"]), json!([3, 30.0]));
    assert_eq!(counted(&shown["admitted"]), json!([3, 30.0]));
}
