//! The slot tables, to be looked at.

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::{Query, RunPath};
use crate::http::problem::{Problem, ProblemDocument};
use crate::ledger::looking::Buffers;

/// How closely to look.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BuffersQuery {
    /// Whether to show who is in which slot.
    #[serde(default)]
    #[param(default = false)]
    slots: bool,
}

/// The open buffers.
#[utoipa::path(
    get, path = "/v1/runs/{run}/buffers", tag = "looking", params(("run" = String, Path), BuffersQuery),
    responses((status = 200, body = Buffers), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn buffers(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<BuffersQuery>,
) -> Result<Answer<Buffers>, Problem> {
    let seen = if query.slots {
        app.ledger.slots(&run).await?
    } else {
        app.ledger.buffers(&run).await?
    };
    Ok(seen.into())
}
