//! Trainers whose answers are lost, and whose database is killed under them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auditing::audit;
use crate::clients::{assert_unavailable, ids, insist};
use crate::lines::Lines;
use crate::support::{LocalRedis, Run, TestServer, Traffic, delivery, eventually, wait_for};

/// Sends a call whose answer is cut off, and then the same through the server whose line is good. Returns its answer, and whether
/// the call that was not answered had been done, which `is_done` sees in the status. (The server's own calls may have met the cut
/// first; then this one comes late, or not at all.)
async fn cut_and_repeat(lines: &Lines, path: &str, body: Value, is_done: impl Fn(&Value) -> bool) -> (Value, bool) {
    lines.proxy.set(Traffic::CutAnswers);
    assert_unavailable(lines.run.post(path, body.clone()).await);
    let unheard = is_done(&lines.truth.get("").await.ok());
    let answer = insist(&lines.truth, path, body).await;
    lines.proxy.set(Traffic::Pass);
    eventually("the line is mended", async || lines.run.get("").await.status == 200).await;
    (answer, unheard)
}

/// The work is done and nobody knows: another server is asked again, and it is not done twice.
#[tokio::test]
async fn every_call_of_a_trainer_may_be_repeated_through_another_server_after_its_answer_was_lost() {
    const ROUNDS: u64 = 8;
    let lines = Lines::lay(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let mut unheard = BTreeMap::new();
    let mut note = |call: &'static str, done: bool| *unheard.entry(call).or_insert(0) += u64::from(done);

    for round in 0..ROUNDS {
        lines.truth.reserve(round, "p").await.ok();
        lines.truth.occupy("p").await.ok();
        let session = json!({ "trainer": "t0", "session": format!("s{round}"), "resume_from": round });
        let (opened, done) =
            cut_and_repeat(&lines, "trainer", session, |run| run["trainer"]["epoch"] == round + 1).await;
        note("trainer", done);
        let weights = (round > 0).then(|| format!("file:///step-{round}"));
        assert_eq!(
            opened,
            json!({ "epoch": round + 1, "trainer_version": round, "policy_version": round, "lineage": 0, "weights": weights })
        );
        let with = |mut body: Value| {
            body["epoch"] = json!(round + 1);
            body
        };

        let (batch, done) = cut_and_repeat(&lines, "batches/next", with(json!({})), |run| {
            run["next_buffer"] == round + 1
        })
        .await;
        note("take", done);
        let given = format!("{round}: p");
        let again = format!("{given}, redelivered");
        assert!([&given, &again].contains(&&delivery(&batch)), "{batch:#}");
        assert!(!done || delivery(&batch) == again, "{batch:#}");

        let weights = format!("file:///step-{}", round + 1);
        let publish = with(json!({ "version": round + 1, "weights": weights }));
        let (published, done) =
            cut_and_repeat(&lines, "versions", publish, |run| run["policy_version"] == round + 1).await;
        note("publish", done);
        assert_eq!(
            published,
            json!({ "policy_version": round + 1, "trainer_version": round + 1, "lineage": 0 })
        );

        let (kept, done) = cut_and_repeat(&lines, "checkpoints", with(json!({ "version": round + 1 })), |run| {
            run["oldest_kept"].is_null()
        })
        .await;
        note("checkpoint", done);
        assert_eq!(kept, json!({ "oldest_kept": null }));
    }

    assert_eq!(unheard.len(), 4);
    assert!(
        unheard.values().all(|&times| times > 0),
        "answers of each kind were cut off after the work was done: {unheard:?}"
    );
    let status = lines.truth.get("").await.ok();
    assert_eq!(
        json!([
            status["policy_version"],
            status["trainer"]["epoch"],
            status["totals"]["trained"]
        ]),
        json!([ROUNDS, ROUNDS, ROUNDS])
    );
    audit(&lines.truth).await;
}

/// A rewind that was done, and whose answer was lost, is not done again to what was trained since.
#[tokio::test]
async fn so_may_a_rewind() {
    let lines = Lines::lay(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let mut done = false;
    for round in 0..8 {
        let rewind = json!({ "trainer": "t0", "session": format!("s{round}"), "resume_from": 0, "mode": "rewind" });
        if round == 0 {
            insist(&lines.truth, "trainer", rewind.clone()).await;
            lines.truth.reserve(0, "p").await.ok();
            lines.truth.occupy("p").await.ok();
        } else {
            let (opened, unheard) = cut_and_repeat(&lines, "trainer", rewind.clone(), |run| {
                run["trainer"]["epoch"] == round + 1
            })
            .await;
            done |= unheard;
            assert_eq!(json!([opened["epoch"], opened["lineage"]]), json!([round + 1, round]));
            assert_eq!(lines.truth.tables().await, "P | .");
        }
        let epoch = round + 1;
        let batch = lines.truth.post("batches/next", json!({ "epoch": epoch })).await.ok();
        assert_eq!(delivery(&batch), "0: p");
        lines
            .truth
            .post("versions", json!({ "version": 1, "epoch": epoch }))
            .await
            .ok();
        // The network delivers the call once more.
        lines.truth.post("trainer", rewind).await.ok();
        assert_eq!(lines.truth.tables().await, ". | .");
    }
    assert!(done, "an answer was cut off after the work was done");
    audit(&lines.truth).await;
}

/// What a trainer knows to be trained: batch by batch, the ids.
type Diary = BTreeMap<u64, Vec<String>>;

/// Trains until it is told to stop; a new process after every third batch. Everything is repeated until it is answered.
async fn train(run: &Run, done: &AtomicBool, progress: &AtomicU64) -> Diary {
    let mut diary = Diary::new();
    let mut checkpoint = 0;
    let mut process = 0;
    while !done.load(Ordering::SeqCst) {
        process += 1;
        let session = json!({ "trainer": "t0", "session": format!("s{process}"), "resume_from": checkpoint });
        let opened = insist(run, "trainer", session).await;
        assert_eq!(opened["trainer_version"], checkpoint);
        for _ in 0..3 {
            let take = json!({ "epoch": opened["epoch"], "wait_ms": 5_000 });
            let batch = wait_for("a batch", async || {
                let answer = insist(run, "batches/next", take.clone()).await;
                (!answer["batch"].is_null()).then(|| answer["batch"].clone())
            })
            .await;
            let version = batch["version"].as_u64().expect("a version");
            let trained = ids(&batch["trajectories"]);
            assert_eq!(trained.len(), 2);
            // A batch that is given again is the same one.
            assert_eq!(*diary.entry(version).or_insert_with(|| trained.clone()), trained);
            let publish = json!({ "version": version + 1, "epoch": opened["epoch"] });
            let published = insist(run, "versions", publish).await;
            assert_eq!(published["trainer_version"], version + 1);
            progress.store(version + 1, Ordering::SeqCst);
        }
        // The last one was not saved, and is trained again.
        checkpoint = progress.load(Ordering::SeqCst) - 1;
        let saved = json!({ "version": checkpoint, "epoch": opened["epoch"] });
        insist(run, "checkpoints", saved).await;
    }
    diary
}

/// Generates under the newest weights until it is told to stop.
async fn generate(run: &Run, name: String, done: &AtomicBool) {
    let with = |mut body: Value| {
        body["worker"] = json!(name);
        body["session"] = json!("only");
        body
    };
    let mut round = 0;
    while !done.load(Ordering::SeqCst) {
        round += 1;
        let latest = run.get("versions/latest").await;
        if latest.status == 503 {
            continue;
        }
        let version = latest.ok()["policy_version"].clone();
        let body = with(json!({ "version": version, "wait_ms": 500, "request_id": format!("r{round}") }));
        // What was granted unheard is held until the same request is answered.
        let mut answer = run.post("reservations", body.clone()).await;
        while answer.status == 503 {
            answer = run.post("reservations", body.clone()).await;
        }
        if answer.status == 409 {
            answer.problem(409, "version_too_stale");
            continue;
        }
        for id in ids(&answer.ok()["granted"]) {
            insist(run, &format!("trajectories/{id}/occupy"), with(json!({}))).await;
        }
    }
}

#[tokio::test]
async fn a_redis_that_is_killed_under_a_trainer_again_and_again_loses_no_batch_and_gives_none_twice() {
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    let run = Run::create(&server.client(), json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let (enough, progress, over) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    let kills = async {
        for outage in 0..4 {
            if outage > 0 {
                redis.restart().await;
            }
            let before = progress.load(Ordering::SeqCst);
            eventually("training goes on", async || {
                progress.load(Ordering::SeqCst) > before + 4
            })
            .await;
        }
        enough.store(true, Ordering::SeqCst);
    };
    let trains = async {
        let diary = train(&run, &enough, &progress).await;
        over.store(true, Ordering::SeqCst);
        diary
    };
    let workers = join_all((0..4).map(|index| generate(&run, format!("w{index}"), &over)));
    let (diary, _, ()) = tokio::join!(trains, workers, kills);

    let status = run.get("").await.ok();
    let trained = u64::try_from(diary.len()).expect("a small number");
    assert_eq!(
        diary.keys().copied().collect::<Vec<_>>(),
        (0..trained).collect::<Vec<_>>()
    );
    assert_eq!(status["policy_version"], trained);
    assert_eq!(status["totals"]["trained"], 2 * trained);
    let mut all: Vec<_> = diary.values().flatten().collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 2 * diary.len(), "no entry is in two batches");
    let kept = run.get("batches").await.ok()["batches"].clone();
    for batch in kept.as_array().expect("a list") {
        let version = batch["version"].as_u64().expect("a version");
        let batch = run.get(&format!("batches/{version}")).await.ok();
        assert_eq!(ids(&batch["trajectories"]), diary[&version]);
    }
    audit(&run).await;
}
