//! *Adoption*: a group whose holder is gone keeps its slot and its members, and goes first to who asks for it.

use serde_json::{Value, json};

use crate::cast::{Worker, each, ids, only, soon, trajectory, until_somebody_waits};
use crate::groups::{cancelled, standing};
use crate::support::{Ledger, Run, eventually};

/// Returns once nobody holds the group any more.
pub(crate) async fn until_orphaned(run: &Run, id: &str) {
    eventually("the group loses its owner", async || {
        trajectory(run, id).await["orphaned"] == true
    })
    .await;
}

/// What a grant says of an adopted group.
fn adopted(granted: &Value) -> Value {
    only(
        granted,
        &["id", "prompt", "version", "adopted", "members_done", "members_failed"],
    )
}

#[tokio::test]
async fn a_group_whose_worker_was_killed_after_5_members_is_adopted_and_finished_with_3_more() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 8, "group_candidates": 12,
                         "adopt_groups": true, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let (killed, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = killed.gets(0, "a").await;
    killed.member(&a, 9, json!({ "failed": true })).await.ok();
    killed.finishes(&a, 0..5).await;

    until_orphaned(&run, &a).await;
    assert_eq!(run.tables().await, "a", "it keeps its slot");
    let granted = other.reserve(json!({ "version": 0 })).await.ok();
    assert_eq!(
        adopted(&granted["granted"][0]),
        json!({ "id": a, "prompt": "a", "version": 0, "adopted": true, "members_done": [0, 1, 2, 3, 4], "members_failed": [9] })
    );
    other.finishes(&a, 5..7).await;
    let last = other.member(&a, 7, json!({ "reward": 7 })).await.ok();

    assert_eq!(
        standing(&last),
        json!({ "state": "occupied", "counted": true, "complete": 8, "failed": 1, "needed": 8 })
    );
    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();
    let reporters: Vec<_> = each(&entry["members"]).map(|member| member["worker"].clone()).collect();
    let expected = [["rollout-1"; 5].as_slice(), &["rollout-2"; 3]].concat();
    assert_eq!(reporters, expected);
    assert_eq!(entry["worker"], "rollout-2");
    assert_eq!(
        run.get("").await.ok()["totals"],
        json!({ "reserved": 1, "occupied": 1, "trained": 1, "late": 0, "adopted": 1, "discarded": {} })
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_worker_that_starts_again_leaves_its_groups_with_members_and_loses_the_others() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 3, "max_staleness": 0, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b, c] = [
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    ];
    worker.member(&a, 0, json!({})).await.ok();
    worker.member(&c, 1, json!({})).await.ok();

    let next = worker.restarted();
    next.heartbeat(json!({})).await.ok();

    assert_eq!(run.tables().await, ". c a", "b is gone, and c moved up");
    assert_eq!(trajectory(&run, &b).await["reason"], "worker_restarted");
    // The event names all that the session lost, and what became of each.
    let events = run.get("events").await.ok();
    let opened = each(&events["events"]).last().expect("an event").clone();
    let effects: Vec<_> = each(&opened["effects"])
        .map(|effect| json!([effect["effect"], effect["id"]]))
        .collect();
    assert_eq!(
        (&opened["type"], &opened["reason"]),
        (&json!("session_opened"), &json!("worker_restarted"))
    );
    assert_eq!(opened["ids"], json!([c, b, a]));
    assert_eq!(
        json!(effects),
        json!([["orphaned", c], ["discarded", b], ["moved", c], ["orphaned", a]])
    );
    // All of it is in the list of what is reserved, though nobody holds it.
    assert_eq!(
        ids(&run.get("trajectories").await.ok()["trajectories"]),
        [c.clone(), a.clone()]
    );
    assert_eq!(
        ids(&run.get("trajectories?worker=rollout-1").await.ok()["trajectories"]),
        [""; 0]
    );
    let page = run.get("trajectories?limit=1").await.ok();
    let next_page = run.get(&format!("trajectories?limit=1&after={c}")).await.ok();
    assert_eq!(
        (ids(&page["trajectories"]), page["next"].clone()),
        (vec![c.clone()], json!(c))
    );
    assert_eq!(
        (ids(&next_page["trajectories"]), next_page["next"].clone()),
        (vec![a], Value::Null)
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn the_front_most_group_is_adopted_first_and_counts_towards_what_was_asked_for() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b, c] = [
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    ];
    for id in [&a, &b, &c] {
        worker.member(id, 0, json!({})).await.ok();
    }
    assert_eq!(run.tables().await, ". c | b a");
    worker.restarted().heartbeat(json!({})).await.ok();

    let other = Worker::of(&run, "rollout-2");
    let two = other
        .reserve(json!({ "version": 0, "count": 2, "prompts": ["d"] }))
        .await
        .ok();
    assert_eq!(ids(&two["granted"]), [c, b]);
    // An adopted group has its own prompt, and uses none of those that were sent.
    let mixed = other
        .reserve(json!({ "version": 0, "count": 2, "prompts": ["d", "e"] }))
        .await
        .ok();
    let told: Vec<_> = each(&mixed["granted"])
        .map(|grant| json!([grant["prompt"], grant["adopted"]]))
        .collect();
    assert_eq!(told, [json!(["a", true]), json!(["d", null])]);
    assert_eq!(ids(&mixed["granted"])[0], a);
    let events = run.get("events").await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    let effects: Vec<_> = each(&last["effects"]).map(|effect| effect["effect"].clone()).collect();
    assert_eq!(
        (&last["type"], effects),
        (&json!("reserve"), vec![json!("adopted"), json!("reserved")])
    );
    assert_eq!(last["ids"], json!(ids(&mixed["granted"])));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_without_an_owner_moves_like_any_other_reservation() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 1, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b] = [worker.gets(0, "a").await, worker.gets(0, "b").await];
    let lost = Worker::of(&run, "rollout-2");
    let [c, d] = [lost.gets(0, "c").await, lost.gets(0, "d").await];
    lost.member(&d, 0, json!({})).await.ok();
    lost.member(&c, 0, json!({})).await.ok();
    assert_eq!(run.tables().await, "d c | b a");
    lost.restarted().heartbeat(json!({})).await.ok();

    worker.discard(&a, "failed").await.ok();

    assert_eq!(run.tables().await, ". c | b d");
    let other = Worker::of(&run, "rollout-3");
    let granted = other.reserve(json!({ "version": 0, "count": 2 })).await.ok();
    let places: Vec<_> = each(&granted["granted"])
        .map(|grant| only(grant, &["id", "buffer", "slot"]))
        .collect();
    assert_eq!(
        places,
        [
            json!({ "id": c, "buffer": 0, "slot": 1 }),
            json!({ "id": d, "buffer": 1, "slot": 1 })
        ]
    );
    other.member(&d, 1, json!({})).await.ok();
    worker.finishes(&b, 0..2).await;
    assert_eq!(run.tables().await, "D B | . c");
    crate::journal::is_lawful(&run).await;
}

#[tokio::test]
async fn weights_older_than_the_group_do_not_go_on_with_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 2, "group_size": 2, "adopt_groups": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let first = worker.gets(0, "first").await;
    worker.finishes(&first, 0..2).await;
    crate::cast::train(&run, 0).await;
    let a = worker.gets(1, "a").await;
    worker.member(&a, 0, json!({})).await.ok();
    worker.restarted().heartbeat(json!({})).await.ok();

    let old = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0, "prompts": ["b"] }))
        .await
        .ok();
    assert_eq!(old["granted"][0]["prompt"], "b");
    let new = Worker::of(&run, "rollout-3")
        .reserve(json!({ "version": 1 }))
        .await
        .ok();
    assert_eq!(ids(&new["granted"]), [a]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn what_blocks_an_admission_blocks_no_adoption_and_the_candidates_count_all_the_while() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3,
                         "adopt_groups": true, "max_concurrency": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({})).await.ok();
    worker.restarted().heartbeat(json!({})).await.ok();
    assert_eq!(run.get("").await.ok()["generating"], 2);

    let other = Worker::of(&run, "rollout-2");
    let refused = other.reserve(json!({ "version": 0, "adopt": false })).await.ok();
    assert_eq!(
        (&refused["granted"], &refused["blocked_by"]),
        (&json!([]), &json!("concurrency"))
    );
    let granted = other.reserve(json!({ "version": 0, "count": 2 })).await.ok();

    assert_eq!(ids(&granted["granted"]), [a]);
    assert_eq!(granted["blocked_by"], "concurrency");
    assert_eq!(run.get("").await.ok()["generating"], 2);
    crate::journal::is_lawful(&run).await;
}

#[tokio::test]
async fn a_waiting_reserve_gets_a_group_as_soon_as_it_has_lost_its_owner() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "adopt_groups": true, "max_concurrency": 2 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({})).await.ok();
    // One that adopts nothing is before it in the queue, and goes on waiting.
    let [unwilling, willing] = ["rollout-2", "rollout-3"].map(|name| Worker::of(&run, name));
    let waits = |worker: Worker, adopt: bool| {
        tokio::spawn(async move {
            worker
                .reserve(json!({ "version": 0, "adopt": adopt, "wait_ms": 60_000 }))
                .await
        })
    };
    let first = waits(unwilling, false);
    until_somebody_waits(&ledger, &run, "admission").await;
    let second = waits(willing, true);
    eventually("both wait", async || {
        each(&run.get("workers").await.ok()["workers"]).count() == 3
    })
    .await;

    worker.restarted().heartbeat(json!({})).await.ok();

    assert_eq!(ids(&soon(second).await.ok()["granted"]), [a]);
    assert!(!first.is_finished());
    first.abort();
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn the_former_holder_may_go_on_and_the_first_report_of_a_member_counts() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 3, "group_candidates": 4,
                         "adopt_groups": true, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let (slow, other) = (Worker::of(&run, "rollout-1"), Worker::of(&run, "rollout-2"));
    let a = slow.gets(0, "a").await;
    slow.member(&a, 0, json!({ "reward": 1.0 })).await.ok();
    until_orphaned(&run, &a).await;
    other.reserve(json!({ "version": 0 })).await.ok();

    let by_slow = slow.member(&a, 1, json!({ "reward": 2.0 })).await.ok();
    let by_other = other.member(&a, 1, json!({ "reward": 3.0 })).await.ok();
    assert_eq!(
        (&by_slow["counted"], &by_other["counted"]),
        (&json!(true), &json!(false))
    );
    slow.member(&a, 3, json!({ "reward": 4.0 })).await.ok();

    // Its owner is told what is left to be stopped.
    assert_eq!(cancelled(&other).await, json!([[a, "group_filled", [2]]]));
    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();
    let rewards: Vec<_> = each(&entry["members"]).map(|member| member["reward"].clone()).collect();
    assert_eq!(rewards, [1.0, 2.0, 4.0]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_without_an_owner_is_filled_by_whoever_reports_its_members() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "adopt_groups": true, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let slow = Worker::of(&run, "rollout-1");
    let a = slow.gets(0, "a").await;
    slow.member(&a, 0, json!({})).await.ok();
    until_orphaned(&run, &a).await;

    let filled = slow.member(&a, 1, json!({})).await.ok();

    assert_eq!((&filled["state"], &filled["late"]), (&json!("occupied"), &json!(false)));
    let granted = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0 }))
        .await
        .ok();
    assert_eq!(
        (&granted["granted"], &granted["blocked_by"]),
        (&json!([]), &json!("staleness"))
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn without_adoption_such_a_group_is_discarded_like_any_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({})).await.ok();

    worker.restarted().heartbeat(json!({})).await.ok();

    assert_eq!(trajectory(&run, &a).await["reason"], "worker_restarted");
    assert_eq!(run.tables().await, ".");
    let asked = Worker::of(&run, "rollout-2")
        .reserve(json!({ "version": 0, "adopt": true, "prompts": ["b"] }))
        .await;
    assert_eq!(asked.ok()["granted"][0]["prompt"], "b");
    crate::journal::is_sound(&run).await;
}
