//! What trainers say and hear.

use serde::{Deserialize, Serialize};

use crate::protocol::{Epoch, TrajectoryId, Version};

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

/// Which piece of a batch is wanted (*Stream*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The batch: a trainer that lags is never given another one.
    pub version: Version,
    /// How many of its entries the caller has.
    pub from_offset: usize,
    /// The fewest that are worth an answer, unless the batch lacks fewer.
    pub min_entries: usize,
}

/// The answer to `POST …/batches/next`.
#[derive(Debug, Clone, Deserialize)]
pub struct NextBatch {
    /// The batch, or the piece of it; `None` when it was not ready in time.
    pub batch: Option<TakenBatch>,
}

/// A batch, or a piece of one, that was taken for training.
#[derive(Debug, Clone, Deserialize)]
pub struct TakenBatch {
    /// The version that it trains into the next one.
    pub version: Version,
    /// Whether it was handed out before.
    pub redelivered: bool,
    /// Whether the version that it trains into is published already: the trainer resumed from an older checkpoint.
    #[serde(default)]
    pub replayed: bool,
    /// How many entries of the batch come before this piece.
    #[serde(default)]
    pub offset: usize,
    /// Whether nothing of the batch comes after it; `None` from a server that has no pieces.
    #[serde(default)]
    pub complete: Option<bool>,
    /// Its entries, in slot order.
    pub trajectories: Vec<BatchEntry>,
}

/// An entry of a batch.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchEntry {
    /// Its identity.
    pub id: TrajectoryId,
    /// Its name, if its client gave one.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The version it was admitted under.
    pub version: Version,
    /// How many versions older it is than the batch.
    pub staleness: u64,
    /// Its length in tokens; of a group, that of its members together.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// The complete members of a group, by index.
    #[serde(default)]
    pub members: Option<Vec<BatchMember>>,
}

/// A member of a group in a batch.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchMember {
    /// Which of the candidates it is.
    pub index: u32,
    /// The version that generated it.
    pub version: Version,
    /// Its reward.
    #[serde(default)]
    pub reward: Option<f64>,
    /// Its reward, normalised within the group.
    #[serde(default)]
    pub advantage: Option<f64>,
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
