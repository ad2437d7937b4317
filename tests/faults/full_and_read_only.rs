//! A Redis that answers and refuses to write: it is full, or became a replica.

use hyper::Method;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::auditing::audit;
use crate::clients::{assert_unavailable, insist};
use crate::support::{Ledger, Trainer, eventually};

#[tokio::test]
async fn a_full_redis_refuses_to_write_and_shows_what_it_has_and_goes_on_when_there_is_room() {
    refuses_for_a_while(
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CONFIG", "SET", "maxmemory", "0"],
    )
    .await;
}

#[tokio::test]
async fn a_redis_that_became_a_replica_refuses_to_write_and_goes_on_when_it_is_a_primary_again() {
    refuses_for_a_while(&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]).await;
}

/// What makes room can be done when there is none.
#[tokio::test]
async fn a_full_redis_lets_batches_and_runs_go() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let trainer = Trainer::first(&run).await;
    run.reserve(0, "a").await.ok();
    run.occupy("a").await.ok();
    trainer.is_given().await;
    trainer.publish(1).await.ok();
    let id = run.get("batches/0").await.ok()["trajectories"][0]["id"].clone();
    let id = id.as_str().expect("an id");
    let mut connection = ledger.database.connection().await;
    command(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await;

    trainer.checkpoint(1).await.ok();
    eventually("the batch is forgotten", async || {
        run.get(&format!("trajectories/{id}")).await.status == 404
    })
    .await;
    assert_eq!(run.delete().await.status, 204);
}

#[tokio::test]
async fn a_replica_lets_nothing_go() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let mut connection = ledger.database.connection().await;
    command(&mut connection, &["REPLICAOF", "127.0.0.1", "1"]).await;

    assert_unavailable(run.delete().await);
    assert_unavailable(run.post("checkpoints", json!({ "version": 0 })).await);
    command(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
}

async fn refuses_for_a_while(spoil: &[&str], mend: &[&str]) {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    run.reserve(0, "a b c").await.ok();
    run.occupy("a").await.ok();
    let id = run.id_of("b").await;
    let seq = run.get("").await.seq();
    let mut connection = ledger.database.connection().await;

    command(&mut connection, spoil).await;
    let writes = [
        (
            Method::PUT,
            run.path("-new"),
            json!({ "batch_size": 2, "max_staleness": 1 }),
        ),
        (Method::PATCH, run.path(""), json!({ "lease_ms": 5_000 })),
        (
            Method::POST,
            run.path("reservations"),
            json!({ "worker": "w", "version": 0, "wait_ms": 60_000 }),
        ),
        (Method::POST, run.path(&format!("trajectories/{id}/occupy")), json!({})),
        (
            Method::POST,
            run.path("occupy"),
            json!({ "trajectories": [{ "id": id }] }),
        ),
        (
            Method::POST,
            run.path(&format!("trajectories/{id}/discard")),
            json!({ "reason": "failed" }),
        ),
        (
            Method::POST,
            run.path(&format!("trajectories/{id}/claim")),
            json!({ "worker": "w" }),
        ),
        (
            Method::POST,
            run.path(&format!("trajectories/{id}/members/0")),
            json!({ "failed": true }),
        ),
        (
            Method::POST,
            run.path(&format!("trajectories/{id}/segments")),
            json!({ "version": 0, "from_token": 0 }),
        ),
        (
            Method::POST,
            run.path("workers/w/heartbeat"),
            json!({ "wait_ms": 60_000 }),
        ),
        (Method::POST, run.path("batches/next"), json!({ "wait_ms": 60_000 })),
        (
            Method::POST,
            run.path("versions"),
            json!({ "version": 0, "weights": "file:///weights" }),
        ),
        (
            Method::POST,
            run.path("trainer"),
            json!({ "trainer": "t0", "session": "next", "resume_from": 0 }),
        ),
        (
            Method::POST,
            run.path("trainer"),
            json!({ "trainer": "t0", "session": "next", "resume_from": 7, "force": true }),
        ),
    ];
    for (method, path, body) in writes {
        let path = path.replace("/-new", "-new");
        assert_unavailable(
            ledger
                .client()
                .attempt(method, &path, Some(body))
                .await
                .expect("an answer"),
        );
    }
    assert_eq!(run.tables().await, "A . | b c", "looking is possible all the while");
    assert_eq!(run.get("").await.seq(), seq);
    command(&mut connection, mend).await;

    insist(&run, &format!("trajectories/{id}/occupy"), json!({})).await;
    assert_eq!(run.tables().await, "A B | . c");
    audit(&run).await;
    let trainer = Trainer::first(&run).await;
    assert_eq!(trainer.opened["epoch"], 1);
    assert_eq!(trainer.is_given().await, "0: a b");
    trainer.publish(1).await.ok();
}

async fn command(connection: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query_async(connection).await.expect("a command");
}
