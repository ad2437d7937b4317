//! Trainer sessions and what their checkpoints let go of (protocol, *The trainer*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names::{SessionToken, TrainerName};
use super::{Ledger, LedgerError, Refusal, RunName, Seen, error::refused};
use crate::protocol::{BufferId, Epoch, Lineage, ResumeMode, Version};
use crate::store::script;

/// A trainer process that starts, and what it goes on from.
#[derive(Debug, Clone, Serialize)]
pub struct Resume {
    /// The trainer.
    pub trainer: TrainerName,
    /// The process's token: the same one again is the same session.
    pub session: SessionToken,
    /// The version that its checkpoint holds; may be left out before the first publish.
    pub resume_from: Option<Version>,
    /// How to go on from a checkpoint that is older than the latest version.
    pub mode: ResumeMode,
    /// Whether to go on although the database, or the batches to be trained again, are not what they should be.
    pub force: bool,
}

#[derive(Serialize)]
struct ResumeArgs<'a> {
    even_behind: bool,
    #[serde(flatten)]
    resume: &'a Resume,
}

/// An open trainer session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resumed {
    /// The session's number. Take, publish and checkpoint carry it.
    pub epoch: Epoch,
    /// `T`: the version that the trainer stands at, and trains next.
    pub trainer_version: Version,
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
    /// Where the weights of the latest version are, if the trainer said.
    pub weights: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum ResumeOutcome {
    Resumed(Resumed),
    Fenced,
    ResumeFromMissing,
    BatchPruned { version: BufferId },
    LedgerBehind { policy_version: Version },
}

#[derive(Serialize)]
struct CheckpointArgs {
    epoch: Option<Epoch>,
    version: Version,
}

/// What is kept after a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpointed {
    /// The oldest batch that is kept; null when none is.
    #[serde(default)]
    pub oldest_kept: Option<BufferId>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum CheckpointOutcome {
    LetGo(Checkpointed),
    VersionNotPublished { policy_version: Version },
}

impl Ledger {
    /// Opens a trainer session. Repeated with the same token, it is answered as the first time.
    pub async fn resume(&self, run: &RunName, resume: &Resume) -> Result<Seen<Resumed>, LedgerError> {
        let args = ResumeArgs {
            even_behind: true,
            resume,
        };
        let seen = self.call::<ResumeOutcome>(&script::RESUME, run, &args).await?;
        let refusal = match seen.value {
            ResumeOutcome::Resumed(value) => return Ok(Seen { seq: seen.seq, value }),
            ResumeOutcome::Fenced => Refusal::Fenced,
            ResumeOutcome::ResumeFromMissing => Refusal::ResumeFromMissing,
            ResumeOutcome::BatchPruned { version } => Refusal::BatchPruned { version },
            ResumeOutcome::LedgerBehind { policy_version } => Refusal::CheckpointAhead { policy_version },
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }

    /// The trainer has a durable checkpoint of `version`: the batches below it need not be kept. Safe to repeat.
    pub async fn checkpoint(
        &self,
        run: &RunName,
        version: Version,
        epoch: Option<Epoch>,
    ) -> Result<Seen<Checkpointed>, LedgerError> {
        let args = CheckpointArgs { epoch, version };
        let seen = self.call::<CheckpointOutcome>(&script::CHECKPOINT, run, &args).await?;
        match seen.value {
            CheckpointOutcome::LetGo(value) => Ok(Seen { seq: seen.seq, value }),
            CheckpointOutcome::VersionNotPublished { policy_version } => Err(refused(
                &seen,
                Refusal::VersionNotPublished {
                    version: Some(version),
                    policy_version,
                },
            )),
        }
    }
}
