//! JSON over HTTP, with assertions in the words of the contract.

use std::{error::Error, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderName},
};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::time::timeout;

/// Above the longest `wait_ms`.
const LIMIT: Duration = Duration::from_secs(75);

/// A client of one server (or of a proxy before it). Clones share its connections.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    pool: Pool<HttpConnector, Full<Bytes>>,
    seen: Option<String>,
}

impl Client {
    /// A client of `http://host:port`.
    pub(crate) fn new(base: &str) -> Self {
        let pool = Pool::builder(TokioExecutor::new()).build_http();
        Self {
            base: base.to_owned(),
            pool,
            seen: None,
        }
    }

    /// The same client, which says in every call that it has seen the run at this sequence number.
    pub(crate) fn having_seen(&self, seq: &impl ToString) -> Self {
        Self {
            seen: Some(seq.to_string()),
            ..self.clone()
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.answer(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.answer(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Response {
        self.answer(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Response {
        self.answer(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.answer(Method::DELETE, path, None).await
    }

    /// Sends a request that may get no answer at all.
    pub(crate) async fn attempt(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(seq) = &self.seen {
            request = request.header("berth-seq", seq);
        }
        let mut bytes = Bytes::new();
        if let Some(json) = body {
            request = request.header(CONTENT_TYPE, "application/json");
            bytes = Bytes::from(json.to_string());
        }
        self.send(request.body(Full::new(bytes)).expect("a request that can be written"))
            .await
    }

    /// Sends any request at all; its URI is absolute, [`url`](Self::url) and a path.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response, String> {
        let line = format!("{} {}", request.method(), request.uri());
        let exchange = async {
            let (head, body) = self.pool.request(request).await?.into_parts();
            Ok::<_, Box<dyn Error + Send + Sync>>((head, body.collect().await?.to_bytes()))
        };
        let answer = timeout(LIMIT, exchange)
            .await
            .map_err(|_| format!("{line}: no answer within {LIMIT:?}"))?;
        let (head, bytes) = answer.map_err(|error| format!("{line}: {}", with_causes(&*error)))?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Response {
            request: line,
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    /// `http://host:port`.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    async fn answer(&self, method: Method, path: &str, body: Option<Value>) -> Response {
        self.attempt(method, path, body)
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// hyper's own words are only "client error (…)": what happened stands in the sources.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Response {
    /// What it answers, for messages.
    request: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body as JSON; a string when it is not JSON.
    pub(crate) body: Value,
}

impl Response {
    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "expected a success: {self:#?}");
        self.body
    }

    /// The body of an answer that has exactly this status.
    #[track_caller]
    pub(crate) fn status(self, expected: u16) -> Value {
        assert_eq!(self.status, expected, "{self:#?}");
        self.body
    }

    /// The body of an error (RFC 9457) with this status and code.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, self.body["code"].as_str()),
            (status, Some(code)),
            "{self:#?}"
        );
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:#?}"
        );
        assert_eq!(self.body["status"], status, "{self:#?}");
        for field in ["type", "title", "detail"] {
            assert!(self.body[field].is_string(), "a problem says its {field}: {self:#?}");
        }
        self.body
    }

    /// The sequence number that every answer about a run carries.
    #[track_caller]
    pub(crate) fn seq(&self) -> u64 {
        let seq = self.header("berth-seq").and_then(|seq| seq.parse().ok());
        seq.unwrap_or_else(|| panic!("no sequence number: {self:#?}"))
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let name: HeaderName = name.parse().expect("a header's name");
        self.headers.get(name)?.to_str().ok()
    }
}
