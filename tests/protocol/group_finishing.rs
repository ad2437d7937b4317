//! *Groups*: occupied by their client, in one call, late, or discarded for equal rewards.

use serde_json::{Value, json};

use crate::cast::{Worker, each, only, trajectory, until_expired};
use crate::groups::{cancelled, standing};
use crate::support::Ledger;

fn members(rewards: &[f64]) -> Value {
    (0..)
        .zip(rewards)
        .map(|(index, reward): (u32, _)| json!({ "index": index, "reward": reward }))
        .collect()
}

#[tokio::test]
async fn a_filled_group_waits_for_its_client_where_groups_are_not_occupied_by_themselves() {
    let Some(ledger) = Ledger::start().await else { return };
    let config =
        json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3, "auto_occupy": false });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({ "reward": 1.0, "tokens": 10 })).await.ok();

    let early = worker.occupy(&a, json!({})).await.problem(409, "group_incomplete");
    assert!(
        early["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("1 members are complete, and 2 are needed"))
    );
    let filled = worker.member(&a, 2, json!({ "reward": 3.0, "tokens": 20 })).await.ok();
    assert_eq!(
        standing(&filled),
        json!({ "state": "reserved", "counted": true, "complete": 2, "failed": 0, "needed": 2 })
    );

    // It awaits post-processing: nothing of it is generating, and the surplus candidate is to stop.
    let status = run.get("").await.ok();
    assert_eq!((&status["reserved"], &status["generating"]), (&json!(1), &json!(0)));
    assert_eq!(cancelled(&worker).await, json!([[a, "group_filled", [1]]]));
    let surplus = worker.member(&a, 1, json!({ "reward": 5.0 })).await.ok();
    assert_eq!(surplus["counted"], false);

    worker.heartbeat(json!({ "acknowledged": [a] })).await.ok();
    let place = worker.occupy(&a, json!({ "reward": 0.5 })).await.ok();
    assert_eq!(
        place,
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    assert_eq!(cancelled(&worker).await, json!([]), "it was told once");
    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();
    // What the client says of the group counts; what it does not say is summed up.
    assert_eq!(
        only(&entry, &["reward", "tokens"]),
        json!({ "reward": 0.5, "tokens": 30 })
    );
    crate::journal::is_sound(&run).await;
}

/// What one member may say, a thousand say together.
#[tokio::test]
async fn the_tokens_of_a_group_end_where_numbers_do() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 1_024 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    let members: Vec<_> = (0..1_024)
        .map(|index| json!({ "index": index, "tokens": 9_007_199_254_740_992_u64 }))
        .collect();

    worker.occupy(&a, json!({ "members": members })).await.ok();

    let entry = run.take().await.ok()["batch"]["trajectories"][0].clone();
    assert_eq!(entry["tokens"], 9_007_199_254_740_992_u64);
}

#[tokio::test]
async fn a_group_is_finished_in_one_call() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    let body = json!({ "members": [{ "index": 2, "failed": true }, { "index": 0, "reward": 1.0, "version": 0 },
                                   { "index": 1, "reward": 0.0, "payload": "file:///a1" }] });
    let place = worker.occupy(&a, body.clone()).await.ok();

    assert_eq!(
        place,
        json!({ "state": "occupied", "buffer": 0, "slot": 0, "buffer_state": "ready", "late": false })
    );
    assert_eq!(worker.occupy(&a, body).await.ok(), place, "sent again");
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    let effects: Vec<_> = each(&last["effects"])
        .map(|effect| {
            json!([
                effect["effect"],
                effect["index"],
                effect["failed"],
                effect["version"],
                effect["reward"]
            ])
        })
        .collect();
    assert_eq!(last["type"], "occupy");
    assert_eq!(
        json!(effects),
        json!([
            ["member", 2, true, null, null],
            ["member", 0, null, 0, 1.0],
            ["member", 1, null, 0, 0.0],
            ["occupied", null, null, null, null]
        ])
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn an_occupy_that_leaves_the_group_incomplete_records_its_members() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 3 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    let two = json!({ "members": members(&[1.0, 0.0]) });
    worker.occupy(&a, two).await.problem(409, "group_incomplete");

    assert_eq!(each(&trajectory(&run, &a).await["members"]).count(), 2);
    assert_eq!(run.get("").await.ok()["generating"], 1);
    let rest = worker
        .occupy(&a, json!({ "members": [{ "index": 2, "reward": 1.0 }] }))
        .await
        .ok();
    assert_eq!(rest["state"], "occupied");
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn an_occupy_that_is_refused_for_a_member_records_none() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;

    for (bad, status, code) in [
        (json!({ "index": 1, "version": 1 }), 409, "version_not_published"),
        (json!({ "index": 2 }), 400, "invalid_request"),
        (
            json!({ "index": 1, "version": 0, "segments": [{ "version": 0, "from_token": 5 }] }),
            409,
            "segment_out_of_order",
        ),
    ] {
        let body = json!({ "members": [{ "index": 0 }, bad] });
        worker.occupy(&a, body).await.problem(status, code);
    }

    assert_eq!(trajectory(&run, &a).await["members"], json!([]));
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn many_groups_are_finished_at_once_and_each_has_its_own_result() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 40, "max_staleness": 0, "group_size": 4, "drop_zero_variance": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let granted = worker.reserve(json!({ "version": 0, "count": 40 })).await.ok();
    let ids = crate::cast::ids(&granted["granted"]);
    let group = |id: &String, rewards: &[f64]| json!({ "id": id, "members": members(rewards) });

    let mut trajectories: Vec<_> = ids[3..].iter().map(|id| group(id, &[0.0, 1.0, 0.0, 1.0])).collect();
    trajectories.push(group(&ids[0], &[1.0; 4]));
    trajectories.push(group(&ids[1], &[1.0; 3]));
    trajectories.push(group(&ids[2], &[0.0, 1.0, 2.0, 3.0]));
    let body = worker.says(json!({ "trajectories": trajectories }));
    let results = run.post("occupy", body).await.ok()["results"].clone();

    assert_eq!(
        each(&results).filter(|result| result["state"] == "occupied").count(),
        38
    );
    assert_eq!(
        results[37],
        json!({ "id": ids[0], "state": "discarded", "reason": "zero_variance" })
    );
    assert_eq!(results[38], json!({ "id": ids[1], "code": "group_incomplete" }));
    assert_eq!(run.get("").await.ok()["occupied"], 38);
    crate::journal::is_lawful(&run).await;
}

#[tokio::test]
async fn a_group_whose_rewards_are_all_equal_is_discarded_and_its_place_reopens() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "group_candidates": 3, "drop_zero_variance": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker
        .member(&a, 0, json!({ "reward": 0.5, "payload": "file:///a0" }))
        .await
        .ok();

    let last = worker
        .member(&a, 1, json!({ "reward": 0.5, "payload": "file:///a1" }))
        .await
        .ok();

    assert_eq!(
        last,
        json!({ "state": "discarded", "reason": "zero_variance", "counted": true, "complete": 2, "failed": 0, "needed": 2 })
    );
    assert_eq!(run.tables().await, ".");
    let again = worker.member(&a, 2, json!({ "reward": 0.0 })).await.ok();
    assert_eq!(
        (&again["reason"], &again["counted"]),
        (&json!("zero_variance"), &json!(false))
    );
    let occupy = worker.occupy(&a, json!({})).await.ok();
    assert_eq!(occupy, json!({ "state": "discarded", "reason": "zero_variance" }));
    // One consumer of the log can delete what nobody will read.
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    assert_eq!(last["type"], "member");
    assert_eq!(last["effects"][1]["reason"], "zero_variance");
    assert_eq!(last["effects"][1]["payloads"], json!(["file:///a0", "file:///a1"]));
    worker.gets(0, "b").await;
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_missing_reward_equals_nothing() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 2, "max_staleness": 0, "group_size": 2, "drop_zero_variance": true });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let (a, b) = (worker.gets(0, "a").await, worker.gets(0, "b").await);

    worker.member(&a, 0, json!({ "reward": 0.0 })).await.ok();
    assert_eq!(worker.member(&a, 1, json!({})).await.ok()["state"], "occupied");
    worker.member(&b, 0, json!({})).await.ok();
    assert_eq!(worker.member(&b, 1, json!({})).await.ok()["state"], "occupied");

    let batch = run.take().await.ok();
    for entry in each(&batch["batch"]["trajectories"]) {
        assert_eq!(entry["reward"], Value::Null);
        assert!(each(&entry["members"]).all(|member| member["advantage"].is_null()));
    }
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn equal_rewards_discard_a_group_that_its_client_finishes_when_it_does() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "drop_zero_variance": true, "auto_occupy": false });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    for index in 0..2 {
        let member = worker.member(&a, index, json!({ "reward": 1.0 })).await.ok();
        assert_eq!(member["state"], "reserved");
    }

    let occupy = worker.occupy(&a, json!({})).await.ok();

    assert_eq!(occupy, json!({ "state": "discarded", "reason": "zero_variance" }));
    assert_eq!(run.tables().await, ".");
    assert_eq!(
        cancelled(&worker).await,
        json!([]),
        "the caller knows, and nothing is generated any more"
    );
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn members_of_a_group_whose_holder_was_only_slow_are_recorded_and_the_last_is_its_late_occupy() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2, "lease_ms": 1_000 });
    let run = ledger.run(config).await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.member(&a, 0, json!({ "reward": 0.0 })).await.ok();
    until_expired(&run, &a).await;

    // No slot is left: the last member is not recorded.
    let other = Worker::of(&run, "rollout-2");
    let b = other.gets(0, "b").await;
    let refused = worker.member(&a, 1, json!({ "reward": 1.0 })).await;
    assert_eq!(refused.problem(409, "trajectory_discarded")["reason"], "lease_expired");
    other.discard(&b, "failed").await.ok();

    let saved = worker.member(&a, 1, json!({ "reward": 1.0 })).await.ok();
    assert_eq!(
        saved,
        json!({ "state": "occupied", "counted": true, "complete": 2, "failed": 0, "needed": 2,
                "buffer": 0, "slot": 0, "buffer_state": "ready", "late": true })
    );
    let events = run.get(&format!("events?trajectory={a}")).await.ok();
    let last = each(&events["events"]).last().expect("an event").clone();
    assert_eq!((&last["type"], &last["late"]), (&json!("member"), &json!(true)));
    let effects: Vec<_> = each(&last["effects"]).map(|effect| effect["effect"].clone()).collect();
    assert_eq!(effects, ["member", "reserved", "occupied"]);
    assert_eq!(run.get("").await.ok()["totals"]["late"], 1);
    crate::journal::is_sound(&run).await;
}

#[tokio::test]
async fn a_member_of_a_group_that_was_given_up_for_good_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2 }))
        .await;
    let worker = Worker::of(&run, "rollout-1");
    let a = worker.gets(0, "a").await;
    worker.discard(&a, "failed").await.ok();

    let refused = worker
        .member(&a, 0, json!({}))
        .await
        .problem(409, "trajectory_discarded");
    assert_eq!(refused["reason"], "failed");
    let occupy = worker.occupy(&a, json!({ "members": members(&[0.0, 1.0]) })).await;
    assert_eq!(occupy.problem(409, "trajectory_discarded")["reason"], "failed");
    crate::journal::is_sound(&run).await;
}
