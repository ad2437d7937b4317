//! Many clients at once, over two server processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::auditing::audit;
use crate::clients::ids;
use crate::support::{Ledger, Run, TestServer};

const CLIENTS: u64 = 64;
const BATCH_SIZE: usize = 16;
const MAX_STALENESS: u64 = 2;
const BATCHES: u64 = 40;

/// What a client was told; held against the ledger afterwards.
#[derive(Default)]
struct Diary {
    granted: Vec<String>,
    occupied: Vec<String>,
    discarded: BTreeMap<&'static str, Vec<String>>,
}

#[tokio::test]
async fn no_slot_is_handed_out_twice_and_every_batch_is_exact() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger
        .run(json!({ "batch_size": BATCH_SIZE, "max_staleness": MAX_STALENESS, "max_concurrency": 40 }))
        .await;
    let servers = [run.clone(), run.through(&other.client())];
    let done = Arc::new(AtomicBool::new(false));

    let clients = (0..CLIENTS).map(|seed| tokio::spawn(generate(servers.clone(), seed, Arc::clone(&done))));
    let clients: Vec<_> = clients.collect();
    let batches = train(&servers).await;
    done.store(true, Ordering::SeqCst);
    let diaries: Vec<Diary> = join_all(clients)
        .await
        .into_iter()
        .map(|diary| diary.expect("a client"))
        .collect();

    let report = audit(&run).await;
    let all = |select: fn(&Diary) -> &[String]| -> Vec<String> { diaries.iter().flat_map(select).cloned().collect() };
    let (granted, occupied) = (all(|diary| &diary.granted), all(|diary| &diary.occupied));
    let failed = all(|diary| diary.discarded.get("failed").map_or(&[], Vec::as_slice));
    let filtered = all(|diary| diary.discarded.get("filtered").map_or(&[], Vec::as_slice));
    let trained: Vec<String> = batches.iter().flatten().cloned().collect();
    let open = ids_in_open_buffers(&run).await;

    assert_eq!(unique(&granted).len(), granted.len(), "no id was granted twice");
    assert_eq!(unique(&trained).len(), trained.len(), "no entry is in two batches");
    let accounted: Vec<String> = [&trained, &filtered, &open["occupied"]]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    assert_eq!(accounted.len(), occupied.len());
    assert_eq!(
        unique(&accounted),
        unique(&occupied),
        "what was finished is trained, filtered or waits to be trained"
    );
    let left = granted.len() - occupied.len() - failed.len();
    assert_eq!(open["reserved"].len(), left);

    for (version, batch) in batches.iter().enumerate() {
        let kept = run.get(&format!("batches/{version}")).await.ok();
        assert_eq!(
            &ids(&kept["trajectories"]),
            batch,
            "batch {version} is for ever what the trainer got"
        );
    }
    let totals = run.get("").await.ok()["totals"].take();
    let discards = json!({ "failed": failed.len(), "filtered": filtered.len() });
    assert_eq!(
        totals,
        json!({ "reserved": granted.len(), "occupied": occupied.len(), "trained": trained.len(),
                "discarded": discards, "late": 0, "adopted": 0 })
    );
    assert_eq!(report.reserved, granted.len() as u64);
    assert_eq!(report.occupied, occupied.len() as u64);
    assert_eq!(json!(report.discarded), discards);
    assert_eq!(report.batches.len() as u64, BATCHES);
}

/// A rollout worker that calls now this server and now that.
async fn generate(servers: [Run; 2], seed: u64, done: Arc<AtomicBool>) -> Diary {
    let mut random = StdRng::seed_from_u64(seed);
    let mut diary = Diary::default();
    let mut version = 0;
    let me = json!({ "worker": format!("rollout-{seed}"), "session": "only" });
    let with = |mut fields: Value| {
        fields["worker"] = me["worker"].clone();
        fields["session"] = me["session"].clone();
        fields
    };
    while !done.load(Ordering::SeqCst) {
        let reserve = with(json!({ "version": version, "count": random.random_range(1..=3), "wait_ms": 1_000 }));
        let answer = servers[random.random_range(0..2)].post("reservations", reserve).await;
        if answer.status == 409 {
            let refusal = answer.problem(409, "version_too_stale");
            version = refusal["policy_version"].as_u64().expect("a version");
            continue;
        }
        let answer = answer.ok();
        version = answer["policy_version"].as_u64().expect("a version");
        let granted = ids(&answer["granted"]);
        diary.granted.extend(granted.clone());
        for id in granted {
            let discard = |reason| with(json!({ "reason": reason }));
            let run = &servers[random.random_range(0..2)];
            if random.random_ratio(1, 12) {
                run.post(&format!("trajectories/{id}/discard"), discard("failed"))
                    .await
                    .ok();
                diary.discarded.entry("failed").or_default().push(id);
                continue;
            }
            run.post(&format!("trajectories/{id}/occupy"), with(json!({ "reward": 0.5 })))
                .await
                .ok();
            diary.occupied.push(id.clone());
            if random.random_ratio(1, 8) {
                let answer = run
                    .post(&format!("trajectories/{id}/discard"), discard("filtered"))
                    .await;
                if answer.status == 409 {
                    answer.problem(409, "trajectory_taken");
                } else {
                    assert_eq!(answer.ok()["discarded_from"], "occupied");
                    diary.discarded.entry("filtered").or_default().push(id);
                }
            }
        }
    }
    diary
}

/// A trainer that calls now this server and now that; the ids of each batch.
async fn train(servers: &[Run; 2]) -> Vec<Vec<String>> {
    let mut batches = Vec::new();
    for version in 0..BATCHES {
        let run = &servers[usize::from(version % 3 == 0)];
        let answer = run.post("batches/next", json!({ "wait_ms": 60_000 })).await.ok();
        let batch = &answer["batch"];
        assert_eq!(
            (&batch["version"], &batch["complete"]),
            (&json!(version), &json!(true)),
            "{answer}"
        );
        for entry in batch["trajectories"].as_array().expect("a list") {
            assert!(
                entry["staleness"]
                    .as_u64()
                    .is_some_and(|staleness| staleness <= MAX_STALENESS),
                "{entry}"
            );
        }
        let trained = ids(&batch["trajectories"]);
        assert_eq!(trained.len(), BATCH_SIZE);
        batches.push(trained);
        run.publish(version + 1).await.ok();
    }
    batches
}

async fn ids_in_open_buffers(run: &Run) -> BTreeMap<&'static str, Vec<String>> {
    let answer = run.get("buffers?slots=true").await.ok();
    let mut found = BTreeMap::from([("reserved", Vec::new()), ("occupied", Vec::new())]);
    for buffer in answer["buffers"].as_array().expect("a list") {
        for slot in buffer["slots"].as_array().expect("a list") {
            let state = slot["state"].as_str().expect("a state");
            if let Some(ids) = found.get_mut(state) {
                ids.push(slot["id"].as_str().expect("an id").to_owned());
            }
        }
    }
    found
}

fn unique(ids: &[String]) -> BTreeSet<&String> {
    ids.iter().collect()
}

#[tokio::test]
async fn of_many_that_create_a_run_at_once_one_creates_it() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let other = TestServer::start(&ledger.database.url()).await;
    let clients = [ledger.client(), other.client()];
    let config = json!({ "batch_size": 4, "max_staleness": 1 });

    let answers = join_all((0..20).map(|index| clients[index % 2].put("/v1/runs/contested", config.clone()))).await;

    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[..19], [200; 19]);
    assert_eq!(statuses[19], 201);
    assert!(answers.iter().all(|answer| answer.seq() == 1));
}

#[tokio::test]
async fn of_many_that_send_the_same_request_at_once_all_get_the_same_grants() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let other = TestServer::start(&ledger.database.url()).await;
    // More than one script grants, so that repetitions may come between the steps of the first.
    let run = ledger.run(json!({ "batch_size": 300, "max_staleness": 0 })).await;
    let servers = [run.clone(), run.through(&other.client())];
    let body = json!({ "worker": "w", "session": "s", "version": 0, "count": 200, "request_id": "once" });

    let answers = join_all((0..20).map(|index| servers[index % 2].post("reservations", body.clone()))).await;

    let grants: Vec<Value> = answers
        .into_iter()
        .map(|answer| answer.ok()["granted"].take())
        .collect();
    assert!(grants.iter().all(|granted| *granted == grants[0]));
    let reserved = run.get("").await.ok()["reserved"].take();
    assert_eq!(reserved, ids(&grants[0]).len());
    audit(&run).await;
}

#[tokio::test]
async fn a_session_that_opens_on_two_servers_at_once_opens_once() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let other = TestServer::start(&ledger.database.url()).await;
    let run = ledger.run(json!({ "batch_size": 200, "max_staleness": 0 })).await;
    let servers = [run.clone(), run.through(&other.client())];
    let old = json!({ "worker": "w", "session": "old", "version": 0, "count": 150 });
    run.post("reservations", old).await.ok();

    let beat = json!({ "session": "new" });
    let answers = join_all((0..20).map(|index| servers[index % 2].post("workers/w/heartbeat", beat.clone()))).await;

    for answer in answers {
        answer.ok();
    }
    let status = run.get("").await.ok();
    assert_eq!(status["reserved"], 0);
    assert_eq!(status["totals"]["discarded"], json!({ "worker_restarted": 150 }));
    audit(&run).await;
}
