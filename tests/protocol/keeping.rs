//! Which batches are kept, and what is told when one is forgotten.

use serde_json::{Value, json};

use crate::cast::{Worker, each, ids, train};
use crate::support::{Ledger, Run, eventually};

/// Trains batches up to and with `last`, each of one entry, whose payload is its version.
async fn train_up_to(run: &Run, last: u64) -> Vec<String> {
    let worker = Worker::of(run, "rollout-1");
    let mut trained = Vec::new();
    for version in 0..=last {
        let id = worker.gets(version, "q").await;
        worker
            .occupy(&id, json!({ "payload": format!("file:///q-{version}") }))
            .await
            .ok();
        train(run, version).await;
        trained.push(id);
    }
    trained
}

async fn prunes(run: &Run) -> Vec<Value> {
    let page = run.get("events?limit=1000").await.ok();
    let prunes = each(&page["events"]).filter(|event| event["type"] == "prune");
    prunes
        .map(|event| json!([event["version"], event["effects"]]))
        .collect()
}

#[tokio::test]
async fn as_many_batches_are_kept_as_the_run_says_and_each_prune_tells_what_nobody_will_read() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "keep_batches": 2 }))
        .await;

    let trained = train_up_to(&run, 3).await;

    run.get("batches/1").await.problem(410, "batch_pruned");
    run.get("batches/2").await.ok();
    let status = run.get("").await.ok();
    assert_eq!(json!([status["kept_batches"], status["oldest_kept"]]), json!([2, 2]));
    eventually("what is not kept is forgotten", async || prunes(&run).await.len() == 2).await;
    let pruned = |version: u64| {
        let payload = format!("file:///q-{version}");
        json!([version, [{ "effect": "pruned", "id": trained[usize::try_from(version).expect("small")], "payload": payload }]])
    };
    assert_eq!(prunes(&run).await, [pruned(0), pruned(1)]);
    let forgotten = run.get(&format!("trajectories/{}", trained[0])).await;
    forgotten.problem(404, "unknown_trajectory");
    let kept = run.get("trajectories?state=taken").await.ok();
    assert_eq!(ids(&kept["trajectories"]), trained[2..]);
    let listed = run.get("batches").await.ok();
    let versions: Vec<_> = each(&listed["batches"]).map(|batch| batch["version"].clone()).collect();
    assert_eq!(versions, [2, 3]);
}

#[tokio::test]
async fn fewer_are_kept_from_the_moment_that_the_run_says_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    train_up_to(&run, 3).await;
    run.get("batches/0").await.ok();

    run.patch("", json!({ "keep_batches": 1 })).await.ok();

    run.get("batches/2").await.problem(410, "batch_pruned");
    run.get("batches/3").await.ok();
    eventually("the others are forgotten", async || prunes(&run).await.len() == 3).await;
}

#[tokio::test]
async fn a_large_batch_is_forgotten_in_steps_of_at_most_100_entries() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 250, "max_staleness": 0, "keep_batches": 1 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    for version in 0..2 {
        let granted = worker.reserve(json!({ "version": version, "count": 250 })).await.ok();
        let finished: Vec<_> = ids(&granted["granted"]).iter().map(|id| json!({ "id": id })).collect();
        run.post("occupy", json!({ "trajectories": finished })).await.ok();
        run.take().await.ok();
        run.publish(version + 1).await.ok();
    }

    let effects = async || -> Vec<usize> {
        let prunes = prunes(&run).await;
        prunes.iter().map(|event| each(&event[1]).count()).collect()
    };
    eventually("all of batch 0 is forgotten", async || {
        effects().await.iter().sum::<usize>() == 250
    })
    .await;

    let sizes = effects().await;
    assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
    assert_eq!(each(&run.get("batches/1").await.ok()["trajectories"]).count(), 250);
}
