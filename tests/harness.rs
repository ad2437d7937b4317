//! The harness itself: what the other tests take for granted.

mod support;

use redis::AsyncCommands;
use serde_json::json;
use tokio::time::{Duration, timeout};

use support::{Client, Database, LocalRedis, Proxy, Traffic, draw, eventually};

#[tokio::test]
async fn the_database_takes_a_value_and_gives_it_back() {
    let Some(database) = Database::start().await else {
        return;
    };
    let mut connection = database.connection().await;

    let _: () = connection.set("key", "value").await.expect("a write");

    let value: String = connection.get("key").await.expect("a read");
    assert_eq!(value, "value");
}

#[tokio::test]
async fn a_killed_redis_refuses_and_a_restarted_one_has_its_data() {
    let mut redis = LocalRedis::start().await;
    let mut connection = redis.connection().await;
    let _: () = connection.set("key", "value").await.expect("a write");

    redis.kill().await;
    let refusal = connection.get::<_, String>("key").await.expect_err("nobody is there");
    assert!(refusal.is_io_error(), "{refusal}");
    redis.restart().await;

    let value: String = redis.connection().await.get("key").await.expect("a read");
    assert_eq!(value, "value");
}

#[test]
fn tables_are_drawn_as_the_protocol_draws_them() {
    let answer = json!({ "buffers": [
        { "version": 0, "slots": [{ "state": "occupied", "prompt": "a" }, { "state": "empty" },
                                  { "state": "reserved", "prompt": "g" }, { "state": "reserved", "prompt": "e" }] },
        { "version": 1, "slots": [{ "state": "reserved", "prompt": "d" }, { "state": "reserved", "prompt": "c" },
                                  { "state": "reserved", "prompt": "b" }, { "state": "reserved", "prompt": "f" }] },
    ] });

    assert_eq!(draw(&answer), "A . g e | d c b f");
}

#[tokio::test]
async fn a_proxy_that_passes_is_not_noticed() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;

    assert_eq!(append(&proxy).await, Ok(1));
}

#[tokio::test]
async fn an_answer_is_cut_after_the_work_is_done() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    let mut connection = connect(&proxy).await.expect("a connection");

    proxy.set(Traffic::CutAnswers);
    let cut = connection
        .append::<_, _, usize>("key", "x")
        .await
        .expect_err("the answer is cut");

    assert!(cut.is_connection_dropped(), "{cut}");
    assert_eq!(proxy.cuts(), 1);
    let value: String = redis.connection().await.get("key").await.expect("a read");
    assert_eq!(value, "x");
}

#[tokio::test]
async fn a_refusing_proxy_ends_old_connections_and_takes_no_new_ones() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    let mut connection = connect(&proxy).await.expect("a connection");

    proxy.set(Traffic::Refuse);

    eventually("the old connection ends", async || {
        connection.append::<_, _, usize>("key", "x").await.is_err()
    })
    .await;
    assert!(append(&proxy).await.is_err());
    proxy.set(Traffic::Pass);
    assert!(append(&proxy).await.is_ok());
}

#[tokio::test]
async fn a_black_hole_answers_nothing_until_it_is_left() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    let mut connection = connect(&proxy).await.expect("a connection");

    proxy.set(Traffic::BlackHole);
    let mut lost = redis::cmd("APPEND");
    lost.arg("key").arg("x");
    let answer = timeout(Duration::from_millis(200), lost.query_async::<usize>(&mut connection)).await;

    assert!(!matches!(answer, Ok(Ok(_))), "the request vanished");
    proxy.set(Traffic::Pass);
    assert_eq!(append(&proxy).await, Ok(1));
}

#[tokio::test]
async fn a_client_says_why_it_got_no_answer() {
    let redis = LocalRedis::start().await;
    let proxy = Proxy::to_redis(&redis.url()).await;
    proxy.set(Traffic::Refuse);
    let url = proxy.http_url();

    let error = Client::new(&url)
        .attempt(hyper::Method::GET, "/healthz", None)
        .await
        .expect_err("a hang-up");

    assert!(
        error.starts_with(&format!("GET {url}/healthz: client error")),
        "{error}"
    );
}

/// Appends one byte through the proxy; the length after it.
async fn append(proxy: &Proxy) -> redis::RedisResult<usize> {
    connect(proxy).await?.append("key", "x").await
}

async fn connect(proxy: &Proxy) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    redis::Client::open(proxy.redis_url())?
        .get_multiplexed_async_connection()
        .await
}
