//! What rollout workers say and hear.

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::protocol::{TrajectoryId, Version};

/// `POST …/reservations`.
///
/// `request_id` is not optional here: with it the call may be repeated, and what it granted is granted once.
#[derive(Debug, Clone, Serialize)]
pub struct Reserve {
    /// The worker's name.
    pub worker: String,
    /// Its session.
    pub session: String,
    /// How many entries are wanted, at least 1.
    pub count: usize,
    /// The version of the weights the worker holds; `None` for the one it last said in a heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// A name for each entry; none at all, or `count` of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// Whether groups without an owner are wanted too; `None` for the run's `adopt_groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,
    /// How long to wait for the first grant, in milliseconds.
    pub wait_ms: u64,
    /// What makes a repetition of this call recognisable.
    pub request_id: String,
}

/// The answer to [`Reserve`].
#[derive(Debug, Clone, Deserialize)]
pub struct Reserved {
    /// The entries that were admitted or adopted, possibly fewer than asked for.
    pub granted: Vec<Grant>,
    /// What kept the call from granting more.
    pub blocked_by: Option<String>,
    /// The latest published version.
    pub policy_version: Version,
}

/// An admitted entry, or an adopted group.
#[derive(Debug, Clone, Deserialize)]
pub struct Grant {
    /// Its identity.
    pub id: TrajectoryId,
    /// Its name, if the client gave one.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The version it was admitted under.
    pub version: Version,
    /// Whether it is a group that another session began.
    #[serde(default)]
    pub adopted: bool,
    /// Which members of an adopted group are complete.
    #[serde(default)]
    pub members_done: Option<Vec<u32>>,
    /// Which failed.
    #[serde(default)]
    pub members_failed: Option<Vec<u32>>,
}

/// `POST …/trajectories/{id}/occupy`.
#[derive(Debug, Clone, Serialize)]
pub struct Finish {
    /// The worker's name.
    pub worker: String,
    /// Its session.
    pub session: String,
    /// The reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The response's length in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Where the tokens and their log-probs are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// What a trainer needs at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Value>,
}

/// The answer to [`Finish`].
#[derive(Debug, Clone, Deserialize)]
pub struct Occupied {
    /// Whether the entry had been discarded, and was saved.
    #[serde(default)]
    pub late: bool,
}

/// `POST …/trajectories/{id}/members/{index}`: a member of a group that is complete, or failed.
#[derive(Debug, Clone, Serialize)]
pub struct MemberReport {
    /// The worker's name.
    pub worker: String,
    /// Its session.
    pub session: String,
    /// The version that generated it; `None` for the one that the session last said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Whether it failed.
    #[serde(skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The response's length in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Where the tokens and their log-probs are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// What a trainer needs at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Value>,
}

/// The answer to [`MemberReport`].
#[derive(Debug, Clone, Deserialize)]
pub struct MemberAnswer {
    /// The group's state: `reserved`, `occupied`, `taken` or `discarded`.
    pub state: String,
    /// Whether the member counts: not if it was reported before, or the group had all it needs.
    pub counted: bool,
    /// How many members are complete.
    #[serde(default)]
    pub complete: Option<u32>,
    /// How many the group needs.
    #[serde(default)]
    pub needed: Option<u32>,
    /// Whether the group had been discarded, and this member saved it.
    #[serde(default)]
    pub late: bool,
    /// Why the group was discarded, if it was.
    #[serde(default)]
    pub reason: Option<String>,
}

/// `POST …/workers/{worker}/heartbeat`.
#[derive(Debug, Clone, Serialize)]
pub struct Heartbeat {
    /// The worker's session.
    pub session: String,
    /// The version of the weights it holds.
    pub version: Version,
    /// Every entry that it is generating; `None` says nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<Vec<TrajectoryId>>,
    /// The cancellations that it has acted on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<TrajectoryId>,
    /// How long to wait for news, in milliseconds.
    pub wait_ms: u64,
}

/// The answer to [`Heartbeat`].
#[derive(Debug, Clone, Deserialize)]
pub struct HeartbeatAnswer {
    /// The latest published version.
    pub policy_version: Version,
    /// Entries that were discarded under the worker's hands, until it acknowledges them.
    pub cancelled: Vec<Cancelled>,
}

/// An entry that its worker should stop generating.
#[derive(Debug, Clone, Deserialize)]
pub struct Cancelled {
    /// Its identity.
    pub id: TrajectoryId,
    /// Why.
    pub reason: String,
    /// The members to be stopped, where the group itself is not discarded.
    #[serde(default)]
    pub members: Option<Vec<u32>>,
}
