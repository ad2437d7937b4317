//! Trajectories: finished, given up, claimed, looked at.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, BodyOfMany, JsonObject, Query, RunPath, TrajectoryPath, within};
use crate::http::problem::{Code, Problem, ProblemDocument};
use crate::http::{App, to_the_end};
use crate::ledger::finishing::{Discarded, Finish, Finished, OccupiedPlace};
use crate::ledger::looking::{FinishedWhere, TrajectoryPage};
use crate::ledger::names::{Caller, ClientReason, SessionToken, WorkerName};
use crate::ledger::trajectories::{Trajectory, TrajectoryState};
use crate::ledger::{Refusal, Seen};
use crate::protocol::ids::GREATEST_EXACT;
use crate::protocol::tables::Wish;
use crate::protocol::{Lineage, Place, Reason, TrajectoryId};

const MOST_BYTES_OF_PAYLOAD: usize = 2 << 10;
const MOST_BYTES_OF_META: usize = 16 << 10;
const MOST_BYTES_OF_NOTE: usize = 2 << 10;

/// What a finished trajectory leaves.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFinish {
    /// The worker that calls; any live session may finish any reservation.
    worker: Option<WorkerName>,
    /// Its session.
    session: Option<SessionToken>,
    /// The lineage of the weights that generated it.
    lineage: Option<Lineage>,
    /// The reward.
    reward: Option<f64>,
    /// The length, in tokens.
    tokens: Option<u64>,
    /// Where the tokens are: a reference of at most 2 KiB.
    #[schema(max_length = 2048)]
    payload: Option<String>,
    /// Whatever else the trainer or a reader needs at hand: an object of at most 16 KiB.
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
}

/// Many finished trajectories.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFinishes {
    /// The worker that calls.
    worker: Option<WorkerName>,
    /// Its session.
    session: Option<SessionToken>,
    /// The lineage of the weights that generated them.
    lineage: Option<Lineage>,
    /// The trajectories, at most 1,024.
    #[schema(value_type = Vec<OneOfMany>, min_items = 1, max_items = 1024)]
    trajectories: Vec<JsonObject<OneOfMany>>,
}

/// One of many finished trajectories.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneOfMany {
    /// Its id.
    id: String,
    /// The reward.
    reward: Option<f64>,
    /// The length, in tokens.
    tokens: Option<u64>,
    /// Where the tokens are: a reference of at most 2 KiB.
    #[schema(max_length = 2048)]
    payload: Option<String>,
    /// An object of at most 16 KiB.
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
}

/// A result for each of many.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OccupyResults {
    /// In the order of the request.
    results: Vec<OccupyResult>,
}

/// What became of one of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum OccupyResult {
    /// It is finished.
    Done {
        /// Its id.
        id: String,
        /// Where it is.
        #[serde(flatten)]
        place: OccupiedPlace,
    },
    /// It was refused.
    Refused {
        /// Its id.
        id: String,
        /// The code of the refusal.
        code: Code,
        /// Why it was discarded.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
}

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

fn caller(worker: Option<WorkerName>, session: Option<SessionToken>) -> Result<Option<Caller>, Problem> {
    match (worker, session) {
        (Some(worker), session) => Ok(Some(Caller { worker, session })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::invalid(
            "worker",
            "a session is a worker's: the call must name it",
        )),
    }
}

fn finish(
    reward: Option<f64>,
    tokens: Option<u64>,
    payload: Option<String>,
    meta: Option<Box<RawValue>>,
) -> Result<Finish, Problem> {
    if payload
        .as_ref()
        .is_some_and(|payload| payload.len() > MOST_BYTES_OF_PAYLOAD)
    {
        return Err(Problem::invalid(
            "payload",
            format!("at most {MOST_BYTES_OF_PAYLOAD} bytes"),
        ));
    }
    if let Some(tokens) = tokens {
        within("tokens", tokens, 0..=GREATEST_EXACT)?;
    }
    let meta = meta.map(|meta| meta.get().to_owned());
    if meta
        .as_ref()
        .is_some_and(|meta| meta.len() > MOST_BYTES_OF_META || !meta.starts_with('{'))
    {
        return Err(Problem::invalid(
            "meta",
            format!("an object of at most {MOST_BYTES_OF_META} bytes"),
        ));
    }
    Ok(Finish {
        reward,
        tokens,
        payload,
        meta,
    })
}

/// Finishes a trajectory: it takes the earliest legal place there is.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/occupy", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)), request_body = NewFinish,
    responses(
        (status = 200, body = OccupiedPlace, description = "where it is, also when the call is repeated"),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`trajectory_discarded` with its `reason`, `superseded`, `fenced`")
    )
)]
pub(super) async fn occupy(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    Body(new): Body<NewFinish>,
) -> Result<Answer<OccupiedPlace>, Problem> {
    let caller = caller(new.worker, new.session)?;
    let finished = Finished {
        id,
        finish: finish(new.reward, new.tokens, new.payload, new.meta)?,
    };
    Ok(
        to_the_end(async move { app.ledger.occupy(&run, caller.as_ref(), new.lineage, finished).await })
            .await?
            .into(),
    )
}

/// Finishes many trajectories. One that is refused spoils no other.
#[utoipa::path(
    post, path = "/v1/runs/{run}/occupy", tag = "rollout", params(("run" = String, Path)), request_body = NewFinishes,
    responses(
        (status = 200, body = OccupyResults),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`fenced`")
    )
)]
pub(super) async fn occupy_many(
    Client(app): Client,
    RunPath(run): RunPath,
    BodyOfMany(new): BodyOfMany<NewFinishes>,
) -> Result<Answer<OccupyResults>, Problem> {
    let caller = caller(new.worker, new.session)?;
    within("trajectories", new.trajectories.len(), 1..=1_024)?;
    let mut finished = Vec::with_capacity(new.trajectories.len());
    // The text of each id, and whether it is one at all: others are unknown to the ledger without asking it.
    let mut ids = Vec::with_capacity(new.trajectories.len());
    for JsonObject(one) in new.trajectories {
        let id: Option<TrajectoryId> = one.id.parse().ok();
        let finish = finish(one.reward, one.tokens, one.payload, one.meta)?;
        finished.extend(id.map(|id| Finished { id, finish }));
        ids.push((one.id, id.is_some()));
    }
    let lineage = new.lineage;
    let occupy = async move { app.ledger.occupy_many(&run, caller.as_ref(), lineage, &finished).await };
    let seen = to_the_end(occupy).await?;
    let mut outcomes = seen.value.into_iter();
    let results = ids.into_iter().map(|(id, is_known)| {
        let outcome = if is_known { outcomes.next() } else { None };
        match outcome.unwrap_or(Err(Refusal::UnknownTrajectory)) {
            Ok(place) => OccupyResult::Done { id, place },
            Err(refusal) => {
                let code = Code::of(&refusal);
                let reason = if let Refusal::TrajectoryDiscarded { reason } = refusal {
                    Some(reason)
                } else {
                    None
                };
                OccupyResult::Refused { id, code, reason }
            }
        }
    });
    Ok(Seen {
        seq: seen.seq,
        value: OccupyResults {
            results: results.collect(),
        },
    }
    .into())
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
