//! Trajectories that finish: one, or many at once.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::members::{MemberInOccupy, NewSegmentOf, reports, segments};
use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{BodyOfMany, JsonObject, RunPath, TrajectoryPath, within};
use crate::http::problem::{Code, Problem, ProblemDocument};
use crate::http::to_the_end;
use crate::ledger::finishing::{Concluded, Finish, Finished};
use crate::ledger::names::{Caller, SessionToken, WorkerName};
use crate::ledger::{Refusal, Seen};
use crate::protocol::ids::GREATEST_EXACT;
use crate::protocol::{Lineage, Reason, TrajectoryId};

const MOST_BYTES_OF_PAYLOAD: usize = 2 << 10;
const MOST_BYTES_OF_META: usize = 16 << 10;
pub(super) const MOST_BYTES_OF_NOTE: usize = 2 << 10;

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
    /// The reward; of a group left out, the mean of its members'.
    reward: Option<f64>,
    /// The length, in tokens; of a group left out, that of its members together.
    tokens: Option<u64>,
    /// Where the tokens are: a reference of at most 2 KiB.
    #[schema(max_length = 2048)]
    payload: Option<String>,
    /// Whatever else the trainer or a reader needs at hand: an object of at most 16 KiB.
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
    /// The segments that it was generated in, in their order; those that are known already may be left out.
    #[serde(default)]
    #[schema(value_type = Vec<NewSegmentOf>, max_items = 1024)]
    segments: Vec<JsonObject<NewSegmentOf>>,
    /// Members of a group that finished or failed, and are reported with it.
    #[serde(default)]
    #[schema(value_type = Vec<MemberInOccupy>, max_items = 1024)]
    members: Vec<JsonObject<MemberInOccupy>>,
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
    /// The reward; of a group left out, the mean of its members'.
    reward: Option<f64>,
    /// The length, in tokens; of a group left out, that of its members together.
    tokens: Option<u64>,
    /// Where the tokens are: a reference of at most 2 KiB.
    #[schema(max_length = 2048)]
    payload: Option<String>,
    /// An object of at most 16 KiB.
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
    /// The segments that it was generated in.
    #[serde(default)]
    #[schema(value_type = Vec<NewSegmentOf>, max_items = 1024)]
    segments: Vec<JsonObject<NewSegmentOf>>,
    /// Members of a group that finished or failed, and are reported with it.
    #[serde(default)]
    #[schema(value_type = Vec<MemberInOccupy>, max_items = 1024)]
    members: Vec<JsonObject<MemberInOccupy>>,
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
    /// It is finished, or a group that was discarded instead.
    Done {
        /// Its id.
        id: String,
        /// Where it is.
        #[serde(flatten)]
        concluded: Concluded,
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

pub(super) fn caller(worker: Option<WorkerName>, session: Option<SessionToken>) -> Result<Option<Caller>, Problem> {
    match (worker, session) {
        (Some(worker), session) => Ok(Some(Caller { worker, session })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::invalid(
            "worker",
            "a session is a worker's: the call must name it",
        )),
    }
}

pub(super) fn finish(
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

/// Finishes a trajectory: it takes the earliest legal place there is. A group may be finished with its members in one call.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/occupy", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)), request_body = NewFinish,
    responses(
        (status = 200, body = Concluded,
            description = "where it is, also when the call is repeated; of a group that was of no use, `discarded` and the reason"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`trajectory_discarded` with its `reason`, `group_incomplete` (the members that were sent are recorded), \
                `version_not_published`, `version_too_stale`, `segment_out_of_order`, `fenced`")
    )
)]
pub(super) async fn occupy(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    BodyOfMany(new): BodyOfMany<NewFinish>,
) -> Result<Answer<Concluded>, Problem> {
    let caller = caller(new.worker, new.session)?;
    let finished = Finished {
        id,
        finish: finish(new.reward, new.tokens, new.payload, new.meta)?,
        segments: segments(new.segments)?,
        members: reports(new.members)?,
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
        let (segments, members) = (segments(one.segments)?, reports(one.members)?);
        finished.extend(id.map(|id| Finished {
            id,
            finish,
            segments,
            members,
        }));
        ids.push((one.id, id.is_some()));
    }
    let lineage = new.lineage;
    let occupy = async move { app.ledger.occupy_many(&run, caller.as_ref(), lineage, &finished).await };
    let seen = to_the_end(occupy).await?;
    let mut outcomes = seen.value.into_iter();
    let results = ids.into_iter().map(|(id, is_known)| {
        let outcome = if is_known { outcomes.next() } else { None };
        match outcome.unwrap_or(Err(Refusal::UnknownTrajectory)) {
            Ok(concluded) => OccupyResult::Done { id, concluded },
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
