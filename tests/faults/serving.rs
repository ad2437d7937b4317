//! `berth serve`: what it refuses, and its own Redis, whoever is killed.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::auditing::audit;
use crate::clients::insist;
use crate::support::{LocalRedis, Run, TestServer, berth, eventually, lives, signal, wait_for};

/// What a `berth` that must fail says, and its exit status.
async fn failure(arguments: &[&str]) -> (i32, String) {
    let output = berth(arguments).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is served");
    (output.status.code().expect("it ended by itself"), said)
}

#[tokio::test]
async fn an_address_that_others_reach_is_wrong_use_unless_it_is_insisted_upon() {
    let redis = LocalRedis::start().await;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (status, said) = failure(&["serve", "--listen", address, "--redis", &redis.url()]).await;
        assert_eq!(status, 2, "{said}");
        let expected = format!(
            "berth serve: {address} can be reached by others, and there are no tokens: listen on 127.0.0.1, or say --insecure"
        );
        assert_eq!(said.trim(), expected);
    }

    // Insisted upon, it gets as far as the next mistake.
    let (_, said) = failure(&["serve", "--listen", "0.0.0.0:0", "--insecure", "--redis", "nonsense"]).await;
    assert!(said.contains("nonsense is not the address of a Redis"), "{said}");
}

#[tokio::test]
async fn what_is_no_address_of_a_redis_is_wrong_use() {
    for url in ["nonsense", "http://127.0.0.1:6379", "redis://", "redis+unix://"] {
        let (status, said) = failure(&["serve", "--listen", "127.0.0.1:0", "--redis", url]).await;
        assert_eq!(status, 2, "{url}: {said}");
        assert!(said.contains(&format!("{url} is not the address of a Redis")), "{said}");
    }
}

#[tokio::test]
async fn arguments_that_it_does_not_know_are_wrong_use() {
    let wrong: [&[&str]; 7] = [
        &["serve", "--lisen", "127.0.0.1:0"],
        &["serve", "--listen", "localhost"],
        &["serve", "--listen", "127.0.0.1:99999"],
        &["serve", "--redis", "redis://127.0.0.1", "--data-dir", "data"],
        &["serve", "--max-waiting", "many"],
        &["sevre"],
        &[],
    ];
    for arguments in wrong {
        let (status, said) = failure(arguments).await;
        assert_eq!(status, 2, "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_a_failure() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let (_parent, dir) = data_dir();

    let (status, said) = failure(&["serve", "--listen", &address, "--data-dir", text(&dir)]).await;

    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains(&format!("berth serve: {address} cannot be listened on: ")),
        "{said}"
    );
    assert!(!dir.exists(), "no Redis was started for nothing");
}

/// A server may be started before its Redis.
#[tokio::test]
async fn a_redis_that_does_not_answer_yet_is_waited_for() {
    let mut redis = LocalRedis::start().await;
    redis.kill().await;

    let server = TestServer::start(&redis.url()).await;
    let client = server.client();
    assert_eq!(client.get("/readyz").await.status, 503);
    redis.restart().await;

    eventually("it is found", async || client.get("/readyz").await.status == 200).await;
    Run::create(&client, json!({ "batch_size": 1, "max_staleness": 0 })).await;
}

#[tokio::test]
async fn a_second_server_on_the_same_data_is_refused_and_the_first_goes_on() {
    let (_parent, dir) = data_dir();
    let mut first = TestServer::start_with(&["--data-dir", text(&dir)]).await;
    let run = Run::create(&first.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;

    let (status, said) = failure(&["serve", "--listen", "127.0.0.1:0", "--data-dir", text(&dir)]).await;

    assert_eq!(status, 1, "{said}");
    assert!(said.contains("another berth uses the data directory"), "{said}");
    run.reserve(0, "a").await.ok();
    assert!(first.stop().await.success());
}

#[tokio::test]
async fn its_own_redis_that_is_killed_is_started_again_and_nothing_is_lost() {
    let (_parent, dir) = data_dir();
    let mut server = TestServer::start_with(&["--data-dir", text(&dir)]).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 3, "max_staleness": 0 })).await;

    for prompt in ["a", "b", "c"] {
        let reserve = json!({ "worker": "w", "session": "s", "version": 0, "prompts": [prompt], "request_id": prompt });
        let granted = insist(&run, "reservations", reserve).await;
        let id = granted["granted"][0]["id"].as_str().expect("an id").to_owned();
        let killed = redis_of(&dir).await;
        signal(killed, "KILL");
        insist(&run, &format!("trajectories/{id}/occupy"), json!({})).await;
        assert_ne!(redis_of(&dir).await, killed);
    }

    assert_eq!(run.tables().await, "A B C");
    assert!(audit(&run).await.discarded.is_empty());
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn it_stops_its_own_redis_last_and_the_next_server_has_all_the_data() {
    let (_parent, dir) = data_dir();
    let mut server = TestServer::start_with(&["--data-dir", text(&dir)]).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 2, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let redis = redis_of(&dir).await;
    // Its waiting call needs the Redis to be answered.
    let waiting = {
        let run = run.clone();
        tokio::spawn(async move { run.post("batches/next", json!({ "wait_ms": 60_000 })).await.ok() })
    };
    eventually("the trainer waits", async || {
        run.get("").await.ok()["trainer"]["state"] == "waiting"
    })
    .await;

    assert!(server.stop().await.success());

    assert_eq!(waiting.await.expect("an answer")["needed"], 2);
    assert!(!lives(redis), "no orphan is left");
    let mut next = TestServer::start_with(&["--data-dir", text(&dir)]).await;
    let run = run.through(&next.client());
    run.occupy("a").await.ok();
    assert_eq!(run.tables().await, "A .");
    assert!(next.stop().await.success());
}

#[tokio::test]
async fn the_redis_that_a_killed_server_leaves_is_taken_over_with_all_the_data() {
    let (_parent, dir) = data_dir();
    let mut server = TestServer::start_with(&["--data-dir", text(&dir)]).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 2, "max_staleness": 0 })).await;
    run.reserve(0, "a b").await.ok();
    run.occupy("a").await.ok();
    let orphan = redis_of(&dir).await;
    server.kill().await;
    assert!(lives(orphan), "it outlives its server");

    let mut next = TestServer::start_with(&["--data-dir", text(&dir)]).await;

    let run = run.through(&next.client());
    assert_eq!(run.tables().await, "A b");
    run.occupy("b").await.ok();
    let redis = redis_of(&dir).await;
    assert!(next.stop().await.success());
    assert!(!lives(orphan) && !lives(redis));
}

/// A path that does not exist yet, below a directory that ends with the first value.
fn data_dir() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("data");
    (parent, dir)
}

fn text(dir: &Path) -> &str {
    dir.to_str().expect("a path that is text")
}

/// The process id of the private Redis, once it answers.
async fn redis_of(dir: &Path) -> u32 {
    let url = format!("redis+unix://{}/redis.sock", dir.display());
    wait_for("the private Redis answers", async || {
        let mut connection = redis::Client::open(url.as_str())
            .ok()?
            .get_multiplexed_async_connection()
            .await
            .ok()?;
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
            .ok()?;
        info.lines()
            .find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok())
    })
    .await
}
