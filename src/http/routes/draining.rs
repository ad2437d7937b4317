//! The end of a run.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, RunPath};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::to_the_end;
use crate::ledger::draining::Drained;
use crate::protocol::DrainQueue;

/// Whether a run is to end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainRequest {
    /// Whether nothing more is to be admitted. False calls the end off: things are admitted again.
    drain: bool,
    /// What becomes of queued prompts: `finish` hands them out first, `keep` leaves them queued.
    #[serde(default)]
    queue: DrainQueue,
}

/// Admits nothing more, and lets the run end with what is in flight: batches go on while they are full, and what is left is a
/// last, shorter batch, or discarded, as `final_batch` says.
#[utoipa::path(
    post, path = "/v1/runs/{run}/drain", tag = "training", params(("run" = String, Path)), request_body = DrainRequest,
    responses(
        (status = 200, body = Drained),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`ledger_behind`")
    )
)]
pub(super) async fn drain(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(request): Body<DrainRequest>,
) -> Result<Answer<Drained>, Problem> {
    let draining = request.drain.then_some(request.queue);
    Ok(to_the_end(async move { app.ledger.drain(&run, draining).await })
        .await?
        .into())
}
