//! *Partial rollout*: a trajectory goes on under newer weights, segment by segment; its version and deadline stay.

use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, only, train, trajectory, until_expired};
use crate::support::{Ledger, Run};

/// A run at version 2, whose worker has the trajectory `a` of version 0.
async fn at_version_2(ledger: &Ledger, mut config: Value) -> (Run, Worker, String) {
    config["batch_size"] = json!(1);
    config["max_staleness"] = json!(4);
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    for version in 0..2 {
        if run.get("").await.ok()["config"]["group_size"] == 1 {
            finish(&run, version, "x").await;
        } else {
            let other = Worker::of(&run, "rollout-2");
            let x = other.gets(version, "x").await;
            other.finishes(&x, 0..2).await;
        }
        train(&run, version).await;
    }
    (run, worker, a)
}

#[tokio::test]
async fn each_segment_says_its_version_and_the_token_that_it_starts_at() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({})).await;
    let before = trajectory(&run, &a).await;

    let one = worker
        .segment(&a, json!({ "version": 1, "from_token": 100 }))
        .await
        .ok();
    let first = json!({ "version": 0, "from_token": 0 });
    assert_eq!(one, json!({ "segments": [first, { "version": 1, "from_token": 100 }] }));
    let two = worker
        .segment(&a, json!({ "version": 2, "from_token": 250 }))
        .await
        .ok();
    let all = json!([first, { "version": 1, "from_token": 100 }, { "version": 2, "from_token": 250 }]);
    assert_eq!(two["segments"], all);

    let after = trajectory(&run, &a).await;
    let place = ["version", "deadline", "buffer", "slot"];
    assert_eq!(
        only(&after, &place),
        only(&before, &place),
        "the deadline does not change"
    );
    assert_eq!(after["segments"], all);
    worker.occupy(&a, json!({})).await.ok();
    assert_eq!(run.take().await.ok()["batch"]["trajectories"][0]["segments"], all);
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let told: Vec<_> = each(&events["events"])
        .filter(|event| event["type"] == "segment")
        .map(|event| {
            json!([
                event["version"],
                event["effects"][0]["effect"],
                event["effects"][0]["version"]
            ])
        })
        .collect();
    assert_eq!(told, [json!([1, "continued", 1]), json!([2, "continued", 2])]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_segment_that_is_known_changes_nothing_and_one_out_of_order_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({})).await;
    let known = worker.segment(&a, json!({ "version": 1, "from_token": 100 })).await;
    let seq = known.seq();

    let again = worker.segment(&a, json!({ "version": 1, "from_token": 100 })).await;
    assert_eq!(again.seq(), seq);
    assert_eq!(again.ok(), known.ok());
    let first = worker.segment(&a, json!({ "version": 0, "from_token": 0 })).await;
    assert_eq!(first.seq(), seq);
    for (version, from_token) in [(1, 200), (2, 100), (2, 50), (0, 150)] {
        let refused = worker
            .segment(&a, json!({ "version": version, "from_token": from_token }))
            .await;
        refused.problem(409, "segment_out_of_order");
    }
    assert_eq!(run.get("").await.seq(), seq);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn no_segment_is_of_a_version_above_the_latest() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({})).await;

    let refused = worker.segment(&a, json!({ "version": 3, "from_token": 9 })).await;
    assert_eq!(refused.problem(409, "version_not_published")["policy_version"], 2);
    let carried = json!({ "segments": [{ "version": 3, "from_token": 9 }] });
    worker.occupy(&a, carried).await.problem(409, "version_not_published");

    assert_eq!(trajectory(&run, &a).await["state"], "reserved");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn an_occupy_carries_the_segments_whole_or_those_that_are_not_known_yet() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({})).await;
    worker
        .segment(&a, json!({ "version": 1, "from_token": 100 }))
        .await
        .ok();
    let b = worker.gets(2, "b").await;
    let all = json!([{ "version": 0, "from_token": 0 }, { "version": 1, "from_token": 100 }, { "version": 2, "from_token": 200 }]);

    let out_of_order = json!({ "segments": [{ "version": 2, "from_token": 50 }] });
    worker
        .occupy(&a, out_of_order)
        .await
        .problem(409, "segment_out_of_order");
    worker.occupy(&a, json!({ "segments": all })).await.ok();
    worker
        .occupy(&b, json!({ "segments": [{ "version": 2, "from_token": 0 }] }))
        .await
        .ok();

    assert_eq!(trajectory(&run, &a).await["segments"], all);
    assert_eq!(
        trajectory(&run, &b).await["segments"],
        json!([{ "version": 2, "from_token": 0 }])
    );
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"])
        .find(|event| event["type"] == "occupy")
        .expect("an occupy")
        .clone();
    let effects: Vec<_> = each(&last["effects"]).map(|effect| effect["effect"].clone()).collect();
    assert_eq!(
        (&effects[0], last["effects"][0]["version"].clone()),
        (&json!("continued"), json!(2))
    );
    // Once it is finished, nothing is added.
    let late = worker
        .segment(&a, json!({ "version": 2, "from_token": 300 }))
        .await
        .ok();
    assert_eq!(late["segments"], all);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_member_has_segments_of_its_own() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({ "group_size": 2 })).await;

    let begun = worker
        .segment(&a, json!({ "member": 1, "version": 1, "from_token": 0 }))
        .await
        .ok();
    assert_eq!(begun["segments"], json!([{ "version": 1, "from_token": 0 }]));
    worker
        .segment(&a, json!({ "member": 1, "version": 2, "from_token": 70 }))
        .await
        .ok();
    let shown = trajectory(&run, &a).await;
    assert_eq!(
        only(&shown["members"][0], &["index", "state", "version", "segments"]),
        json!({ "index": 1, "state": "generating", "version": 1,
                "segments": [{ "version": 1, "from_token": 0 }, { "version": 2, "from_token": 70 }] })
    );
    let otherwise = json!({ "segments": [{ "version": 0, "from_token": 0 }] });
    worker
        .member(&a, 1, otherwise)
        .await
        .problem(409, "segment_out_of_order");
    worker.member(&a, 1, json!({ "version": 2, "reward": 1.0 })).await.ok();
    // One with segments has their first version, whatever its session says.
    worker.heartbeat(json!({ "version": 2 })).await.ok();
    let segments = json!([{ "version": 0, "from_token": 0 }, { "version": 2, "from_token": 40 }]);
    worker
        .member(&a, 0, json!({ "reward": 0.0, "segments": segments }))
        .await
        .ok();

    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();
    let members: Vec<_> = each(&entry["members"])
        .map(|member| only(member, &["version", "segments"]))
        .collect();
    assert_eq!(
        members,
        [
            json!({ "version": 0, "segments": segments }),
            json!({ "version": 1, "segments": [{ "version": 1, "from_token": 0 }, { "version": 2, "from_token": 70 }] })
        ]
    );
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let of_member: Vec<_> = each(&events["events"])
        .flat_map(|event| each(&event["effects"]))
        .filter(|effect| effect["effect"] == "member")
        .map(|effect| json!([effect["index"], effect["version"], effect["newest"]]))
        .collect();
    assert_eq!(of_member, [json!([1, 1, 2]), json!([0, 0, 2])]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn segments_are_of_a_member_where_there_are_groups_and_only_there() {
    let Some(ledger) = Ledger::start().await else { return };
    let (_, worker, a) = at_version_2(&ledger, json!({ "group_size": 2 })).await;
    let (_, single, b) = at_version_2(&ledger, json!({})).await;
    let segment = json!({ "version": 1, "from_token": 10 });

    for refused in [
        worker.segment(&a, segment.clone()).await,
        worker.occupy(&a, json!({ "segments": [segment] })).await,
        single
            .segment(&b, json!({ "member": 0, "version": 1, "from_token": 10 }))
            .await,
    ] {
        assert_eq!(refused.problem(400, "invalid_request")["field"], "member");
    }
    let past = worker
        .segment(&a, json!({ "member": 2, "version": 1, "from_token": 10 }))
        .await;
    assert_eq!(past.problem(400, "invalid_request")["field"], "index");
}

#[tokio::test]
async fn a_late_occupy_brings_its_segments() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, a) = at_version_2(&ledger, json!({ "lease_ms": 1_000 })).await;
    until_expired(&run, &a).await;

    worker.segment(&a, json!({ "version": 1, "from_token": 5 })).await.ok();
    let saved = worker
        .occupy(&a, json!({ "segments": [{ "version": 2, "from_token": 8 }] }))
        .await
        .ok();

    assert_eq!(saved["late"], true);
    assert_eq!(
        trajectory(&run, &a).await["segments"][2],
        json!({ "version": 2, "from_token": 8 })
    );
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    let effects: Vec<_> = each(&last["effects"]).map(|effect| effect["effect"].clone()).collect();
    assert_eq!(effects[..2], ["continued", "reserved"]);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_segment_of_what_was_given_up_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let (_, worker, a) = at_version_2(&ledger, json!({})).await;
    worker.discard(&a, "failed").await.ok();

    let refused = worker.segment(&a, json!({ "version": 1, "from_token": 5 })).await;

    assert_eq!(refused.problem(409, "trajectory_discarded")["reason"], "failed");
    let unknown = worker
        .segment("nothing", json!({ "version": 1, "from_token": 5 }))
        .await;
    unknown.problem(404, "unknown_trajectory");
}
