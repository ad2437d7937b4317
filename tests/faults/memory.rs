//! What a run leaves in the database after many trajectories: its live entries, the kept batches, and a log of bounded length.
//!
//! `BERTH_MEMORY_TRAJECTORIES` sets how many are put through. The figures are printed.

use std::collections::BTreeMap;

use berth::store::keys::{PARTS, RunKeys};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::support::{Database, Run, TestServer, wait_for};

const BATCH: usize = 256;
const KEEP: usize = 2;
const RETENTION: usize = 1_000;

/// The size of each key of a run: how many elements, and how many bytes.
type Sizes = BTreeMap<&'static str, (usize, usize)>;

#[tokio::test]
async fn a_run_takes_no_more_room_after_many_trajectories_than_after_a_few() {
    stays_as_small(json!({})).await;
}

/// Trained prompts are forgotten with their batches.
#[tokio::test]
async fn a_run_with_a_prompt_queue_takes_no_more_room_after_many_prompts_than_after_a_few() {
    stays_as_small(json!({ "prompt_queue": true, "order": "longest_first" })).await;
}

async fn stays_as_small(mut config: Value) {
    let Some(database) = Database::start().await else {
        return;
    };
    let retention = RETENTION.to_string();
    let server = TestServer::start_with(&["--redis", &database.url(), "--event-retention", &retention]).await;
    config["batch_size"] = json!(BATCH);
    config["max_staleness"] = json!(1);
    config["keep_batches"] = json!(KEEP);
    let has_queue = config["prompt_queue"] == true;
    let run = Run::create(&server.client(), config).await;
    let keys = RunKeys::new(run.name());
    let connection = database.connection().await;
    let batches = trajectories().div_ceil(BATCH);
    assert!(batches >= 2 * KEEP + 2, "too few trajectories to tell");

    let few = KEEP + 2;
    train(&run, 0..few).await;
    let after_few = settled(&connection, &keys).await;
    train(&run, few..batches).await;
    let after_many = settled(&connection, &keys).await;

    let without_log = |sizes: &Sizes| {
        let parts = sizes.iter().filter(|(part, _)| **part != "events");
        parts.map(|(_, (_, bytes))| bytes).sum::<usize>()
    };
    for (when, sizes) in [("a few", &after_few), ("many", &after_many)] {
        let count = if when == "many" { batches } else { few } * BATCH;
        println!(
            "after {when} trajectories ({count}): {} bytes, and {} of {} events",
            without_log(sizes),
            sizes["events"].1,
            sizes["events"].0
        );
    }
    assert_eq!(
        after_many["entries"].0,
        KEEP * BATCH,
        "the kept batches, and nothing else"
    );
    assert_eq!(after_many["occupied"].0, KEEP * BATCH);
    assert_eq!(after_many["prompts"].0, if has_queue { KEEP * BATCH } else { 0 });
    let elements = |sizes: &Sizes| -> Vec<_> {
        let parts = sizes.iter().filter(|(part, _)| **part != "events");
        parts.map(|(part, (elements, _))| (*part, *elements)).collect()
    };
    assert_eq!(elements(&after_many), elements(&after_few));
    let (few, many) = (without_log(&after_few), without_log(&after_many));
    // Numbers grow by a digit, and tables, which double when they grow, keep the room of when they were fuller.
    assert!(many < few * 2, "{few} bytes, and then {many}");
}

fn trajectories() -> usize {
    let count = std::env::var("BERTH_MEMORY_TRAJECTORIES").ok();
    count.map_or(5_120, |count| {
        count.parse().expect("BERTH_MEMORY_TRAJECTORIES is a number")
    })
}

async fn train(run: &Run, versions: std::ops::Range<usize>) {
    let has_queue = run.get("").await.ok()["config"]["prompt_queue"] == true;
    for version in versions {
        if has_queue {
            let prompt = |number: usize| json!({ "id": format!("q-{number}"), "data": { "text": "x".repeat(200) }, "expected_tokens": number });
            let prompts: Vec<_> = (0..BATCH).map(prompt).collect();
            let page = json!({ "offset": version * BATCH, "prompts": prompts });
            run.post("prompts", page).await.ok();
        }
        let reserve = json!({ "worker": "rollout-0", "session": "s", "version": version, "count": BATCH });
        let granted = run.post("reservations", reserve).await.ok()["granted"].clone();
        let finish = |grant: &Value| json!({ "id": grant["id"], "reward": 0.5, "tokens": 5_120, "payload": "file:///dev/shm/q-17.npz" });
        let finished: Vec<_> = granted.as_array().expect("grants").iter().map(finish).collect();
        assert_eq!(finished.len(), BATCH);
        run.post("occupy", json!({ "trajectories": finished })).await.ok();
        assert_eq!(run.take().await.ok()["batch"]["version"], version);
        run.publish(version as u64 + 1).await.ok();
    }
}

/// Once what is not kept was forgotten and the log was trimmed.
async fn settled(connection: &MultiplexedConnection, keys: &RunKeys) -> Sizes {
    wait_for("what is not kept is forgotten", async || {
        let sizes = sizes(&mut connection.clone(), keys).await;
        let is_settled = sizes["entries"].0 <= KEEP * BATCH && sizes["events"].0 < RETENTION + 1_000;
        is_settled.then_some(sizes)
    })
    .await
}

async fn sizes(connection: &mut MultiplexedConnection, keys: &RunKeys) -> Sizes {
    let mut sizes = Sizes::new();
    for part in PARTS {
        let key = keys.part(part);
        let kind: String = redis::cmd("TYPE")
            .arg(&key)
            .query_async(connection)
            .await
            .expect("a type");
        let length = match kind.as_str() {
            "hash" => "HLEN",
            "zset" => "ZCARD",
            "stream" => "XLEN",
            _ => {
                sizes.insert(part, (0, 0));
                continue;
            }
        };
        let elements = redis::cmd(length)
            .arg(&key)
            .query_async(connection)
            .await
            .expect("a length");
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(&key).arg("SAMPLES").arg(0);
        let bytes: Option<usize> = usage.query_async(connection).await.expect("a size");
        sizes.insert(part, (elements, bytes.unwrap_or(0)));
    }
    sizes
}
