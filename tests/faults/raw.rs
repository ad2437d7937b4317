//! Requests that no library sends: cut short, too large, under a foreign name, from a foreign page, or no HTTP at all.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::support::Ledger;

const LIMIT: Duration = Duration::from_secs(60);
const JSON: &str = "content-type: application/json\r\n";

/// Asks the server to close the connection, so that it is known where the answer ends.
const CLOSE: &str = "connection: close\r\n";

/// What a client does once it has sent all it will.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Waits for an answer.
    Listen,
    /// Says that no more comes, and then waits.
    EndTheStream,
}

/// Sends bytes and reads all that is answered.
async fn exchange(ledger: &Ledger, bytes: &[u8], then: Then) -> String {
    let authority = ledger.server.url().strip_prefix("http://").expect("an authority");
    let mut stream = TcpStream::connect(authority).await.expect("a connection");
    stream.write_all(bytes).await.expect("a request");
    if then == Then::EndTheStream {
        stream.shutdown().await.expect("the end of the request");
    }
    let mut answer = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut answer))
        .await
        .expect("the server closes the connection")
        .expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the code of an answer that must be a problem document.
fn problem(answer: &str) -> (u16, String) {
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let body: Value = serde_json::from_str(body).expect("a problem document");
    assert_eq!(body["status"], status, "{answer}");
    (status, body["code"].as_str().expect("a code").to_owned())
}

async fn lives(ledger: &Ledger) {
    assert_eq!(ledger.client().get("/healthz").await.status, 200);
}

async fn refused(ledger: &Ledger, request: &[u8], then: Then, status: u16, code: &str) {
    let answer = exchange(ledger, request, then).await;
    let shown = String::from_utf8_lossy(&request[..request.len().min(300)]).into_owned();
    assert_eq!(problem(&answer), (status, code.to_owned()), "{shown}");
    lives(ledger).await;
}

#[tokio::test]
async fn a_body_that_is_cut_short_is_refused_and_nothing_is_done() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let body = r#"{ "batch_size": 4, "max_staleness": 1 }"#;
    let head = format!("PUT /v1/runs/a HTTP/1.1\r\nhost: localhost\r\n{JSON}");

    for sent in [&body[..0], &body[..10], body] {
        let length = body.len() + 1;
        let request = format!("{head}content-length: {length}\r\n\r\n{sent}");
        refused(&ledger, request.as_bytes(), Then::EndTheStream, 400, "invalid_request").await;
        let chunk = format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{sent}");
        refused(&ledger, chunk.as_bytes(), Then::EndTheStream, 400, "invalid_request").await;
    }

    ledger.client().get("/v1/runs/a").await.problem(404, "unknown_run");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = "/v1/runs/a";
    let head = |path: &str| format!("POST {run}/{path} HTTP/1.1\r\nhost: localhost\r\n{JSON}{CLOSE}");

    // Of these not one byte of the body is sent: its length is enough.
    let announced = format!("{}content-length: {}\r\n\r\n", head("reservations"), (4 << 20) + 1);
    refused(&ledger, announced.as_bytes(), Then::Listen, 413, "too_large").await;
    let announced = format!("{}content-length: {}\r\n\r\n", head("occupy"), (32 << 20) + 1);
    refused(&ledger, announced.as_bytes(), Then::Listen, 413, "too_large").await;

    let length = (4 << 20) + 1;
    let mut chunked = format!(
        "{}transfer-encoding: chunked\r\n\r\n{length:x}\r\n",
        head("reservations")
    )
    .into_bytes();
    chunked.resize(chunked.len() + length, b' ');
    chunked.extend(b"\r\n0\r\n\r\n");
    refused(&ledger, &chunked, Then::Listen, 413, "too_large").await;
}

#[tokio::test]
async fn a_body_of_another_kind_is_refused() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let body = r#"{ "batch_size": 4, "max_staleness": 1 }"#;
    let put = |headers: &str| {
        let length = body.len();
        format!("PUT /v1/runs/a HTTP/1.1\r\nhost: localhost\r\n{CLOSE}{headers}content-length: {length}\r\n\r\n{body}")
    };
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json-seq",
        "\u{e4}",
        "",
    ] {
        let request = put(&format!("content-type: {kind}\r\n"));
        refused(&ledger, request.as_bytes(), Then::Listen, 415, "unsupported_media_type").await;
    }
    refused(&ledger, put("").as_bytes(), Then::Listen, 415, "unsupported_media_type").await;

    let good = put("content-type: Application/JSON ; charset=utf-8\r\n");
    let good = exchange(&ledger, good.as_bytes(), Then::Listen).await;
    assert!(good.starts_with("HTTP/1.1 201 "), "{good}");
}

#[tokio::test]
async fn text_that_is_not_unicode_is_refused() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let body = b"{ \"worker\": \"\xff\xfe\", \"version\": 0 }";
    let head = format!(
        "POST /v1/runs/a/reservations HTTP/1.1\r\nhost: localhost\r\n{JSON}{CLOSE}content-length: {}\r\n\r\n",
        body.len()
    );
    refused(
        &ledger,
        &[head.as_bytes(), body].concat(),
        Then::Listen,
        400,
        "invalid_request",
    )
    .await;
}

#[tokio::test]
async fn a_call_under_a_foreign_name_or_none_or_from_a_foreign_page_is_refused() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let refusals = [
        "GET /healthz HTTP/1.1\r\n",
        "GET /healthz HTTP/1.0\r\n",
        "GET /healthz HTTP/1.1\r\nhost: \r\n",
        "GET /healthz HTTP/1.1\r\nhost: evil.example\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost.evil.example\r\n",
        "GET /healthz HTTP/1.1\r\nhost: 10.0.0.1\r\n",
        "GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\n",
        "GET /v1/runs HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n",
        "GET /v1/runs HTTP/1.1\r\nhost: localhost\r\norigin: null\r\n",
        "GET /v1/runs HTTP/1.1\r\nhost: localhost:8080\r\norigin: http://localhost:3000\r\n",
        "OPTIONS /v1/runs/a HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n",
        "DELETE /v1/runs/a HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n",
        "GET /nowhere HTTP/1.1\r\nhost: evil.example\r\n",
    ];
    for head in refusals {
        refused(
            &ledger,
            format!("{head}{CLOSE}\r\n").as_bytes(),
            Then::Listen,
            403,
            "forbidden",
        )
        .await;
    }
    let welcome = [
        "GET /healthz HTTP/1.1\r\nhost: LOCALHOST:1\r\n",
        "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        "GET /healthz HTTP/1.1\r\nhost: [::1]:8080\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost:8080\r\norigin: http://localhost:8080\r\n",
    ];
    for head in welcome {
        let answer = exchange(&ledger, format!("{head}{CLOSE}\r\n").as_bytes(), Then::Listen).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{head}: {answer}");
    }
}

#[tokio::test]
async fn what_is_no_http_at_all_harms_nobody() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let endless_head = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n",
        "x".repeat(1 << 20)
    );
    let many_headers = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
        "x: y\r\n".repeat(10_000)
    );
    let nonsense: [&[u8]; 9] = [
        b"",
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/runs/a/occupy HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/runs/a/occupy HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for bytes in nonsense {
        let answer = exchange(&ledger, bytes, Then::EndTheStream).await;
        assert!(
            !answer.starts_with("HTTP/1.1 2") && !answer.starts_with("HTTP/1.1 5"),
            "{answer}"
        );
        lives(&ledger).await;
    }
    let authority = ledger.server.url().strip_prefix("http://").expect("an authority");
    for head in [endless_head, many_headers] {
        let mut stream = TcpStream::connect(authority).await.expect("a connection");
        // It may hang up in the middle of it.
        let _ = stream.write_all(head.as_bytes()).await;
        drop(stream);
        lives(&ledger).await;
    }
}
