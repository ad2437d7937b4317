//! The client's side of a call: what it has seen of the run.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::App;
use super::answer::SEQ_HEADER;
use super::problem::Problem;
use crate::protocol::ids::GREATEST_EXACT;

/// What the handlers share, for a client that may say in the header `berth-seq` the highest sequence number that it has seen
/// of the run: where the run is below that, the database lost writes, and the call is refused as `ledger_behind`.
pub(super) struct Client(pub(super) App);

impl FromRequestParts<App> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Some(header) = parts.headers.get(SEQ_HEADER) else {
            return Ok(Self(app.clone()));
        };
        let seq = header.to_str().ok().and_then(|text| text.parse().ok());
        // A number goes on from the highest seen, for as long as a run lives.
        let seq = seq.filter(|seq| *seq <= GREATEST_EXACT / 2).ok_or_else(|| {
            Problem::invalid(
                SEQ_HEADER,
                "not a sequence number: send the highest that an answer carried",
            )
        })?;
        Ok(Self(app.for_client(seq)))
    }
}
