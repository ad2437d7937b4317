//! The trainer's side: take, publish, and the latest version (protocol, *Take* and *Publish*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::batches::Batch;
use super::{Ledger, LedgerError, Refusal, RunName, Seen, error::refused};
use crate::protocol::tables::BufferState;
use crate::protocol::{BufferId, Version};
use crate::store::{StoreError, script};

/// The answer to a Take.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum NextBatch {
    /// The batch.
    Taken(TakenBatch),
    /// Why there is none.
    NotReady(NoBatch),
}

/// A batch that was taken.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TakenBatch {
    /// The batch.
    pub batch: Batch,
    /// The state of its buffer: `ready`.
    pub buffer_state: BufferState,
    /// Whether the run is finished and a process may exit.
    pub finished: bool,
}

/// Why there is no batch now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NoBatch {
    /// Null.
    #[serde(default)]
    #[schema(value_type = Option<Batch>)]
    pub batch: (),
    /// The state of the next buffer.
    pub buffer_state: Option<BufferState>,
    /// Finished entries in it.
    pub occupied: u32,
    /// Entries that make a batch.
    pub needed: u32,
    /// How long the trainer has waited, in milliseconds.
    pub waiting_for_ms: u64,
    /// Whether the run is finished and a process may exit.
    #[serde(default)]
    pub finished: bool,
}

#[derive(Serialize)]
struct TakeArgs {
    version: Option<BufferId>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum TakeOutcome {
    Taken {
        version: BufferId,
        entries: usize,
        redelivered: bool,
    },
    NotReady(NoBatch),
    OtherBatch {
        expected: BufferId,
    },
}

#[derive(Serialize)]
struct PublishArgs<'a> {
    version: Version,
    weights: Option<&'a str>,
}

/// The answer to a Publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// `T`: the version that the trainer stands at.
    pub trainer_version: Version,
    /// The lineage of the weights.
    pub lineage: u64,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum PublishOutcome {
    Published(Published),
    PublishOutOfOrder { expected: Version, taken: bool },
}

/// The latest version and its weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LatestVersion {
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: u64,
    /// Where the weights are, if the trainer said.
    pub weights: Option<String>,
    /// When it was published, in Unix milliseconds of the database's clock.
    pub published_at_ms: u64,
    /// Whether the run is finished and a process may exit.
    pub finished: bool,
}

#[derive(Deserialize)]
pub(super) struct VersionRecord {
    weights: Option<String>,
    pub(super) published_at_ms: u64,
}

impl Ledger {
    /// Takes the next batch whole, or the one that was taken and whose successor is not published yet.
    ///
    /// `version` is the batch that the caller means, if it says.
    pub async fn take(&self, run: &RunName, version: Option<BufferId>) -> Result<Seen<NextBatch>, LedgerError> {
        let seen = self
            .call::<TakeOutcome>(&script::TAKE, run, &TakeArgs { version })
            .await?;
        match seen.value {
            TakeOutcome::NotReady(ref none) => Ok(Seen {
                seq: seen.seq,
                value: NextBatch::NotReady(none.clone()),
            }),
            TakeOutcome::OtherBatch { expected } => Err(refused(&seen, Refusal::OtherBatch { expected })),
            TakeOutcome::Taken {
                version,
                entries,
                redelivered,
            } => {
                let batch = self.read_batch(run, version, 0, entries).await?;
                let batch = Batch {
                    redelivered,
                    ..batch.value
                };
                let taken = TakenBatch {
                    batch,
                    buffer_state: BufferState::Ready,
                    finished: false,
                };
                Ok(Seen {
                    seq: seen.seq,
                    value: NextBatch::Taken(taken),
                })
            }
        }
    }

    /// Publishes a version. One that is published already stays; it gets `weights` if it has none yet.
    pub async fn publish(
        &self,
        run: &RunName,
        version: Version,
        weights: Option<&str>,
    ) -> Result<Seen<Published>, LedgerError> {
        let seen = self
            .call::<PublishOutcome>(&script::PUBLISH, run, &PublishArgs { version, weights })
            .await?;
        match seen.value {
            PublishOutcome::Published(value) => Ok(Seen { seq: seen.seq, value }),
            PublishOutcome::PublishOutOfOrder { expected, taken } => {
                Err(refused(&seen, Refusal::PublishOutOfOrder { expected, taken }))
            }
        }
    }

    /// The latest version and its weights.
    pub async fn latest_version(&self, run: &RunName) -> Result<Seen<LatestVersion>, LedgerError> {
        let view = self.view_run(run).await?;
        let state = &view.value.state;
        let mut get = redis::cmd("HGET");
        get.arg(Self::keys(run).part("versions")).arg(state.policy_version.0);
        let packed: Option<Vec<u8>> = self.store.command(&get).await?;
        let Some(packed) = packed else {
            return Err(refused(&view, Refusal::UnknownRun));
        };
        let record: VersionRecord = rmp_serde::from_slice(&packed).map_err(StoreError::from)?;
        let latest = LatestVersion {
            policy_version: state.policy_version,
            lineage: state.lineage,
            weights: record.weights,
            published_at_ms: record.published_at_ms,
            finished: false,
        };
        Ok(Seen {
            seq: view.seq,
            value: latest,
        })
    }
}
