//! `berth events --words`: the log for a person.

use serde_json::{Value, json};

use crate::logs::{events, text};
use crate::support::{Ledger, Run, berth};

async fn post(run: &Run, path: &str, body: Value) -> Value {
    run.post(path, body).await.ok()
}

/// What is expected of the run below.
const EXPECTED: &str = "\
1  run_created
2  feed  prompts 3  fed in all 3
3  session_opened  worker w
4  reserve  version 0  worker w
            a reserved slot 1 of buffer 1 under version 0, for prompt q-1
            the prompt of a, fed as 0, is in flight, attempt 1
            b reserved slot 0 of buffer 1 under version 0, for prompt q-2
            the prompt of b, fed as 1, is in flight, attempt 1
            c reserved slot 1 of buffer 0 under version 0, for prompt q-3
            the prompt of c, fed as 2, is in flight, attempt 1
5  member  worker w
            member 1 of a finished under version 0 with reward 0.5
6  member  worker w
            member 0 of a finished under version 0
            c moved from slot 1 of buffer 0 to slot 1 of buffer 1
            a left slot 1 of buffer 1 and occupied slot 0 of buffer 0
7  member  worker w
            member 0 of b failed
            b was discarded from slot 0 of buffer 1 as group_failed
            the prompt of b, fed as 1, is queued, attempt 2
8  stream  version 0  from entry 0  entries 1
9  member  worker w
            member 1 of c finished under version 0 with reward -1
10  session_opened  worker w  as worker_restarted
            c was left without an owner
11  heartbeat  version 0  worker w
12  drain  begins  the queue is kept
13  reserve  version 0  worker w
            c was adopted
14  occupy  worker w
            member 0 of c finished under version 0 with reward 1
            c left slot 1 of buffer 1 and occupied slot 1 of buffer 0
15  stream  version 0  from entry 1  entries 1
16  drain  is called off
";

/// What `berth events --words` prints of a run, without the times, and with `a`, `b`, … for its entries in the order of their admission.
async fn words(run: &Run) -> String {
    let output = berth(&["events", "--words", "--run", run.name(), "--url", run.client().url()]).await;
    assert!(output.status.success(), "{output:?}");
    let mut page = text(&output.stdout);
    let mut names = 'a'..='z';
    for event in events(run, 0).await {
        for effect in event["effects"].as_array().expect("a list") {
            if effect["effect"] == "reserved" {
                let id = effect["id"].as_str().expect("an id");
                page = page.replace(id, &names.next().expect("few entries").to_string());
            }
        }
    }
    let line = |line: &str| match line.split_once("  ") {
        Some((time, rest)) if time.matches(':').count() == 2 => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

#[tokio::test]
async fn groups_prompts_pieces_and_drains_are_told_in_words() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2, "prompt_queue": true });
    let run = ledger.run(config).await;
    let prompts = json!([{ "id": "q-1" }, { "id": "q-2" }, { "id": "q-3" }]);
    post(&run, "prompts", json!({ "prompts": prompts })).await;
    let says = |session: &str, mut body: Value| {
        body["worker"] = json!("w");
        body["session"] = json!(session);
        body
    };
    let granted = post(&run, "reservations", says("1", json!({ "version": 0, "count": 3 }))).await["granted"].clone();
    let path = |entry: usize, rest: &str| {
        let id = granted[entry]["id"].as_str().expect("an id");
        format!("trajectories/{id}/{rest}")
    };
    post(&run, &path(0, "members/1"), says("1", json!({ "reward": 0.5 }))).await;
    post(&run, &path(0, "members/0"), says("1", json!({}))).await;
    post(
        &run,
        &path(1, "members/0"),
        says("1", json!({ "failed": true, "note": "out of memory" })),
    )
    .await;
    post(&run, "batches/next", json!({ "stream": true, "from_offset": 0 })).await;
    post(&run, &path(2, "members/1"), says("1", json!({ "reward": -1 }))).await;
    post(&run, "workers/w/heartbeat", json!({ "session": "2", "version": 0 })).await;
    post(&run, "drain", json!({ "drain": true, "queue": "keep" })).await;
    post(&run, "reservations", says("2", json!({ "version": 0 }))).await;
    post(
        &run,
        &path(2, "occupy"),
        says("2", json!({ "members": [{ "index": 0, "version": 0, "reward": 1 }] })),
    )
    .await;
    post(&run, "batches/next", json!({ "stream": true, "from_offset": 1 })).await;
    post(&run, "drain", json!({ "drain": false })).await;

    assert_eq!(words(&run).await, EXPECTED);
}
