//! Whether the server lives, and whether it can work.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::App;
use crate::http::problem::{Problem, ProblemDocument};

/// That all is well.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Healthy {
    /// `ok`
    status: &'static str,
}

/// Answers as long as the process serves at all; asks nobody.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = Healthy)))]
pub(super) async fn healthz() -> Json<Healthy> {
    Json(Healthy { status: "ok" })
}

/// Answers well when the database answers.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses((status = 200, body = Healthy), (status = 503, body = ProblemDocument, description = "`database_unavailable`"))
)]
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Healthy>, Problem> {
    app.ledger.ping().await?;
    Ok(Json(Healthy { status: "ok" }))
}
