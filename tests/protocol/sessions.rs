//! *Sessions*: one process of a worker at a time, and what becomes of what the last one held.

use serde_json::{Value, json};

use crate::cast::{Worker, each, ids, only, trajectory, without};
use crate::support::Ledger;

#[tokio::test]
async fn a_worker_that_restarts_frees_at_once_what_it_held() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.gets(0, "b").await;
    Worker::of(&run, "rollout-2").gets(0, "c").await;

    let b = worker.restarted().gets(0, "d").await;

    assert_eq!(run.tables().await, ". . d c");
    assert_eq!(trajectory(&run, &a).await["reason"], "worker_restarted");
    assert_eq!(trajectory(&run, &b).await["session"], "rollout-1-1+");
    let totals = run.get("").await.ok()["totals"].clone();
    assert_eq!(totals["discarded"], json!({ "worker_restarted": 2 }));
}

#[tokio::test]
async fn what_it_had_finished_stays() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.gets(0, "b").await;
    worker.occupy(&a, json!({})).await.ok();

    worker.restarted().heartbeat(json!({})).await.ok();

    assert_eq!(run.tables().await, "A . . .");
}

#[tokio::test]
async fn hundreds_are_freed_before_the_new_session_gets_its_answer() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 250, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.reserve(json!({ "version": 0, "count": 250 })).await.ok();

    let answer = worker
        .restarted()
        .reserve(json!({ "version": 0, "count": 250 }))
        .await
        .ok();

    assert_eq!(ids(&answer["granted"]).len(), 250);
    let status = run.get("").await.ok();
    assert_eq!(
        status["totals"],
        json!({ "reserved": 500, "occupied": 0, "trained": 0, "late": 0, "adopted": 0, "discarded": { "worker_restarted": 250 } })
    );
    let events = run.get("events?limit=1000").await.ok();
    let restarts = each(&events["events"]).filter(|event| event["reason"] == "worker_restarted");
    let sizes: Vec<_> = restarts.map(|event| each(&event["effects"]).count()).collect();
    assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
}

#[tokio::test]
async fn every_call_of_the_zombie_is_fenced_and_changes_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let zombie = Worker::of(&run, "rollout-1");
    zombie.heartbeat(json!({})).await.ok();
    let worker = zombie.restarted();
    let a = worker.gets(0, "a").await;
    let seq = run.get("").await.seq();

    zombie.heartbeat(json!({ "version": 0 })).await.problem(409, "fenced");
    zombie.reserve(json!({ "version": 0 })).await.problem(409, "fenced");
    zombie.occupy(&a, json!({})).await.problem(409, "fenced");
    zombie.discard(&a, "failed").await.problem(409, "fenced");
    zombie.claim(&a).await.problem(409, "fenced");
    let many = zombie.says(json!({ "trajectories": [{ "id": a }] }));
    run.post("occupy", many).await.problem(409, "fenced");

    assert_eq!(run.tables().await, ". . . a");
    assert_eq!(run.get("").await.seq(), seq);
}

#[tokio::test]
async fn a_call_without_a_token_belongs_to_the_current_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.gets(0, "a").await;

    let body = json!({ "worker": "rollout-1", "prompts": ["b"] });
    let b = ids(&run.post("reservations", body).await.ok()["granted"]).remove(0);
    let heartbeat = run.post("workers/rollout-1/heartbeat", json!({ "holding": [b] })).await;

    heartbeat.ok();
    assert_eq!(run.tables().await, ". . b a");
    assert_eq!(trajectory(&run, &b).await["session"], "rollout-1-1");
}

#[tokio::test]
async fn a_worker_may_do_without_tokens() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let reserve = async |prompt: &str| {
        let body = json!({ "worker": "rollout-1", "version": 0, "prompts": [prompt] });
        run.post("reservations", body).await.ok();
    };

    reserve("a").await;
    reserve("b").await;
    assert_eq!(run.tables().await, ". . b a");

    // Its first token is one that was not seen before.
    Worker::of(&run, "rollout-1").gets(0, "c").await;
    assert_eq!(run.tables().await, ". . . c");
}

#[tokio::test]
async fn the_version_that_the_last_process_reported_is_forgotten() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.heartbeat(json!({ "version": 0 })).await.ok();

    let refusal = worker.restarted().reserve(json!({})).await;

    assert_eq!(refusal.problem(400, "invalid_request")["field"], "version");
}

/// Weights that are ahead of what is published are none that the protocol knows: the worker lives, and has said nothing.
#[tokio::test]
async fn a_heartbeat_with_an_unpublished_version_records_none() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    let worker = Worker::of(&run, "rollout-1");

    let answer = worker.heartbeat(json!({ "version": 3 })).await.ok();

    let expected = json!({ "lease_expires_in_ms": 30_000, "policy_version": 0, "lineage": 0, "next_buffer": 0,
                           "cancelled": [], "finished": false });
    assert_eq!(answer, expected);
    let refusal = worker.reserve(json!({})).await.problem(400, "invalid_request");
    assert_eq!(refusal["field"], "version");
}

#[tokio::test]
async fn a_claim_moves_the_reservation_to_the_caller_s_session() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let (first, second) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = first.gets(0, "a").await;

    let claimed = second.claim(&a).await.ok();

    assert_eq!(
        only(
            &claimed,
            &["id", "prompt", "state", "worker", "session", "buffer", "slot"]
        ),
        json!({ "id": a, "prompt": "a", "state": "reserved", "worker": "rollout-2", "session": "rollout-2-1", "buffer": 0, "slot": 1 })
    );
    assert_eq!(claimed, trajectory(&run, &a).await);
    let held = async |worker: &str| {
        let page = run.get(&format!("trajectories?worker={worker}")).await.ok();
        ids(&page["trajectories"])
    };
    assert_eq!(held("rollout-1").await, Vec::<String>::new());
    assert_eq!(held("rollout-2").await, [a.as_str()]);

    // The end of the first session is not its end any more; that of the second is.
    first.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(run.tables().await, ". a");
    second.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(run.tables().await, ". .");
}

#[tokio::test]
async fn a_claim_sent_again_changes_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let a = Worker::of(&run, "rollout-1").gets(0, "a").await;
    let second = Worker::of(&run, "rollout-2");
    let first_answer = second.claim(&a).await;

    let again = second.claim(&a).await;

    assert_eq!(again.seq(), first_answer.seq());
    assert_eq!(again.ok(), first_answer.ok());
}

#[tokio::test]
async fn a_claim_by_a_worker_with_older_weights_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    let (first, second) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = first.gets(1, "a").await;
    second.heartbeat(json!({ "version": 0 })).await.ok();

    second.claim(&a).await.problem(409, "version_too_stale");
    assert_eq!(trajectory(&run, &a).await["worker"], "rollout-1");

    second.heartbeat(json!({ "version": 1 })).await.ok();
    second.claim(&a).await.ok();
    assert_eq!(trajectory(&run, &a).await["worker"], "rollout-2");
}

#[tokio::test]
async fn what_was_discarded_cannot_be_claimed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.discard(&a, "failed").await.ok();

    let refusal = Worker::of(&run, "rollout-2").claim(&a).await;

    assert_eq!(refusal.problem(409, "trajectory_discarded")["reason"], "failed");
}

#[tokio::test]
async fn a_cancellation_is_told_until_it_is_acknowledged() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let (worker, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "reward-1"));
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);
    other.discard(&a, "too_long").await.ok();
    other.discard(&b, "off_topic").await.ok();

    let answer = worker.heartbeat(json!({})).await.ok();
    let cancelled = json!([
        { "id": a, "reason": "too_long", "members": null }, { "id": b, "reason": "off_topic", "members": null },
    ]);
    assert_eq!(answer["cancelled"], cancelled);
    assert_eq!(worker.heartbeat(json!({})).await.ok()["cancelled"], cancelled);

    let rest = worker.heartbeat(json!({ "acknowledged": [a] })).await.ok();
    assert_eq!(rest["cancelled"], json!([cancelled[1]]));
    assert_eq!(worker.is_told().await, json!([[b, "off_topic"]]));

    worker.heartbeat(json!({ "acknowledged": [a, b, "no id"] })).await.ok();
    assert_eq!(worker.is_told().await, json!([]));
}

#[tokio::test]
async fn a_list_of_workers_says_what_each_last_said_and_holds() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 1, "initial_version": 1 });
    let run = ledger.run(config).await;
    let (first, second) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let (a, b) = (first.gets(1, "a").await, first.gets(1, "b").await);
    first.gets(0, "c").await;
    first.occupy(&a, json!({})).await.ok();
    second.discard(&b, "too_long").await.ok();

    let page = run.get("workers").await.ok();

    let times = ["heartbeat_at_ms", "lease_expires_in_ms"];
    let workers: Vec<_> = each(&page["workers"])
        .map(|worker| without(worker.clone(), &times))
        .collect();
    let expected = json!([
        { "worker": "rollout-1", "session": "rollout-1-1", "version": 0, "reserved": 1, "finished": 1,
          "cancelled_pending": 1, "last_refusal": null },
        { "worker": "rollout-2", "session": "rollout-2-1", "version": null, "reserved": 0, "finished": 0,
          "cancelled_pending": 0, "last_refusal": null },
    ]);
    assert_eq!(Value::from(workers), expected);
    assert_eq!(page["next"], json!(null));
    let is_alive = |worker: &Value| (1..=30_000).contains(&worker["lease_expires_in_ms"].as_u64().expect("a number"));
    assert!(each(&page["workers"]).all(is_alive), "{page:#}");
    assert_eq!(run.get("").await.ok()["workers"], 2);
}

#[tokio::test]
async fn workers_and_what_they_hold_are_listed_in_pages() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let mut held = Vec::new();
    for name in ["w-1", "w-2", "w-3"] {
        held.push(Worker::of(&run, name).gets(0, "q").await);
    }

    let first = run.get("workers?limit=2").await.ok();
    let last = run.get("workers?limit=2&after=w-2").await.ok();
    let names =
        |page: &Value| -> Vec<Value> { each(&page["workers"]).map(|worker| worker["worker"].clone()).collect() };
    assert_eq!(
        (names(&first), first["next"].clone()),
        (vec![json!("w-1"), json!("w-2")], json!("w-2"))
    );
    assert_eq!((names(&last), last["next"].clone()), (vec![json!("w-3")], json!(null)));

    let first = run.get("trajectories?limit=2").await.ok();
    assert_eq!(ids(&first["trajectories"]), held[..2]);
    let next = first["next"].as_str().expect("there is more");
    let last = run.get(&format!("trajectories?limit=2&after={next}")).await.ok();
    assert_eq!(ids(&last["trajectories"]), held[2..]);
    assert_eq!(last["next"], json!(null));
}

#[tokio::test]
async fn trajectories_are_listed_by_their_state_and_worker() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;
    let (first, second) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    for (worker, prompt) in [(&first, "a"), (&second, "b"), (&first, "c"), (&second, "d")] {
        let id = worker.gets(0, prompt).await;
        worker.occupy(&id, json!({})).await.ok();
    }
    first.gets(0, "e").await;
    run.take().await.ok();
    let listed = async |query: &str| {
        let page = run.get(&format!("trajectories?{query}")).await.ok();
        let shown = each(&page["trajectories"]).map(|one| json!([one["prompt"], one["state"]]));
        Value::from(shown.collect::<Vec<_>>())
    };

    assert_eq!(listed("state=taken").await, json!([["a", "taken"], ["b", "taken"]]));
    assert_eq!(listed("state=taken&worker=rollout-2").await, json!([["b", "taken"]]));
    assert_eq!(
        listed("state=occupied").await,
        json!([["c", "occupied"], ["d", "occupied"]])
    );
    assert_eq!(
        listed("state=occupied&worker=rollout-1").await,
        json!([["c", "occupied"]])
    );
    assert_eq!(listed("state=reserved").await, json!([["e", "reserved"]]));
    assert_eq!(listed("worker=rollout-2").await, json!([]));
    assert_eq!(listed("worker=nobody").await, json!([]));
}
