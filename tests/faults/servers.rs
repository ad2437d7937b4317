//! Servers that are told to stop, killed and stopped in their tracks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::auditing::audit;
use crate::clients::ids;
use crate::support::{Client, Database, Ledger, Response, Run, TestServer, eventually, wait_for};

const WAITING: usize = 100;

/// A server on which exactly [`WAITING`] calls may wait, another one, and a run that nobody gets anything out of.
struct Pair {
    doomed: TestServer,
    other: TestServer,
    run: Run,
    _database: Database,
}

impl Pair {
    async fn start() -> Option<Self> {
        let database = Database::start().await?;
        let most = WAITING.to_string();
        let doomed = TestServer::start_with(&["--redis", &database.url(), "--max-waiting", &most]).await;
        let other = TestServer::start(&database.url()).await;
        let run = Run::create(&doomed.client(), json!({ "batch_size": 1, "max_staleness": 0 })).await;
        run.reserve(0, "a").await.ok();
        Some(Self {
            doomed,
            other,
            run,
            _database: database,
        })
    }

    /// Calls of every kind that waits, all of which wait when it returns.
    async fn let_wait(&self) -> Vec<JoinHandle<Result<Response, String>>> {
        let waiting: Vec<_> = (0..WAITING)
            .map(|index| {
                let run = self.run.clone();
                tokio::spawn(async move {
                    loop {
                        let answer = call(&run, index).await;
                        // The look whether all wait, below, takes a place itself for a moment.
                        if !answer.as_ref().is_ok_and(|answer| answer.status == 429) {
                            return answer;
                        }
                    }
                })
            })
            .collect();
        eventually("as many calls wait as may", async || {
            let more = self.run.get("versions/latest?after=0&wait_ms=1").await;
            more.status == 429
        })
        .await;
        waiting
    }
}

/// One of five calls that wait.
async fn call(run: &Run, index: usize) -> Result<Response, String> {
    let post = |path: &str, body| (Method::POST, path.to_owned(), Some(body));
    let (method, path, body): (_, _, Option<Value>) = match index % 5 {
        0 => post(
            "reservations",
            json!({ "worker": format!("w{index}"), "version": 0, "request_id": "r", "wait_ms": 60_000 }),
        ),
        1 => post(
            &format!("workers/w{index}/heartbeat"),
            json!({ "version": 0, "wait_ms": 60_000 }),
        ),
        2 => post("batches/next", json!({ "wait_ms": 60_000 })),
        3 => (Method::GET, "versions/latest?after=0&wait_ms=60000".to_owned(), None),
        _ => (Method::GET, "events?after=1000000&wait_ms=60000".to_owned(), None),
    };
    run.client().attempt(method, &run.path(&path), body).await
}

#[tokio::test]
async fn calls_that_wait_on_a_server_that_is_told_to_stop_are_answered_and_it_ends_well() {
    let Some(mut pair) = Pair::start().await else {
        return;
    };
    let waiting = pair.let_wait().await;

    let status = pair.doomed.stop().await;

    assert!(status.success(), "{status}");
    for (index, answer) in join_all(waiting).await.into_iter().enumerate() {
        let answer = answer.expect("a task").expect("an answer").ok();
        match index % 5 {
            0 => assert_eq!(
                (&answer["granted"], &answer["blocked_by"]),
                (&json!([]), &json!("staleness"))
            ),
            1 => assert_eq!(
                (&answer["cancelled"], &answer["policy_version"]),
                (&json!([]), &json!(0))
            ),
            2 => assert_eq!((&answer["batch"], &answer["needed"]), (&json!(null), &json!(1))),
            3 => assert_eq!(answer["policy_version"], 0),
            _ => assert_eq!(answer["events"], json!([])),
        }
    }
    assert_eq!(pair.run.through(&pair.other.client()).tables().await, "a");
}

#[tokio::test]
async fn calls_that_wait_on_a_server_that_is_killed_get_a_reset_and_another_server_serves_them() {
    let Some(mut pair) = Pair::start().await else {
        return;
    };
    let waiting = pair.let_wait().await;

    pair.doomed.kill().await;

    for answer in join_all(waiting).await {
        answer.expect("a task").expect_err("nobody is left to answer");
    }
    let run = pair.run.through(&pair.other.client());
    let again: Vec<_> = (0..WAITING)
        .map(|index| {
            let run = run.clone();
            tokio::spawn(async move { call(&run, index).await })
        })
        .collect();
    run.occupy("a").await.ok();
    run.take().await.ok();
    run.publish(1).await.ok();
    run.delete().await.status(204);
    for answer in join_all(again).await {
        let answer = answer.expect("a task").expect("an answer");
        // Taken, and deleted before it could be read: 410.
        assert!([200, 404, 409, 410].contains(&answer.status), "{answer:#?}");
    }
}

/// What a client knows of the request that was on its way when the server was killed is only that it got no answer.
#[tokio::test]
async fn a_request_id_gets_the_same_grants_from_another_server_when_the_first_was_killed_and_nothing_leaks() {
    const CLIENTS: usize = 20;
    const ROUNDS: usize = 30;
    let Some(database) = Database::start().await else {
        return;
    };
    let mut doomed = TestServer::start(&database.url()).await;
    let other = TestServer::start(&database.url()).await;
    let run = Run::create(&doomed.client(), json!({ "batch_size": 2_000, "max_staleness": 0 })).await;
    let granted = Arc::new(AtomicUsize::new(0));

    let clients = (0..CLIENTS).map(|index| {
        let servers = [run.clone(), run.through(&other.client())];
        let granted = Arc::clone(&granted);
        tokio::spawn(async move {
            let mut known = Vec::new();
            let mut serving = 0;
            while known.len() < 2 * ROUNDS {
                let reserve = json!({ "worker": format!("w{index}"), "session": "only", "version": 0, "count": 2,
                                      "request_id": known.len().to_string() });
                let run = &servers[serving];
                let path = run.path("reservations");
                match run.client().attempt(Method::POST, &path, Some(reserve)).await {
                    Ok(answer) => {
                        known.extend(ids(&answer.ok()["granted"]));
                        granted.fetch_add(2, Ordering::SeqCst);
                    }
                    Err(_) => serving = 1,
                }
            }
            known
        })
    });
    let clients: Vec<_> = clients.collect();
    eventually("the clients are in the midst of it", async || {
        granted.load(Ordering::SeqCst) >= CLIENTS * ROUNDS / 2
    })
    .await;
    doomed.kill().await;

    let mut known: Vec<String> = join_all(clients)
        .await
        .into_iter()
        .flat_map(|known| known.expect("a client"))
        .collect();
    known.sort();
    let total = known.len();
    known.dedup();
    assert_eq!(known.len(), total, "no id was granted twice");
    let run = run.through(&other.client());
    assert_eq!(
        run.get("").await.ok()["reserved"],
        total,
        "nobody holds what no client knows of"
    );
    audit(&run).await;
}

#[tokio::test]
async fn leases_run_out_when_one_of_two_servers_is_dead() {
    let Some(database) = Database::start().await else {
        return;
    };
    let mut doomed = TestServer::start(&database.url()).await;
    let other = TestServer::start(&database.url()).await;
    let run = Run::create(
        &doomed.client(),
        json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 1_000 }),
    )
    .await;
    run.reserve(0, "a").await.ok();

    doomed.kill().await;

    let run = run.through(&other.client());
    eventually("the lease runs out", async || run.tables().await == ".").await;
    assert_eq!(audit(&run).await.discarded, [("lease_expired".to_owned(), 1)].into());
}

/// What passed while no server reached the database does not count.
#[tokio::test]
async fn no_lease_runs_out_while_the_only_server_is_stopped_in_its_tracks() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 1, "max_staleness": 0, "lease_ms": 5_000 }))
        .await;
    run.reserve(0, "a").await.ok();
    let mut connection = ledger.database.connection().await;
    let mut now = async || -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME")
            .query_async(&mut connection)
            .await
            .expect("the database's clock");
        seconds * 1_000 + micros / 1_000
    };

    ledger.server.pause();
    let paused_at = now().await;
    eventually("more than a lease passes", async || now().await > paused_at + 6_000).await;
    ledger.server.resume();

    assert_eq!(run.tables().await, "a");
    run.occupy("a").await.ok();
    assert_eq!(run.tables().await, "A");
    assert!(audit(&run).await.discarded.is_empty());
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_ends_its_event_streams() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(open_stream(&run).await);
    }

    let status = ledger.server.stop().await;

    assert!(status.success(), "{status}");
    for mut stream in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.expect("the rest of the stream");
        // The last chunk of a body: the stream came to its end and was not cut off.
        assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
    }
}

/// A stream of events that has shown the first one.
async fn open_stream(run: &Run) -> BufReader<TcpStream> {
    let authority = run.client().url().strip_prefix("http://").expect("an authority");
    let mut stream = TcpStream::connect(authority).await.expect("a connection");
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {authority}\r\naccept: text/event-stream\r\n\r\n",
        run.path("events")
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("run_created") {
        line.clear();
        let length = stream.read_line(&mut line).await.expect("a line of the stream");
        assert!(length > 0, "the stream ended before its first event");
    }
    stream
}

#[tokio::test]
async fn a_server_under_constant_load_stops_when_it_is_told_to_and_fails_no_call() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..20)
        .map(|index| {
            let (run, done) = (run.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let path = run.path("reservations");
                loop {
                    // One finds a place; the others do not wait for one, or not for long.
                    let reserve = json!({ "worker": format!("w{index}"), "version": 0, "wait_ms": index });
                    match run.client().attempt(Method::POST, &path, Some(reserve)).await {
                        Ok(answer) => answer.ok(),
                        Err(_) => return,
                    };
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    eventually("the server is under load", async || done.load(Ordering::SeqCst) > 200).await;

    let status = ledger.server.stop().await;

    assert!(status.success(), "{status}");
    for client in clients {
        client.await.expect("a client that was only ever answered well");
    }
}

#[tokio::test]
async fn a_call_whose_client_never_ends_its_request_does_not_keep_a_server_from_stopping() {
    let Some(mut ledger) = Ledger::start().await else {
        return;
    };
    let authority = ledger
        .server
        .url()
        .strip_prefix("http://")
        .expect("an authority")
        .to_owned();
    let mut half = TcpStream::connect(&authority).await.expect("a connection");
    let head = format!("PUT /v1/runs/a HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n");
    half.write_all(format!("{head}content-length: 1000\r\n\r\n{{").as_bytes())
        .await
        .expect("half a request");
    let silent = TcpStream::connect(&authority).await.expect("a connection");
    let client: Client = ledger.client();
    wait_for("the server lives", async || {
        (client.get("/healthz").await.status == 200).then_some(())
    })
    .await;

    let status = ledger.server.stop().await;

    assert!(status.success(), "{status}");
    drop((half, silent));
}
