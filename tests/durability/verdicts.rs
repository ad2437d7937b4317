//! What the server says of a database's settings when it meets it.

use serde_json::json;

use crate::support::{LocalRedis, Proxy, Run, TestServer, Traffic, eventually, wait_for};

/// Starts a server on a Redis of these settings, and returns the line of its log that contains `words`.
async fn said_of(settings: &[&str], words: &str) -> String {
    let redis = LocalRedis::start_with(settings).await;
    let server = TestServer::start(&redis.url()).await;
    let line = wait_for(words, async || server.logged(words).pop()).await;
    // It is said, and served.
    server.client().get("/readyz").await.ok();
    line
}

#[tokio::test]
async fn an_append_only_file_that_is_synced_always_loses_nothing() {
    let line = said_of(&[], "nothing acknowledged is lost").await;
    assert!(line.contains("INFO"), "{line}");
}

#[tokio::test]
async fn an_append_only_file_that_is_synced_every_second_may_lose_one() {
    let line = said_of(&["--appendfsync", "everysec"], "a crash may lose the last second").await;
    assert!(line.contains("INFO"), "{line}");
}

#[tokio::test]
async fn syncing_that_stops_during_rewrites_is_warned_of() {
    let line = said_of(
        &["--no-appendfsync-on-rewrite", "yes"],
        "while the append-only file is rewritten",
    )
    .await;
    assert!(line.contains("WARN"), "{line}");
}

#[tokio::test]
async fn an_append_only_file_that_is_never_synced_is_warned_of() {
    let line = said_of(&["--appendfsync", "no"], "(appendfsync no)").await;
    assert!(line.contains("WARN") && line.contains("NOT DURABLE"), "{line}");
}

#[tokio::test]
async fn snapshots_alone_are_warned_of() {
    let settings = ["--appendonly", "no", "--save", "3600 1"];
    let line = said_of(&settings, "since the last snapshot").await;
    assert!(line.contains("WARN") && line.contains("NOT DURABLE"), "{line}");
    assert!(line.contains("save 3600 1"), "{line}");
}

#[tokio::test]
async fn a_database_that_writes_nothing_to_disk_is_warned_of() {
    let line = said_of(&["--appendonly", "no"], "loses every run").await;
    assert!(line.contains("WARN") && line.contains("NOT DURABLE"), "{line}");
}

#[tokio::test]
async fn a_database_that_does_not_tell_its_settings_is_used_and_that_is_said() {
    let line = said_of(
        &["--rename-command", "CONFIG", ""],
        "it cannot be told what a crash loses",
    )
    .await;
    assert!(line.contains("WARN"), "{line}");
}

#[tokio::test]
async fn a_user_who_may_not_read_the_settings_is_told_so_and_served() {
    let redis = LocalRedis::start().await;
    let mut connection = redis.connection().await;
    let _: () = redis::cmd("ACL")
        .arg(&["SETUSER", "default", "-config"])
        .query_async(&mut connection)
        .await
        .expect("a change of rights");
    let server = TestServer::start(&redis.url()).await;

    wait_for("it is said", async || {
        server.logged("it cannot be told what a crash loses").pop()
    })
    .await;

    Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
}

/// After a fail-over another database may answer under the same address.
#[tokio::test]
async fn every_new_connection_is_judged_again() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    let server = TestServer::start(&proxy.redis_url()).await;
    server.client().get("/readyz").await.ok();
    let mut connection = redis.connection().await;

    let _: () = redis::cmd("CONFIG")
        .arg(&["SET", "appendfsync", "everysec"])
        .query_async(&mut connection)
        .await
        .expect("a setting");
    proxy.set(Traffic::Refuse);
    eventually("the outage is noticed", async || {
        server.client().get("/readyz").await.status == 503
    })
    .await;
    proxy.set(Traffic::Pass);

    wait_for("the new setting is told", async || {
        server.logged("appendfsync everysec").pop()
    })
    .await;
    eventually("it is ready again", async || {
        server.client().get("/readyz").await.status == 200
    })
    .await;
}
