//! `--wait-replicas`: a write is acknowledged when the replicas have it.

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, timeout};

use crate::support::{LocalRedis, Proxy, Response, Run, TestServer, eventually};

/// A primary with one replica, which reaches it through a proxy: so the primary needs no port that may be taken.
struct Pair {
    /// Dropped first: it would complain of the others' end.
    server: TestServer,
    replica: LocalRedis,
    primary: LocalRedis,
    _line: Proxy,
}

impl Pair {
    async fn start(wait_replicas: &str) -> Self {
        let primary = LocalRedis::start_with(&["--repl-diskless-sync-delay", "0"]).await;
        let line = Proxy::to_redis(&primary.url()).await;
        let url = line.redis_url();
        let port = url.rsplit_once(':').expect("an address with a port").1;
        let replica = LocalRedis::start_with(&["--replicaof", &format!("127.0.0.1 {port}")]).await;
        eventually("the replica follows", async || {
            info(&replica).await.get::<String>("master_link_status").as_deref() == Some("up")
        })
        .await;
        let flags = ["--redis", &primary.url(), "--wait-replicas", wait_replicas];
        let server = TestServer::start_with(&flags).await;
        Self {
            server,
            replica,
            primary,
            _line: line,
        }
    }

    async fn run(&self) -> Run {
        Run::create(&self.server.client(), json!({ "batch_size": 100, "max_staleness": 0 })).await
    }
}

async fn info(redis: &LocalRedis) -> redis::InfoDict {
    let mut connection = redis.connection().await;
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    info.query_async(&mut connection).await.expect("an answer")
}

/// How often a Redis was asked to wait.
async fn waits(redis: &LocalRedis) -> u64 {
    let mut connection = redis.connection().await;
    let mut info = redis::cmd("INFO");
    info.arg("commandstats");
    let stats: redis::InfoDict = info.query_async(&mut connection).await.expect("an answer");
    let wait: Option<String> = stats.get("cmdstat_wait");
    let calls = wait.and_then(|wait| wait.strip_prefix("calls=")?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[track_caller]
fn assert_not_replicated(answer: Response) {
    let detail = answer.problem(503, "database_unavailable")["detail"].to_string();
    assert!(detail.contains("0 of 1 replicas have it"), "{detail}");
    assert!(
        detail.contains("whether the write will survive is unknown; repeating it is safe"),
        "{detail}"
    );
}

fn reserve(worker: usize) -> Value {
    json!({ "worker": format!("w{worker}"), "session": "s", "version": 0, "prompts": ["a"], "request_id": "once" })
}

#[tokio::test]
async fn what_is_acknowledged_is_on_the_replica() {
    let pair = Pair::start("1").await;
    let run = pair.run().await;

    let granted = run.post("reservations", reserve(1)).await.ok();

    let id = granted["granted"][0]["id"].as_str().expect("an id").to_owned();
    let mut replica = pair.replica.connection().await;
    let mut look = redis::cmd("HEXISTS");
    look.arg(format!("berth:{{{}}}:entries", run.name())).arg(id);
    let is_there: bool = look.query_async(&mut replica).await.expect("an answer");
    assert!(is_there, "at once, without waiting");
}

#[tokio::test]
async fn a_replica_that_stands_still_leaves_writes_unacknowledged_and_views_answered_and_repeating_succeeds() {
    let pair = Pair::start("1").await;
    let run = pair.run().await;

    pair.replica.pause();
    assert_not_replicated(run.post("reservations", reserve(1)).await);
    assert_not_replicated(run.post("workers/w1/heartbeat", json!({ "session": "s" })).await);
    assert_not_replicated(
        run.client()
            .attempt(Method::PATCH, &run.path(""), Some(json!({ "lease_ms": 60_000 })))
            .await
            .expect("an answer"),
    );
    assert_eq!(run.get("").await.ok()["reserved"], 1, "a view waits for nobody");
    pair.server.client().get("/readyz").await.ok();
    pair.replica.resume();

    eventually("the repeated call is acknowledged", async || {
        let answer = run.post("reservations", reserve(1)).await;
        answer.status != 503
            && answer.ok()["granted"]
                .as_array()
                .is_some_and(|granted| granted.len() == 1)
    })
    .await;
    assert_eq!(run.get("").await.ok()["reserved"], 1, "it was done once");
}

#[tokio::test]
async fn a_replica_that_is_gone_and_comes_back_is_caught_up_with() {
    let mut pair = Pair::start("1").await;
    let run = pair.run().await;

    pair.replica.kill().await;
    assert_not_replicated(run.post("reservations", reserve(1)).await);
    pair.replica.restart().await;

    eventually("the repeated call is acknowledged", async || {
        run.post("reservations", reserve(1)).await.status != 503
    })
    .await;
    assert_eq!(run.get("").await.ok()["reserved"], 1, "it was done once");
}

#[tokio::test]
async fn many_calls_share_a_wait_and_those_that_hang_up_do_not_keep_the_others() {
    const CALLS: usize = 60;
    let pair = Pair::start("1").await;
    let run = pair.run().await;
    let before = waits(&pair.primary).await;

    pair.replica.pause();
    let calls: Vec<_> = (0..CALLS)
        .map(|worker| {
            let run = run.clone();
            tokio::spawn(async move { run.post("reservations", reserve(worker)).await })
        })
        .collect();
    eventually("all are written", async || run.get("").await.ok()["reserved"] == CALLS).await;
    for hung_up in calls.iter().step_by(3) {
        hung_up.abort();
    }
    pair.replica.resume();

    // Those of a round that was over before the replica went on were told so.
    let answers = timeout(Duration::from_secs(20), join_all(calls))
        .await
        .expect("nobody is kept");
    for answer in answers.into_iter().flatten() {
        match answer.status {
            503 => assert_not_replicated(answer),
            _ => assert_eq!(answer.ok()["granted"].as_array().map(Vec::len), Some(1)),
        }
    }
    let rounds = waits(&pair.primary).await - before;
    assert!(rounds < CALLS as u64 / 2, "{rounds} rounds for {CALLS} calls");
}

#[tokio::test]
async fn a_connection_that_was_cut_while_idle_costs_no_call() {
    let pair = Pair::start("1").await;
    let run = pair.run().await;
    let mut connection = pair.primary.connection().await;

    // Only the connection that waits: its last command was WAIT.
    let clients: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query_async(&mut connection)
        .await
        .expect("a list");
    let waiting: Vec<&str> = clients
        .lines()
        .filter(|client| client.contains(" cmd=wait "))
        .filter_map(|client| client.split(' ').next()?.strip_prefix("id="))
        .collect();
    assert_eq!(waiting.len(), 1, "{clients}");
    let killed: u32 = redis::cmd("CLIENT")
        .arg(&["KILL", "ID", waiting[0]])
        .query_async(&mut connection)
        .await
        .expect("an answer");
    assert_eq!(killed, 1);

    run.post("reservations", reserve(1)).await.ok();
}

#[tokio::test]
async fn too_few_replicas_are_said_at_the_start_and_without_the_flag_nobody_waits() {
    let pair = Pair::start("2").await;
    eventually("a warning", async || {
        !pair
            .server
            .logged("has 1 replicas, and --wait-replicas wants")
            .is_empty()
    })
    .await;

    let other = TestServer::start(&pair.primary.url()).await;
    Run::create(&other.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
    assert_eq!(waits(&pair.primary).await, 0);
}
