//! Values at the edge: what is legal goes through unharmed, and what would be harmed on its way is refused.

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::start;

/// What is strange and yet no error.
#[tokio::test]
async fn what_is_legal_goes_through_unharmed() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let prompt = "\u{0}\t\"\\ \u{7f} 🐟 ä";
    let id = run.id_of("a").await;
    let depth = 2_000;
    let meta = format!("{}0{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let text = format!(r#"{{ "reward": -2.5e-3, "tokens": 9007199254740991, "meta": {meta} }}"#);
    let request = Request::post(format!(
        "{}{}",
        run.client().url(),
        run.path(&format!("trajectories/{id}/occupy"))
    ))
    .header(CONTENT_TYPE, "application/json; charset=utf-8")
    .body(Full::new(Bytes::from(text)));

    run.client()
        .send(request.expect("a request"))
        .await
        .expect("an answer")
        .ok();
    let shown = run.get(&format!("trajectories/{id}")).await.ok();
    let reserve = json!({ "worker": "a.b_c:d@e-f", "session": "☃ with blanks", "version": 0, "prompts": [prompt, ""] });
    let granted = run.post("reservations", reserve).await.ok()["granted"].take();

    // Deeper than the test's own reader of JSON goes: it left the answer as text.
    let shown = shown.as_str().expect("a text");
    assert!(shown.contains(&meta));
    assert!(shown.contains(r#""tokens":9007199254740991"#), "{shown:.300}");
    assert!(shown.contains(r#""reward":-0.0025"#), "{shown:.300}");
    assert_eq!(
        (&granted[0]["prompt"], &granted[1]["prompt"]),
        (&json!(prompt), &json!(""))
    );
}

/// The scripts count in floating point: what is beyond it would be another number there, or a negative one.
#[tokio::test]
async fn numbers_that_no_float_holds_are_refused() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    for number in [(1_u64 << 53) + 1, i64::MAX.unsigned_abs(), u64::MAX] {
        let version = json!({ "version": number });
        let reserve = json!({ "worker": "w", "version": number });
        for (path, body) in [
            ("reservations", &reserve),
            ("workers/w/heartbeat", &version),
            ("versions", &version),
            ("batches/next", &version),
        ] {
            let problem = run.post(path, body.clone()).await.problem(400, "invalid_request");
            assert_eq!(problem["field"], "version", "{path}: {problem}");
        }
        run.get(&format!("batches/{number}"))
            .await
            .problem(404, "unknown_batch");
        let latest = run.get(&format!("versions/latest?after={number}")).await.ok();
        assert_eq!(latest["policy_version"], 0);
        assert_eq!(
            run.get(&format!("events?after={number}")).await.ok()["events"],
            json!([])
        );
        assert_eq!(
            run.get(&format!("batches?after={number}")).await.ok()["batches"],
            json!([])
        );
        let place = format!("trajectories?state=occupied&after={number}:{}", u32::MAX);
        assert_eq!(run.get(&place).await.ok()["trajectories"], json!([]));
    }
    assert_eq!(run.tables().await, ". . . . | . . . a");
}

#[tokio::test]
async fn the_greatest_number_that_a_float_holds_is_a_version_that_is_not_published() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let number = 1_u64 << 53;
    let reserve = run
        .post("reservations", json!({ "worker": "w", "version": number }))
        .await;
    let problem = reserve.problem(409, "version_not_published");
    assert_eq!(
        problem["detail"],
        "version 9007199254740992 is not published; the latest is 0"
    );
    run.publish(number).await.problem(409, "publish_out_of_order");
    run.post("batches/next", json!({ "version": number }))
        .await
        .problem(409, "other_batch");
    let beat = run.post("workers/w/heartbeat", json!({ "version": number })).await.ok();
    assert_eq!(beat["policy_version"], 0);
    let workers = run.get("workers?after=v").await.ok()["workers"].take();
    assert_eq!(workers[0]["version"], Value::Null, "no such version was recorded");
}
