//! A Redis that restarted or failed over has no scripts.

use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::task::yield_now;

use crate::support::{Ledger, Response, Run};

async fn flush(connection: &mut MultiplexedConnection) {
    let _: () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(connection)
        .await
        .expect("a flush");
}

#[tokio::test]
async fn scripts_that_are_flushed_between_any_two_calls_are_not_missed() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let mut connection = ledger.database.connection().await;
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let mut tables = Vec::new();

    for step in 0..8 {
        flush(&mut connection).await;
        step_of_a_job(&run, step).await.ok();
        flush(&mut connection).await;
        tables.push(run.tables().await);
    }

    assert_eq!(
        tables,
        [
            ". c | b d",
            "A c | b d",
            "A D | b c",
            "b c",
            "b c | . .",
            "b c | . e",
            "B c | . e",
            "B . | . e",
        ]
    );
}

async fn step_of_a_job(run: &Run, step: usize) -> Response {
    match step {
        0 => {
            run.reserve(0, "a b c d").await.ok();
            run.discard("a", "failed").await
        }
        1 => {
            run.reserve(0, "a").await.ok();
            run.occupy("a").await
        }
        2 => run.occupy("d").await,
        3 => run.take().await,
        4 => run.publish(1).await,
        5 => run.reserve(1, "e").await,
        6 => run.occupy("b").await,
        7 => run.discard("c", "failed").await,
        _ => unreachable!("the job has eight steps"),
    }
}

/// Whenever a flush comes, no call of the job is refused.
#[tokio::test]
async fn scripts_that_are_flushed_all_the_time_are_not_missed() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let mut connection = ledger.database.connection().await;
    let flushing = tokio::spawn(async move {
        loop {
            flush(&mut connection).await;
            yield_now().await;
        }
    });

    let mut trained = 0;
    while trained < 15 {
        let reserve = json!({ "worker": "w", "version": trained, "request_id": trained.to_string() });
        let grant = run.post("reservations", reserve).await.ok();
        let id = grant["granted"][0]["id"].as_str().expect("an id");
        run.post(&format!("trajectories/{id}/occupy"), json!({})).await.ok();
        run.post("batches/next", json!({})).await.ok();
        trained += 1;
        run.post("versions", json!({ "version": trained })).await.ok();
    }

    flushing.abort();
    assert_eq!(run.get("").await.ok()["totals"]["trained"], 15);
}
