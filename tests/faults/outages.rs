//! A Redis that is killed, or stopped in its tracks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::auditing::{audit, events};
use crate::clients::{assert_unavailable, ids, insist};
use crate::support::{LocalRedis, Response, Run, TestServer, eventually};

const CLIENTS: usize = 16;
/// As long as the outage under load lasts.
const OUTAGE: Duration = Duration::from_secs(6);
/// Shorter than that.
const LEASE_MS: u64 = 5_000;

/// What a client was told was done.
#[derive(Default)]
struct Diary {
    granted: Vec<String>,
    occupied: Vec<String>,
    refused: usize,
}

#[tokio::test]
async fn a_redis_that_is_killed_under_load_loses_nothing_that_was_acknowledged_and_no_lease_runs_out() {
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(
        &server.client(),
        json!({ "batch_size": 4_000, "max_staleness": 0, "lease_ms": LEASE_MS }),
    )
    .await;
    // Held by a session that says nothing more: only the clock of the run can spare it.
    run.reserve(0, "silent").await.ok();
    let (occupied, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            tokio::spawn(work(
                run.clone(),
                index,
                Arc::clone(&occupied),
                Arc::clone(&refused),
                Arc::clone(&done),
            ))
        })
        .collect();
    eventually("the clients are in the midst of it", async || {
        occupied.load(Ordering::SeqCst) > 200
    })
    .await;
    let silent = run.id_of("silent").await;

    redis.kill().await;
    let killed = Instant::now();
    eventually("calls fail", async || refused.load(Ordering::SeqCst) > 0).await;
    eventually("more than a lease passes", async || killed.elapsed() > OUTAGE).await;
    redis.restart().await;
    run.client().get("/readyz").await;
    insist(&run, &format!("trajectories/{silent}/occupy"), json!({})).await;
    let before = occupied.load(Ordering::SeqCst);
    eventually("calls succeed again", async || {
        occupied.load(Ordering::SeqCst) > before + 200
    })
    .await;
    done.store(true, Ordering::SeqCst);
    let diaries: Vec<Diary> = join_all(clients)
        .await
        .into_iter()
        .map(|diary| diary.expect("a client"))
        .collect();

    assert!(
        diaries.iter().all(|diary| diary.refused > 0),
        "every client met the outage"
    );
    let report = audit(&run).await;
    assert!(report.discarded.is_empty(), "{:?}", report.discarded);
    let log = events(&run).await;
    let logged = |kind: &str| -> Vec<String> {
        let of_kind = log.iter().filter(|event| json!(event.event_type) == kind);
        let mut ids: Vec<String> = of_kind.flat_map(|event| &event.ids).map(ToString::to_string).collect();
        ids.sort();
        ids
    };
    let told = |select: fn(&Diary) -> &[String]| -> Vec<String> {
        let mut ids: Vec<String> = diaries
            .iter()
            .flat_map(select)
            .cloned()
            .chain([silent.clone()])
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(
        logged("reserve"),
        told(|diary| &diary.granted),
        "what was granted, and nothing else"
    );
    assert_eq!(
        logged("occupy"),
        told(|diary| &diary.occupied),
        "what was finished, and nothing else"
    );
}

/// Reserves and occupies until it is done, and repeats what was not answered.
async fn work(
    run: Run,
    index: usize,
    occupied: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    done: Arc<AtomicBool>,
) -> Diary {
    let mut diary = Diary::default();
    let me = |mut fields: Value| {
        fields["worker"] = format!("w{index}").into();
        fields["session"] = "only".into();
        fields
    };
    while !done.load(Ordering::SeqCst) {
        let request_id = diary.granted.len().to_string();
        let reserve = me(json!({ "version": 0, "count": 2, "request_id": request_id }));
        let answer = repeat(&run, "reservations", &reserve, &mut diary, &refused).await;
        let granted = ids(&answer["granted"]);
        diary.granted.extend(granted.clone());
        for id in granted {
            repeat(
                &run,
                &format!("trajectories/{id}/occupy"),
                &me(json!({})),
                &mut diary,
                &refused,
            )
            .await;
            diary.occupied.push(id);
            occupied.fetch_add(1, Ordering::SeqCst);
        }
    }
    diary
}

async fn repeat(run: &Run, path: &str, body: &Value, diary: &mut Diary, refused: &AtomicUsize) -> Value {
    loop {
        let answer = run.post(path, body.clone()).await;
        if answer.status != 503 {
            return answer.ok();
        }
        assert_unavailable(answer);
        diary.refused += 1;
        refused.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn calls_that_wait_through_an_outage_are_woken_afterwards_or_told_of_it() {
    const WAITING: usize = 40;
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let other = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let waiting: Vec<_> = (0..WAITING)
        .map(|index| tokio::spawn(wait_for_something(run.clone(), index)))
        .collect();
    eventually("all wait", async || workers(&run).await == WAITING / 2 + 1).await;

    redis.kill().await;
    eventually("the outage is noticed", async || {
        run.client().get("/readyz").await.status == 503
    })
    .await;
    assert_eq!(run.client().get("/healthz").await.status, 200, "the server lives");
    redis.restart().await;
    let run = run.through(&other.client());
    let a = insist_on_id(&run, "a").await;
    insist(&run, &format!("trajectories/{a}/occupy"), json!({})).await;
    insist(&run, "batches/next", json!({})).await;
    insist(&run, "versions", json!({ "version": 1 })).await;

    for answer in join_all(waiting).await {
        let answer = answer.expect("an answer");
        match answer.status {
            503 => assert_unavailable(answer),
            409 => drop(answer.problem(409, "version_too_stale")),
            _ => assert_eq!(answer.ok()["policy_version"], 1),
        }
    }
}

async fn wait_for_something(run: Run, index: usize) -> Response {
    let worker = format!("w{index}");
    match index % 4 {
        0 => {
            run.post(
                "reservations",
                json!({ "worker": worker, "version": 0, "wait_ms": 60_000 }),
            )
            .await
        }
        1 => {
            run.post(
                &format!("workers/{worker}/heartbeat"),
                json!({ "version": 0, "wait_ms": 60_000 }),
            )
            .await
        }
        _ => run.get("versions/latest?after=0&wait_ms=60000").await,
    }
}

async fn workers(run: &Run) -> usize {
    run.get("workers").await.ok()["workers"].as_array().map_or(0, Vec::len)
}

/// The id of the entry of a prompt, asked for until the database answers.
async fn insist_on_id(run: &Run, prompt: &str) -> String {
    until_it_answers(run).await;
    run.id_of(prompt).await
}

/// A server may find out only by a call, which fails, that its connection is to a database that has ended.
async fn until_it_answers(run: &Run) {
    eventually("the database answers", async || run.get("").await.status == 200).await;
}

#[tokio::test]
async fn messages_wake_waiting_calls_of_another_server_again_after_an_outage() {
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let other = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let waits = {
        let run = run.clone();
        move || {
            let run = run.clone();
            tokio::spawn(async move { run.get("versions/latest?after=0&wait_ms=60000").await })
        }
    };
    let through_the_outage = waits();
    let channel = format!("berth:{{{}}}:wake:version", run.name());
    let mut connection = redis.connection().await;
    eventually("it listens", async || listeners(&mut connection, &channel).await == 1).await;

    redis.restart().await;

    let mut connection = redis.connection().await;
    eventually("it listens again", async || {
        listeners(&mut connection, &channel).await == 1
    })
    .await;
    until_it_answers(&run).await;
    let after_the_outage = waits();
    let run = run.through(&other.client());
    insist(
        &run,
        "reservations",
        json!({ "worker": "w", "version": 0, "prompts": ["a"], "request_id": "r" }),
    )
    .await;
    run.occupy("a").await.ok();
    run.take().await.ok();
    run.publish(1).await.ok();
    assert_eq!(after_the_outage.await.expect("an answer").ok()["policy_version"], 1);
    let answer = through_the_outage.await.expect("an answer");
    if answer.status == 503 {
        assert_unavailable(answer);
    } else {
        assert_eq!(answer.ok()["policy_version"], 1);
    }
}

async fn listeners(connection: &mut MultiplexedConnection, channel: &str) -> usize {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(channel);
    let (_, listeners): (String, usize) = numsub.query_async(connection).await.expect("a count");
    listeners
}

/// Each of them, one after another, would have to find out for itself that nobody answers.
#[tokio::test]
async fn however_many_wait_for_places_in_an_outage_all_are_answered_when_their_time_is_over() {
    const WAITING: usize = 300;
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    let waiting: Vec<_> = (0..WAITING)
        .map(|index| {
            let (run, reserve) = (
                run.clone(),
                json!({ "worker": format!("w{index}"), "version": 0, "wait_ms": 3_000 }),
            );
            tokio::spawn(async move { run.post("reservations", reserve).await })
        })
        .collect();
    eventually("all wait", async || run.get("").await.ok()["workers"] == WAITING + 1).await;

    redis.kill().await;

    for answer in join_all(waiting).await {
        let answer = answer.expect("an answer");
        match answer.status {
            503 => assert_unavailable(answer),
            _ => assert_eq!(answer.ok()["blocked_by"], "staleness"),
        }
    }
}

#[tokio::test]
async fn calls_to_a_redis_that_is_stopped_in_its_tracks_end_as_unavailable_and_it_is_found_again() {
    let redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(
        &server.client(),
        json!({ "batch_size": 4, "max_staleness": 0, "lease_ms": LEASE_MS }),
    )
    .await;
    run.reserve(0, "a").await.ok();
    let reserve = json!({ "worker": "w", "session": "s", "version": 0, "prompts": ["b"], "request_id": "once" });

    redis.pause();
    let (reserved, waited, seen, ready, lives) = tokio::join!(
        run.post("reservations", reserve.clone()),
        run.post("workers/w/heartbeat", json!({ "session": "s", "wait_ms": 60_000 })),
        run.get("buffers?slots=true"),
        run.client().get("/readyz"),
        run.client().get("/healthz"),
    );
    for answer in [reserved, waited, seen, ready] {
        assert_unavailable(answer);
    }
    assert_eq!(lives.status, 200);
    redis.resume();

    let granted = insist(&run, "reservations", reserve.clone()).await;
    assert_eq!(
        run.tables().await,
        ". . b a",
        "one place, and the lease of the other still runs"
    );
    assert_eq!(insist(&run, "reservations", reserve).await, granted);
    run.occupy("b").await.ok();
    assert!(audit(&run).await.discarded.is_empty());
}
