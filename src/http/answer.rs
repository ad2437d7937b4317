//! Answers about a run: JSON, with the run's sequence number as a header.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::ledger::Seen;

/// The header with the run's sequence number after (or at) the call.
pub(super) const SEQ_HEADER: &str = "berth-seq";

/// An answer about a run.
pub(super) struct Answer<T> {
    status: StatusCode,
    seen: Seen<T>,
}

impl<T> From<Seen<T>> for Answer<T> {
    fn from(seen: Seen<T>) -> Self {
        Self {
            status: StatusCode::OK,
            seen,
        }
    }
}

impl<T> Answer<T> {
    pub(super) fn with_status(status: StatusCode, seen: Seen<T>) -> Self {
        Self { status, seen }
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.seen.value)).into_response();
        if let Some(seq) = self.seen.seq {
            response.headers_mut().insert(SEQ_HEADER, seq.into());
        }
        response
    }
}
