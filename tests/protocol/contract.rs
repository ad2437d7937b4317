//! The contract as a document, and its general rules: names, fields, bodies.

use hyper::{Method, Request};
use serde_json::{Value, json};

use crate::cast::{Worker, finish, train};
use crate::support::{Ledger, Response, Run};
use crate::wire;

/// `openapi.json` at the top of the repository. `BERTH_UPDATE_OPENAPI=1` writes it anew.
const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

#[test]
fn the_checked_in_document_is_the_one_that_the_handlers_make() {
    let generated = berth::http::openapi_document().to_pretty_json().expect("a document") + "\n";
    if std::env::var_os("BERTH_UPDATE_OPENAPI").is_some() {
        std::fs::write(CHECKED_IN, &generated).expect("the document can be written");
    }

    let checked_in = std::fs::read_to_string(CHECKED_IN).expect("openapi.json is checked in");

    assert!(
        checked_in == generated,
        "openapi.json is out of date: run this test with BERTH_UPDATE_OPENAPI=1, and look at the difference"
    );
}

#[tokio::test]
async fn a_server_shows_the_same_document() {
    let Some(ledger) = Ledger::start().await else { return };

    let shown = ledger.client().get("/openapi.json").await.ok();

    let generated = serde_json::to_value(berth::http::openapi_document()).expect("a document");
    assert_eq!(shown, generated);
}

#[tokio::test]
async fn a_browser_is_shown_the_document_with_nothing_from_elsewhere() {
    let Some(ledger) = Ledger::start().await else { return };
    let url = |path: &str| format!("{}{path}", ledger.client().url());

    let answer = wire::send(Request::get(url("/docs")), "").await;
    assert_eq!(answer.headers()["location"], "/docs/");
    let page = wire::get(&url("/docs/")).await;
    let sources: Vec<_> = page.split('"').filter_map(|word| word.strip_prefix("./")).collect();
    assert!(sources.contains(&"swagger-ui-bundle.js"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    for source in sources {
        let answer = wire::send(Request::get(url(&format!("/docs/{source}"))), "").await;
        assert_eq!(answer.status(), 200, "{source}");
    }
    let settings = wire::get(&url("/docs/swagger-initializer.js")).await;
    assert!(settings.contains(r#""url": "/openapi.json""#), "{settings}");
}

/// With what each of them needs, every call of the document succeeds.
#[tokio::test]
async fn every_call_of_the_document_is_served() {
    let Some(ledger) = Ledger::start().await else { return };
    let document = ledger.client().get("/openapi.json").await.ok();
    let mut calls: Vec<(String, String)> = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            calls.push((method.to_uppercase(), path.clone()));
        }
    }

    for (method, path) in calls {
        let (run, id) = if path.ends_with("/prompts") {
            let config = json!({ "batch_size": 1, "max_staleness": 0, "prompt_queue": true });
            (ledger.run(config).await, String::new())
        } else {
            let group_size = if path.contains("members") { 2 } else { 1 };
            run_in_which_all_is_possible(&ledger, group_size).await
        };
        let filled = path
            .replace("{index}", "0")
            .replace("{run}", run.name())
            .replace("{id}", &id)
            .replace("{worker}", "rollout-1")
            .replace("{version}", "0");
        let body = match (method.as_str(), path.rsplit('/').next().expect("a segment")) {
            ("PUT", _) => json!({ "batch_size": 2, "max_staleness": 2 }),
            ("POST", "segments") => json!({ "version": 1, "from_token": 0 }),
            ("POST", _) if path.contains("members") => json!({ "version": 1 }),
            ("POST", "reservations") => json!({ "worker": "rollout-1", "version": 1 }),
            ("POST", "occupy") if !path.contains("{id}") => json!({ "trajectories": [{ "id": id }] }),
            ("POST", "discard") => json!({ "reason": "failed" }),
            ("POST", "claim") => json!({ "worker": "rollout-2" }),
            ("POST", "prompts") => json!({ "prompts": [{ "id": "q" }] }),
            ("POST", "trainer") => json!({ "trainer": "t0", "resume_from": 1 }),
            ("POST", "drain") => json!({ "drain": true }),
            ("POST", "versions" | "checkpoints") => json!({ "version": 1 }),
            _ => json!({}),
        };
        let method: Method = method.parse().expect("a method");
        let body = (method != Method::GET && method != Method::DELETE).then_some(body);
        let answer = ledger.client().attempt(method.clone(), &filled, body).await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}"));
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:#?}");
    }
}

/// A run whose batch 0 is trained, with a reservation, whose id is the other value.
async fn run_in_which_all_is_possible(ledger: &Ledger, group_size: u32) -> (Run, String) {
    let config = json!({ "batch_size": 2, "max_staleness": 2, "group_size": group_size });
    let run = ledger.run(config).await;
    if group_size == 1 {
        finish(&run, 0, "a b").await;
    } else {
        let worker = Worker::of(&run, "rollout-1");
        for prompt in ["a", "b"] {
            let id = worker.gets(0, prompt).await;
            worker.finishes(&id, 0..group_size).await;
        }
    }
    train(&run, 0).await;
    let id = Worker::of(&run, "rollout-1").gets(1, "c").await;
    (run, id)
}

#[tokio::test]
async fn an_unknown_field_is_an_error_that_names_it_in_every_call() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let a = Worker::of(&run, "rollout-1").gets(0, "a").await;
    let trajectory = |call: &str| format!("trajectories/{a}/{call}");
    let field = |answer: Response| answer.problem(400, "invalid_request")["field"].clone();

    for (path, body) in [
        ("reservations", json!({ "worker": "w", "version": 0, "lineages": 0 })),
        (&trajectory("occupy"), json!({ "lineages": 0 })),
        (&trajectory("discard"), json!({ "reason": "failed", "lineages": 0 })),
        (&trajectory("members/0"), json!({ "lineages": 0 })),
        (
            &trajectory("segments"),
            json!({ "version": 0, "from_token": 0, "lineages": 0 }),
        ),
        (&trajectory("claim"), json!({ "worker": "w", "lineages": 0 })),
        ("workers/w/heartbeat", json!({ "lineages": 0 })),
        ("batches/next", json!({ "lineages": 0 })),
        ("prompts", json!({ "prompts": [{ "id": "q" }], "lineages": 0 })),
        ("versions", json!({ "version": 0, "lineages": 0 })),
        ("trainer", json!({ "trainer": "t0", "lineages": 0 })),
        ("checkpoints", json!({ "version": 0, "lineages": 0 })),
        ("drain", json!({ "drain": true, "lineages": 0 })),
    ] {
        assert_eq!(field(run.post(path, body).await), "lineages", "{path}");
    }
    assert_eq!(field(run.patch("", json!({ "lineages": 0 })).await), "lineages");
    let many = json!({ "trajectories": [{ "id": a, "lineages": 0 }] });
    assert_eq!(field(run.post("occupy", many).await), "trajectories[0].lineages");
    let segments = json!({ "segments": [{ "version": 0, "from_token": 0, "lineages": 0 }] });
    let members = json!({ "members": [{ "index": 0, "lineages": 0 }] });
    for (part, body) in [("segments[0]", segments), ("members[0]", members)] {
        let unknown = field(run.post(&trajectory("occupy"), body).await);
        assert_eq!(unknown, json!(format!("{part}.lineages")));
    }
    for path in [
        "buffers",
        "workers",
        "batches",
        "batches/0",
        "trajectories",
        "prompts",
        "events",
        "versions/latest",
        "explain",
        "distribution",
    ] {
        assert_eq!(
            field(run.get(&format!("{path}?lineages=0")).await),
            "lineages",
            "{path}"
        );
    }
    assert_eq!(run.tables().await, "a");
}

#[tokio::test]
async fn a_call_whose_fields_are_all_optional_needs_no_body() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let url = |path: &str| format!("{}{}", run.client().url(), run.path(path));

    for path in ["batches/next", "workers/rollout-1/heartbeat"] {
        let answer = wire::send(Request::post(url(path)), "").await;
        assert_eq!(answer.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_server_says_that_it_lives_and_that_it_can_work() {
    let Some(ledger) = Ledger::start().await else { return };

    for path in ["/healthz", "/readyz"] {
        assert_eq!(ledger.client().get(path).await.status(200), json!({ "status": "ok" }));
    }
}

/// A name with every character that it may have, and the longest that it may be.
#[tokio::test]
async fn names_are_what_the_contract_says() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 0 })).await;
    let text = |bytes: usize| "x".repeat(bytes);
    let reserve = async |changes: Value| {
        let mut body = json!({ "worker": "w", "version": 0 });
        body.as_object_mut()
            .expect("an object")
            .extend(changes.as_object().expect("an object").clone());
        run.post("reservations", body).await
    };

    for good in [
        json!({ "worker": "A-z.0_9:@" }),
        json!({ "worker": text(128) }),
        json!({ "worker": "v", "session": "grün" }),
        json!({ "prompts": [text(512)] }),
    ] {
        reserve(good).await.ok();
    }
    for (bad, field) in [
        (json!({ "worker": "" }), "worker"),
        (json!({ "worker": text(129) }), "worker"),
        (json!({ "worker": "a b" }), "worker"),
        (json!({ "session": "" }), "session"),
        (json!({ "session": "a\u{0}b" }), "session"),
        (json!({ "request_id": "" }), "request_id"),
        (json!({ "prompts": [text(513)] }), "prompts[0]"),
    ] {
        let refusal = reserve(bad).await.problem(400, "invalid_request");
        assert_eq!(refusal["field"], field);
    }
}
