//! The members of groups, and the segments in which trajectories and members are generated.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::finishing::{MOST_BYTES_OF_NOTE, caller, finish};
use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, JsonObject, TrajectoryPath, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::to_the_end;
use crate::ledger::members::{MemberRecorded, MemberReport};
use crate::ledger::names::{SessionToken, WorkerName};
use crate::ledger::segments::{NewSegment, Segment, Segments};
use crate::protocol::ids::GREATEST_EXACT;
use crate::protocol::{Lineage, Version};

/// The most segments, or members, that one list may name.
const MOST_PARTS: usize = 1_024;

/// A segment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSegmentOf {
    /// The policy version of the weights.
    version: Version,
    /// The first token that they generated.
    from_token: u64,
}

/// A member that finished or failed, in the call that finishes its group.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberInOccupy {
    /// Which of the group's candidates, from 0.
    index: u32,
    /// Whether it failed.
    #[serde(default)]
    failed: bool,
    /// The version that it was begun under; defaults to what the caller's session last said.
    version: Option<Version>,
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
    /// A remark, of at most 2 KiB.
    #[schema(max_length = 2048)]
    note: Option<String>,
    /// The segments that it was generated in.
    #[serde(default)]
    #[schema(value_type = Vec<NewSegmentOf>, max_items = 1024)]
    segments: Vec<JsonObject<NewSegmentOf>>,
}

/// A member that finished or failed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMember {
    /// The worker that calls; any live session may report any member.
    worker: Option<WorkerName>,
    /// Its session.
    session: Option<SessionToken>,
    /// The lineage of the weights that generated it.
    lineage: Option<Lineage>,
    /// Whether it failed.
    #[serde(default)]
    failed: bool,
    /// The version that it was begun under; defaults to what the caller's session last said. A failed one needs none.
    version: Option<Version>,
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
    /// A remark, of at most 2 KiB.
    #[schema(max_length = 2048)]
    note: Option<String>,
    /// The segments that it was generated in, in their order; those that are known already may be left out.
    #[serde(default)]
    #[schema(value_type = Vec<NewSegmentOf>, max_items = 1024)]
    segments: Vec<JsonObject<NewSegmentOf>>,
}

/// A segment that begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSegmentCall {
    /// The worker that calls.
    worker: Option<WorkerName>,
    /// Its session.
    session: Option<SessionToken>,
    /// The lineage of the weights.
    lineage: Option<Lineage>,
    /// The policy version of the weights.
    version: Version,
    /// The first token that they generate.
    from_token: u64,
    /// Which of a group's candidates.
    member: Option<u32>,
}

pub(super) fn segments(new: Vec<JsonObject<NewSegmentOf>>) -> Result<Vec<Segment>, Problem> {
    within("segments", new.len(), 0..=MOST_PARTS)?;
    new.into_iter()
        .map(|JsonObject(new)| {
            Ok(Segment {
                version: new.version,
                from_token: within("from_token", new.from_token, 0..=GREATEST_EXACT)?,
            })
        })
        .collect()
}

pub(super) fn reports(members: Vec<JsonObject<MemberInOccupy>>) -> Result<Vec<MemberReport>, Problem> {
    within("members", members.len(), 0..=MOST_PARTS)?;
    members
        .into_iter()
        .map(|JsonObject(member)| {
            let new = NewMember {
                failed: member.failed,
                version: member.version,
                reward: member.reward,
                tokens: member.tokens,
                payload: member.payload,
                meta: member.meta,
                note: member.note,
                segments: member.segments,
                ..NewMember::default()
            };
            report(member.index, new)
        })
        .collect()
}

fn report(index: u32, new: NewMember) -> Result<MemberReport, Problem> {
    if new.failed && new.reward.is_some() {
        return Err(Problem::invalid("reward", "a member that failed has no reward"));
    }
    if new.note.as_ref().is_some_and(|note| note.len() > MOST_BYTES_OF_NOTE) {
        return Err(Problem::invalid("note", format!("at most {MOST_BYTES_OF_NOTE} bytes")));
    }
    Ok(MemberReport {
        index,
        failed: new.failed,
        version: new.version,
        finish: finish(new.reward, new.tokens, new.payload, new.meta)?,
        note: new.note,
        segments: segments(new.segments)?,
    })
}

/// `…/members/{index}`
pub(super) struct MemberIndex(u32);

impl<S: Send + Sync> FromRequestParts<S> for MemberIndex {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let index = path.ok().and_then(|path| path.get("index")?.parse().ok());
        index
            .map(Self)
            .ok_or_else(|| Problem::invalid("index", "not the number of a group's candidate"))
    }
}

/// Reports a member of a group that finished or failed. The last one that was needed occupies the group.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/members/{index}", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path), ("index" = u32, Path)), request_body = NewMember,
    responses(
        (status = 200, body = MemberRecorded, description = "how the group stands, also when the member does not count"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`version_too_stale`, `version_not_published`, `segment_out_of_order`, `trajectory_discarded` with its \
                `reason`, `fenced`, `ledger_behind`")
    )
)]
pub(super) async fn member(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    MemberIndex(index): MemberIndex,
    Body(mut new): Body<NewMember>,
) -> Result<Answer<MemberRecorded>, Problem> {
    let caller = caller(new.worker.take(), new.session.take())?;
    let lineage = new.lineage;
    let report = report(index, new)?;
    let member = async move { app.ledger.member(&run, caller.as_ref(), lineage, id, &report).await };
    Ok(to_the_end(member).await?.into())
}

/// Records that the generation of a trajectory, or of a member of a group, goes on under a newer version.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trajectories/{id}/segments", tag = "rollout",
    params(("run" = String, Path), ("id" = uuid::Uuid, Path)), request_body = NewSegmentCall,
    responses(
        (status = 200, body = Segments, description = "all that are known; once generation is over, nothing is added"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_trajectory`, `unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`segment_out_of_order`, `version_not_published`, `version_too_stale`, `trajectory_discarded` with its \
                `reason`, `fenced`, `ledger_behind`")
    )
)]
pub(super) async fn segment(
    Client(app): Client,
    TrajectoryPath(run, id): TrajectoryPath,
    Body(new): Body<NewSegmentCall>,
) -> Result<Answer<Segments>, Problem> {
    let caller = caller(new.worker, new.session)?;
    let new = NewSegment {
        id,
        member: new.member,
        segment: Segment {
            version: new.version,
            from_token: within("from_token", new.from_token, 0..=GREATEST_EXACT)?,
        },
        lineage: new.lineage,
    };
    let segment = async move { app.ledger.segment(&run, caller.as_ref(), new).await };
    Ok(to_the_end(segment).await?.into())
}
