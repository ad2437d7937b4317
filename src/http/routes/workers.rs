//! Workers: heartbeats, and the list of them.

use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, Query, RunPath, WorkerPath, wait, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::ledger::names::{Caller, SessionToken, WorkerName};
use crate::ledger::sessions::{Heartbeat, HeartbeatRequest, WorkerPage};
use crate::protocol::{Lineage, TrajectoryId, Version};

/// What a worker says to keep its lease.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewHeartbeat {
    /// The worker's session.
    session: Option<SessionToken>,
    /// The policy version of the weights that it holds now.
    version: Option<Version>,
    /// The lineage of those weights; needed once it has risen during the session, until the session has named the new one.
    lineage: Option<Lineage>,
    /// All reservations that it holds; one that was granted more than a lease ago and is not listed is given up.
    #[schema(max_items = 16384)]
    holding: Option<Vec<String>>,
    /// Cancellations that it has acted on.
    #[serde(default)]
    #[schema(max_items = 1024)]
    acknowledged: Vec<String>,
    /// How long to wait for a cancellation or a version newer than `version`.
    #[serde(default)]
    #[schema(maximum = 60000)]
    wait_ms: u64,
}

/// The ids among the texts: the ledger knows no others, so that they can be left out.
fn ids(texts: &[String]) -> Vec<TrajectoryId> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Renews the worker's lease, and tells what it is to stop generating.
#[utoipa::path(
    post, path = "/v1/runs/{run}/workers/{worker}/heartbeat", tag = "rollout",
    params(("run" = String, Path), ("worker" = String, Path)), request_body = NewHeartbeat,
    responses(
        (status = 200, body = Heartbeat),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`fenced`, `ledger_behind`"),
        (status = 429, body = ProblemDocument, description = "`too_many_waiting`")
    )
)]
pub(super) async fn heartbeat(
    Client(app): Client,
    WorkerPath(run, worker): WorkerPath,
    Body(new): Body<NewHeartbeat>,
) -> Result<Answer<Heartbeat>, Problem> {
    within("holding", new.holding.as_ref().map_or(0, Vec::len), 0..=16_384)?;
    within("acknowledged", new.acknowledged.len(), 0..=1_024)?;
    let wait = wait(new.wait_ms)?;
    let _place = if wait.is_zero() {
        None
    } else {
        Some(app.place_to_wait()?)
    };
    let request = HeartbeatRequest {
        caller: Caller {
            worker,
            session: new.session,
        },
        version: new.version,
        lineage: new.lineage,
        holding: new.holding.as_deref().map(ids),
        acknowledged: ids(&new.acknowledged),
    };
    Ok(app.waiting.heartbeat(&run, &request, wait).await?.into())
}

/// Which workers to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkersQuery {
    /// Those after this name.
    #[param(value_type = Option<String>)]
    after: Option<WorkerName>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// The workers and their sessions, in the order of their names. One is forgotten a day after its last call.
#[utoipa::path(
    get, path = "/v1/runs/{run}/workers", tag = "looking", params(("run" = String, Path), WorkersQuery),
    responses((status = 200, body = WorkerPage), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn list_workers(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<WorkersQuery>,
) -> Result<Answer<WorkerPage>, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=200)?;
    Ok(app
        .ledger
        .workers(&run, query.after.as_ref().map(WorkerName::as_str), limit)
        .await?
        .into())
}
