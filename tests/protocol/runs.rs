//! Runs: created, confirmed, changed, listed, deleted.

use serde_json::{Value, json};

use crate::cast::{Worker, each, finish, only, prompts, soon, without};
use crate::support::{Client, Ledger, Run};

#[tokio::test]
async fn a_run_needs_only_a_batch_size_and_a_bound() {
    let Some(ledger) = Ledger::start().await else { return };

    let answer = ledger
        .client()
        .put("/v1/runs/grpo-7b", json!({ "batch_size": 2, "max_staleness": 1 }))
        .await;

    assert_eq!(answer.seq(), 1);
    let buffer =
        |version: u64| json!({ "version": version, "state": "pending", "occupied": 0, "empty": 2, "reserved": 0 });
    let expected = json!({
        "run": "grpo-7b",
        "config": { "batch_size": 2, "max_staleness": 1, "slots_per_buffer": 2, "max_concurrency": null,
                    "group_size": 1, "group_candidates": 1, "auto_occupy": true, "drop_zero_variance": false, "adopt_groups": false,
                    "lease_ms": 30_000, "reservation_timeout_ms": null, "stuck_timeout_ms": null, "stuck_max_reserved": null,
                    "keep_batches": 256, "initial_version": 0, "prompt_queue": false, "order": "fed", "order_window": 2,
                    "max_attempts": 3, "drop_on": [], "final_batch": "short" },
        "policy_version": 0, "lineage": 0, "next_buffer": 0, "trainer_version": 0,
        "draining": false, "finished": false, "reserved": 0, "generating": 0, "occupied": 0, "workers": 0, "kept_batches": 0, "oldest_kept": null, "seq": 1,
        "buffers": [buffer(0), buffer(1)],
        "trainer": { "name": null, "epoch": 0, "state": "never_seen", "since_at_ms": null, "last_call_at_ms": null },
        "prompts": null,
        "totals": { "reserved": 0, "occupied": 0, "trained": 0, "discarded": {}, "late": 0, "adopted": 0 },
    });
    assert_eq!(answer.status(201), expected);
    assert_eq!(ledger.client().get("/v1/runs/grpo-7b").await.ok(), expected);
}

#[tokio::test]
async fn every_process_of_a_job_may_create_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    run.reserve(0, "a").await.ok();

    // Said in full, or left to the defaults, and in what can change also otherwise.
    let in_full = json!({ "batch_size": 2, "max_staleness": 1, "slots_per_buffer": 2, "max_concurrency": 7,
                          "lease_ms": 60_000, "keep_batches": 3, "initial_version": 0, "group_size": 1, "group_candidates": 1,
                          "auto_occupy": true, "drop_zero_variance": false, "adopt_groups": false, "reservation_timeout_ms": 5,
                          "stuck_timeout_ms": 6, "stuck_max_reserved": 7, "prompt_queue": false, "order": "fed", "order_window": 2,
                          "max_attempts": 3, "drop_on": [], "final_batch": "short" });
    for config in [json!({ "batch_size": 2, "max_staleness": 1 }), in_full] {
        let status = run.put("", config).await.status(200);
        assert_eq!(
            only(&status["config"], &["max_concurrency", "lease_ms", "keep_batches"]),
            json!({ "max_concurrency": null, "lease_ms": 30_000, "keep_batches": 256 })
        );
        assert_eq!(status["seq"], run.get("").await.ok()["seq"]);
    }
    assert_eq!(run.tables().await, ". . | . a");
}

#[tokio::test]
async fn a_run_that_was_created_otherwise_is_refused_with_the_fields_that_differ() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 1, "slots_per_buffer": 3 }))
        .await;
    let fields = async |config: Value| run.put("", config).await.problem(409, "run_exists")["fields"].clone();

    assert_eq!(
        fields(json!({ "batch_size": 2, "max_staleness": 1 })).await,
        json!(["slots_per_buffer"])
    );
    assert_eq!(
        // The window's default is the batch size.
        fields(json!({ "batch_size": 3, "max_staleness": 2, "initial_version": 5 })).await,
        json!(["batch_size", "max_staleness", "initial_version", "order_window"])
    );
}

#[tokio::test]
async fn a_configuration_has_bounds() {
    let Some(ledger) = Ledger::start().await else { return };
    let client = ledger.client();
    let try_with = async |name: &str, field: &str, value: &Value| {
        let mut config = json!({ "batch_size": 2, "max_staleness": 1 });
        config[field] = value.clone();
        client.put(&format!("/v1/runs/{name}"), config).await
    };

    let legal = [
        ("batch_size", json!([1, 65_536])),
        ("max_staleness", json!([0, 64])),
        ("slots_per_buffer", json!([2, 68])),
        ("max_concurrency", json!([1, null])),
        ("lease_ms", json!([1_000, 3_600_000])),
        ("keep_batches", json!([1])),
        ("initial_version", json!([0, 1_000_000])),
        ("group_size", json!([1, 1_024])),
        ("group_candidates", json!([1, 1_024])),
        ("reservation_timeout_ms", json!([1, null])),
        ("stuck_timeout_ms", json!([1, null])),
        ("stuck_max_reserved", json!([1, null])),
        ("order", json!(["fed", "longest_first"])),
        ("order_window", json!([1, 1_000_000])),
        ("max_attempts", json!([1, 1_000_000])),
        ("drop_on", json!([[], ["stuck_timeout", "timed_out"]])),
        ("final_batch", json!(["short", "discard"])),
    ];
    for (field, values) in legal {
        for (number, value) in each(&values).enumerate() {
            try_with(&format!("{field}-{number}"), field, value).await.status(201);
        }
    }
    let illegal = [
        ("batch_size", json!([0, 65_537, -1, 1.5, "2", null])),
        ("max_staleness", json!([65, -1, "1", null])),
        ("slots_per_buffer", json!([1, 69, 0])),
        ("max_concurrency", json!([0, -1])),
        ("lease_ms", json!([999, 3_600_001])),
        ("keep_batches", json!([0])),
        ("initial_version", json!([-1])),
        ("max_stalness", json!([1])),
        ("group_size", json!([0, 1_025, null])),
        ("group_candidates", json!([0, 1_025])),
        ("drop_zero_variance", json!([true, 1])),
        ("reservation_timeout_ms", json!([0, -1])),
        ("stuck_timeout_ms", json!([0, -1])),
        ("stuck_max_reserved", json!([0])),
        ("order", json!(["random", null])),
        ("order_window", json!([0])),
        ("max_attempts", json!([0])),
        ("final_batch", json!(["long"])),
    ];
    for (field, values) in illegal {
        for value in each(&values) {
            let refusal = try_with("bad", field, value).await.problem(400, "invalid_request");
            assert_eq!(refusal["field"], field, "{value}: {refusal}");
        }
    }
    client.get("/v1/runs/bad").await.problem(404, "unknown_run");
}

#[tokio::test]
async fn a_run_s_name_is_of_1_to_64_safe_characters() {
    let Some(ledger) = Ledger::start().await else { return };
    let client = ledger.client();
    let config = json!({ "batch_size": 1, "max_staleness": 0 });
    let longest = "x".repeat(64);

    for good in ["a", "A.b_c-9", &longest] {
        client
            .put(&format!("/v1/runs/{good}"), config.clone())
            .await
            .status(201);
    }
    for bad in [".a", "a%20b", "a%2Fb", "%C3%A4", "a%7Bb%7D", &format!("{longest}x")] {
        let refusal = client.put(&format!("/v1/runs/{bad}"), config.clone()).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], "run", "{bad}");
    }
}

#[tokio::test]
async fn runs_are_listed_in_the_order_of_their_names_in_pages() {
    let Some(ledger) = Ledger::start().await else { return };
    let client = ledger.client();
    for name in ["b", "a", "c"] {
        let config = json!({ "batch_size": 1, "max_staleness": 0 });
        client.put(&format!("/v1/runs/{name}"), config).await.status(201);
    }

    assert_eq!(listed(&client, "").await, json!([["a", "b", "c"], null]));
    assert_eq!(listed(&client, "?limit=2").await, json!([["a", "b"], "b"]));
    assert_eq!(listed(&client, "?limit=2&after=b").await, json!([["c"], null]));
    client.delete("/v1/runs/b").await.status(204);
    assert_eq!(listed(&client, "").await, json!([["a", "c"], null]));
    let status = client.get("/v1/runs/a").await.ok();
    assert_eq!(client.get("/v1/runs?limit=1").await.ok()["runs"][0], status);
    for limit in [0, 1_001] {
        let refusal = client.get(&format!("/v1/runs?limit={limit}")).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], "limit");
    }
}

async fn listed(client: &Client, query: &str) -> Value {
    let page = client.get(&format!("/v1/runs{query}")).await.ok();
    let names: Vec<_> = each(&page["runs"]).map(|run| run["run"].clone()).collect();
    json!([names, page["next"]])
}

#[tokio::test]
async fn the_numbers_of_a_run_add_up() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 2 })).await;
    run.reserve(0, "a b c d e f").await.ok();
    for prompt in ["a", "c", "e"] {
        run.occupy(prompt).await.ok();
    }
    run.discard("b", "failed").await.ok();
    run.take().await.ok();
    assert_eq!(run.tables().await, "E . | d f");

    let status = run.get("").await;

    let seq = status.seq();
    let buffer = |version: u64, state: &str, counts: [u64; 3]| json!({ "version": version, "state": state, "occupied": counts[0], "empty": counts[1], "reserved": counts[2] });
    let numbers = [
        "policy_version",
        "next_buffer",
        "trainer_version",
        "reserved",
        "generating",
        "occupied",
        "workers",
        "kept_batches",
        "oldest_kept",
        "seq",
        "buffers",
        "totals",
    ];
    let buffers = json!([buffer(1, "pending", [1, 1, 0]), buffer(2, "stuck", [0, 0, 2])]);
    assert_eq!(
        only(&status.ok(), &numbers),
        json!({ "policy_version": 0, "next_buffer": 1, "trainer_version": 0, "reserved": 2, "generating": 2,
                "occupied": 1, "workers": 1, "kept_batches": 1, "oldest_kept": 0, "seq": seq, "buffers": buffers,
                "totals": { "reserved": 6, "occupied": 3, "trained": 2, "late": 0, "adopted": 0, "discarded": { "failed": 1 } } })
    );
    let shown = run.get("buffers").await.ok();
    assert_eq!(
        shown,
        json!({ "policy_version": 0, "lineage": 0, "next_buffer": 1, "trainer_version": 0, "buffers": buffers })
    );
}

#[tokio::test]
async fn what_can_change_of_a_run_is_changed_and_the_rest_stays() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 1, "max_concurrency": 3 }))
        .await;
    let changed = async |changes: Value| {
        let status = run.patch("", changes).await.ok();
        only(&status["config"], &["lease_ms", "max_concurrency", "keep_batches"])
    };

    assert_eq!(
        changed(json!({ "lease_ms": 5_000, "keep_batches": 9 })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": 3, "keep_batches": 9 })
    );
    assert_eq!(
        changed(json!({ "max_concurrency": null })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": null, "keep_batches": 9 })
    );
    let seq = run.get("").await.seq();
    assert_eq!(
        changed(json!({ "lease_ms": 5_000 })).await,
        json!({ "lease_ms": 5_000, "max_concurrency": null, "keep_batches": 9 })
    );
    assert_eq!(run.get("").await.seq(), seq, "nothing was changed");
    let next = run.reserve(0, "a").await.ok();
    assert_eq!(next["lease_expires_in_ms"], 5_000);
}

#[tokio::test]
async fn what_cannot_change_of_a_run_is_not_changed() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    let before = run.get("").await.ok();

    for (field, value) in [
        ("batch_size", json!(3)),
        ("max_staleness", json!(2)),
        ("slots_per_buffer", json!(3)),
        ("initial_version", json!(1)),
        ("lease_ms", json!(999)),
        ("lease_ms", json!(null)),
        ("max_concurrency", json!(0)),
        ("keep_batches", json!(0)),
        ("keep_batches", json!(null)),
        ("reservation_timeout_ms", json!(0)),
        ("stuck_timeout_ms", json!(0)),
        ("stuck_max_reserved", json!(0)),
        ("group_size", json!(2)),
        ("prompt_queue", json!(true)),
    ] {
        let refusal = run.patch("", json!({ field: value })).await;
        assert_eq!(refusal.problem(400, "invalid_request")["field"], field);
    }

    assert_eq!(run.get("").await.ok(), before);
}

#[tokio::test]
async fn a_higher_limit_lets_those_who_wait_in() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 0, "max_concurrency": 1 }))
        .await;
    run.reserve(0, "a").await.ok();
    let call = Worker::of(&run, "rollout-1").waits_for_a_place(&ledger, 0, "b").await;

    run.patch("", json!({ "max_concurrency": 2 })).await.ok();

    assert_eq!(prompts(&soon(call).await.ok()["granted"]), "b");
    assert_eq!(run.tables().await, "b a");
}

#[tokio::test]
async fn nothing_is_left_of_a_deleted_run_but_its_sequence() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 1 });
    let run = ledger.run(config.clone()).await;
    finish(&run, 0, "a").await;
    let a = run.id_of("a").await;
    let seq = run.get("").await.seq();

    let deleted = run.delete().await;
    assert_eq!(deleted.seq(), seq + 1);
    deleted.status(204);

    for path in [
        "",
        "buffers",
        "workers",
        "batches",
        "events",
        "versions/latest",
        &format!("trajectories/{a}"),
    ] {
        run.get(path).await.problem(404, "unknown_run");
    }
    run.reserve(0, "b").await.problem(404, "unknown_run");
    run.take().await.problem(404, "unknown_run");
    // A delete may be sent twice, as everything.
    run.delete().await.status(204);

    // The name may be used again: as another run, that goes on with the sequence and is of the next lineage.
    let other = run.put("", json!({ "batch_size": 3, "max_staleness": 0 })).await;
    assert_eq!(other.seq(), seq + 2);
    let status = other.status(201);
    assert_eq!(json!([status["lineage"], status["policy_version"]]), json!([1, 0]));
    assert_eq!(run.tables().await, ". . .");
    // The old process still has the weights of the deleted run, until it says otherwise.
    run.reserve(0, "c").await.problem(409, "version_not_published");
    let named = json!({ "worker": "rollout-0", "session": "session-0", "version": 0, "lineage": 1, "prompts": ["c"] });
    assert_eq!(run.post("reservations", named).await.ok()["lineage"], 1);
    let first = run.get("events").await.ok()["events"][0].clone();
    assert_eq!(
        only(&first, &["seq", "type"]),
        json!({ "seq": seq + 2, "type": "run_created" })
    );
    run.get(&format!("trajectories/{a}"))
        .await
        .problem(404, "unknown_trajectory");
}

#[tokio::test]
async fn a_run_that_never_was_cannot_be_deleted() {
    let Some(ledger) = Ledger::start().await else { return };

    ledger
        .client()
        .delete("/v1/runs/nobody")
        .await
        .problem(404, "unknown_run");
}

/// Answers and problems alike, of reading and of writing.
#[tokio::test]
async fn every_answer_about_a_run_carries_its_sequence_number() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    assert_eq!(run.get("").await.seq(), 1);

    assert_eq!(
        run.reserve(0, "a").await.seq(),
        3,
        "a session was opened, and an entry admitted"
    );
    assert_eq!(run.reserve(9, "b").await.seq(), 3);
    assert_eq!(run.occupy("a").await.seq(), 4);
    assert_eq!(run.take().await.seq(), 5);
    assert_eq!(run.publish(1).await.seq(), 6);
    assert_eq!(run.publish(9).await.seq(), 6);
    for path in [
        "",
        "buffers",
        "buffers?slots=true",
        "workers",
        "trajectories",
        "trajectories?state=occupied",
        "trajectories/0197a000-0000-7000-8000-000000000000",
        "batches",
        "batches/0",
        "batches/7",
        "events",
        "versions/latest",
    ] {
        assert_eq!(run.get(path).await.seq(), 6, "{path}");
    }
    assert_eq!(
        run.put("", json!({ "batch_size": 2, "max_staleness": 1 })).await.seq(),
        6
    );
    assert_eq!(run.patch("", json!({})).await.seq(), 6);
}

/// Runs of different names share nothing.
#[tokio::test]
async fn what_happens_in_one_run_is_nothing_to_another() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 0 });
    let (one, two): (Run, Run) = (ledger.run(config.clone()).await, ledger.run(config).await);
    let a = Worker::of(&one, "rollout-1").gets(0, "a").await;

    two.reserve(0, "b").await.ok();
    two.get(&format!("trajectories/{a}"))
        .await
        .problem(404, "unknown_trajectory");
    two.delete().await.status(204);

    assert_eq!(one.tables().await, "a");
    assert_eq!(
        without(one.get("workers").await.ok(), &["next"])["workers"][0]["reserved"],
        1
    );
}
