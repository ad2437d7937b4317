//! *Groups* with *Stream*, with oversampling of whole groups, and with a rewind that finds all of it at once.

use serde_json::{Value, json};

use crate::cast::{Worker, each, ids, only, prompts, soon, train, trajectory, until_somebody_waits};
use crate::groups::cancelled;
use crate::journal::is_sound;
use crate::prompt_fates::gets;
use crate::prompts::{counts, feed, in_state, with_queue};
use crate::support::{Ledger, Response, Run, Trainer};

/// The next piece behind the first `from` groups, one group at most.
async fn piece(run: &Run, from: u64) -> Response {
    let body = json!({ "stream": true, "from_offset": from, "min_entries": 1, "max_entries": 1 });
    run.post("batches/next", body).await
}

/// A batch of two groups of two with three candidates each: the run, the worker and the groups a and b.
async fn two_groups(ledger: &Ledger) -> (Run, Worker, [String; 2]) {
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let groups = [worker.gets(0, "a").await, worker.gets(0, "b").await];
    (run, worker, groups)
}

#[tokio::test]
async fn a_piece_has_the_members_of_its_groups_with_their_advantages() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, [a, b]) = two_groups(&ledger).await;
    worker.member(&b, 2, json!({ "reward": 0.0, "tokens": 5 })).await.ok();
    worker.member(&a, 1, json!({ "reward": 1.0 })).await.ok();
    worker.member(&a, 2, json!({ "reward": 3.0 })).await.ok();

    let first = piece(&run, 0).await.ok()["batch"].clone();

    let advantages = |group: &Value| -> Vec<String> {
        let members = each(&group["members"]);
        let shown = members.map(|member| {
            let advantage = member["advantage"].as_f64().expect("a number");
            format!("{}: {advantage:.4}", member["index"])
        });
        shown.collect()
    };
    assert_eq!(
        only(&first, &["version", "offset", "complete"]),
        json!({ "version": 0, "offset": 0, "complete": false })
    );
    assert_eq!(prompts(&first["trajectories"]), "a");
    assert_eq!(advantages(&first["trajectories"][0]), ["1: -1.0000", "2: 1.0000"]);
    assert_eq!(run.tables().await, "A* . | . b");

    worker.member(&b, 0, json!({ "reward": 0.5, "tokens": 7 })).await.ok();
    let x = worker.gets(0, "x").await;
    worker.finishes(&x, 0..2).await;
    let second = piece(&run, 1).await.ok()["batch"].clone();
    assert_eq!(prompts(&second["trajectories"]), "b");
    assert_eq!(advantages(&second["trajectories"][0]), ["0: 1.0000", "2: -1.0000"]);
    assert_eq!(second["trajectories"][0]["tokens"], 12);
    assert_eq!(second["complete"], true);
    // The same groups, whether they are asked for one by one or whole.
    let whole = run.get("batches/0").await.ok()["trajectories"].clone();
    assert_eq!(whole, json!([first["trajectories"][0], second["trajectories"][0]]));
    is_sound(&run).await;
}

#[tokio::test]
async fn a_member_that_comes_after_its_group_was_streamed_is_not_counted() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, [a, _]) = two_groups(&ledger).await;
    worker.finishes(&a, 0..2).await;
    let streamed = piece(&run, 0).await.ok()["batch"]["trajectories"].clone();

    let late = worker.member(&a, 2, json!({ "reward": 9.0 })).await.ok();

    assert_eq!(
        only(&late, &["state", "counted", "complete"]),
        json!({ "state": "taken", "counted": false, "complete": 2 })
    );
    assert_eq!(worker.occupy(&a, json!({})).await.ok()["state"], "taken");
    worker.discard(&a, "filtered").await.problem(409, "trajectory_taken");
    assert_eq!(piece(&run, 0).await.ok()["batch"]["trajectories"], streamed);
    is_sound(&run).await;
}

/// A trainer that replays is given the members, their rewards and advantages as they were, whole or in pieces.
#[tokio::test]
async fn a_replay_gives_groups_again_as_they_were() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, [a, b]) = two_groups(&ledger).await;
    for (id, index) in [(&a, 0), (&b, 2), (&a, 1), (&b, 0)] {
        let body = json!({ "reward": index, "payload": format!("file:///{index}") });
        worker.member(id, index, body).await.ok();
    }
    let trainer = Trainer::first(&run).await;
    let taken = trainer.take().await.ok()["batch"]["trajectories"].clone();
    trainer.publish(1).await.ok();

    let replaying = Trainer::from(&run, "second", 0).await;
    let mut pieces = Vec::new();
    for from in 0..2 {
        let body = replaying.says(json!({ "stream": true, "from_offset": from, "max_entries": 1 }));
        let batch = run.post("batches/next", body).await.ok()["batch"].clone();
        assert_eq!(batch["replayed"], true);
        pieces.push(batch["trajectories"][0].clone());
    }

    assert_eq!(json!(pieces), taken);
    assert_eq!(replaying.take().await.ok()["batch"]["trajectories"], taken);
    is_sound(&run).await;
}

/// The trainer holds a part of the batch when the worker of the next part dies.
#[tokio::test]
async fn a_group_is_adopted_while_its_batch_is_streamed() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let (other, killed) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let (a, b) = (other.gets(0, "a").await, killed.gets(0, "b").await);
    killed.finishes(&b, 0..1).await;
    other.finishes(&a, 0..2).await;
    assert_eq!(prompts(&piece(&run, 0).await.ok()["batch"]["trajectories"]), "a");
    killed.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(run.tables().await, "A* b");
    let next = tokio::spawn({
        let run = run.clone();
        async move {
            let body = json!({ "stream": true, "from_offset": 1, "wait_ms": 60_000 });
            run.post("batches/next", body).await
        }
    });
    until_somebody_waits(&ledger, &run, "batch").await;

    let granted = other.reserve(json!({ "version": 0 })).await.ok()["granted"].clone();
    assert_eq!(ids(&granted), [b.clone()]);
    other.finishes(&b, 1..2).await;

    let last = soon(next).await.ok()["batch"].clone();
    assert_eq!(
        (prompts(&last["trajectories"]), &last["complete"]),
        ("b".to_owned(), &json!(true))
    );
    is_sound(&run).await;
}

#[tokio::test]
async fn groups_that_a_ready_buffer_leaves_without_a_place_are_surplus_with_all_their_members() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "slots_per_buffer": 3, "max_staleness": 0, "group_size": 2, "group_candidates": 3,
                         "adopt_groups": true, "max_concurrency": 9 });
    let run = ledger.run(config).await;
    let (worker, lost) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "lost"));
    let [a, b] = [worker.gets(0, "a").await, worker.gets(0, "b").await];
    let c = lost.gets(0, "c").await;
    worker.finishes(&b, 0..1).await;
    lost.finishes(&c, 0..1).await;
    lost.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(run.tables().await, "c b a");
    assert_eq!(run.get("").await.ok()["generating"], 7);

    worker.finishes(&a, 0..2).await;

    assert_eq!(run.tables().await, "A . .");
    assert_eq!(
        cancelled(&worker).await,
        json!([[a, "group_filled", [2]], [b, "surplus", null]])
    );
    assert_eq!(trajectory(&run, &c).await["reason"], "surplus");
    let status = run.get("").await.ok();
    assert_eq!(
        only(&status, &["generating", "reserved", "occupied"]),
        json!({ "generating": 0, "reserved": 0, "occupied": 1 })
    );
    // Surplus is no late occupy: neither group comes back.
    worker
        .member(&b, 1, json!({}))
        .await
        .problem(409, "trajectory_discarded");
    lost.restarted()
        .member(&c, 1, json!({}))
        .await
        .problem(409, "trajectory_discarded");
    is_sound(&run).await;
}

/// Batch 0 is trained, batch 1 is streamed in part, one group has lost its owner, one is generated, one is queued.
#[tokio::test]
async fn a_rewind_finds_groups_prompts_and_a_partly_streamed_batch_at_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 2, "group_size": 2 });
    let run = ledger.run(with_queue(config)).await;
    feed(&run, "a b c d e f g").await.ok();
    let (worker, lost) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "lost"));
    for _ in ["a", "b"] {
        let id = gets(&worker, 0).await;
        worker.finishes(&id, 0..2).await;
    }
    let c = gets(&worker, 0).await;
    let d = gets(&lost, 0).await;
    train(&run, 0).await;
    worker.finishes(&c, 0..2).await;
    lost.member(&d, 0, json!({ "version": 0 })).await.ok();
    assert_eq!(prompts(&piece(&run, 0).await.ok()["batch"]["trajectories"]), "c");
    let e = gets(&worker, 1).await;
    let f = gets(&worker, 0).await;
    worker.member(&f, 1, json!({ "version": 1 })).await.ok();
    lost.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(counts(&run).await, json!({ "queued": 1, "in_flight": 3, "trained": 3 }));

    let trainer = Trainer::rewinding(&run, "second", 0).await;

    // e is of version 1, and a member of f was generated by it; c has members of version 0, and d waits to be adopted.
    assert_eq!(in_state(&run, "queued").await, "e 1, f 1, g 1");
    assert_eq!(in_state(&run, "occupied").await, "a 1, b 1, c 1");
    assert_eq!(
        counts(&run).await,
        json!({ "queued": 3, "in_flight": 1, "occupied": 3 })
    );
    for id in [&e, &f] {
        assert_eq!(trajectory(&run, id).await["reason"], "rewound");
    }
    assert_eq!(run.tables().await, "A B | C . | . d");
    assert_eq!(run.get("").await.ok()["generating"], 1);
    run.get("batches/1").await.problem(404, "unknown_batch");

    trainer.trains(0).await;
    let adopted = worker.reserve(json!({ "version": 0, "lineage": 1 })).await.ok()["granted"].clone();
    assert_eq!(ids(&adopted), [d.clone()]);
    worker.member(&d, 1, json!({ "version": 1, "lineage": 1 })).await.ok();
    let batch = trainer.take().await.ok()["batch"].clone();
    assert_eq!(prompts(&batch["trajectories"]), "c d");
    let versions: Vec<_> = each(&batch["trajectories"][1]["members"])
        .map(|member| member["version"].clone())
        .collect();
    assert_eq!(versions, [0, 1]);
    assert_eq!(counts(&run).await, json!({ "queued": 3, "trained": 4 }));
    crate::journal::is_lawful(&run).await;
}
