//! The event log is bounded, and who asks for what is gone is told.

use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::logs::{events, fill, refused};
use crate::support::{Client, Database, Run, TestServer, berth, eventually};

/// The shortest log there is.
pub(crate) const SHORTEST: [&str; 2] = ["--event-retention", "1000"];

/// A server that keeps logs short. Thousands of events come sooner when the database does not sync each.
pub(crate) async fn server(database: &Database, flags: &[&str]) -> TestServer {
    let set = redis::cmd("CONFIG")
        .arg("SET")
        .arg("appendfsync")
        .arg("everysec")
        .to_owned();
    let _: () = set
        .query_async(&mut database.connection().await)
        .await
        .expect("a setting");
    let url = database.url();
    let all: Vec<&str> = ["--redis", &url]
        .iter()
        .chain(&SHORTEST)
        .chain(flags)
        .copied()
        .collect();
    TestServer::start_with(&all).await
}

pub(crate) async fn new_run(client: &Client) -> Run {
    Run::create(client, json!({ "batch_size": 1, "max_staleness": 0 })).await
}

/// The first event that is kept.
pub(crate) async fn first_kept(run: &Run) -> u64 {
    let answer = run.get("events?limit=1").await;
    match answer.status {
        200 => answer.ok()["events"][0]["seq"].as_u64().expect("a number"),
        _ => answer.problem(410, "events_pruned")["first_seq"]
            .as_u64()
            .expect("a number"),
    }
}

pub(crate) async fn trimmed_to(run: &Run, first: u64) {
    eventually("the log is trimmed", async || first_kept(run).await == first).await;
}

#[tokio::test]
async fn the_log_is_bounded_and_asking_for_what_is_gone_is_refused() {
    let Some(database) = Database::start().await else {
        return;
    };
    let server = server(&database, &[]).await;
    let run = new_run(&server.client()).await;
    run.reserve(0, "a").await.ok();
    let id = run.id_of("a").await;
    fill(&run, 1_990).await;
    let all = events(&run, 0).await;
    assert_eq!(
        all.len(),
        1_993,
        "one chunk more than what is kept is still no reason to trim"
    );

    fill(&run, 30).await;
    trimmed_to(&run, 1_001).await;

    for query in [
        "",
        "?after=0",
        "?after=999",
        "?limit=1&after=7",
        &format!("?trajectory={id}"),
    ] {
        let problem = run.get(&format!("events{query}")).await.problem(410, "events_pruned");
        assert_eq!(problem["first_seq"], 1_001);
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("event 1001 is the first that is kept"), "{detail}");
        assert!(detail.contains("no server archives them"), "{detail}");
    }
    let kept = events(&run, 1_000).await;
    assert_eq!(kept[..993], all[1_000..]);
    assert_eq!(kept.len(), 1_023);
    assert_eq!(run.get("events?after=5000").await.ok()["events"], json!([]));
    assert_eq!(stream_status(&run, "0").await, 410);
    assert_eq!(stream_status(&run, "999").await, 410);
    assert_eq!(stream_status(&run, "1000").await, 200);

    // Everything that does not read the log goes on.
    assert_eq!(run.get("").await.ok()["seq"], 2_023);
    run.occupy("a").await.ok();
    run.take().await.ok();
    run.get(&format!("trajectories/{id}")).await.ok();

    let arguments = ["--run", run.name(), "--url", server.url()];
    let (status, said) = refused(&arguments).await;
    assert_eq!(status, Some(1));
    assert!(said.contains("begins with event 1001"), "{said}");
    let output = berth(&[&["events"], &arguments[..]].concat()).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("410 events_pruned"),
        "{output:?}"
    );
    let output = berth(&[&["events", "--after", "1000"], &arguments[..]].concat()).await;
    assert!(output.status.success(), "{output:?}");
}

async fn stream_status(run: &Run, last_event_id: &str) -> u16 {
    let request = Request::get(format!("{}{}", run.client().url(), run.path("events")))
        .header("accept", "text/event-stream")
        .header("last-event-id", last_event_id)
        .body(http_body_util::Full::new(Bytes::new()))
        .expect("a request");
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    client.request(request).await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn several_servers_trim_one_log_and_leave_what_each_of_them_keeps() {
    let Some(database) = Database::start().await else {
        return;
    };
    let servers = [
        server(&database, &[]).await,
        server(&database, &[]).await,
        TestServer::start(&database.url()).await,
    ];
    let run = new_run(&servers[0].client()).await;

    fill(&run, 3_200).await;
    trimmed_to(&run, 2_001).await;

    for server in &servers {
        let kept = events(&run.through(&server.client()), 2_000).await;
        let numbers: Vec<_> = kept.iter().map(|event| event["seq"].as_u64()).collect();
        assert_eq!(numbers, (2_001..=3_201).map(Some).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_run_that_is_created_again_has_a_log_of_its_own() {
    let Some(database) = Database::start().await else {
        return;
    };
    let server = server(&database, &[]).await;
    let run = new_run(&server.client()).await;
    fill(&run, 2_100).await;
    trimmed_to(&run, 1_001).await;
    run.delete().await.status(204);
    run.put("", json!({ "batch_size": 1, "max_staleness": 0 }))
        .await
        .status(201);

    let log = events(&run, 0).await;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0]["seq"], 2_103);
    assert_eq!(events(&run, 2_000).await, log);

    fill(&run, 2_100).await;
    trimmed_to(&run, 3_001).await;
    let problem: Value = run.get("events").await.problem(410, "events_pruned");
    assert_eq!(problem["first_seq"], 3_001);
}

#[tokio::test]
async fn a_log_is_never_made_shorter_than_a_thousand_events() {
    for retention in ["0", "999", "-1", "many"] {
        let output = berth(&["serve", "--event-retention", retention]).await;
        assert_eq!(output.status.code(), Some(2), "{retention}");
    }
}
