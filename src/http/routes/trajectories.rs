//! Trajectories: given up, claimed, looked at.

use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, Query, RunPath, TrajectoryPath, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::routes::finishing::{MOST_BYTES_OF_NOTE, caller};
use crate::http::{App, to_the_end};
use crate::ledger::finishing::Discarded;
use crate::ledger::looking::{FinishedWhere, TrajectoryPage};
use crate::ledger::names::{Caller, ClientReason, SessionToken, WorkerName};
use crate::ledger::trajectories::{Trajectory, TrajectoryState};
use crate::protocol::Place;
use crate::protocol::tables::Wish;

/// Who gives a trajectory up, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewDiscard {
    /// The worker that calls.
    worker: Option<WorkerName>,
    /// Its session.
    session: Option<SessionToken>,
    /// Why: 1 to 64 of `a-z _`, and none of the ledger's own reasons.
    #[schema(value_type = String, example = "filtered")]
    reason: ClientReason,
    /// A remark, of at most 2 KiB.
    #[schema(max_length = 2048)]
    note: Option<String>,
    /// Whether its prompt is to be tried again, in a run with a prompt queue.
    #[serde(default)]
    requeue: bool,
}

/// Who claims a trajectory.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewClaim {
    /// The worker that will hold it.
    worker: WorkerName,
    /// Its session.
    session: Option<SessionToken>,
}

/// Gives up a reserved trajectory, or filters a finished one.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/discard", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)), request_body = NewDiscard,
    responses(
        (status = 200, body = Discarded, description = "what it was, and which finished ones moved forward"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`trajectory_taken`, `no_prompt_queue` for a `requeue`, `fenced`")
    )
)]
pub(super) async fn discard(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    Body(new): Body<NewDiscard>,
) -> Result<Answer<Discarded>, Problem> {
    let caller = caller(new.worker, new.session)?;
    if new.note.as_ref().is_some_and(|note| note.len() > MOST_BYTES_OF_NOTE) {
        return Err(Problem::invalid("note", format!("at most {MOST_BYTES_OF_NOTE} bytes")));
    }
    let wish = if new.requeue { Wish::Requeue } else { Wish::ByReason };
    let discard = async move {
        app.ledger
            .discard(&run, caller.as_ref(), id, &new.reason, new.note.as_deref(), wish)
            .await
    };
    Ok(to_the_end(discard).await?.into())
}

/// Makes the caller's session the holder of a reservation.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/claim", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)), request_body = NewClaim,
    responses(
        (status = 200, body = Trajectory),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`trajectory_discarded`, `version_too_stale`, `fenced`")
    )
)]
pub(super) async fn claim(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    Body(new): Body<NewClaim>,
) -> Result<Answer<Trajectory>, Problem> {
    let caller = Caller {
        worker: new.worker,
        session: new.session,
    };
    let claim = async move {
        app.ledger.claim(&run, &caller, id).await?;
        app.ledger.trajectory(&run, id).await
    };
    Ok(to_the_end(claim).await?.into())
}

/// One trajectory.
#[utoipa::path(
    get, path = "/v1/runs/{run}/trajectories/{id}", tag = "looking",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, body = Trajectory),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`")
    )
)]
pub(super) async fn get_trajectory(
    State(app): State<App>,
    TrajectoryPath(run, id): TrajectoryPath,
) -> Result<Answer<Trajectory>, Problem> {
    Ok(app.ledger.trajectory(&run, id).await?.into())
}

/// Which trajectories to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TrajectoriesQuery {
    /// Those of this worker; of `reserved` ones, those that its current session holds.
    #[param(value_type = Option<String>)]
    worker: Option<WorkerName>,
    /// `reserved` (the default), `occupied`, or `taken` (those of the batches that are kept).
    state: Option<TrajectoryState>,
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// The trajectories in a state. A page of finished ones may be short, and even empty, when others' lie between.
#[utoipa::path(
    get, path = "/v1/runs/{run}/trajectories", tag = "looking", params(("run" = String, Path), TrajectoriesQuery),
    responses(
        (status = 200, body = TrajectoryPage),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`")
    )
)]
pub(super) async fn list_trajectories(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<TrajectoriesQuery>,
) -> Result<Answer<TrajectoryPage>, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=100)?;
    let worker = query.worker.as_ref();
    let which = match query.state.unwrap_or(TrajectoryState::Reserved) {
        TrajectoryState::Reserved => {
            let after = query
                .after
                .map(|after| after.parse())
                .transpose()
                .map_err(|_| not_a_cursor())?;
            return Ok(app.ledger.held(&run, worker, after, limit).await?.into());
        }
        TrajectoryState::Occupied => FinishedWhere::OpenBuffers,
        TrajectoryState::Taken => FinishedWhere::KeptBatches,
        TrajectoryState::Discarded => {
            return Err(Problem::invalid(
                "state",
                "reserved, occupied or taken; discards are in the event log",
            ));
        }
    };
    let after = query
        .after
        .map(|after| place(&after).ok_or_else(not_a_cursor))
        .transpose()?;
    Ok(app.ledger.finished(&run, which, worker, after, limit).await?.into())
}

fn not_a_cursor() -> Problem {
    Problem::invalid("after", "not the `next` of a page of this list")
}

fn place(cursor: &str) -> Option<Place> {
    let (buffer, slot) = cursor.split_once(':')?;
    Some(Place::new(buffer.parse().ok()?, slot.parse().ok()?))
}
