//! A Redis that still loads its data, and one whose disk is full.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auditing::audit;
use crate::clients::{assert_unavailable, ids, insist};
use crate::support::{LocalRedis, Run, TestServer, Trainer};

/// Every call of a trainer and of a worker.
fn calls(id: &str) -> Vec<(String, Value)> {
    let by = |mut body: Value| {
        body["worker"] = json!("w");
        body["session"] = json!("s");
        body
    };
    let call = |path: &str, body: Value| (path.to_owned(), body);
    vec![
        call(
            "trainer",
            json!({ "trainer": "t0", "session": "second", "resume_from": 0 }),
        ),
        call("batches/next", json!({ "epoch": 1, "wait_ms": 60_000 })),
        call("versions", json!({ "epoch": 1, "version": 1 })),
        call("checkpoints", json!({ "epoch": 1, "version": 0 })),
        call("reservations", by(json!({ "version": 0, "request_id": "r" }))),
        call(&format!("trajectories/{id}/occupy"), by(json!({}))),
        call("workers/w/heartbeat", json!({ "session": "s" })),
    ]
}

#[tokio::test]
async fn calls_to_a_redis_that_still_loads_its_data_are_unavailable_and_then_done() {
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let trainer = Trainer::first(&run).await;
    run.reserve(0, "a b").await.ok();
    run.occupy("a").await.ok();
    let b = run.id_of("b").await;

    redis.restart_slowly().await;
    let calls = calls(&b);
    let calls = join_all(calls.iter().map(|(path, body)| run.post(path, body.clone())));
    let (called, seen, ready) = tokio::join!(calls, run.get(""), run.client().get("/readyz"));
    for answer in called.into_iter().chain([seen, ready]) {
        assert_unavailable(answer);
    }
    redis.finish_loading().await;

    insist(&run, &format!("trajectories/{b}/occupy"), json!({})).await;
    assert_eq!(run.tables().await, "A | B");
    trainer.trains(0).await;
    trainer.trains(1).await;
}

/// A Redis that syncs every write ends rather than to acknowledge what it cannot write. Nothing of the call is left, and when there
/// is room again everything that was acknowledged is there.
#[tokio::test]
async fn a_full_disk_is_unavailable_and_loses_nothing_and_leaves_nothing_half_done() {
    let mut redis = LocalRedis::start_with_room_for(64).await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 500, "max_staleness": 0 })).await;
    let by = |mut body: Value| {
        body["worker"] = json!("w");
        body["session"] = json!("s");
        body
    };
    let (mut granted, mut occupied, mut seq) = (Vec::new(), Vec::new(), 0);
    let refused = loop {
        let body = by(json!({ "version": 0, "request_id": granted.len().to_string() }));
        let answer = run.post("reservations", body).await;
        if answer.status == 503 {
            break answer;
        }
        seq = answer.seq();
        let id = ids(&answer.ok()["granted"]).remove(0);
        granted.push(id.clone());
        let answer = run.post(&format!("trajectories/{id}/occupy"), by(json!({}))).await;
        if answer.status == 503 {
            break answer;
        }
        seq = answer.seq();
        occupied.push(answer.ok()["slot"].clone());
    };
    assert_unavailable(refused);
    for (path, body) in calls(&granted[0]) {
        assert_unavailable(run.post(&path, body).await);
    }

    redis.restart().await;

    // One call was not answered; every call before it was done, and no other.
    let again = by(json!({ "version": 0, "request_id": (granted.len() - 1).to_string() }));
    let last = insist(&run, "reservations", again).await;
    assert_eq!(&ids(&last["granted"])[0], granted.last().expect("a grant"));
    let status = run.get("").await;
    assert!([seq, seq + 1].contains(&status.seq()), "{} after {seq}", status.seq());
    let totals = status.ok()["totals"].clone();
    let reserved = u64::try_from(granted.len()).expect("a small number");
    let finished = u64::try_from(occupied.len()).expect("a small number");
    assert!(
        [reserved, reserved + 1].contains(&totals["reserved"].as_u64().expect("a number")),
        "{totals}"
    );
    assert!(
        [finished, finished + 1].contains(&totals["occupied"].as_u64().expect("a number")),
        "{totals}"
    );
    audit(&run).await;
}
