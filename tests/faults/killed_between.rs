//! A server that is killed when Redis has done a call and nobody was told of it: the call is repeated through another server.

use hyper::Method;
use serde_json::{Value, json};

use crate::auditing::audit;
use crate::clients::{ids, insist};
use crate::support::{LocalRedis, Proxy, Run, TestServer, Traffic, delivery, eventually};

const WORKER: (&str, &str) = ("rollout-1", "s");

struct Scene {
    redis: LocalRedis,
    /// The run through the server that lives.
    run: Run,
    _server: TestServer,
}

impl Scene {
    async fn set(config: Value) -> Self {
        let redis = LocalRedis::start().await;
        let server = TestServer::start(&redis.url()).await;
        let run = Run::create(&server.client(), config).await;
        Self {
            redis,
            run,
            _server: server,
        }
    }

    /// Sends the call through a server that is killed once `is_done` sees in the run's status that Redis has done it, and then
    /// through the one that lives. Returns what that one answers.
    async fn killed_between(&self, path: &str, body: Value, is_done: impl Fn(&Value) -> bool) -> Value {
        let proxy = Proxy::to_redis(&self.redis.url()).await;
        let mut server = TestServer::start(&proxy.redis_url()).await;
        let run = self.run.through(&server.client());
        run.get("").await.ok();
        assert!(!is_done(&self.run.get("").await.ok()), "{path} is still to be done");

        proxy.set(Traffic::KeepAnswers);
        let call = {
            let (path, body) = (run.path(path), body.clone());
            tokio::spawn(async move { run.client().attempt(Method::POST, &path, Some(body)).await })
        };
        eventually("Redis has done it", async || is_done(&self.run.get("").await.ok())).await;
        server.kill().await;
        assert!(call.await.expect("the call ends").is_err(), "{path} was answered");

        insist(&self.run, path, body).await
    }
}

fn reserve(version: u64) -> Value {
    let (worker, session) = WORKER;
    let request = format!("r-{version}");
    json!({ "worker": worker, "session": session, "version": version, "prompts": [format!("p{version}")], "request_id": request })
}

fn occupy() -> Value {
    let (worker, session) = WORKER;
    json!({ "worker": worker, "session": session })
}

fn session(version: u64) -> Value {
    json!({ "trainer": "t0", "session": format!("t-{version}"), "resume_from": version })
}

/// Every call once, so that Redis knows its script: a server that is to be killed would wait for its second attempt.
async fn first_round(run: &Run) {
    let granted = run.post("reservations", reserve(0)).await.ok();
    let id = ids(&granted["granted"]).remove(0);
    run.post(&format!("trajectories/{id}/occupy"), occupy()).await.ok();
    run.post("trainer", session(0)).await.ok();
    run.post("batches/next", json!({ "epoch": 1 })).await.ok();
    run.post("versions", json!({ "version": 1, "epoch": 1 })).await.ok();
    run.post("checkpoints", json!({ "version": 1, "epoch": 1 })).await.ok();
}

#[tokio::test]
async fn every_call_is_done_once_and_answered_when_it_is_repeated() {
    let scene = Scene::set(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    first_round(&scene.run).await;

    let granted = scene
        .killed_between("reservations", reserve(1), |run| run["reserved"] == 1)
        .await;
    let id = ids(&granted["granted"]).remove(0);
    let place = scene
        .killed_between(&format!("trajectories/{id}/occupy"), occupy(), |run| {
            run["occupied"] == 1
        })
        .await;
    let opened = scene
        .killed_between("trainer", session(1), |run| run["trainer"]["epoch"] == 2)
        .await;
    let batch = scene
        .killed_between("batches/next", json!({ "epoch": 2 }), |run| run["next_buffer"] == 2)
        .await;
    let published = scene
        .killed_between("versions", json!({ "version": 2, "epoch": 2 }), |run| {
            run["policy_version"] == 2
        })
        .await;
    let kept = scene
        .killed_between("checkpoints", json!({ "version": 2, "epoch": 2 }), |run| {
            run["kept_batches"] == 0
        })
        .await;

    assert_eq!(
        json!([place["state"], place["buffer"], place["slot"]]),
        json!(["occupied", 1, 0])
    );
    assert_eq!(json!([opened["epoch"], opened["trainer_version"]]), json!([2, 1]));
    assert_eq!(delivery(&batch), "1: p1, redelivered");
    assert_eq!(published["policy_version"], 2);
    assert_eq!(kept, json!({ "oldest_kept": null }));
    let totals = scene.run.get("").await.ok()["totals"].clone();
    assert_eq!(
        json!([totals["reserved"], totals["occupied"], totals["trained"]]),
        json!([2, 2, 2])
    );
    audit(&scene.run).await;
}

/// The members of a group, and the group that its next owner is given.
#[tokio::test]
async fn every_member_counts_once_and_a_group_is_adopted_once() {
    let config = json!({ "batch_size": 1, "max_staleness": 1, "group_size": 2, "adopt_groups": true });
    let scene = Scene::set(config).await;
    let by = |session: &str| json!({ "worker": "rollout-1", "session": session, "reward": 1.0 });
    let warm = ids(&scene.run.post("reservations", reserve(0)).await.ok()["granted"]).remove(0);
    for index in 0..2 {
        let path = format!("trajectories/{warm}/members/{index}");
        scene.run.post(&path, by("s")).await.ok();
    }
    let mut second = reserve(0);
    second["request_id"] = "second".into();
    let id = ids(&scene.run.post("reservations", second.clone()).await.ok()["granted"]).remove(0);
    let path = |index: u32| format!("trajectories/{id}/members/{index}");

    let first = scene
        .killed_between(&path(0), by("s"), |run| run["generating"] == 1)
        .await;
    let next = json!({ "session": "next" });
    scene.run.post("workers/rollout-1/heartbeat", next).await.ok();
    second["session"] = "next".into();
    let adopted = scene
        .killed_between("reservations", second, |run| run["totals"]["adopted"] == 1)
        .await;
    let last = scene
        .killed_between(&path(1), by("next"), |run| run["occupied"] == 2)
        .await;

    assert_eq!(
        json!([first["counted"], first["complete"]]),
        json!([false, 1]),
        "it counted the first time"
    );
    let granted = &adopted["granted"][0];
    assert_eq!(json!([granted["id"], granted["members_done"]]), json!([id, [0]]));
    assert_eq!(
        json!([last["state"], last["counted"], last["buffer"]]),
        json!(["occupied", false, 1])
    );
    let status = scene.run.get("").await.ok();
    assert_eq!(
        json!([
            status["generating"],
            status["totals"]["occupied"],
            status["totals"]["adopted"]
        ]),
        json!([0, 2, 1])
    );
}
