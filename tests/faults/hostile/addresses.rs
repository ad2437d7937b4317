//! Queries, names, paths, ids and methods that are none, or that nobody knows.

use hyper::Method;
use serde_json::{Value, json};

use super::{UNKNOWN_ID, start};
use crate::support::Ledger;

#[tokio::test]
async fn queries_that_are_not_what_the_contract_says() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let of_run = |query: &str| run.path(query);
    let cases = [
        ("/v1/runs?limit=0".to_owned(), "limit"),
        ("/v1/runs?limit=1001".to_owned(), "limit"),
        ("/v1/runs?limit=ten".to_owned(), "limit"),
        ("/v1/runs?offset=1".to_owned(), "offset"),
        (of_run("events?after=-1"), "after"),
        (of_run("events?after=x"), "after"),
        (of_run("events?limit=0"), "limit"),
        (of_run("events?limit=1001"), "limit"),
        (of_run("events?limit=1&limit=2"), "limit"),
        (of_run("events?wait_ms=60001"), "wait_ms"),
        (of_run("events?wait_ms=1.5"), "wait_ms"),
        (of_run("events?trajectory=nope"), "trajectory"),
        (of_run("events?sicne=1"), "sicne"),
        (of_run("versions/latest?after=-1"), "after"),
        (of_run("versions/latest?wait_ms=60001"), "wait_ms"),
        (of_run("versions/latest?wait=1"), "wait"),
        (of_run("buffers?slots=maybe"), "slots"),
        (of_run("buffers?slot=true"), "slot"),
        (of_run("trajectories?state=lost"), "state"),
        (of_run("trajectories?state=discarded"), "state"),
        (of_run("trajectories?after=nope"), "after"),
        (of_run("trajectories?state=occupied&after=1"), "after"),
        (of_run("trajectories?limit=101"), "limit"),
        (of_run("trajectories?worker=a%20b"), "worker"),
        (of_run("batches?limit=0"), "limit"),
        (of_run("batches?after=x"), "after"),
        (of_run("batches/x"), "version"),
        (of_run("batches/-1"), "version"),
        (of_run("batches/0?max_entries=0"), "max_entries"),
        (of_run("batches/0?from_offset=-1"), "from_offset"),
        (of_run("batches/0?from=1"), "from"),
        (of_run("workers?limit=0"), "limit"),
        (of_run("workers?after=a%20b"), "after"),
    ];
    for (path, field) in cases {
        let problem = run.client().get(&path).await.problem(400, "invalid_request");
        assert_eq!(problem["field"], field, "{path}: {problem}");
    }
}

#[tokio::test]
async fn names_that_are_none() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let client = run.client();
    let config = json!({ "batch_size": 4, "max_staleness": 1 });
    for name in [
        ".hidden",
        "a%20b",
        "%C3%A4",
        "a%7Bb%7D",
        "a%2Fb",
        "%00",
        &"r".repeat(65),
    ] {
        let path = format!("/v1/runs/{name}");
        for answer in [
            client.put(&path, config.clone()).await,
            client.get(&path).await,
            client.delete(&path).await,
        ] {
            assert_eq!(answer.problem(400, "invalid_request")["field"], "run", "{name}");
        }
        let inside = client.get(&format!("{path}/buffers")).await;
        assert_eq!(inside.problem(400, "invalid_request")["field"], "run", "{name}");
    }
    client.get("/v1/runs/%FF").await.problem(400, "invalid_request");
    for name in ["a%20b", "a%00b", &"w".repeat(129)] {
        let answer = run.post(&format!("workers/{name}/heartbeat"), json!({})).await;
        assert_eq!(answer.problem(400, "invalid_request")["field"], "worker", "{name}");
    }
    client
        .put(&format!("/v1/runs/{}", "r".repeat(64)), config)
        .await
        .status(201);
}

#[tokio::test]
async fn paths_and_ids_that_nobody_knows() {
    let Some((ledger, run)) = start().await else {
        return;
    };
    let client = ledger.client();
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/runs/",
        "/v2/runs",
        "/v1/runs/a/b",
        "/v1/runs/a/explanation",
        "/metrics",
        "/%FF",
    ] {
        client.get(path).await.problem(404, "unknown_path");
    }
    for id in [UNKNOWN_ID, "nope", "0", "%00", "%F0%9F%90%9F"] {
        run.get(&format!("trajectories/{id}"))
            .await
            .problem(404, "unknown_trajectory");
        for (what, body) in [
            ("occupy", json!({})),
            ("discard", json!({ "reason": "failed" })),
            ("claim", json!({ "worker": "w" })),
            ("members/0", json!({ "failed": true })),
            ("segments", json!({ "version": 0, "from_token": 0 })),
        ] {
            let answer = run.post(&format!("trajectories/{id}/{what}"), body).await;
            answer.problem(404, "unknown_trajectory");
        }
    }
    run.get("batches/0").await.problem(404, "unknown_batch");
    run.get("batches/18446744073709551615")
        .await
        .problem(404, "unknown_batch");
    let many = json!({ "trajectories": [{ "id": "nope" }, { "id": UNKNOWN_ID }, { "id": run.id_of("a").await }] });
    let results = run.post("occupy", many).await.ok()["results"].take();
    assert_eq!(results[0], json!({ "id": "nope", "code": "unknown_trajectory" }));
    assert_eq!(results[1], json!({ "id": UNKNOWN_ID, "code": "unknown_trajectory" }));
    assert_eq!(results[2]["state"], "occupied", "one bad id spoils no other");
}

#[tokio::test]
async fn a_run_that_nobody_knows() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let client = ledger.client();
    let id = UNKNOWN_ID;
    let calls: [(Method, String, Option<Value>); 20] = [
        (Method::GET, String::new(), None),
        (Method::PATCH, String::new(), Some(json!({ "lease_ms": 5_000 }))),
        (Method::DELETE, String::new(), None),
        (
            Method::POST,
            "/reservations".into(),
            Some(json!({ "worker": "w", "version": 0, "wait_ms": 60_000 })),
        ),
        (Method::POST, format!("/trajectories/{id}/occupy"), None),
        (
            Method::POST,
            "/occupy".into(),
            Some(json!({ "trajectories": [{ "id": id }] })),
        ),
        (
            Method::POST,
            format!("/trajectories/{id}/discard"),
            Some(json!({ "reason": "failed" })),
        ),
        (
            Method::POST,
            format!("/trajectories/{id}/claim"),
            Some(json!({ "worker": "w" })),
        ),
        (Method::POST, format!("/trajectories/{id}/members/0"), None),
        (
            Method::POST,
            format!("/trajectories/{id}/segments"),
            Some(json!({ "version": 0, "from_token": 0 })),
        ),
        (
            Method::POST,
            "/workers/w/heartbeat".into(),
            Some(json!({ "wait_ms": 60_000 })),
        ),
        (Method::POST, "/batches/next".into(), Some(json!({ "wait_ms": 60_000 }))),
        (Method::POST, "/versions".into(), Some(json!({ "version": 1 }))),
        (Method::GET, "/versions/latest?after=0&wait_ms=60000".into(), None),
        (Method::GET, "/buffers?slots=true".into(), None),
        (Method::GET, format!("/trajectories/{id}"), None),
        (Method::GET, "/trajectories".into(), None),
        (Method::GET, "/batches/0".into(), None),
        (Method::GET, "/workers".into(), None),
        (Method::GET, "/events?wait_ms=60000".into(), None),
    ];
    for (method, path, body) in calls {
        let answer = client.attempt(method, &format!("/v1/runs/nobody{path}"), body).await;
        answer.expect("an answer").problem(404, "unknown_run");
    }
    assert_eq!(client.get("/v1/runs").await.ok()["runs"], json!([]));
}

#[tokio::test]
async fn methods_that_a_path_does_not_take() {
    let Some((_ledger, run)) = start().await else {
        return;
    };
    let cases = [
        (Method::POST, run.path(""), "GET"),
        (Method::PUT, "/v1/runs".to_owned(), "GET"),
        (Method::GET, run.path("reservations"), "POST"),
        (Method::DELETE, run.path("reservations"), "POST"),
        (Method::GET, run.path("occupy"), "POST"),
        (Method::PUT, run.path("trajectories/a/occupy"), "POST"),
        (Method::GET, run.path("batches/next/"), ""),
        (Method::PATCH, "/healthz".to_owned(), "GET"),
        (Method::POST, "/openapi.json".to_owned(), "GET"),
        (Method::OPTIONS, run.path(""), "GET"),
    ];
    for (method, path, allowed) in cases {
        let answer = run.client().attempt(method, &path, None).await.expect("an answer");
        if allowed.is_empty() {
            answer.problem(404, "unknown_path");
            continue;
        }
        let allow = answer.header("allow").unwrap_or_default().to_owned();
        answer.problem(405, "method_not_allowed");
        assert!(allow.contains(allowed), "{path} takes `{allow}`");
    }
}
