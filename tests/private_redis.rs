//! The private `redis-server` of `berth serve --data-dir`: it starts, stays up, keeps what it acknowledged, and there
//! is never a second one on the same data.

mod support;

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    process::Stdio,
};

use redis::{AsyncCommands, RedisResult, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::process::Command;

use berth::store::private_redis::{PrivateRedis, PrivateRedisError};
use support::{eventually, lives, signal, wait_for};

#[tokio::test]
async fn it_creates_its_directory_and_keeps_what_was_written_over_a_stop() {
    let (_parent, dir) = data_dir("data of 100% run #1");

    let redis = PrivateRedis::start(&dir).await.expect("a start");
    write(&redis.url(), "value").await;
    redis.stop().await;
    let redis = PrivateRedis::start(&dir).await.expect("another start");

    assert_eq!(read(&redis.url()).await, Ok(String::from("value")));
    redis.stop().await;
}

#[tokio::test]
async fn every_write_is_synced_nothing_is_evicted_and_no_port_is_open() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let mut connection = connect(&redis.url()).await.expect("a connection");

    let mut settings = Vec::new();
    for name in ["appendonly", "appendfsync", "maxmemory-policy", "save", "port"] {
        let (_, value): (String, String) = redis::cmd("CONFIG")
            .arg("GET")
            .arg(name)
            .query_async(&mut connection)
            .await
            .expect("a setting");
        settings.push(format!("{name}={value}"));
    }

    assert_eq!(
        settings,
        [
            "appendonly=yes",
            "appendfsync=always",
            "maxmemory-policy=noeviction",
            "save=",
            "port=0"
        ]
    );
    redis.stop().await;
}

#[tokio::test]
async fn only_its_user_reaches_it() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");

    assert_eq!(permissions(&dir), 0o700);
    assert_eq!(permissions(&dir.join("redis.sock")), 0o700);
    redis.stop().await;
}

#[tokio::test]
async fn a_key_on_the_terminal_does_not_reach_it() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let pid = pid(&redis.url()).await.expect("a process id");

    let ps = Command::new("ps")
        .args(["-o", "pgid=", "-p", &pid.to_string()])
        .output()
        .await
        .expect("ps runs");

    assert_eq!(
        String::from_utf8_lossy(&ps.stdout).trim(),
        pid.to_string(),
        "a process group of its own"
    );
    redis.stop().await;
}

#[tokio::test]
async fn a_second_start_on_the_same_directory_is_refused() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");

    let refusal = PrivateRedis::start(&dir).await.expect_err("the directory is in use");

    let path = dir.canonicalize().expect("a directory");
    assert_eq!(
        refusal.to_string(),
        format!(
            "another berth uses the data directory {}: stop it, or choose another --data-dir",
            path.display()
        )
    );
    write(&redis.url(), "the first one is untouched").await;
    redis.stop().await;
}

#[tokio::test]
async fn killed_it_is_restarted_with_all_it_acknowledged_again_and_again() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let url = redis.url();

    for value in ["first", "second", "third"] {
        write(&url, value).await;
        let before = pid(&url).await.expect("a process id");
        signal(before, "KILL");
        let after = wait_for("another process answers", async || {
            pid(&url).await.ok().filter(|pid| *pid != before)
        })
        .await;
        assert_ne!(after, before);
        assert_eq!(read(&url).await.as_deref(), Ok(value));
    }
    redis.stop().await;
}

#[tokio::test]
async fn a_stopped_one_is_gone_and_not_restarted() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let (url, pid) = (redis.url(), pid(&redis.url()).await.expect("a process id"));

    redis.stop().await;

    assert!(!lives(pid));
    let refusal = connect(&url).await.expect_err("nobody is there");
    assert!(refusal.is_connection_refusal(), "{refusal}");
}

#[tokio::test]
async fn one_that_hangs_is_killed_at_the_stop() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let pid = pid(&redis.url()).await.expect("a process id");
    signal(pid, "STOP");

    redis.stop().await;

    assert!(!lives(pid));
}

#[tokio::test]
async fn a_dropped_one_ends_and_its_directory_is_free() {
    let (_parent, dir) = data_dir("data");
    let redis = PrivateRedis::start(&dir).await.expect("a start");
    let pid = pid(&redis.url()).await.expect("a process id");

    drop(redis);

    eventually("its process ends", async || !lives(pid)).await;
    let again = wait_for("the directory is free", async || PrivateRedis::start(&dir).await.ok()).await;
    again.stop().await;
}

/// Set for the process that [`the_server_of_a_killed_predecessor_is_taken_over`] kills: the data directory.
const VICTIM_DIR: &str = "PRIVATE_REDIS_TEST_VICTIM_DIR";

#[tokio::test]
async fn the_server_of_a_killed_predecessor_is_taken_over() {
    if let Some(dir) = env::var_os(VICTIM_DIR) {
        let redis = PrivateRedis::start(Path::new(&dir)).await.expect("a start");
        write(&redis.url(), "acknowledged").await;
        return std::future::pending().await;
    }
    let (_parent, dir) = data_dir("data");
    let url = format!("redis+unix://{}/redis.sock", dir.display());
    let mut victim = Command::new(env::current_exe().expect("the path of this test"))
        .args(["--exact", "the_server_of_a_killed_predecessor_is_taken_over"])
        .env(VICTIM_DIR, &dir)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("this test runs once more");
    eventually("the predecessor has written", async || read(&url).await.is_ok()).await;
    let orphan = pid(&url).await.expect("a process id");

    victim.kill().await.expect("the predecessor can be killed");
    assert_eq!(pid(&url).await, Ok(orphan), "its server outlives it");
    let redis = PrivateRedis::start(&dir).await.expect("a takeover");

    eventually("the orphan has ended", async || !lives(orphan)).await;
    assert_eq!(read(&redis.url()).await, Ok(String::from("acknowledged")));
    redis.stop().await;
}

#[tokio::test]
async fn a_server_that_someone_else_started_there_is_shut_down_too() {
    let (_parent, dir) = data_dir("data");
    fs::create_dir(&dir).expect("a directory");
    let mut stranger = Command::new("redis-server")
        .args(["--port", "0", "--appendonly", "yes", "--save", "", "--unixsocket"])
        .arg(dir.join("redis.sock"))
        .arg("--dir")
        .arg(&dir)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server is installed");
    let url = format!("redis+unix://{}/redis.sock", dir.display());
    eventually("the stranger answers", async || pid(&url).await.is_ok()).await;
    write(&url, "the stranger's").await;

    let redis = PrivateRedis::start(&dir).await.expect("a takeover");

    assert!(
        stranger.wait().await.expect("the state of a child").success(),
        "it was asked, not killed"
    );
    assert_eq!(read(&redis.url()).await, Ok(String::from("the stranger's")));
    redis.stop().await;
}

#[tokio::test]
async fn a_socket_file_that_nobody_listens_on_is_no_obstacle() {
    let (_parent, dir) = data_dir("data");
    fs::create_dir(&dir).expect("a directory");
    drop(UnixListener::bind(dir.join("redis.sock")).expect("a socket"));

    let redis = PrivateRedis::start(&dir).await.expect("a start");

    write(&redis.url(), "value").await;
    redis.stop().await;
}

#[tokio::test]
async fn a_missing_program_is_reported_with_how_to_get_it() {
    let (_parent, dir) = data_dir("data");

    let error = PrivateRedis::start_program("no-such-redis-server", &dir)
        .await
        .expect_err("there is no such program");

    assert_eq!(
        error.to_string(),
        "`no-such-redis-server` is not installed: `apt install redis-server` (Debian, Ubuntu) or `brew install redis` \
         (macOS) gets it; or name a running Redis with --redis"
    );
}

#[tokio::test]
async fn an_end_before_the_first_answer_is_reported_with_the_log() {
    let (_parent, dir) = data_dir("data");
    fs::create_dir_all(dir.join("appendonlydir")).expect("a directory");
    fs::write(dir.join("appendonlydir/appendonly.aof.manifest"), "torn to pieces\n").expect("a file");

    let error = PrivateRedis::start(&dir).await.expect_err("no server can load this");

    let PrivateRedisError::Ended { status, log_tail, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(status.code(), Some(1));
    assert!(log_tail.contains("Invalid AOF manifest file format"), "{log_tail}");
    assert!(error.to_string().ends_with(log_tail.as_str()), "{error}");
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_refused_before_anything_starts() {
    let (_parent, dir) = data_dir(&"d".repeat(100));

    let error = PrivateRedis::start(&dir)
        .await
        .expect_err("no socket address holds this path");

    let path = dir.canonicalize().expect("a directory");
    assert_eq!(
        error.to_string(),
        format!(
            "{}/redis.sock is too long a path for a Unix socket: choose a shorter --data-dir",
            path.display()
        )
    );
}

#[tokio::test]
async fn a_file_in_the_place_of_the_directory_is_named() {
    let (_parent, dir) = data_dir("data");
    fs::write(&dir, "").expect("a file");

    let error = PrivateRedis::start(&dir).await.expect_err("a file is no directory");

    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot create {}: ", dir.display())),
        "{error}"
    );
}

/// A path that does not exist yet, below a directory that ends with the first value.
fn data_dir(name: &str) -> (TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().canonicalize().expect("a directory").join(name);
    (parent, dir)
}

fn permissions(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    redis::Client::open(url)?.get_multiplexed_async_connection().await
}

async fn write(url: &str, value: &str) {
    let mut connection = connect(url).await.expect("a connection");
    let _: () = connection.set("key", value).await.expect("a write");
}

async fn read(url: &str) -> RedisResult<String> {
    connect(url).await?.get("key").await
}

/// The process id of the server that answers, once it has loaded its data: INFO alone is answered before that.
async fn pid(url: &str) -> RedisResult<u32> {
    let mut connection = connect(url).await?;
    let _: () = redis::cmd("PING").query_async(&mut connection).await?;
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    Ok(info.get("process_id").expect("a server knows its process id"))
}
