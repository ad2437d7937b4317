//! Why the trainer waits, and what became of the entries.

use axum::extract::State;
use serde::Deserialize;

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::{Query, RunPath};
use crate::http::problem::{Problem, ProblemDocument};
use crate::ledger::distribution::Distribution;
use crate::ledger::explain::Explanation;

/// These views have nothing to be asked for; what is asked for all the same is an error, as everywhere.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// Why the trainer waits: who holds what is not finished, and what will free it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/explain", tag = "looking", params(("run" = String, Path)),
    responses((status = 200, body = Explanation), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn explain(
    State(app): State<App>,
    RunPath(run): RunPath,
    _: Query<NoQuery>,
) -> Result<Answer<Explanation>, Problem> {
    Ok(app.ledger.explain(&run).await?.into())
}

/// What was admitted, trained, filtered and discarded, in all, by reason, and by quarters of the lengths.
#[utoipa::path(
    get, path = "/v1/runs/{run}/distribution", tag = "looking", params(("run" = String, Path)),
    responses((status = 200, body = Distribution), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn distribution(
    State(app): State<App>,
    RunPath(run): RunPath,
    _: Query<NoQuery>,
) -> Result<Answer<Distribution>, Problem> {
    Ok(app.ledger.distribution(&run).await?.into())
}
