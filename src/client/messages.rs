//! The bodies of the calls that Berth's own processes make: what they send, and of the answers what they use.
//!
//! Answers may carry more than is listed here, which is ignored; requests say only what is meant.

use serde::{Deserialize, Serialize};

use crate::protocol::{BufferId, Epoch, Event, TrajectoryId, Version};

/// `PUT /v1/runs/{run}`: the part of the configuration that is not left at its default.
#[derive(Debug, Clone, Serialize)]
pub struct RunSettings {
    /// Entries in one batch.
    pub batch_size: u32,
    /// The bound on staleness, in policy versions.
    pub max_staleness: u64,
    /// How long a silent session keeps what it holds, in milliseconds.
    pub lease_ms: u64,
}

/// `GET /v1/runs/{run}`.
#[derive(Debug, Clone, Deserialize)]
pub struct RunStatus {
    /// The latest published version.
    pub policy_version: Version,
    /// Entries that hold a slot and still generate.
    pub reserved: u64,
    /// Finished entries that wait for their batch.
    pub occupied: u64,
    /// The sequence number of the run's last event.
    pub seq: u64,
}

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
    /// How long to wait for the first grant, in milliseconds.
    pub wait_ms: u64,
    /// What makes a repetition of this call recognisable.
    pub request_id: String,
}

/// The answer to [`Reserve`].
#[derive(Debug, Clone, Deserialize)]
pub struct Reserved {
    /// The entries that were admitted, possibly fewer than asked for.
    pub granted: Vec<Grant>,
    /// What kept the call from granting more.
    pub blocked_by: Option<String>,
    /// The latest published version.
    pub policy_version: Version,
}

/// An admitted entry.
#[derive(Debug, Clone, Deserialize)]
pub struct Grant {
    /// Its identity.
    pub id: TrajectoryId,
    /// Its name, if the client gave one.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The version it was admitted under.
    pub version: Version,
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

/// `POST …/workers/{worker}/heartbeat`.
#[derive(Debug, Clone, Serialize)]
pub struct Heartbeat {
    /// The worker's session.
    pub session: String,
    /// The version of the weights it holds.
    pub version: Version,
    /// Every entry that it is generating.
    pub holding: Vec<TrajectoryId>,
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
}

/// `POST …/trainer`: with its token the call may be repeated.
#[derive(Debug, Clone, Serialize)]
pub struct OpenTrainerSession {
    /// The trainer's name.
    pub trainer: String,
    /// The process's token, made at its start.
    pub session: String,
    /// The version that its checkpoint holds; `None` when it has none, which is refused once something was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<Version>,
}

/// The answer to [`OpenTrainerSession`].
#[derive(Debug, Clone, Deserialize)]
pub struct TrainerSession {
    /// What the trainer's calls carry from now on.
    pub epoch: Epoch,
    /// The version from which the trainer goes on.
    pub trainer_version: Version,
    /// The latest published version.
    pub policy_version: Version,
}

/// The answer to `POST …/batches/next`.
#[derive(Debug, Clone, Deserialize)]
pub struct NextBatch {
    /// The batch; `None` when it was not ready in time.
    pub batch: Option<TakenBatch>,
}

/// A batch that was taken for training.
#[derive(Debug, Clone, Deserialize)]
pub struct TakenBatch {
    /// The version that it trains into the next one.
    pub version: Version,
    /// Whether it was handed out before.
    pub redelivered: bool,
    /// Whether the version that it trains into is published already: the trainer resumed from an older checkpoint.
    #[serde(default)]
    pub replayed: bool,
    /// Its entries, in slot order.
    pub trajectories: Vec<BatchEntry>,
}

/// An entry of a batch.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchEntry {
    /// Its identity.
    pub id: TrajectoryId,
    /// The version it was admitted under.
    pub version: Version,
    /// How many versions older it is than the batch.
    pub staleness: u64,
    /// Its length in tokens.
    #[serde(default)]
    pub tokens: Option<u64>,
}

/// The answer to `POST …/versions`.
#[derive(Debug, Clone, Deserialize)]
pub struct Published {
    /// The latest published version.
    pub policy_version: Version,
}

/// The answer to `POST …/checkpoints`.
#[derive(Debug, Clone, Deserialize)]
pub struct Checkpointed {
    /// The oldest batch that is kept, if any is.
    pub oldest_kept: Option<Version>,
}

/// The answer to `GET …/versions/latest`.
#[derive(Debug, Clone, Deserialize)]
pub struct LatestVersion {
    /// The latest published version.
    pub policy_version: Version,
}

/// The answer to `GET …/buffers?slots=true`.
#[derive(Debug, Clone, Deserialize)]
pub struct Buffers {
    /// The latest published version.
    pub policy_version: Version,
    /// The first buffer that is not yet wholly taken.
    pub next_buffer: BufferId,
    /// The open buffers, front to rear.
    pub buffers: Vec<BufferTable>,
}

/// One open buffer.
#[derive(Debug, Clone, Deserialize)]
pub struct BufferTable {
    /// The version that its batch trains.
    pub version: BufferId,
    /// `ready`, `pending` or `stuck`.
    pub state: String,
    /// Its slots, front to rear.
    #[serde(default)]
    pub slots: Vec<SlotView>,
}

/// One slot.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SlotView {
    /// Nothing is in it.
    Empty,
    /// Somebody is generating for it.
    Reserved {
        /// Who.
        worker: String,
    },
    /// A finished entry waits in it.
    Occupied {
        /// How stale that entry will be when this buffer is trained.
        staleness: u64,
    },
    /// Something newer than this client.
    #[serde(other)]
    Other,
}

/// The answer to `GET …/workers`.
#[derive(Debug, Clone, Deserialize)]
pub struct Workers {
    /// The workers that the run knows.
    pub workers: Vec<WorkerView>,
}

/// One worker.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkerView {
    /// Its name.
    pub worker: String,
    /// The version it last said it holds.
    pub version: Option<Version>,
    /// How many entries it holds.
    pub reserved: u64,
    /// How many it has finished.
    pub finished: u64,
}

/// The answer to `GET …/events`.
#[derive(Debug, Clone, Deserialize)]
pub struct EventPage<E = Event> {
    /// The events, oldest first.
    pub events: Vec<E>,
    /// The `after` of the next page; `None` at the end.
    pub next: Option<u64>,
}
