//! The line between a server and its Redis: it swallows what it is given, or is cut after the work was done.

use std::sync::Arc;
use std::time::Duration;

use berth::store::Store;
use berth::store::keys::{RunKeys, Topic};
use berth::store::wakes::Wakes;
use futures_util::future::join_all;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::auditing::audit;
use crate::clients::{assert_unavailable, insist};
use crate::support::{LocalRedis, Proxy, Run, TestServer, Traffic, eventually};

/// Longer than everything that may time out on a dead line together.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose line to its Redis may be spoilt, and one whose line is good.
pub(crate) struct Lines {
    pub(crate) proxy: Proxy,
    /// The run through the server with the spoilt line.
    pub(crate) run: Run,
    /// The run through the other one.
    pub(crate) truth: Run,
    _servers: [TestServer; 2],
    _redis: LocalRedis,
}

impl Lines {
    pub(crate) async fn lay(config: Value) -> Self {
        let redis = LocalRedis::start().await;
        let proxy = Proxy::to_redis(&redis.url()).await;
        let servers = [
            TestServer::start(&proxy.redis_url()).await,
            TestServer::start(&redis.url()).await,
        ];
        let run = Run::create(&servers[0].client(), config).await;
        let truth = run.through(&servers[1].client());
        Self {
            proxy,
            run,
            truth,
            _servers: servers,
            _redis: redis,
        }
    }
}

#[tokio::test]
async fn calls_over_a_line_that_swallows_everything_end_as_unavailable_and_work_when_it_is_mended() {
    let lines = Lines::lay(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    lines.run.reserve(0, "a").await.ok();
    let before: Vec<_> = (0..10)
        .map(|_| {
            let run = lines.run.clone();
            tokio::spawn(async move { run.get("versions/latest?after=0&wait_ms=60000").await })
        })
        .collect();
    let reserve = json!({ "worker": "w", "session": "s", "version": 0, "prompts": ["b"], "request_id": "once" });

    lines.proxy.set(Traffic::BlackHole);
    let during = tokio::join!(
        lines.run.post("reservations", reserve.clone()),
        lines.run.post("batches/next", json!({ "wait_ms": 60_000 })),
        lines.run.get("buffers?slots=true"),
        lines.run.get("events?after=1000&wait_ms=60000"),
    );
    for answer in [during.0, during.1, during.2, during.3] {
        assert_unavailable(answer);
    }
    assert_eq!(lines.truth.tables().await, ". . . a", "another server is not concerned");
    lines.proxy.set(Traffic::Pass);

    insist(&lines.run, "reservations", reserve).await;
    assert_eq!(lines.run.tables().await, ". . b a");
    lines.truth.delete().await.status(204);
    for answer in join_all(before).await {
        // It waited all the while and was woken, or was told.
        let answer = answer.expect("an answer");
        match answer.status {
            503 => assert_unavailable(answer),
            _ => drop(answer.problem(404, "unknown_run")),
        }
    }
}

#[tokio::test]
async fn a_subscription_that_the_line_swallowed_comes_back_and_works_when_it_is_mended() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    let store = Store::new(&proxy.redis_url().parse().expect("an address")).expect("a store");
    let wakes = Wakes::listen(Arc::new(store));
    let keys = RunKeys::new("run");
    // Its connection is up before the line is spoilt.
    let _other = wakes.subscribe(&keys, Topic::Batch, None).await;

    proxy.set(Traffic::BlackHole);
    let mut subscription = timeout(PATIENCE, wakes.subscribe(&keys, Topic::Events, None))
        .await
        .expect("whoever subscribes is not kept for ever");
    proxy.set(Traffic::Pass);

    timeout(PATIENCE, subscription.woken())
        .await
        .expect("all are woken when the line is mended");
    let channel = keys.channel(Topic::Events);
    let mut connection = redis.connection().await;
    let heard: usize = connection.publish(&channel, "").await.expect("a message");
    assert_eq!(heard, 1);
    timeout(PATIENCE, subscription.woken()).await.expect("messages wake");
}

/// The work is done and nobody knows: the client asks again, and it is not done twice.
#[tokio::test]
async fn a_request_whose_answer_was_cut_off_is_repeated_with_the_same_grant_and_nothing_leaks() {
    const ROUNDS: usize = 20;
    let lines = Lines::lay(json!({ "batch_size": 100, "max_staleness": 0 })).await;
    let mut granted_unheard = 0;

    for round in 1..=ROUNDS {
        let request_id = round.to_string();
        let reserve = json!({ "worker": "w", "session": "s", "version": 0, "count": 2, "request_id": request_id });
        lines.proxy.set(Traffic::CutAnswers);
        assert_unavailable(lines.run.post("reservations", reserve.clone()).await);
        // The server's own calls may have met the cut first.
        let unheard = lines.truth.get("").await.ok()["reserved"] == 2 * round;
        granted_unheard += usize::from(unheard);
        lines.proxy.set(Traffic::Pass);

        let grant = insist(&lines.run, "reservations", reserve.clone()).await;
        assert_eq!(grant["granted"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            insist(&lines.truth, "reservations", reserve).await,
            grant,
            "by any server"
        );
        assert_eq!(lines.truth.get("").await.ok()["reserved"], 2 * round);
    }

    assert!(granted_unheard > 0, "an answer was cut off after the work was done");
    audit(&lines.truth).await;
}

#[tokio::test]
async fn every_call_of_a_job_may_be_repeated_after_its_answer_was_cut_off() {
    let lines = Lines::lay(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let caller = json!({ "worker": "w", "session": "s" });
    let with = |mut fields: Value| {
        fields["worker"] = caller["worker"].clone();
        fields["session"] = caller["session"].clone();
        fields
    };
    let reserve = with(json!({ "version": 0, "prompts": ["a", "b", "c"], "request_id": "once" }));
    let mut tables = Vec::new();

    cut(&lines, "reservations", reserve).await;
    tables.push(lines.truth.tables().await);
    for prompt in ["a", "b"] {
        let occupy = format!("trajectories/{}/occupy", lines.truth.id_of(prompt).await);
        cut(&lines, &occupy, with(json!({ "reward": 1 }))).await;
        tables.push(lines.truth.tables().await);
    }
    let filter = format!("trajectories/{}/discard", lines.truth.id_of("b").await);
    cut(&lines, &filter, with(json!({ "reason": "filtered" }))).await;
    tables.push(lines.truth.tables().await);
    let many = json!([{ "id": lines.truth.id_of("c").await }]);
    cut(&lines, "occupy", with(json!({ "trajectories": many }))).await;
    tables.push(lines.truth.tables().await);
    cut(&lines, "batches/next", json!({})).await;
    cut(&lines, "versions", json!({ "version": 1 })).await;
    tables.push(lines.truth.tables().await);

    assert_eq!(
        tables,
        [
            ". c | b a",
            "A . | b c",
            "A B | . c",
            "A . | . c",
            "A C | . .",
            ". . | . ."
        ]
    );
    audit(&lines.truth).await;
}

/// Sends a call whose answer is cut off, and then until it is answered.
async fn cut(lines: &Lines, path: &str, body: Value) {
    lines.proxy.set(Traffic::CutAnswers);
    assert_unavailable(lines.run.post(path, body.clone()).await);
    lines.proxy.set(Traffic::Pass);
    insist(&lines.run, path, body).await;
}

/// A client that cannot ask again by a request id is told of an error: it will never know what it was granted.
#[tokio::test]
async fn without_a_request_id_what_was_granted_unheard_is_given_back_once_the_line_is_mended() {
    let lines = Lines::lay(json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": 3_600_000 })).await;
    lines.proxy.set(Traffic::CutAnswers);
    let reserve = json!({ "worker": "w", "session": "s", "version": 0, "count": 4 });
    assert_unavailable(lines.run.post("reservations", reserve).await);
    lines.proxy.set(Traffic::Pass);

    // What could not be given back in the outage, the worker's next word gives back: it says that it holds nothing.
    lines.truth.patch("", json!({ "lease_ms": 1_000 })).await.ok();
    eventually("nothing is held", async || {
        let holding = json!({ "session": "s", "holding": [] });
        lines.truth.post("workers/w/heartbeat", holding).await.ok();
        lines.truth.get("").await.ok()["reserved"] == 0
    })
    .await;
    audit(&lines.truth).await;
}
