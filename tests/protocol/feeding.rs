//! *The prompt queue* is fed in pages.

use serde_json::json;

use crate::cast::{Worker, each};
use crate::journal::is_sound;
use crate::prompts::{counts, feed, in_state, with_queue};
use crate::support::Ledger;

#[tokio::test]
async fn a_page_that_is_sent_again_counts_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 4, "max_staleness": 0 })))
        .await;
    let page = |offset: u64, words: &[&str]| {
        let prompts: Vec<_> = words.iter().map(|word| json!({ "id": word })).collect();
        json!({ "offset": offset, "prompts": prompts })
    };

    let first = run.post("prompts", page(0, &["a", "b"])).await;
    let seq = first.seq();
    assert_eq!(first.ok(), json!({ "fed": 2 }));
    let again = run.post("prompts", page(0, &["a", "b"])).await;
    assert_eq!(again.seq(), seq, "nothing has changed");
    assert_eq!(again.ok(), json!({ "fed": 2 }));
    // It overlaps with what was fed.
    assert_eq!(
        run.post("prompts", page(1, &["b", "c"])).await.ok(),
        json!({ "fed": 3 })
    );

    assert_eq!(in_state(&run, "queued").await, "a 1, b 1, c 1");
    is_sound(&run).await;
}

#[tokio::test]
async fn a_page_must_not_leave_any_out() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 4, "max_staleness": 0 })))
        .await;
    feed(&run, "a b").await.ok();

    let page = json!({ "offset": 3, "prompts": [{ "id": "d" }] });
    let refusal = run.post("prompts", page).await.problem(409, "feed_gap");

    assert_eq!(refusal["expected"], 2);
    assert_eq!(counts(&run).await, json!({ "queued": 2 }));
}

#[tokio::test]
async fn a_page_without_an_offset_is_appended_each_time() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 4, "max_staleness": 0 })))
        .await;
    assert_eq!(feed(&run, "a b").await.ok(), json!({ "fed": 2 }));
    assert_eq!(feed(&run, "a b").await.ok(), json!({ "fed": 4 }));
    assert_eq!(in_state(&run, "queued").await, "a 1, b 1, a 1, b 1");
}

/// 1,024 prompts whose data are as large as they may be, and sent again after a lost answer.
#[tokio::test]
async fn the_largest_page_is_fed_in_steps_and_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 64, "max_staleness": 0 })))
        .await;
    let data = json!("x".repeat((16 << 10) - 2));
    let prompts: Vec<_> = (0..1_024)
        .map(|number| json!({ "id": format!("{number:0>512}"), "data": data }))
        .collect();
    let page = json!({ "offset": 0, "prompts": prompts });

    for _ in 0..2 {
        assert_eq!(run.post("prompts", page.clone()).await.ok(), json!({ "fed": 1_024 }));
    }

    assert_eq!(counts(&run).await, json!({ "queued": 1_024 }));
    let events = run.get("events?limit=1000").await.ok();
    let sizes: Vec<_> = each(&events["events"])
        .filter(|event| event["type"] == "feed")
        .map(|event| each(&event["prompts"]).count())
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 1_024);
    assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
    let granted = Worker::of(&run, "rollout-1")
        .reserve(json!({ "version": 0, "count": 64 }))
        .await
        .ok()["granted"]
        .clone();
    assert!(each(&granted).all(|grant| grant["data"] == data));
}

#[tokio::test]
async fn a_page_is_what_the_contract_says() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger
        .run(with_queue(json!({ "batch_size": 1, "max_staleness": 0 })))
        .await;
    let too_many: Vec<_> = (0..1_025).map(|_| json!({ "id": "q" })).collect();
    let too_long = "x".repeat(16 << 10);
    for (page, field) in [
        (json!({ "prompts": [] }), "prompts"),
        (json!({ "prompts": too_many }), "prompts"),
        (json!({ "prompts": [{ "data": {} }] }), "prompts[0].id"),
        (json!({ "prompts": [{ "id": "x".repeat(513) }] }), "prompts[0].id"),
        (
            json!({ "prompts": [{ "id": "a" }, { "id": "q", "data": too_long }] }),
            "prompts[1].data",
        ),
        (
            json!({ "prompts": [{ "id": "q", "expected_tokens": -1 }] }),
            "prompts[0].expected_tokens",
        ),
        (json!({ "prompts": [{ "id": "q", "tokens": 1 }] }), "prompts[0].tokens"),
        (json!({ "offset": -1, "prompts": [{ "id": "q" }] }), "offset"),
    ] {
        let refusal = run.post("prompts", page).await.problem(400, "invalid_request");
        assert_eq!(refusal["field"], field);
    }
    assert_eq!(counts(&run).await, json!({}));
}
