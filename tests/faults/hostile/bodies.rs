//! Bodies that are not what the contract says.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use serde_json::json;

use super::{UNKNOWN_ID, start};

/// The field that is named where none is to be.
const NONE: &str = "";

/// Sends each body, and holds the answer against the field that is to be named; then the run is as it was.
async fn refused(method: Method, path: &str, cases: &[(&str, &str)]) {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let seq = run.get("").await.seq();
    let path = path.replace("{id}", &run.id_of("a").await);
    for (body, field) in cases {
        let request = Request::builder()
            .method(&method)
            .uri(format!("{}{}", run.client().url(), run.path(&path)))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        let answer = run.client().send(request.expect("a request")).await.expect("an answer");
        let problem = answer.problem(400, "invalid_request");
        assert_eq!(
            problem["field"].as_str().unwrap_or_default(),
            *field,
            "{method} {path} {body:.200}: {problem}"
        );
    }
    assert_eq!(run.get("").await.seq(), seq, "what is refused changes nothing");
}

#[tokio::test]
async fn configurations_that_are_not_what_the_contract_says() {
    let with = |fields: &str| format!(r#"{{ "batch_size": 4, "max_staleness": 1, {fields} }}"#);
    let cases = [
        ("{}", "batch_size"),
        (r#"{ "batch_size": 4 }"#, "max_staleness"),
        (&with(r#""max_stalness": 1"#), "max_stalness"),
        (&with(r#""group_size": 0"#), "group_size"),
        (&with(r#""group_size": 4, "group_candidates": 3"#), "group_candidates"),
        (&with(r#""group_size": 4, "max_concurrency": 3"#), "max_concurrency"),
        (&with(r#""drop_zero_variance": true"#), "drop_zero_variance"),
        (&with(r#""prompt_queue": 1"#), "prompt_queue"),
        (&with(r#""order": "shuffled""#), "order"),
        (&with(r#""drop_on": ["filtered"]"#), "drop_on"),
        (&with(r#""batch_size": 4"#), "batch_size"),
        (&with(r#""slots_per_buffer": 3"#), "slots_per_buffer"),
        (&with(r#""slots_per_buffer": 73"#), "slots_per_buffer"),
        (&with(r#""slots_per_buffer": 4294967296"#), "slots_per_buffer"),
        (&with(r#""max_concurrency": 0"#), "max_concurrency"),
        (&with(r#""lease_ms": 999"#), "lease_ms"),
        (&with(r#""lease_ms": 3600001"#), "lease_ms"),
        (&with(r#""lease_ms": null"#), "lease_ms"),
        (&with(r#""keep_batches": 0"#), "keep_batches"),
        (&with(r#""initial_version": -1"#), "initial_version"),
        (&with(r#""initial_version": 18446744073709551615"#), "initial_version"),
        (r#"{ "batch_size": 0, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": 65537, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": -1, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": "4", "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": 4.0, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": 4.5, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": 4e0, "max_staleness": 1 }"#, "batch_size"),
        (
            r#"{ "batch_size": 99999999999999999999, "max_staleness": 1 }"#,
            "batch_size",
        ),
        (r#"{ "batch_size": true, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": null, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": [4], "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": 4, "max_staleness": 65 }"#, "max_staleness"),
        (r#"{ "batch_size": 4, "max_staleness": -1 }"#, "max_staleness"),
    ];
    refused(Method::PUT, "", &cases).await;
}

#[tokio::test]
async fn bodies_that_are_no_json_or_no_object() {
    let deep = "[".repeat(100_000);
    let deep_field = format!(r#"{{ "batch_size": {deep}"#);
    let deep_unknown = format!(r#"{{ "unknown": {}"#, "{\"a\":".repeat(50_000));
    let cases = [
        ("", "batch_size"),
        ("nonsense", NONE),
        (r#"{ "batch_size": 4, "max_staleness": 1 "#, NONE),
        (r#"{ "batch_size": 4, "max_staleness": 1 } { }"#, NONE),
        (r"{ 'batch_size': 4 }", NONE),
        (r#"{ "batch_size": 1e400, "max_staleness": 1 }"#, "batch_size"),
        (r#"{ "batch_size": NaN, "max_staleness": 1 }"#, "batch_size"),
        ("null", NONE),
        ("4", NONE),
        ("\"batch_size\"", NONE),
        ("[]", NONE),
        ("[4, 1, 4, null, 30000, 256, 0]", NONE),
        (&deep, NONE),
        (&deep_field, "batch_size"),
        (&deep_unknown, "unknown"),
        ("\u{feff}{}", NONE),
    ];
    refused(Method::PUT, "", &cases).await;
}

#[tokio::test]
async fn changes_of_a_configuration_that_may_not_be() {
    let cases = [
        (r#"{ "batch_size": 4 }"#, "batch_size"),
        (r#"{ "max_staleness": 1 }"#, "max_staleness"),
        (r#"{ "lease_ms": 999 }"#, "lease_ms"),
        (r#"{ "max_concurrency": 0 }"#, "max_concurrency"),
        (r#"{ "max_concurrency": "8" }"#, "max_concurrency"),
        (r#"{ "keep_batches": 0 }"#, "keep_batches"),
        ("[]", NONE),
    ];
    refused(Method::PATCH, "", &cases).await;
}

#[tokio::test]
async fn reservations_that_are_not_what_the_contract_says() {
    let with = |fields: &str| format!(r#"{{ "worker": "w", "version": 0, {fields} }}"#);
    let long_name = format!(r#"{{ "worker": "{}", "version": 0 }}"#, "w".repeat(129));
    let long_prompt = with(&format!(r#""prompts": ["a", "{}"]"#, "p".repeat(513)));
    let cases = [
        ("{}", "worker"),
        (r#"{ "worker": "" }"#, "worker"),
        (r#"{ "worker": "a b" }"#, "worker"),
        (r#"{ "worker": "a/b" }"#, "worker"),
        (r#"{ "worker": "ä" }"#, "worker"),
        (r#"{ "worker": "\ud800" }"#, "worker"),
        (r#"{ "worker": 7 }"#, "worker"),
        (&long_name, "worker"),
        // This session never said which weights it holds.
        (
            r#"{ "worker": "rollout-0" , "session": "session-0" , "version": null, "count": 0 }"#,
            "count",
        ),
        (&with(r#""session": """#), "session"),
        (&with(r#""session": "\u0000""#), "session"),
        (&with(r#""session": "a\nb""#), "session"),
        (&with(r#""count": 0"#), "count"),
        (&with(r#""count": 1025"#), "count"),
        (&with(r#""count": -1"#), "count"),
        (&with(r#""count": 1.0"#), "count"),
        (&with(r#""count": "1""#), "count"),
        (&with(r#""prompts": "a""#), "prompts"),
        (&with(r#""prompts": [1]"#), "prompts[0]"),
        (&with(r#""prompts": ["a", "b"], "count": 1"#), "prompts"),
        (&long_prompt, "prompts[1]"),
        (&with(r#""wait_ms": -1"#), "wait_ms"),
        (&with(r#""wait_ms": 60001"#), "wait_ms"),
        (&with(r#""wait_ms": 0.5"#), "wait_ms"),
        (&with(r#""request_id": """#), "request_id"),
        (&with(r#""request_id": 7"#), "request_id"),
        (&with(r#""adopt": 1"#), "adopt"),
        (&with(r#""lineages": 0"#), "lineages"),
        (&with(r#""version": 0"#), "version"),
        (r#"{ "worker": "w", "version": -1 }"#, "version"),
        (r#"{ "worker": "w", "version": 0.0 }"#, "version"),
        (r#"{ "worker": "w", "version": "0" }"#, "version"),
        (r#"{ "worker": "w", "version": 18446744073709551616 }"#, "version"),
        (r#"["w", null, 1, 0]"#, NONE),
    ];
    refused(Method::POST, "reservations", &cases).await;
}

#[tokio::test]
async fn members_and_segments_that_are_not_what_the_contract_says() {
    let long_note = format!(r#"{{ "failed": true, "note": "{}" }}"#, "n".repeat(2_049));
    let cases = [
        (r#"{ "session": "s" }"#, "worker"),
        (r#"{ "failed": "yes" }"#, "failed"),
        (r#"{ "failed": true, "reward": 0 }"#, "reward"),
        (r#"{ "index": 0 }"#, "index"),
        (r#"{ "version": -1 }"#, "version"),
        (r#"{ "meta": 7 }"#, "meta"),
        (&long_note, "note"),
        (
            r#"{ "segments": [{ "version": 0, "from_token": 9007199254740993 }] }"#,
            "from_token",
        ),
        // Here are no groups.
        (r#"{ "version": 0 }"#, "member"),
    ];
    refused(Method::POST, "trajectories/{id}/members/0", &cases).await;
    refused(Method::POST, "trajectories/{id}/members/4294967296", &[("{}", "index")]).await;

    let cases = [
        ("{}", "version"),
        (r#"{ "version": 0 }"#, "from_token"),
        (r#"{ "version": 0, "from_token": -1 }"#, "from_token"),
        (r#"{ "version": 0, "from_token": 0, "member": "0" }"#, "member"),
        (r#"{ "version": 0, "from_token": 0, "member": 0 }"#, "member"),
        (r#"{ "version": 0, "from_token": 0, "lineages": 0 }"#, "lineages"),
    ];
    refused(Method::POST, "trajectories/{id}/segments", &cases).await;
}

#[tokio::test]
async fn finished_trajectories_that_are_not_what_the_contract_says() {
    let long_payload = format!(r#"{{ "payload": "{}" }}"#, "p".repeat(2_049));
    let long_meta = format!(r#"{{ "meta": {{ "a": "{}" }} }}"#, "m".repeat(16 << 10));
    let cases = [
        (r#"{ "session": "s" }"#, "worker"),
        (r#"{ "reward": "1" }"#, "reward"),
        (r#"{ "reward": 1e400 }"#, "reward"),
        (r#"{ "tokens": -1 }"#, "tokens"),
        (r#"{ "tokens": 1.5 }"#, "tokens"),
        (r#"{ "tokens": 9007199254740993 }"#, "tokens"),
        (r#"{ "tokens": 18446744073709551615 }"#, "tokens"),
        (r#"{ "payload": 7 }"#, "payload"),
        (&long_payload, "payload"),
        (r#"{ "meta": [] }"#, "meta"),
        (r#"{ "meta": "{}" }"#, "meta"),
        (&long_meta, "meta"),
        (r#"{ "meta": { "a": } }"#, "meta"),
        (r#"{ "segments": {} }"#, "segments"),
        (r#"{ "segments": [[0, 0]] }"#, "segments[0]"),
        (r#"{ "segments": [{ "version": 0 }] }"#, "segments[0].from_token"),
        (r#"{ "members": [0] }"#, "members[0]"),
        (r#"{ "members": [{ "reward": 1 }] }"#, "members[0].index"),
        (r#"{ "members": [{ "index": -1 }] }"#, "members[0].index"),
        // Here are no groups.
        (r#"{ "members": [{ "index": 0 }] }"#, "member"),
        (r#"{ "lineages": 0 }"#, "lineages"),
    ];
    refused(Method::POST, "trajectories/{id}/occupy", &cases).await;

    let too_many = json!({ "trajectories": vec![json!({ "id": UNKNOWN_ID }); 1_025] }).to_string();
    let cases = [
        ("{}", "trajectories"),
        (r#"{ "trajectories": {} }"#, "trajectories"),
        (r#"{ "trajectories": [] }"#, "trajectories"),
        (&too_many, "trajectories"),
        (r#"{ "trajectories": [{ "id": "a" }, {}] }"#, "trajectories[1].id"),
        (r#"{ "trajectories": [{ "id": 7 }] }"#, "trajectories[0].id"),
        (
            r#"{ "trajectories": [{ "id": "a", "rewrad": 1 }] }"#,
            "trajectories[0].rewrad",
        ),
        (
            r#"{ "trajectories": [{ "id": "a", "tokens": -1 }] }"#,
            "trajectories[0].tokens",
        ),
        (r#"{ "trajectories": ["a"] }"#, "trajectories[0]"),
        (r#"{ "trajectories": [["a", 1.0, 1, null, null]] }"#, "trajectories[0]"),
    ];
    refused(Method::POST, "occupy", &cases).await;
}

#[tokio::test]
async fn discards_and_claims_that_are_not_what_the_contract_says() {
    let long_note = format!(r#"{{ "reason": "failed", "note": "{}" }}"#, "n".repeat(2_049));
    let long_reason = format!(r#"{{ "reason": "{}" }}"#, "r".repeat(65));
    let cases = [
        ("{}", "reason"),
        (r#"{ "reason": "" }"#, "reason"),
        (r#"{ "reason": "Filtered" }"#, "reason"),
        (r#"{ "reason": "no gradient" }"#, "reason"),
        (r#"{ "reason": "lease_expired" }"#, "reason"),
        (r#"{ "reason": "surplus" }"#, "reason"),
        (r#"{ "reason": "zero_variance" }"#, "reason"),
        (&long_reason, "reason"),
        (&long_note, "note"),
        (r#"{ "reason": "failed", "requeue": 1 }"#, "requeue"),
        (r#"{ "reason": "failed", "requeued": true }"#, "requeued"),
        (r#"{ "reason": "failed", "session": "s" }"#, "worker"),
    ];
    refused(Method::POST, "trajectories/{id}/discard", &cases).await;
    let cases = [("{}", "worker"), (r#"{ "worker": "w", "session": 1 }"#, "session")];
    refused(Method::POST, "trajectories/{id}/claim", &cases).await;
}

#[tokio::test]
async fn heartbeats_that_are_not_what_the_contract_says() {
    let too_many = json!({ "acknowledged": vec!["a"; 1_025] }).to_string();
    let far_too_many = json!({ "holding": vec!["a"; 16_385] }).to_string();
    let cases = [
        (r#"{ "worker": "w" }"#, "worker"),
        (r#"{ "holding": "all" }"#, "holding"),
        (r#"{ "holding": [1] }"#, "holding[0]"),
        (&far_too_many, "holding"),
        (&too_many, "acknowledged"),
        (r#"{ "acknowledged": null }"#, "acknowledged"),
        (r#"{ "version": -1 }"#, "version"),
        (r#"{ "wait_ms": 60001 }"#, "wait_ms"),
        (r#"{ "lineages": 0 }"#, "lineages"),
    ];
    refused(Method::POST, "workers/w/heartbeat", &cases).await;
}

#[tokio::test]
async fn calls_of_a_trainer_that_are_not_what_the_contract_says() {
    let long_reference = format!(r#"{{ "version": 1, "weights": "{}" }}"#, "w".repeat(2_049));
    let cases = [
        (r#"{ "version": -1 }"#, "version"),
        (r#"{ "wait_ms": 60001 }"#, "wait_ms"),
        (r#"{ "stream": 1 }"#, "stream"),
        (r#"{ "stream": true }"#, "from_offset"),
        (r#"{ "stream": true, "from_offset": -1 }"#, "from_offset"),
        (
            r#"{ "stream": true, "from_offset": 18446744073709551615 }"#,
            "from_offset",
        ),
        (
            r#"{ "stream": true, "from_offset": 0, "min_entries": 65537 }"#,
            "min_entries",
        ),
        (r#"{ "epochs": 1 }"#, "epochs"),
    ];
    refused(Method::POST, "batches/next", &cases).await;
    let cases = [
        (r#"{ "queue": "finish" }"#, "drain"),
        (r#"{ "drain": 1 }"#, "drain"),
        (r#"{ "drain": true, "queue": "lose" }"#, "queue"),
    ];
    refused(Method::POST, "drain", &cases).await;
    let cases = [
        ("{}", "version"),
        (r#"{ "version": "1" }"#, "version"),
        (r#"{ "version": 1, "weights": 7 }"#, "weights"),
        (&long_reference, "weights"),
        (r#"{ "version": 1, "epochs": 1 }"#, "epochs"),
    ];
    refused(Method::POST, "versions", &cases).await;
}
