//! A database that is not what the operator demands is not used.

use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::support::{LocalRedis, Run, TestServer, berth, eventually, wait_for};

/// That `berth serve` on this Redis ends at once with exit status 1; what it says then.
async fn refused(redis: &LocalRedis, flags: &[&str]) -> String {
    let url = redis.url();
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--redis", &url];
    arguments.extend(flags);
    let output = berth(&arguments).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it never says that it listens: {output:?}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("berth serve: the database is refused: "), "{said}");
    last.to_owned()
}

async fn accepted(redis: &LocalRedis, flags: &[&str]) -> TestServer {
    let url = redis.url();
    let mut arguments = vec!["--redis", &url];
    arguments.extend(flags);
    let server = TestServer::start_with(&arguments).await;
    Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
    server
}

#[tokio::test]
async fn an_evicting_database_ends_the_start_unless_that_is_allowed() {
    let redis = LocalRedis::start_with(&["--maxmemory-policy", "allkeys-lru"]).await;

    let reason = refused(&redis, &[]).await;
    assert!(reason.contains("maxmemory-policy allkeys-lru"), "{reason}");
    assert!(reason.contains("maxmemory-policy noeviction"), "{reason}");

    let server = accepted(&redis, &["--allow-eviction"]).await;
    wait_for("a warning", async || server.logged("THE DATABASE EVICTS").pop()).await;
}

#[tokio::test]
async fn an_evicting_database_is_found_out_although_it_forbids_config() {
    let settings = ["--maxmemory-policy", "volatile-ttl", "--rename-command", "CONFIG", ""];
    let redis = LocalRedis::start_with(&settings).await;

    let reason = refused(&redis, &[]).await;

    assert!(reason.contains("maxmemory-policy volatile-ttl"), "{reason}");
}

#[tokio::test]
async fn whoever_requires_durability_is_refused_anything_weaker_than_always() {
    for settings in [
        &["--appendfsync", "everysec"][..],
        &["--appendfsync", "no"],
        &["--no-appendfsync-on-rewrite", "yes"],
        &["--appendonly", "no", "--save", "3600 1"],
        &["--appendonly", "no"],
    ] {
        let redis = LocalRedis::start_with(settings).await;
        let reason = refused(&redis, &["--require-durable"]).await;
        assert!(reason.contains("appendfsync always"), "{reason}");
    }
}

#[tokio::test]
async fn whoever_requires_durability_is_refused_what_cannot_be_told() {
    let redis = LocalRedis::start_with(&["--rename-command", "CONFIG", ""]).await;

    let reason = refused(&redis, &["--require-durable"]).await;

    assert!(reason.contains("it cannot be told"), "{reason}");
}

#[tokio::test]
async fn whoever_requires_durability_is_served_where_every_write_is_synced() {
    let redis = LocalRedis::start().await;

    accepted(&redis, &["--require-durable"]).await;
}

#[tokio::test]
async fn the_servers_own_redis_is_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("a path of text");

    let mut server = TestServer::start_with(&["--data-dir", data, "--require-durable"]).await;

    server.client().get("/readyz").await.ok();
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn a_setting_that_is_spoilt_at_run_time_makes_the_database_unavailable_until_it_is_mended() {
    let redis = LocalRedis::start().await;
    let server = accepted(&redis, &["--require-durable"]).await;
    let client = server.client();
    let run = Run::create(&client, json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let mut connection = redis.connection().await;

    command(&mut connection, &["CONFIG", "SET", "appendfsync", "everysec"]).await;
    command(&mut connection, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    let problem = wait_for("the reason is told", async || {
        let answer = client.get("/readyz").await;
        let told = answer.status == 503 && answer.body["detail"].to_string().contains("everysec");
        told.then_some(answer)
    })
    .await;
    let detail = problem.problem(503, "database_unavailable")["detail"].to_string();
    assert!(detail.contains("appendfsync always"), "{detail}");
    for answer in [
        run.reserve(0, "a").await,
        run.get("").await,
        run.get("events").await,
        client.get("/v1/runs").await,
    ] {
        assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
        let detail = answer.problem(503, "database_unavailable")["detail"].to_string();
        assert!(detail.contains("appendfsync everysec"), "{detail}");
    }
    assert_eq!(client.get("/healthz").await.status, 200, "the server lives");
    assert_eq!(
        server.logged("is refused until this is mended").len(),
        1,
        "it is said once, however often it looks"
    );

    command(&mut connection, &["CONFIG", "SET", "appendfsync", "always"]).await;

    eventually("it is ready again", async || client.get("/readyz").await.status == 200).await;
    run.reserve(0, "a").await.ok();
}

#[tokio::test]
async fn a_database_that_comes_late_and_evicts_is_refused_and_the_server_lives() {
    let mut redis = LocalRedis::start_with(&["--maxmemory-policy", "allkeys-random"]).await;
    redis.kill().await;
    let server = TestServer::start(&redis.url()).await;
    assert_eq!(server.client().get("/readyz").await.status, 503);

    redis.restart().await;

    wait_for("the reason is told", async || {
        let answer = server.client().get("/readyz").await;
        let detail = answer.body["detail"].to_string();
        (answer.status == 503 && detail.contains("allkeys-random")).then_some(())
    })
    .await;
    assert_eq!(server.client().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn the_help_names_the_flags_and_their_variables() {
    let output = berth(&["serve", "--help"]).await;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "--allow-eviction",
        "BERTH_ALLOW_EVICTION",
        "--require-durable",
        "BERTH_REQUIRE_DURABLE",
        "--wait-replicas",
        "BERTH_WAIT_REPLICAS",
    ] {
        assert!(help.contains(words), "{words} in:\n{help}");
    }
}

/// A connection that [`LocalRedis::connection`] opened survives `CLIENT KILL`, which spares its sender.
async fn command(connection: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query_async(connection).await.expect("a command");
}
