//! A run of groups holds, whose workers die and whose members go on under newer weights; and with a fault planted into what
//! became of a group it does not.

use serde_json::{Value, json};

use crate::logs::{LogFile, events, page, verify};
use crate::planting::{is_found, position, renumber};
use crate::support::{Client, Ledger, Run};

/// Groups of two of three candidates. Of the first three, a is filled though a member of it failed, b has equal rewards, and
/// c is adopted after its worker restarted; a and c are trained. Under version 1 d is adopted too, e is one of version 0
/// that went on under version 1, and f fails.
async fn groups_job(client: &Client) -> Run {
    let config = json!({ "batch_size": 2, "max_staleness": 2, "group_size": 2, "group_candidates": 3, "adopt_groups": true,
                         "drop_zero_variance": true, "keep_batches": 100 });
    let run = Run::create(client, config).await;
    let e = three_groups_and_e(&run).await;
    run.take().await.ok();
    run.publish(1).await.ok();
    e_and_two_groups(&run, &e).await;
    run.take().await.ok();
    run.publish(2).await.ok();
    run
}

async fn three_groups_and_e(run: &Run) -> String {
    let worker = Rollout::start(run, 0);
    let [a, b, c, e] = [
        worker.reserve(0, "a").await,
        worker.reserve(0, "b").await,
        worker.reserve(0, "c").await,
        worker.reserve(0, "e").await,
    ];
    worker.member(&a, 0, json!({ "reward": 0.0 })).await;
    worker.member(&a, 1, json!({ "failed": true })).await;
    worker.member(&a, 2, json!({ "reward": 1.0 })).await;
    worker.member(&b, 0, json!({ "reward": 0.5 })).await;
    worker.member(&b, 1, json!({ "reward": 0.5 })).await;
    worker.member(&c, 0, json!({ "reward": 0.0 })).await;
    worker.member(&e, 0, json!({ "reward": 0.0 })).await;
    let worker = Rollout::start(run, 1);
    assert_eq!(worker.reserve(0, "g").await, c);
    worker.member(&c, 2, json!({ "reward": 1.0 })).await;
    assert_eq!(worker.reserve(0, "g").await, e);
    e
}

async fn e_and_two_groups(run: &Run, e: &str) {
    let worker = Rollout::start(run, 1);
    let segment = json!({ "version": 1, "from_token": 9, "member": 1 });
    run.post(&format!("trajectories/{e}/segments"), segment).await.ok();
    worker.member(e, 1, json!({ "reward": 1.0, "version": 0 })).await;
    let d = worker.reserve(1, "d").await;
    worker.member(&d, 0, json!({ "reward": 0.0 })).await;
    let worker = Rollout::start(run, 2);
    assert_eq!(worker.reserve(1, "g").await, d);
    worker.member(&d, 1, json!({ "reward": 1.0, "version": 1 })).await;
    let f = worker.reserve(1, "f").await;
    for index in 0..2 {
        worker.member(&f, index, json!({ "failed": true })).await;
    }
}

/// A process of the one worker of the run.
struct Rollout {
    run: Run,
    session: String,
}

impl Rollout {
    fn start(run: &Run, start: u64) -> Self {
        Self {
            run: run.clone(),
            session: format!("start-{start}"),
        }
    }

    /// The group that it is granted, for this prompt or to be adopted.
    async fn reserve(&self, version: u64, prompt: &str) -> String {
        let body = json!({ "worker": "w", "session": self.session, "version": version, "prompts": [prompt] });
        let answer = self.run.post("reservations", body).await.ok();
        answer["granted"][0]["id"].as_str().expect("an id").to_owned()
    }

    async fn member(&self, id: &str, index: u32, mut body: Value) {
        body["worker"] = json!("w");
        body["session"] = json!(self.session);
        let path = format!("trajectories/{id}/members/{index}");
        let answer = self.run.post(&path, body).await.ok();
        assert_eq!(answer["counted"], true, "{answer:#}");
    }
}

async fn good_log() -> Option<Vec<Value>> {
    let ledger = Ledger::start().await?;
    let run = groups_job(&ledger.client()).await;
    Some(events(&run, 0).await)
}

/// The `nth` effect of the log of this kind: its event, and which of its effects it is.
fn effect(log: &[Value], kind: &str, nth: usize) -> (usize, usize) {
    let mut found = Vec::new();
    for (at, event) in log.iter().enumerate() {
        for (index, effect) in event["effects"].as_array().expect("a list").iter().enumerate() {
            if effect["effect"] == kind {
                found.push((at, index));
            }
        }
    }
    found[nth]
}

fn seq(log: &[Value], at: usize) -> u64 {
    log[at]["seq"].as_u64().expect("a number")
}

fn effects(event: &mut Value) -> &mut Vec<Value> {
    event["effects"].as_array_mut().expect("a list")
}

/// The log with another value of a field of that effect, which breaks the invariant at that event.
async fn is_found_with(log: &[Value], (at, index): (usize, usize), field: &str, value: Value, invariant: &str) {
    let mut spoilt = log.to_vec();
    assert_ne!(spoilt[at]["effects"][index][field], value, "nothing is planted");
    spoilt[at]["effects"][index][field] = value;
    is_found(&spoilt, invariant, seq(log, at)).await;
}

#[tokio::test]
async fn a_run_of_groups_holds_and_its_page_counts_them() {
    let Some(log) = good_log().await else { return };
    let file = LogFile::of(&log);
    let (status, found) = verify(&["--events", &file.name()]).await;
    assert_eq!((status, &found["ok"]), (Some(0), &json!(true)), "{found:#}");
    let of_run = &found["runs"][0];
    assert_eq!(
        json!([
            of_run["members"],
            of_run["orphaned"],
            of_run["adopted"],
            of_run["discarded"]
        ]),
        json!([13, 3, 3, { "zero_variance": 1, "group_failed": 1 }])
    );

    let (_, good) = page(&file).await;
    for line in [
        "  entries    6 reserved, 4 occupied (0 of them late)",
        "  groups     13 members reported, 3 groups left without an owner, 3 adopted",
        "  discarded  group_failed: 1, zero_variance: 1",
        "  groups                holds",
    ] {
        assert!(good.lines().any(|each| each == line), "no `{line}` in:\n{good}");
    }
}

#[tokio::test]
async fn groups_one_that_is_occupied_with_a_member_missing() {
    let Some(mut log) = good_log().await else { return };
    log.remove(position(&log, "member", 0));
    renumber(&mut log);
    // The members of a are one that failed and one that is complete.
    is_found(&log, "groups", seq(&log, position(&log, "member", 1))).await;
}

#[tokio::test]
async fn groups_a_member_that_counts_twice() {
    let Some(log) = good_log().await else { return };
    is_found_with(&log, effect(&log, "member", 2), "index", json!(0), "groups").await;
}

#[tokio::test]
async fn groups_a_member_that_is_no_candidate() {
    let Some(log) = good_log().await else { return };
    is_found_with(&log, effect(&log, "member", 0), "index", json!(3), "groups").await;
}

#[tokio::test]
async fn groups_one_of_equal_rewards_that_is_occupied() {
    let Some(log) = good_log().await else { return };
    is_found_with(&log, effect(&log, "member", 2), "reward", json!(0.0), "groups").await;
}

#[tokio::test]
async fn groups_a_member_of_older_weights_than_its_group() {
    let Some(log) = good_log().await else { return };
    let member_of_d = effect(&log, "member", 10);
    assert_eq!(log[member_of_d.0]["effects"][member_of_d.1]["version"], 1);
    is_found_with(&log, member_of_d, "version", json!(0), "groups").await;
}

#[tokio::test]
async fn groups_one_that_is_kept_although_it_cannot_be_filled() {
    let Some(mut log) = good_log().await else { return };
    let (at, index) = effect(&log, "discarded", 1);
    assert_eq!(log[at]["effects"][index]["reason"], "group_failed");
    effects(&mut log[at]).truncate(index);
    is_found(&log, "groups", seq(&log, at)).await;
}

#[tokio::test]
async fn groups_weights_that_are_not_published_go_on_with_one() {
    let Some(mut log) = good_log().await else { return };
    let (at, index) = effect(&log, "continued", 0);
    log[at]["version"] = json!(2);
    is_found_with(&log, (at, index), "version", json!(2), "groups").await;
}

#[tokio::test]
async fn steps_a_segment_that_is_not_told() {
    let Some(mut log) = good_log().await else { return };
    let (at, _) = effect(&log, "continued", 0);
    effects(&mut log[at]).clear();
    is_found(&log, "steps", seq(&log, at)).await;
}

#[tokio::test]
async fn adoption_a_group_with_complete_members_that_is_discarded_with_its_worker() {
    let Some(mut log) = good_log().await else { return };
    let (at, index) = effect(&log, "orphaned", 0);
    let orphaned = &mut log[at]["effects"][index];
    *orphaned = json!({ "effect": "discarded", "id": orphaned["id"], "reason": "worker_restarted",
                        "from": { "buffer": 2, "slot": 0 } });
    is_found(&log, "groups", seq(&log, at)).await;
}

#[tokio::test]
async fn adoption_a_group_of_which_nothing_is_told_when_its_worker_is_gone() {
    let Some(mut log) = good_log().await else { return };
    let (at, index) = effect(&log, "orphaned", 0);
    effects(&mut log[at]).remove(index);
    is_found(&log, "groups", seq(&log, at)).await;
}

#[tokio::test]
async fn adoption_a_group_without_a_complete_member_that_is_left_to_be_adopted() {
    let Some(mut log) = good_log().await else { return };
    // The only complete member of d is said to have failed.
    let (at, index) = effect(&log, "member", 9);
    log[at]["effects"][index] = json!({ "effect": "member", "id": log[at]["ids"][0], "index": 0, "failed": true });
    is_found(&log, "groups", seq(&log, effect(&log, "orphaned", 2).0)).await;
}

#[tokio::test]
async fn adoption_a_group_that_has_an_owner() {
    let Some(mut log) = good_log().await else { return };
    let d_of_its_owner = log[effect(&log, "adopted", 2).0]["ids"][0].clone();
    let f = position(&log, "reserve", 8);
    log[f]["ids"] = json!([d_of_its_owner]);
    log[f]["effects"] = json!([{ "effect": "adopted", "id": d_of_its_owner }]);
    is_found(&log, "groups", seq(&log, f)).await;
}

#[tokio::test]
async fn adoption_by_a_worker_whose_weights_are_older_than_the_group() {
    let Some(mut log) = good_log().await else { return };
    let (at, _) = effect(&log, "adopted", 2);
    assert_eq!(log[at]["version"], 1);
    log[at]["version"] = json!(0);
    is_found(&log, "groups", seq(&log, at)).await;
}

#[tokio::test]
async fn adoption_a_group_that_is_passed_over() {
    let Some(mut log) = good_log().await else { return };
    let (first, second) = (effect(&log, "adopted", 0), effect(&log, "adopted", 1));
    let not_the_front_most = log[second.0]["effects"][second.1]["id"].clone();
    log[first.0]["ids"] = json!([not_the_front_most]);
    is_found_with(&log, first, "id", not_the_front_most, "groups").await;
}
