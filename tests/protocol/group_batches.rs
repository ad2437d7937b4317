//! *Groups*: what a batch says of their members, and what is forgotten with it.

use serde_json::json;

use crate::cast::{Worker, each, only};
use crate::support::Ledger;

#[tokio::test]
async fn a_batch_has_the_complete_members_of_each_group_with_their_advantages() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 3, "group_candidates": 4 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker
        .member(
            &a,
            3,
            json!({ "reward": 3.0, "tokens": 30, "meta": { "finish": "length" } }),
        )
        .await
        .ok();
    worker.member(&a, 1, json!({ "failed": true })).await.ok();
    worker
        .member(&a, 0, json!({ "reward": 1.0, "tokens": 10, "payload": "file:///a0" }))
        .await
        .ok();
    worker.member(&a, 2, json!({ "reward": 2.0, "tokens": 20 })).await.ok();

    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();

    assert_eq!(
        only(&entry, &["reward", "tokens", "segments"]),
        json!({ "reward": 2.0, "tokens": 60, "segments": null })
    );
    let advantages: Vec<_> = each(&entry["members"])
        .map(|member| {
            format!(
                "{}: {:.4}",
                member["index"],
                member["advantage"].as_f64().expect("a number")
            )
        })
        .collect();
    assert_eq!(advantages, ["0: -1.2247", "2: 0.0000", "3: 1.2247"]);
    let fields = ["version", "segments", "reward", "tokens", "payload", "meta"];
    assert_eq!(
        only(&entry["members"][0], &fields),
        json!({ "version": 0, "segments": [{ "version": 0, "from_token": 0 }], "reward": 1.0, "tokens": 10,
                "payload": "file:///a0", "meta": null })
    );
    assert_eq!(entry["members"][2]["meta"], json!({ "finish": "length" }));
    assert_eq!(run.get("batches/0").await.ok()["trajectories"][0], entry);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_batch_that_is_no_longer_kept_names_the_payloads_of_its_members_and_forgets_them() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "keep_batches": 1 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let with_payload = |index: u32| json!({ "reward": index, "payload": format!("file:///a{index}") });
    for index in 0..2 {
        worker.member(&a, index, with_payload(index)).await.ok();
    }
    crate::cast::train(&run, 0).await;
    let b = worker.gets(1, "b").await;
    worker.finishes(&b, 0..2).await;
    crate::cast::train(&run, 1).await;

    crate::support::eventually("the batch is forgotten", async || {
        run.get(&format!("trajectories/{a}")).await.status == 404
    })
    .await;

    let events = run.get("events").await.ok();
    let prune = each(&events["events"])
        .find(|event| event["type"] == "prune")
        .expect("a prune")
        .clone();
    assert_eq!(prune["effects"][0]["payloads"], json!(["file:///a0", "file:///a1"]));
    let mut members = redis::cmd("HKEYS");
    members.arg(format!("berth:{{{}}}:members", run.name()));
    let mut connection = ledger.database.connection().await;
    let mut left: Vec<String> = members.query_async(&mut connection).await.expect("a read");
    left.sort();
    assert_eq!(left, [format!("{b}:0"), format!("{b}:1")]);
    crate::journal::is_sound(&run).await;
}
