//! What can go wrong with a call.

use std::error::Error;
use std::num::NonZeroU64;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use hyper::http::response::Parts;
use serde::Deserialize;

/// Why a call has no answer to show.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not one of a server.
    #[error("`{url}` is not an address like http://127.0.0.1:8080")]
    Url {
        /// What was given.
        url: String,
    },
    /// The request can't be written as JSON.
    #[error("{call}: the request is not JSON: {source}")]
    Unwritable {
        /// Method and path.
        call: String,
        /// Why.
        source: serde_json::Error,
    },
    /// There was no connection, or it broke before the answer was complete. Whether the call had its effect is unknown.
    #[error("{call}: {}", chain(source.as_ref()))]
    Unreached {
        /// Method and path.
        call: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No answer came in time. Whether the call had its effect is unknown.
    #[error("{call}: no answer in {} s", after.as_secs())]
    TimedOut {
        /// Method and path.
        call: String,
        /// How long the client waited.
        after: Duration,
    },
    /// The server refused the call.
    #[error("{call}: {status} {code}: {detail}")]
    Refused {
        /// Method and path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The stable word for it (`api.md`, *Codes*); empty when something other than Berth answered.
        code: String,
        /// Why a trajectory was discarded, where the refusal says so.
        reason: Option<Box<str>>,
        /// The first event that is kept, where the refusal says so.
        first_seq: Option<NonZeroU64>,
        /// The sentence for people.
        detail: String,
        /// How long the server asks to wait before the call is repeated.
        retry_after: Option<Duration>,
    },
    /// The answer is not of the shape that the contract promises.
    #[error("{call}: unexpected answer: {source}")]
    Malformed {
        /// Method and path.
        call: String,
        /// What did not fit.
        source: serde_json::Error,
    },
}

/// The members of an RFC 9457 problem that the client uses.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Problem {
    code: String,
    detail: String,
    reason: Option<Box<str>>,
    first_seq: Option<NonZeroU64>,
}

impl ClientError {
    pub(super) fn unreached(call: String, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Unreached {
            call,
            source: Box::new(source),
        }
    }

    pub(super) fn refused(call: String, head: &Parts, body: &[u8]) -> Self {
        let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
        let seconds = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Self::Refused {
            call,
            status: head.status.as_u16(),
            code: problem.code,
            reason: problem.reason,
            first_seq: problem.first_seq,
            detail: problem.detail,
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// The server's word for a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the same call may succeed a little later: the server is starting, overloaded or without its database.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreached { .. } | Self::TimedOut { .. } => true,
            Self::Refused { status, code, .. } => {
                let is_passing = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS]
                    .iter()
                    .any(|each| each == status);
                // An older server never learns to read a newer layout.
                is_passing && code != "newer_layout"
            }
            Self::Url { .. } | Self::Unwritable { .. } | Self::Malformed { .. } => false,
        }
    }
}

/// An error with its causes: hyper's own text says no more than "client error (Connect)".
fn chain(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> ClientError {
        let answer = hyper::Response::builder()
            .status(status)
            .header(RETRY_AFTER, "2")
            .body(())
            .unwrap();
        ClientError::refused(
            "POST /v1/runs/r/reservations".to_owned(),
            &answer.into_parts().0,
            body.as_bytes(),
        )
    }

    #[test]
    fn a_problem_is_shown_with_its_code_and_detail() {
        let error = refusal(
            409,
            r#"{"type":"t","title":"T","status":409,"code":"version_too_stale","detail":"3 is old"}"#,
        );
        assert_eq!(
            error.to_string(),
            "POST /v1/runs/r/reservations: 409 version_too_stale: 3 is old"
        );
        assert_eq!(error.code(), Some("version_too_stale"));
        assert!(!error.is_transient());
    }

    #[test]
    fn an_outage_is_worth_another_attempt_and_a_newer_layout_is_not() {
        assert!(refusal(503, r#"{"code":"database_unavailable"}"#).is_transient());
        assert!(refusal(503, "<html>bad gateway</html>").is_transient());
        assert!(refusal(429, r#"{"code":"too_many_waiting"}"#).is_transient());
        assert!(!refusal(503, r#"{"code":"newer_layout"}"#).is_transient());
    }
}
