//! *Sequence*: one event a step, from which the run can be told again.

use std::time::Duration;

use berth::protocol::EventType;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, only, until_expired, without};
use crate::journal::{events, is_sound};
use crate::support::{Ledger, Run, eventually};
use crate::wire;

#[tokio::test]
async fn who_asks_for_what_comes_after_an_event_that_never_was_is_told_no_such_number() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;

    let answer = run.get("events?after=1000").await;

    assert_eq!((answer.seq(), answer.ok()["events"].clone()), (1, json!([])));
}

#[tokio::test]
async fn each_step_is_one_event_that_says_what_who_and_where() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    worker.occupy(&a, json!({ "payload": "file:///a" })).await.ok();
    run.post(
        &format!("trajectories/{a}/discard"),
        json!({ "reason": "filtered", "note": "dull" }),
    )
    .await
    .ok();

    let page = run.get("events").await.ok();
    assert_eq!(page["next"], json!(null));
    let shown: Vec<_> = each(&page["events"])
        .map(|event| without(event.clone(), &["at_ms", "mark"]))
        .collect();
    let place = |buffer: u64, slot: u64| json!({ "buffer": buffer, "slot": slot });
    let config = run.get("").await.ok()["config"].clone();
    let reserved = |seq: u64, id: &str, prompt: &str, buffer: u64| {
        json!({ "seq": seq, "type": "reserve", "worker": "rollout-1", "session": "rollout-1-1", "version": 0, "ids": [id],
                "from": [null], "to": [place(buffer, 0)], "versions": [0],
                "effects": [{ "effect": "reserved", "id": id, "version": 0, "to": place(buffer, 0), "prompt": prompt }] })
    };
    assert_eq!(
        Value::from(shown),
        json!([
            { "seq": 1, "type": "run_created", "config": config, "ids": [], "effects": [] },
            { "seq": 2, "type": "session_opened", "worker": "rollout-1", "session": "rollout-1-1", "ids": [], "effects": [] },
            reserved(3, &a, "a", 1),
            reserved(4, &b, "b", 0),
            { "seq": 5, "type": "occupy", "worker": "rollout-1", "session": "rollout-1-1", "ids": [a],
              "from": [place(1, 0)], "to": [place(0, 0)],
              "effects": [{ "effect": "moved", "id": b, "from": place(0, 0), "to": place(1, 0) },
                          { "effect": "occupied", "id": a, "from": place(1, 0), "to": place(0, 0) }] },
            { "seq": 6, "type": "discard", "worker": "rollout-1", "session": "rollout-1-1", "reason": "filtered", "note": "dull",
              "ids": [a], "from": [place(0, 0)], "to": [null],
              "effects": [{ "effect": "discarded", "id": a, "reason": "filtered", "from": place(0, 0), "payload": "file:///a" }] },
        ])
    );
    let marks = |event: &Value| event["mark"].as_str().is_some_and(|mark| mark.len() == 8) && event["at_ms"].is_u64();
    assert!(each(&page["events"]).all(marks), "{page:#}");
}

#[tokio::test]
async fn the_log_alone_tells_the_tables_and_breaks_no_invariant() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 2, "lease_ms": 3_000, "keep_batches": 1 });
    let run = ledger.run(config).await;
    let (slow, restarting) = (Worker::of(&run, "slow"), Worker::of(&run, "restarting"));

    run.reserve(0, "a b c").await.ok();
    run.occupy("b").await.ok();
    restarting.gets(0, "d").await;
    let e = slow.gets(0, "e").await;
    restarting.restarted().heartbeat(json!({ "version": 0 })).await.ok();
    run.occupy("a").await.ok();
    run.take().await.ok();
    until_expired(&run, &e).await;
    slow.occupy(&e, json!({})).await.ok();
    run.publish(1).await.ok();
    finish(&run, 1, "f g h").await;
    run.take().await.ok();
    run.publish(2).await.ok();
    run.discard("h", "filtered").await.ok();
    let claimed = slow.gets(2, "i").await;
    restarting.restarted().heartbeat(json!({ "version": 2 })).await.ok();
    restarting.restarted().claim(&claimed).await.ok();
    run.reserve(2, "k l m").await.ok();
    eventually("batch 0 is forgotten", async || {
        events(&run)
            .await
            .iter()
            .any(|event| event.event_type == EventType::Prune)
    })
    .await;

    is_sound(&run).await;
}

#[tokio::test]
async fn with_spare_slots_too() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "slots_per_buffer": 3, "max_staleness": 1 });
    let run = ledger.run(config).await;

    run.reserve(0, "a b c d e f").await.ok();
    for prompt in ["a", "d", "b"] {
        run.occupy(prompt).await.ok();
    }
    run.take().await.ok();
    run.publish(1).await.ok();
    run.reserve(1, "g h i").await.ok();
    run.occupy("h").await.ok();

    is_sound(&run).await;
}

#[tokio::test]
async fn the_log_is_read_in_pages() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 8, "max_staleness": 0 })).await;
    for prompt in ["a", "b", "c"] {
        run.reserve(0, prompt).await.ok();
    }
    let page = async |query: &str| {
        let page = run.get(&format!("events{query}")).await.ok();
        let listed: Vec<_> = each(&page["events"]).map(|event| event["seq"].clone()).collect();
        json!([listed, page["next"]])
    };

    assert_eq!(page("").await, json!([[1, 2, 3, 4, 5], null]));
    assert_eq!(page("?limit=2").await, json!([[1, 2], 2]));
    assert_eq!(page("?limit=2&after=2").await, json!([[3, 4], 4]));
    assert_eq!(page("?limit=2&after=4").await, json!([[5], null]));
    assert_eq!(page("?limit=2&after=3").await, json!([[4, 5], null]));
    assert_eq!(page("?after=5").await, json!([[], null]));
    for limit in [0, 1_001] {
        let refusal = run.get(&format!("events?limit={limit}")).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], "limit");
    }
}

/// Those that it caused, and those in which it was moved by others.
#[tokio::test]
async fn the_events_of_one_trajectory_can_be_picked() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 2 })).await;
    run.reserve(0, "a").await.ok();
    run.reserve(0, "b").await.ok();
    let b = run.id_of("b").await;
    run.reserve(0, "c").await.ok();
    run.occupy("c").await.ok();
    run.occupy("b").await.ok();
    run.discard("a", "failed").await.ok();
    run.discard("c", "filtered").await.ok();

    let picked = async |query: &str| {
        let page = run.get(&format!("events?trajectory={b}{query}")).await.ok();
        let listed: Vec<_> = each(&page["events"])
            .map(|event| json!([event["seq"], event["type"]]))
            .collect();
        (Value::from(listed), page["next"].clone())
    };

    // c makes room for nobody, for it is the first; the filtered c is replaced by b.
    assert_eq!(
        picked("").await,
        (json!([[4, "reserve"], [7, "occupy"], [9, "discard"]]), json!(null))
    );
    assert_eq!(
        picked("&limit=2").await,
        (json!([[4, "reserve"], [7, "occupy"]]), json!(7))
    );
    assert_eq!(picked("&limit=2&after=7").await, (json!([[9, "discard"]]), json!(null)));
}

#[tokio::test]
async fn a_stream_tells_what_was_and_then_what_comes() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();

    let mut stream = Stream::open(&run, "events", None).await;
    for (seq, kind) in [(1, "run_created"), (2, "session_opened"), (3, "reserve")] {
        assert_eq!(stream.next_event().await, Some((seq, kind.to_owned())));
    }
    run.occupy("a").await.ok();
    assert_eq!(stream.next_event().await, Some((4, "occupy".to_owned())));
}

#[tokio::test]
async fn a_stream_resumes_behind_the_last_event_that_its_client_has_seen() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    run.reserve(0, "b").await.ok();
    run.occupy("a").await.ok();

    // What a browser sends of itself counts more than the address that it repeats.
    let mut stream = Stream::open(&run, "events?after=1", Some("3")).await;
    assert_eq!(stream.next_event().await, Some((4, "reserve".to_owned())));
    let mut stream = Stream::open(&run, "events?after=4", None).await;
    assert_eq!(stream.next_event().await, Some((5, "occupy".to_owned())));
}

#[tokio::test]
async fn a_stream_of_one_trajectory_tells_of_no_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    run.reserve(0, "b").await.ok();
    let b = run.id_of("b").await;
    let mut stream = Stream::open(&run, &format!("events?trajectory={b}"), None).await;
    assert_eq!(stream.next_event().await, Some((4, "reserve".to_owned())));

    run.discard("a", "failed").await.ok();
    run.patch("", json!({ "keep_batches": 7 })).await.ok();
    run.discard("b", "failed").await.ok();

    // The first of them moved b; the second is not about b.
    let told = [stream.next_event().await, stream.next_event().await];
    assert_eq!(told, [Some((5, "discard".to_owned())), Some((7, "discard".to_owned()))]);
}

#[tokio::test]
async fn a_stream_ends_when_its_server_stops_or_its_run_is_deleted() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let (kept, deleted) = (
        ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await,
        ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await,
    );
    let mut of_kept = Stream::open(&kept, "events?after=0", None).await;
    let mut of_deleted = Stream::open(&deleted, "events?after=0", None).await;
    of_kept.next_event().await.expect("the first event");
    of_deleted.next_event().await.expect("the first event");

    deleted.delete().await.status(204);
    assert_eq!(of_deleted.next_event().await, None);
    let ended = ledger.server.stop().await;

    assert!(ended.success(), "{ended}");
    assert_eq!(of_kept.next_event().await, None);
}

#[tokio::test]
async fn a_stream_of_nothing_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let status = async |path: &str, last: &str| {
        let request = Request::get(format!("{}{path}", run.client().url()))
            .header("accept", "text/event-stream")
            .header("last-event-id", last);
        wire::send(request, "").await.status().as_u16()
    };

    assert_eq!(status("/v1/runs/nobody/events", "0").await, 404);
    assert_eq!(status(&run.path("events"), "yesterday").await, 400);
}

/// An open event stream.
struct Stream {
    answer: Response<Incoming>,
    read: String,
}

impl Stream {
    async fn open(run: &Run, path: &str, last_event_id: Option<&str>) -> Self {
        let mut request =
            Request::get(format!("{}{}", run.client().url(), run.path(path))).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let answer = wire::send(request, "").await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self {
            answer,
            read: String::new(),
        }
    }

    /// The `id` of the next event, which is also its `seq`, and its type; `None` once the stream has ended.
    async fn next_event(&mut self) -> Option<(u64, String)> {
        let frame = tokio::time::timeout(Duration::from_secs(30), self.next_frame());
        let frame = frame.await.expect("an event, or the end of the stream, is due")?;
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        let event: Value = serde_json::from_str(field("data: ")).expect("an event");
        let id: u64 = field("id: ").parse().expect("a number");
        assert_eq!(only(&event, &["seq"]), json!({ "seq": id }));
        Some((id, event["type"].as_str().expect("a type").to_owned()))
    }

    /// Comments, which keep a quiet connection open, are left out.
    async fn next_frame(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.read.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.read = rest;
                if frame.lines().all(|line| line.starts_with(':')) {
                    continue;
                }
                return Some(frame);
            }
            let bytes = self.answer.body_mut().frame().await?.ok()?.into_data().ok()?;
            self.read
                .push_str(std::str::from_utf8(&bytes).expect("a stream is text"));
        }
    }
}
