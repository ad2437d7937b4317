//! *Groups*: one slot holds a whole prompt group, whose members finish one by one, by any session, each once.

use serde_json::{Value, json};

use crate::cast::{Worker, each, only, trajectory};
use crate::support::{Ledger, TestServer};

/// What the answer to a member's report says of the group.
pub(crate) fn standing(answer: &Value) -> Value {
    only(answer, &["state", "counted", "complete", "failed", "needed"])
}

/// The cancellations that a worker is told of, as `[[id, reason, members] …]`.
pub(crate) async fn cancelled(worker: &Worker) -> Value {
    let beat = worker.heartbeat(json!({})).await.ok();
    each(&beat["cancelled"])
        .map(|one| json!([one["id"], one["reason"], one["members"]]))
        .collect()
}

#[tokio::test]
async fn a_group_is_occupied_when_the_last_member_that_it_needs_is_complete() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 1, "group_size": 2 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    let first = worker.member(&a, 1, json!({ "reward": 0.0 })).await.ok();
    assert_eq!(
        first,
        json!({ "state": "reserved", "counted": true, "complete": 1, "failed": 0, "needed": 2 })
    );
    assert_eq!(run.tables().await, ". | a");

    let second = worker.member(&a, 0, json!({ "reward": 1.0 })).await.ok();
    assert_eq!(
        second,
        json!({ "state": "occupied", "counted": true, "complete": 2, "failed": 0, "needed": 2,
                "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    assert_eq!(run.tables().await, "A | .");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn members_are_finished_by_any_worker_through_two_servers_each_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let other_server = TestServer::start(&ledger.database.url()).await;
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 8 }))
        .await;
    let holder = Worker::of(&run, "rollout-1");
    let helper = Worker::of(&run, "rollout-2").through(&other_server.client());
    helper.heartbeat(json!({ "version": 0 })).await.ok();
    let a = holder.gets(0, "a").await;

    // Each member is reported by both, at the same time.
    let mut calls = Vec::new();
    for index in 0..8 {
        for (worker, reward) in [(holder.clone(), 0.0), (helper.clone(), 1.0)] {
            let a = a.clone();
            calls.push(tokio::spawn(async move {
                worker.member(&a, index, json!({ "reward": reward })).await.ok()
            }));
        }
    }
    let mut counted = 0;
    for call in calls {
        counted += u32::from(call.await.expect("a call")["counted"] == true);
    }

    assert_eq!(counted, 8);
    let group = trajectory(&run, &a).await;
    assert_eq!(group["state"], "occupied");
    assert_eq!(
        each(&group["members"])
            .map(|member| &member["index"])
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_member_sent_twice_counts_once_and_what_it_left_first_stays() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker
        .member(&a, 0, json!({ "reward": 1.0, "payload": "first" }))
        .await
        .ok();
    let seq = run.get("").await.seq();

    let again = worker
        .member(&a, 0, json!({ "reward": 0.0, "payload": "second" }))
        .await;
    assert_eq!(again.seq(), seq, "nothing has changed");
    assert_eq!(
        again.ok(),
        json!({ "state": "reserved", "counted": false, "complete": 1, "failed": 0, "needed": 2 })
    );
    let failed = worker.member(&a, 0, json!({ "failed": true })).await.ok();
    assert_eq!((&failed["counted"], &failed["failed"]), (&json!(false), &json!(0)));
    let member = &trajectory(&run, &a).await["members"][0];
    assert_eq!(
        only(member, &["state", "reward", "payload"]),
        json!({ "state": "complete", "reward": 1.0, "payload": "first" })
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_member_reported_after_the_group_was_filled_changes_nothing_and_is_told_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 1, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.finishes(&a, 0..1).await;

    let surplus = worker.member(&a, 1, json!({ "reward": 1.0 })).await.ok();
    assert_eq!(
        surplus,
        json!({ "state": "occupied", "counted": false, "complete": 1, "failed": 0, "needed": 1,
                "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    let batch = run.take().await.ok();
    assert_eq!(each(&batch["batch"]["trajectories"][0]["members"]).count(), 1);
    let taken = worker.member(&a, 2, json!({ "failed": true })).await.ok();
    assert_eq!((&taken["state"], &taken["counted"]), (&json!("taken"), &json!(false)));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_of_8_with_12_candidates_of_which_2_fail_and_2_are_surplus() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 8, "group_candidates": 12 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    assert_eq!(run.get("").await.ok()["generating"], 12);

    for index in [3, 7] {
        let failed = worker
            .member(&a, index, json!({ "failed": true, "note": "engine died" }))
            .await;
        assert_eq!(failed.ok()["state"], "reserved");
    }
    assert_eq!(run.get("").await.ok()["generating"], 10);
    for index in [0, 1, 2, 4, 5, 6, 8] {
        worker.member(&a, index, json!({ "reward": index })).await.ok();
    }
    let last = worker.member(&a, 11, json!({ "reward": 11 })).await.ok();

    assert_eq!(
        standing(&last),
        json!({ "state": "occupied", "counted": true, "complete": 8, "failed": 2, "needed": 8 })
    );
    let status = run.get("").await.ok();
    assert_eq!((&status["generating"], &status["occupied"]), (&json!(0), &json!(1)));
    // The two that are left are to stop, and the worker is told until it acknowledges.
    let to_stop = json!([[a, "group_filled", [9, 10]]]);
    assert_eq!(cancelled(&worker).await, to_stop);
    assert_eq!(cancelled(&worker).await, to_stop);
    worker.heartbeat(json!({ "acknowledged": [a] })).await.ok();
    assert_eq!(cancelled(&worker).await, json!([]));
    let members = run.take().await.ok()["batch"]["trajectories"][0]["members"].clone();
    let indexes: Vec<_> = each(&members).map(|member| &member["index"]).collect();
    assert_eq!(indexes, [0, 1, 2, 4, 5, 6, 8, 11]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_is_filled_by_its_other_candidates_when_one_member_never_finishes() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    worker.member(&a, 0, json!({ "reward": 0.0 })).await.ok();
    let waiting = tokio::spawn({
        let worker = worker.clone();
        async move { worker.heartbeat(json!({ "wait_ms": 60_000 })).await }
    });
    worker.member(&a, 2, json!({ "reward": 1.0 })).await.ok();

    let told = crate::cast::soon(waiting).await.ok();
    assert_eq!(
        told["cancelled"],
        json!([{ "id": a, "reason": "group_filled", "members": [1] }])
    );
    assert_eq!(run.take().await.ok()["batch"]["trajectories"][0]["id"], json!(a));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_all_of_whose_members_fail_is_discarded_and_its_place_reopens() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    let first = worker.member(&a, 0, json!({ "failed": true })).await.ok();
    assert_eq!(first["state"], "reserved", "two may still finish");
    let second = worker.member(&a, 1, json!({ "failed": true })).await.ok();
    assert_eq!(
        second,
        json!({ "state": "discarded", "reason": "group_failed", "counted": true, "complete": 0, "failed": 2, "needed": 2 })
    );

    assert_eq!(run.tables().await, ".");
    // The third is to stop. If it comes all the same, or somebody finishes the group, they are told what has become of it.
    assert_eq!(cancelled(&worker).await, json!([[a, "group_failed", null]]));
    let third = worker.member(&a, 2, json!({ "failed": true })).await.ok();
    assert_eq!(
        third,
        json!({ "state": "discarded", "reason": "group_failed", "counted": false, "complete": 0, "failed": 2, "needed": 2 })
    );
    let occupy = worker.occupy(&a, json!({})).await.ok();
    assert_eq!(occupy, json!({ "state": "discarded", "reason": "group_failed" }));
    let status = run.get("").await.ok();
    assert_eq!(status["totals"]["discarded"], json!({ "group_failed": 1 }));
    assert_eq!(status["generating"], 0);
    worker.gets(0, "b").await;
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_member_by_older_weights_than_its_group_is_refused_and_another_candidate_fills_the_group() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 2, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let early = worker.gets(0, "early").await;
    worker.finishes(&early, 0..2).await;
    crate::cast::train(&run, 0).await;
    let a = worker.gets(1, "a").await;
    worker.member(&a, 0, json!({ "version": 1 })).await.ok();
    let seq = run.get("").await.seq();

    let old = worker.member(&a, 1, json!({ "version": 0 })).await;
    assert_eq!(old.seq(), seq, "it changes nothing");
    old.problem(409, "version_too_stale");
    let begun_by_old = json!({ "segments": [{ "version": 0, "from_token": 0 }, { "version": 1, "from_token": 9 }] });
    worker
        .member(&a, 1, begun_by_old)
        .await
        .problem(409, "version_too_stale");
    let unpublished = worker.member(&a, 1, json!({ "version": 2 })).await;
    assert_eq!(unpublished.problem(409, "version_not_published")["policy_version"], 1);

    let filled = worker.member(&a, 2, json!({ "version": 1 })).await.ok();
    assert_eq!((&filled["state"], &filled["complete"]), (&json!("occupied"), &json!(2)));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn the_version_of_a_member_is_what_its_session_said_last() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 2, "group_size": 4 });
    let run = ledger.run(config).await;
    let [worker, beating, silent] = ["rollout-1", "rollout-2", "rollout-3"].map(|name| Worker::of(&run, name));
    let a = worker.gets(0, "a").await;
    let b = worker.gets(0, "b").await;
    worker.finishes(&a, 0..4).await;
    crate::cast::train(&run, 0).await;
    beating.heartbeat(json!({ "version": 1 })).await.ok();

    worker.member(&b, 0, json!({})).await.ok();
    beating.member(&b, 1, json!({})).await.ok();
    let refused = silent.member(&b, 2, json!({})).await.problem(400, "invalid_request");
    assert_eq!(refused["field"], "version");
    let nobody = run.post(&format!("trajectories/{b}/members/2"), json!({})).await;
    assert_eq!(nobody.problem(400, "invalid_request")["field"], "version");
    silent.member(&b, 2, json!({ "version": 0 })).await.ok();

    let group = trajectory(&run, &b).await;
    let versions: Vec<_> = each(&group["members"])
        .map(|member| member["version"].clone())
        .collect();
    assert_eq!(versions, [0, 1, 0]);
    // One that failed needs no version.
    let failed = silent.member(&b, 3, json!({ "failed": true })).await.ok();
    assert_eq!(failed["reason"], "group_failed");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn what_is_no_member_is_an_invalid_request() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "group_candidates": 3 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let no_id = "00000000-0000-7000-8000-000000000000";

    worker
        .member(no_id, 9, json!({}))
        .await
        .problem(404, "unknown_trajectory");
    worker
        .member("nothing", 0, json!({}))
        .await
        .problem(404, "unknown_trajectory");
    let past = worker.member(&a, 3, json!({})).await.problem(400, "invalid_request");
    assert_eq!(past["field"], "index");
    let word = run.post(&format!("trajectories/{a}/members/first"), json!({})).await;
    assert_eq!(word.problem(400, "invalid_request")["field"], "index");
    let reward = worker.member(&a, 0, json!({ "failed": true, "reward": 1 })).await;
    assert_eq!(reward.problem(400, "invalid_request")["field"], "reward");

    let single = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let worker = Worker::of(&single, "rollout-1");
    let b = worker.gets(0, "b").await;
    worker.member(&b, 0, json!({})).await.problem(400, "invalid_request");
    let with_members = worker.occupy(&b, json!({ "members": [{ "index": 0 }] })).await;
    assert_eq!(with_members.problem(400, "invalid_request")["field"], "member");
    worker.occupy(&b, json!({})).await.ok();
    crate::journal::is_sound(&run).await;
}
