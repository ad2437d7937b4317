//! *Codes*: each with its status, and as `application/problem+json`.

use std::collections::BTreeSet;

use hyper::Request;
use hyper::http::request::Builder;
use serde_json::json;

use crate::cast::{Worker, each, finish, ids, ledger_with_places_to_wait, train, trajectory};
use crate::prompts::{feed, with_queue};
use crate::support::{Ledger, LocalRedis, Response, Run, TestServer, eventually};

/// The status, the code, and the answer that must have both.
type Answer = (u16, &'static str, Response);

/// Each code of the document, but for `internal`, which is never on purpose.
#[tokio::test]
async fn every_code_has_its_status_and_comes_as_a_problem() {
    let Some(ledger) = ledger_with_places_to_wait(0).await else {
        return;
    };

    let mut answers = to_bad_requests(&ledger).await;
    answers.extend(about_runs_and_batches(&ledger).await);
    answers.extend(to_workers(&ledger).await);
    answers.extend(about_members_and_segments(&ledger).await);
    answers.extend(about_prompts(&ledger).await);
    answers.extend(when_the_server_cannot(&ledger).await);

    let mut seen = BTreeSet::from(["internal".to_owned()]);
    for (status, code, answer) in answers {
        answer.problem(status, code);
        seen.insert(code.to_owned());
    }
    let document = ledger.client().get("/openapi.json").await.ok();
    let words = each(&document["components"]["schemas"]["Code"]["enum"]);
    assert_eq!(
        seen,
        words.map(|word| word.as_str().expect("a word").to_owned()).collect()
    );
}

async fn to_bad_requests(ledger: &Ledger) -> Vec<Answer> {
    let client = ledger.client();
    let send = async |request: Builder, body: &str| {
        let request = request.body(body.to_owned().into());
        let answer = client.send(request.expect("a request that can be written")).await;
        answer.unwrap_or_else(|error| panic!("{error}"))
    };
    let runs = || Request::get(format!("{}/v1/runs", client.url()));
    let put = || Request::put(format!("{}/v1/runs/a", client.url()));
    let put_json = || put().header("content-type", "application/json");
    let misspelt = json!({ "batch_size": 1, "max_stalness": 0 });
    vec![
        (400, "invalid_request", client.put("/v1/runs/a", misspelt).await),
        (400, "invalid_request", send(put_json(), "{ \"batch_size\": ").await),
        (403, "forbidden", send(runs().header("host", "evil.example"), "").await),
        (
            403,
            "forbidden",
            send(runs().header("origin", "http://evil.example"), "").await,
        ),
        (404, "unknown_path", client.get("/v1/run").await),
        (405, "method_not_allowed", client.put("/v1/runs", json!({})).await),
        (413, "too_large", send(put_json(), &" ".repeat(5 << 20)).await),
        (415, "unsupported_media_type", send(put(), "{}").await),
    ]
}

async fn about_runs_and_batches(ledger: &Ledger) -> Vec<Answer> {
    let config = json!({ "batch_size": 1, "max_staleness": 0, "keep_batches": 1 });
    let run = ledger.run(config).await;
    for version in 0..2 {
        finish(&run, version, "a").await;
        train(&run, version).await;
    }
    let otherwise = json!({ "batch_size": 2, "max_staleness": 0 });
    let another = json!({ "version": 0 });
    vec![
        (404, "unknown_run", ledger.client().get("/v1/runs/nobody").await),
        (404, "unknown_batch", run.get("batches/2").await),
        (409, "run_exists", run.put("", otherwise).await),
        (409, "publish_out_of_order", run.publish(3).await),
        (409, "other_batch", run.post("batches/next", another).await),
        (410, "batch_pruned", run.get("batches/0").await),
        (410, "events_pruned", of_a_trimmed_log(ledger, &run).await),
    ]
}

async fn of_a_trimmed_log(ledger: &Ledger, run: &Run) -> Response {
    let mut trim = redis::cmd("XTRIM");
    trim.arg(format!("berth:{{{}}}:events", run.name())).arg("MINID").arg(3);
    let mut connection = ledger.database.connection().await;
    let _: u64 = trim.query_async(&mut connection).await.expect("a write");
    run.get("events?after=1").await
}

async fn to_workers(ledger: &Ledger) -> Vec<Answer> {
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    train(&run, 0).await;
    let zombie = Worker::of(&run, "rollout-1");
    zombie.heartbeat(json!({})).await.ok();
    let worker = zombie.restarted();
    let failed = worker.gets(1, "b").await;
    worker.discard(&failed, "failed").await.ok();
    let finished = worker.gets(1, "c").await;
    worker.occupy(&finished, json!({})).await.ok();
    run.take().await.ok();
    vec![
        (404, "unknown_trajectory", worker.claim("nothing").await),
        (409, "version_too_stale", worker.reserve(json!({ "version": 0 })).await),
        (
            409,
            "version_not_published",
            worker.reserve(json!({ "version": 2 })).await,
        ),
        (409, "trajectory_discarded", worker.occupy(&failed, json!({})).await),
        (409, "trajectory_taken", worker.discard(&finished, "filtered").await),
        (409, "request_id_reused", reused(ledger).await),
        (409, "fenced", zombie.heartbeat(json!({})).await),
        (
            409,
            "ledger_behind",
            worker.reserve(json!({ "version": 1, "lineage": 1 })).await,
        ),
    ]
}

async fn about_prompts(ledger: &Ledger) -> Vec<Answer> {
    let without = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let config =
        with_queue(json!({ "batch_size": 1, "max_staleness": 0, "reservation_timeout_ms": 1, "max_attempts": 1 }));
    let run = ledger.run(config).await;
    feed(&run, "a").await.ok();
    let worker = Worker::of(&run, "rollout-1");
    let granted = worker.reserve(json!({ "version": 0 })).await.ok()["granted"].clone();
    let late = ids(&granted).remove(0);
    eventually("it has timed out", async || {
        trajectory(&run, &late).await["reason"] == "timed_out"
    })
    .await;
    let gap = json!({ "offset": 2, "prompts": [{ "id": "c" }] });
    let gap = run.post("prompts", gap).await;
    run.post("drain", json!({ "drain": true })).await.ok();
    vec![
        (409, "no_prompt_queue", without.get("prompts").await),
        (409, "feed_gap", gap),
        (409, "draining", feed(&run, "b").await),
        (409, "superseded", worker.occupy(&late, json!({})).await),
    ]
}

async fn reused(ledger: &Ledger) -> Response {
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 0 })).await;
    let worker = Worker::of(&run, "rollout-1");
    let body = json!({ "version": 0, "request_id": "r-1" });
    worker.reserve(body).await.ok();
    let other = json!({ "version": 0, "request_id": "r-1", "count": 2 });
    worker.reserve(other).await
}

async fn about_members_and_segments(ledger: &Ledger) -> Vec<Answer> {
    let groups = json!({ "batch_size": 1, "max_staleness": 0, "group_size": 2 });
    let groups = ledger.run(groups).await;
    let of_groups = Worker::of(&groups, "rollout-1");
    let a = of_groups.gets(0, "a").await;
    let single = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let of_singles = Worker::of(&single, "rollout-1");
    let b = of_singles.gets(0, "b").await;
    let again = json!({ "version": 0, "from_token": 10 });
    vec![
        (409, "group_incomplete", of_groups.occupy(&a, json!({})).await),
        (409, "segment_out_of_order", of_singles.segment(&b, again).await),
    ]
}

async fn when_the_server_cannot(ledger: &Ledger) -> Vec<Answer> {
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    vec![
        (
            429,
            "too_many_waiting",
            run.get("versions/latest?after=9&wait_ms=1").await,
        ),
        (503, "newer_layout", from_a_newer_berth(ledger, &run).await),
        (503, "database_unavailable", without_a_database().await),
    ]
}

async fn from_a_newer_berth(ledger: &Ledger, run: &Run) -> Response {
    let mut set = redis::cmd("HSET");
    set.arg(format!("berth:{{{}}}:run", run.name())).arg("layout").arg(99);
    let mut connection = ledger.database.connection().await;
    let _: u64 = set.query_async(&mut connection).await.expect("a write");
    run.get("").await
}

async fn without_a_database() -> Response {
    let mut redis = LocalRedis::start().await;
    let server = TestServer::start(&redis.url()).await;
    redis.kill().await;
    let answer = server.client().get("/readyz").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer
}

/// A client that sends a large body reads the answer only afterwards, if the connection still stands then.
#[tokio::test]
async fn a_client_that_sends_too_much_is_answered_and_may_go_on() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let client = ledger.client();

    for _ in 0..10 {
        let config = json!({ "batch_size": 1, "max_staleness": 0, "note": "x".repeat(8 << 20) });
        client.put("/v1/runs/a", config).await.problem(413, "too_large");
    }

    let config = json!({ "batch_size": 1, "max_staleness": 0 });
    client.put("/v1/runs/a", config).await.status(201);
}
