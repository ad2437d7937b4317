//! What a thousand calls that wait cost while nothing happens.

use std::collections::HashMap;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{LocalRedis, Run, TestServer, eventually};

/// Calls on one connection: fewer than a server lets share one, and so few connections that no limit of open files is met.
const CALLS_A_CONNECTION: usize = 100;
/// How long commands are counted, in milliseconds of the database's clock.
const WINDOW_MS: u64 = 2_000;
/// The most scripts that a server runs in that time whoever waits: it sweeps the run every 200 ms, and looks five times at
/// what happened in it should a message have been lost.
const SCRIPTS_OF_THE_SERVER: u64 = 20;

#[tokio::test]
async fn a_thousand_waiting_calls_cost_no_more_than_ten_while_nothing_happens() {
    let ten = commands_while(10).await;
    let thousand = commands_while(1_000).await;

    for commands in [&ten, &thousand] {
        assert!(commands.of("evalsha") <= SCRIPTS_OF_THE_SERVER, "{commands:?}");
    }
    let of_a_script = |commands: &Commands| commands.all() / commands.of("evalsha");
    assert!(of_a_script(&thousand) <= of_a_script(&ten) + 1, "{ten:?} {thousand:?}");
}

/// What Redis is asked to do in a window in which so many calls wait and nothing happens.
async fn commands_while(waiting: usize) -> Commands {
    let redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let config = json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 3_600_000 });
    let run = Run::create(&server.client(), config).await;
    run.reserve(0, "a").await.ok();
    let calls = wait(&run, waiting);
    let mut redis = redis.connection().await;
    eventually("every call has looked and waits", async || {
        Commands::within(&mut redis, WINDOW_MS / 4).await.of("evalsha") <= SCRIPTS_OF_THE_SERVER / 4
    })
    .await;

    let commands = Commands::within(&mut redis, WINDOW_MS).await;

    // They did wait all the while, and are woken.
    run.delete().await.status(204);
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer.as_ref().expect("a call") == 404));
    commands
}

/// Calls of every kind that waits, by sessions of their own; the status of the answer of each.
fn wait(run: &Run, waiting: usize) -> Vec<JoinHandle<u16>> {
    let mut connection = connection();
    let mut calls = Vec::with_capacity(waiting);
    for index in 0..waiting {
        if index % CALLS_A_CONNECTION == 0 {
            connection = self::connection();
        }
        let (method, path, body) = match index % 5 {
            0 => (
                Method::POST,
                "reservations",
                json!({ "worker": format!("w{index}"), "version": 0 }),
            ),
            1 => (
                Method::POST,
                &*format!("workers/w{index}/heartbeat"),
                json!({ "version": 0 }),
            ),
            2 => (Method::POST, "batches/next", json!({})),
            3 => (Method::GET, "versions/latest?after=0&wait_ms=60000", json!(null)),
            _ => (Method::GET, "events?after=1000000&wait_ms=60000", json!(null)),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{}", run.client().url(), run.path(path)))
            .header(CONTENT_TYPE, "application/json");
        let body = body.as_object().map(|fields| {
            let mut fields = fields.clone();
            fields.insert("wait_ms".to_owned(), json!(60_000));
            serde_json::to_vec(&fields).expect("a body")
        });
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .expect("a request");
        let connection = connection.clone();
        calls.push(tokio::spawn(async move {
            let (head, body) = connection.request(request).await.expect("an answer").into_parts();
            body.collect().await.expect("its end");
            head.status.as_u16()
        }));
    }
    calls
}

/// One connection, which all calls of the pool share.
fn connection() -> Pool<HttpConnector, Full<Bytes>> {
    Pool::builder(TokioExecutor::new()).http2_only(true).build_http()
}

/// How often Redis has done each command, those within scripts included.
#[derive(Debug)]
struct Commands(HashMap<String, u64>);

impl Commands {
    /// Those of a window of time.
    async fn within(redis: &mut MultiplexedConnection, window_ms: u64) -> Self {
        let before = Self::count(redis).await;
        let began = now_ms(redis).await;
        eventually("the window passes", async || now_ms(redis).await >= began + window_ms).await;
        let mut after = Self::count(redis).await;
        for (name, count) in &mut after.0 {
            *count -= before.of(name);
        }
        after
    }

    async fn count(redis: &mut MultiplexedConnection) -> Self {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(redis)
            .await
            .expect("the counts");
        let counts = info.lines().filter_map(|line| {
            let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), figures.split(',').next()?.parse().ok()?))
        });
        Self(counts.collect())
    }

    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All but those that this test needs to count.
    fn all(&self) -> u64 {
        self.0.values().sum::<u64>() - self.of("info") - self.of("time")
    }
}

async fn now_ms(redis: &mut MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME")
        .query_async(redis)
        .await
        .expect("the database's clock");
    seconds * 1_000 + micros / 1_000
}
