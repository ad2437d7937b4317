//! A run with a prompt queue holds, and with a fault planted into what became of a prompt it does not.

use serde_json::{Value, json};

use crate::logs::{LogFile, events, verify};
use crate::planting::{is_found, position};
use crate::support::{Client, Ledger, Run, eventually};

/// Three prompts, each of which may be tried twice. The worker restarts twice with the first of them, and then has lost it; the
/// grant of the second reached nobody; the third is finished, and filtered.
async fn prompts_job(client: &Client) -> Run {
    let config =
        json!({ "batch_size": 4, "max_staleness": 0, "prompt_queue": true, "max_attempts": 2, "lease_ms": 1_000 });
    let run = Run::create(client, config).await;
    let prompts = json!([{ "id": "u" }, { "id": "v" }, { "id": "w" }]);
    run.post("prompts", json!({ "offset": 0, "prompts": prompts }))
        .await
        .ok();
    for start in 0..2 {
        reserve(&run, start, 1).await;
    }
    let granted = reserve(&run, 2, 2).await;
    let path = format!("trajectories/{}/occupy", granted[1]);
    run.post(&path, json!({})).await.ok();
    let body = json!({ "reason": "filtered" });
    run.post(&format!("trajectories/{}/discard", granted[1]), body)
        .await
        .ok();
    eventually("what is not listed is abandoned", async || {
        let body = json!({ "session": "start-2", "holding": [] });
        run.post("workers/w/heartbeat", body).await.ok();
        let entry = run.get(&format!("trajectories/{}", granted[0])).await.ok();
        entry["reason"] == "abandoned"
    })
    .await;
    run
}

async fn reserve(run: &Run, start: u64, count: u64) -> Vec<String> {
    let session = format!("start-{start}");
    let body = json!({ "worker": "w", "session": session, "version": 0, "count": count });
    let answer = run.post("reservations", body).await.ok();
    let granted = answer["granted"].as_array().expect("grants");
    let id = |grant: &Value| grant["id"].as_str().expect("an id").to_owned();
    granted.iter().map(id).collect()
}

async fn good_log() -> Option<Vec<Value>> {
    let ledger = Ledger::start().await?;
    let run = prompts_job(&ledger.client()).await;
    Some(events(&run, 0).await)
}

/// The event and the effect of it that is the `nth` of the log to bring a prompt into this state.
fn effect(log: &[Value], state: &str, nth: usize) -> (usize, usize) {
    let mut found = Vec::new();
    for (at, event) in log.iter().enumerate() {
        for (index, effect) in event["effects"].as_array().expect("a list").iter().enumerate() {
            if effect["effect"] == "prompt" && effect["state"] == state {
                found.push((at, index));
            }
        }
    }
    found[nth]
}

/// The log with another value of a field of that effect, which breaks the invariant at that event.
async fn is_found_with(log: &[Value], (at, index): (usize, usize), field: &str, value: Value) {
    let mut spoilt = log.to_vec();
    assert_ne!(spoilt[at]["effects"][index][field], value, "nothing is planted");
    spoilt[at]["effects"][index][field] = value;
    is_found(&spoilt, "prompts", log[at]["seq"].as_u64().expect("a number")).await;
}

#[tokio::test]
async fn a_run_with_a_prompt_queue_holds() {
    let Some(log) = good_log().await else { return };
    let (status, found) = verify(&["--events", &LogFile::of(&log).name()]).await;
    assert_eq!((status, &found["ok"]), (Some(0), &json!(true)), "{found:#}");
    assert_eq!(found["runs"][0]["invariants"]["prompts"], 0);
}

#[tokio::test]
async fn prompts_one_that_is_handed_out_twice() {
    let Some(log) = good_log().await else { return };
    // The second grant of the last Reserve is for the prompt of the first.
    let (at, index) = effect(&log, "in_flight", 3);
    is_found_with(&log, (at, index), "position", json!(1)).await;
}

#[tokio::test]
async fn prompts_one_that_is_handed_out_before_its_turn() {
    let Some(log) = good_log().await else { return };
    is_found_with(&log, effect(&log, "in_flight", 0), "position", json!(1)).await;
}

#[tokio::test]
async fn prompts_one_that_vanishes() {
    let Some(mut log) = good_log().await else { return };
    let (at, index) = effect(&log, "filtered", 0);
    log[at]["effects"].as_array_mut().expect("a list").remove(index);
    is_found(&log, "prompts", log[at]["seq"].as_u64().expect("a number")).await;
}

#[tokio::test]
async fn prompts_an_attempt_that_is_not_to_be_counted() {
    let Some(log) = good_log().await else { return };
    // A grant that never arrived is no attempt; the queued ones before are.
    is_found_with(&log, effect(&log, "queued", 1), "attempt", json!(2)).await;
}

#[tokio::test]
async fn prompts_one_that_is_tried_too_often() {
    let Some(log) = good_log().await else { return };
    is_found_with(&log, effect(&log, "failed", 0), "state", json!("queued")).await;
}

#[tokio::test]
async fn prompts_a_page_that_is_counted_wrongly() {
    let Some(mut log) = good_log().await else { return };
    let feed = position(&log, "feed", 0);
    log[feed]["fed"] = json!(4);
    is_found(&log, "prompts", feed as u64 + 1).await;
}
