//! *Resume*, a rewind: what a version above the checkpoint generated any part of is discarded, groups and members included.

use serde_json::json;

use crate::cast::{Worker, each, finish, train, trajectory};
use crate::support::{Ledger, Run, Trainer};

/// A run of groups of two at version 1, with the trainer's session open.
async fn of_groups(ledger: &Ledger, adopt: bool) -> (Run, Worker) {
    let config = json!({ "batch_size": 2, "max_staleness": 3, "group_size": 2, "adopt_groups": adopt });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    for prompt in ["x", "y"] {
        let id = worker.gets(0, prompt).await;
        worker.finishes(&id, 0..2).await;
    }
    (run, worker)
}

#[tokio::test]
async fn an_entry_of_which_any_part_was_generated_by_an_abandoned_version_is_discarded() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 3 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let [a, b, c] = [
        worker.gets(0, "a").await,
        worker.gets(0, "b").await,
        worker.gets(0, "c").await,
    ];
    finish(&run, 0, "x").await;
    train(&run, 0).await;
    worker.segment(&a, json!({ "version": 1, "from_token": 9 })).await.ok();
    worker
        .occupy(&b, json!({ "segments": [{ "version": 1, "from_token": 9 }] }))
        .await
        .ok();

    Trainer::rewinding(&run, "t", 0).await;

    assert_eq!(trajectory(&run, &a).await["reason"], "rewound");
    assert_eq!(trajectory(&run, &b).await["reason"], "rewound");
    assert_eq!(trajectory(&run, &c).await["state"], "reserved");
    let refused = worker.occupy(&a, json!({})).await.problem(409, "trajectory_discarded");
    assert_eq!(refused["reason"], "rewound");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn an_occupy_that_names_abandoned_weights_discards_its_entry_and_says_so() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 3 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    finish(&run, 0, "x").await;
    train(&run, 0).await;
    Trainer::rewinding(&run, "t", 0).await;
    let named = json!({ "version": 1, "from_token": 9, "lineage": 0 });

    // Its session was open when the lineage rose: it must say of which the weights are.
    let unnamed = worker.segment(&a, json!({ "version": 0, "from_token": 0 })).await;
    unnamed.problem(409, "version_not_published");
    worker.segment(&a, named).await.problem(409, "version_not_published");
    let carried = json!({ "lineage": 0, "segments": [{ "version": 1, "from_token": 9 }] });
    let refused = worker.occupy(&a, carried).await.problem(409, "trajectory_discarded");

    assert_eq!(refused["reason"], "rewound");
    assert_eq!(trajectory(&run, &a).await["reason"], "rewound");
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    assert_eq!((&last["type"], &last["reason"]), (&json!("discard"), &json!("rewound")));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_with_a_member_of_an_abandoned_version_is_discarded_and_one_without_is_kept() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = of_groups(&ledger, false).await;
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);
    train(&run, 0).await;
    worker.member(&a, 0, json!({ "version": 1 })).await.ok();
    worker.member(&b, 0, json!({ "version": 0 })).await.ok();

    Trainer::rewinding(&run, "t", 0).await;

    assert_eq!(trajectory(&run, &a).await["reason"], "rewound");
    let kept = trajectory(&run, &b).await;
    assert_eq!(
        (&kept["state"], each(&kept["members"]).count()),
        (&json!("reserved"), 1)
    );
    assert_eq!(run.get("").await.ok()["generating"], 1);
    // A member by the abandoned version 1 is refused, although a version 1 will exist again.
    let old = worker.member(&b, 1, json!({ "version": 1, "lineage": 0 })).await;
    old.problem(409, "version_not_published");
    let unnamed = worker.member(&b, 1, json!({ "version": 0 })).await;
    unnamed.problem(409, "version_not_published");
    let named = worker.member(&b, 1, json!({ "version": 0, "lineage": 1 })).await.ok();
    assert_eq!(named["state"], "occupied");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn an_occupy_with_a_member_of_abandoned_weights_discards_the_group() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = of_groups(&ledger, false).await;
    let a = worker.gets(0, "a").await;
    train(&run, 0).await;
    Trainer::rewinding(&run, "t", 0).await;

    let body = json!({ "lineage": 0, "members": [{ "index": 0, "version": 0 }, { "index": 1, "version": 1 }] });
    let refused = worker.occupy(&a, body).await.problem(409, "trajectory_discarded");

    assert_eq!(refused["reason"], "rewound");
    let group = trajectory(&run, &a).await;
    assert_eq!((&group["reason"], &group["members"]), (&json!("rewound"), &json!([])));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_group_without_an_owner_is_placed_anew_and_adopted_from_there() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = of_groups(&ledger, true).await;
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({ "version": 0 })).await.ok();
    train(&run, 0).await;
    worker.restarted().heartbeat(json!({})).await.ok();

    Trainer::rewinding(&run, "t", 0).await;

    let shown = trajectory(&run, &a).await;
    assert_eq!(shown["orphaned"], true);
    let other = Worker::of(&run, "rollout-2");
    let granted = other.reserve(json!({ "version": 0, "lineage": 1 })).await.ok();
    assert_eq!(granted["granted"][0]["id"], json!(a));
    assert_eq!(granted["granted"][0]["buffer"], shown["buffer"]);
    assert_eq!(other.member(&a, 1, json!({})).await.ok()["state"], "occupied");
    crate::journal::is_sound(&run).await;
}
