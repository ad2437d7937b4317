//! A small HTTP/1.1 client for Berth's own processes: `berth demo`, `berth bench` and the commands that look at a run.
//!
//! It keeps connections alive, bounds every call in time and repeats what may be repeated. It is not a library for
//! rollout code: it knows `http://` only, and the calls of [`RunClient`].

mod error;
mod messages;
mod retry;
mod run;

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HyperClient, Error as HyperError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::ClientError;
pub use messages::{
    BatchEntry, BatchMember, BufferTable, Buffers, Cancelled, Checkpointed, EventPage, Finish, Grant, Heartbeat,
    HeartbeatAnswer, LatestVersion, MemberAnswer, MemberReport, NextBatch, Occupied, OpenTrainerSession, Piece,
    Published, Reserve, Reserved, RunSettings, RunStatus, SlotView, TakenBatch, TrainerSession, WorkerView, Workers,
};
pub use retry::Retry;
pub use run::RunClient;

/// How long one attempt may take beyond the time that it asked the server to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Idle connections are closed after this, well before a server or a proxy would do it under a request's feet.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one Berth server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    /// `http://HOST:PORT`, without a slash at the end.
    base: String,
    http: HyperClient<HttpConnector, Full<Bytes>>,
    retry: Retry,
}

impl Client {
    /// A client of the server at `url`, which looks like `http://127.0.0.1:8080`. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`ClientError::Url`] for anything but an `http://` address without a path.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let base = url.trim_end_matches('/');
        check_base(base)?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let http = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self {
            base: base.to_owned(),
            http,
            retry: Retry::patient(),
        })
    }

    /// The same client, with other rules for repeating calls.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// The server's address.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// The calls about one run.
    pub fn run(&self, name: &str) -> RunClient {
        RunClient::new(self.clone(), name)
    }

    /// Reads `path`, and throws the answer's body away: for the probes, whose bodies are nobody's business.
    pub async fn probe(&self, path: &str) -> Result<(), ClientError> {
        let call = Call {
            method: Method::GET,
            path,
            body: None,
            wait: Duration::ZERO,
        };
        self.attempts(&call).await.map(|_| ())
    }

    /// Reads `path`; the server may hold the call for `wait`.
    pub async fn get<A: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<A, ClientError> {
        self.call(Call {
            method: Method::GET,
            path,
            body: None,
            wait,
        })
        .await
    }

    /// Sends `body` to `path`; the server may hold the call for `wait`.
    ///
    /// It may be sent more than once, which the protocol allows for every call (*Idempotency*), as long as a reserve has
    /// a `request_id`.
    pub async fn send<B, A>(&self, method: Method, path: &str, body: &B, wait: Duration) -> Result<A, ClientError>
    where
        B: Serialize + Sync,
        A: DeserializeOwned,
    {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Unwritable {
            call: format!("{method} {path}"),
            source,
        })?;
        self.call(Call {
            method,
            path,
            body: Some(body.into()),
            wait,
        })
        .await
    }

    /// Deletes what is at `path`.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let call = Call {
            method: Method::DELETE,
            path,
            body: None,
            wait: Duration::ZERO,
        };
        self.attempts(&call).await.map(|_| ())
    }

    async fn call<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<A, ClientError> {
        let answer = self.attempts(&call).await?;
        serde_json::from_slice(&answer).map_err(|source| ClientError::Malformed {
            call: call.name(),
            source,
        })
    }

    async fn attempts(&self, call: &Call<'_>) -> Result<Bytes, ClientError> {
        let started_at = Instant::now();
        let mut failures = 0;
        loop {
            let error = match self.attempt(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            failures += 1;
            match self.retry.pause_after(failures, started_at.elapsed(), &error) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn attempt(&self, call: &Call<'_>) -> Result<Bytes, ClientError> {
        let limit = call.wait + ANSWER_TIMEOUT;
        match tokio::time::timeout(limit, self.exchange(call)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut {
                call: call.name(),
                after: limit,
            }),
        }
    }

    async fn exchange(&self, call: &Call<'_>) -> Result<Bytes, ClientError> {
        let request = call.request(&self.base)?;
        let answer = self
            .http
            .request(request)
            .await
            .map_err(|source: HyperError| ClientError::unreached(call.name(), source))?;
        let (head, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|source| ClientError::unreached(call.name(), source))?
            .to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        Err(ClientError::refused(call.name(), &head, &body))
    }
}

/// `base` must be a scheme, a host and a port: paths are appended to it as text.
fn check_base(base: &str) -> Result<(), ClientError> {
    let wrong = || ClientError::Url { url: base.to_owned() };
    let uri: Uri = base.parse().map_err(|_| wrong())?;
    let is_plain_http = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
    let is_bare = uri.path() == "/" && uri.query().is_none();
    if is_plain_http && is_bare { Ok(()) } else { Err(wrong()) }
}

/// One call, as often as it is attempted.
struct Call<'a> {
    method: Method,
    path: &'a str,
    body: Option<Bytes>,
    wait: Duration,
}

impl Call<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn request(&self, base: &str) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(format!("{base}{}", self.path))
            .header(ACCEPT, "application/json");
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::new(self.body.clone().unwrap_or_default()))
            .map_err(|_| ClientError::Url {
                url: format!("{base}{}", self.path),
            })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;

    /// A server on which `GET /` answers 503 as often as said, and then succeeds.
    async fn recovering_server(outages: usize) -> (Client, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let answer = move || async move {
            if counter.fetch_add(1, Ordering::SeqCst) < outages {
                return (
                    StatusCode::SERVICE_UNAVAILABLE,
                    Json(json!({ "code": "database_unavailable", "detail": "gone" })),
                );
            }
            (StatusCode::OK, Json(json!({ "policy_version": 3 })))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(answer))).await });
        (client, calls)
    }

    #[tokio::test]
    async fn a_call_that_meets_an_outage_is_repeated_until_it_succeeds() {
        let (client, calls) = recovering_server(2).await;
        let answer: Value = client.get("/", Duration::ZERO).await.unwrap();
        assert_eq!(answer, json!({ "policy_version": 3 }));
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn those_who_measure_get_the_first_answer() {
        let (client, calls) = recovering_server(2).await;
        let error = client.with_retry(Retry::never()).probe("/").await.unwrap_err();
        assert_eq!(error.to_string(), "GET /: 503 database_unavailable: gone");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn an_answer_of_another_shape_is_an_error() {
        let (client, _) = recovering_server(0).await;
        let error = client.get::<Vec<u64>>("/", Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_said_with_the_reason() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::new(&url)
            .unwrap()
            .with_retry(Retry::never())
            .probe("/healthz")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("Connection refused"), "{error}");
    }

    #[test]
    fn only_plain_http_addresses_without_a_path_are_taken() {
        for url in ["http://127.0.0.1:8080", "http://localhost:1/", "http://[::1]:9"] {
            assert!(Client::new(url).is_ok(), "{url}");
        }
        for url in [
            "https://berth:1",
            "127.0.0.1:8080",
            "http://",
            "http://a/b",
            "http://a?b=1",
            "redis://a",
            "",
        ] {
            assert!(matches!(Client::new(url), Err(ClientError::Url { .. })), "{url}");
        }
    }
}
