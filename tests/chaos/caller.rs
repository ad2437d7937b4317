//! Calls as a real client makes them: to one of the two servers, to the other when that one fails, and again until they
//! are answered. Every call of the contract may be repeated.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use serde_json::Value;
use tokio::time::timeout;

use crate::chance::Chance;
use crate::diary::{Diary, Entry};
use crate::orders::Orders;
use crate::support::{Client, Response};

/// How long an answer may take beyond the time that the call asked the server to wait.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// The pause before a call is repeated, in milliseconds.
const BEFORE_AGAIN: std::ops::RangeInclusive<u64> = 10..=120;

pub(crate) struct Caller {
    servers: [Client; 2],
    /// Which of them it talks to now.
    chosen: Cell<usize>,
    run: String,
    /// The highest sequence number that it has seen: no server may show it an older state.
    seq: Cell<u64>,
    chance: Chance,
    diary: Rc<Diary>,
}

/// An answer that is final.
pub(crate) enum Answer {
    Done(Value),
    Refused { code: String, body: Value },
}

impl Caller {
    pub(crate) fn new(orders: &Orders, diary: &Rc<Diary>) -> Self {
        let chance = Chance::new(orders.seed ^ 0xCA11);
        Self {
            servers: orders.servers.each_ref().map(|url| Client::new(url)),
            chosen: Cell::new(usize::from(chance.once_in(2))),
            run: orders.run.clone(),
            seq: Cell::new(0),
            chance,
            diary: Rc::clone(diary),
        }
    }

    /// Sends a call until it is answered.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        loop {
            match self.try_once(Method::POST, path, Some(body)).await {
                Ok(answer) => return answer,
                Err(why) => self.again(path, why).await,
            }
        }
    }

    /// Sends a call once, by another way the next time if it was not answered.
    pub(crate) async fn try_once(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let wait_ms = body.and_then(|body| body["wait_ms"].as_u64()).unwrap_or(0);
        // A waiting GET says so in its query.
        let wait_ms = wait_ms.max(
            path.split_once("wait_ms=")
                .and_then(|(_, ms)| ms.parse().ok())
                .unwrap_or(0),
        );
        let limit = Duration::from_millis(wait_ms) + PATIENCE;
        let server = &self.servers[self.chosen.get()];
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}/{path}", server.url(), self.run))
            .header("berth-seq", self.seq.get());
        let mut bytes = Bytes::new();
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json");
            bytes = body.to_string().into();
        }
        let request = request.body(Full::new(bytes)).expect("a request that can be written");
        let why = match timeout(limit, server.send(request)).await {
            Ok(Ok(answer)) if ![429, 503].contains(&answer.status) => return Ok(self.answered(answer)),
            Ok(Ok(answer)) => answer.body["code"].as_str().unwrap_or("unavailable").to_owned(),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer in {limit:?}"),
        };
        self.chosen.set(1 - self.chosen.get());
        Err(why)
    }

    /// Writes down that a call is repeated, and leaves a moment before it.
    pub(crate) async fn again(&self, path: &str, why: String) {
        let call = path.to_owned();
        self.diary.write(Entry::Retried { call, why });
        self.chance.pause(BEFORE_AGAIN).await;
    }

    /// Goes on with the other server: a repetition may well reach another one.
    pub(crate) fn change_server(&self) {
        self.chosen.set(1 - self.chosen.get());
    }

    fn answered(&self, answer: Response) -> Answer {
        let seq = answer.header("berth-seq").and_then(|seq| seq.parse().ok());
        self.seq.set(self.seq.get().max(seq.unwrap_or(0)));
        if answer.status < 300 {
            return Answer::Done(answer.body);
        }
        let code = answer.body["code"].as_str().unwrap_or("none").to_owned();
        Answer::Refused {
            code,
            body: answer.body,
        }
    }
}
