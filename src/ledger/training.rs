//! The trainer's side: take, publish, and the latest version (protocol, *Take* and *Publish*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::batches::Batch;
use super::{Ledger, LedgerError, Refusal, RunName, Seen, error::refused};
use crate::protocol::tables::BufferState;
use crate::protocol::{BufferId, Epoch, Lineage, Version};
use crate::store::script;

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
    /// The state of its buffer: `ready`, unless it is in pieces of which some are to come.
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

/// Which piece of a batch a trainer wants (*Stream*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PieceRequest {
    /// How many entries of the batch it has already.
    pub from: usize,
    /// The fewest new entries that are worth taking, at least 1; what the batch lacks, if that is less.
    pub min_entries: usize,
    /// The most entries to be given, at least 1.
    pub max_entries: Option<usize>,
}

/// Which batch a trainer wants, and by what right.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TakeRequest {
    /// The number of the trainer's session, once there was one.
    pub epoch: Option<Epoch>,
    /// The batch that it means, if it says.
    pub version: Option<BufferId>,
}

/// A version that a trainer publishes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PublishRequest<'a> {
    /// The number of the trainer's session, once there was one.
    pub epoch: Option<Epoch>,
    /// The version.
    pub version: Version,
    /// Where its weights are.
    pub weights: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamArgs {
    #[serde(flatten)]
    batch: TakeRequest,
    #[serde(flatten)]
    piece: PieceRequest,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum StreamOutcome {
    Piece(PieceTaken),
    NotReady(NoBatch),
    Drained,
    OtherBatch { expected: BufferId },
    BeyondTaken { taken: usize },
}

#[derive(Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of it, under the contract's name"
)]
struct PieceTaken {
    version: BufferId,
    offset: usize,
    entries: usize,
    complete: bool,
    #[serde(rename = "final")]
    is_final: bool,
    redelivered: bool,
    replayed: bool,
    buffer_state: BufferState,
    lineage: Lineage,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum TakeOutcome {
    Drained,
    Taken {
        version: BufferId,
        entries: usize,
        redelivered: bool,
        replayed: bool,
        lineage: Lineage,
    },
    NotReady(NoBatch),
    OtherBatch {
        expected: BufferId,
    },
}

/// The answer to a Publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// `T`: the version that the trainer stands at.
    pub trainer_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum PublishOutcome {
    Published(Published),
    PublishOutOfOrder {
        expected: Version,
        taken: bool,
        delivered: bool,
    },
}

/// The latest version and its weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LatestVersion {
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
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
    /// Takes a piece of the next batch, or gives what was taken of one that the caller does not have yet.
    pub async fn stream(
        &self,
        run: &RunName,
        batch: TakeRequest,
        piece: PieceRequest,
    ) -> Result<Seen<NextBatch>, LedgerError> {
        let args = StreamArgs { batch, piece };
        loop {
            let seen = self.call::<StreamOutcome>(&script::STREAM, run, &args).await?;
            let taken = match seen.value {
                StreamOutcome::NotReady(none) => {
                    return Ok(Seen {
                        seq: seen.seq,
                        value: NextBatch::NotReady(none),
                    });
                }
                StreamOutcome::OtherBatch { expected } => {
                    return Err(refused(&seen, Refusal::OtherBatch { expected }));
                }
                StreamOutcome::BeyondTaken { taken } => {
                    return Err(refused(&seen, Refusal::BeyondTaken { taken }));
                }
                // There may be another step of it.
                StreamOutcome::Drained => continue,
                StreamOutcome::Piece(taken) => taken,
            };
            let read = self.read_batch(run, taken.version, taken.offset, taken.entries).await;
            // As of a whole batch.
            if self.view_run(run).await?.value.state.lineage != taken.lineage {
                continue;
            }
            let batch = Batch {
                complete: taken.complete,
                is_final: taken.is_final,
                redelivered: taken.redelivered,
                replayed: taken.replayed,
                ..read?.value
            };
            let taken = TakenBatch {
                batch,
                buffer_state: taken.buffer_state,
                finished: false,
            };
            return Ok(Seen {
                seq: seen.seq,
                value: NextBatch::Taken(taken),
            });
        }
    }

    /// Takes the next batch whole, or the one that was taken and whose successor is not published yet, or the next of those that
    /// are to be trained again.
    pub async fn take(&self, run: &RunName, request: TakeRequest) -> Result<Seen<NextBatch>, LedgerError> {
        loop {
            let seen = self.call::<TakeOutcome>(&script::TAKE, run, &request).await?;
            let (version, entries, redelivered, replayed, lineage) = match seen.value {
                TakeOutcome::NotReady(none) => {
                    return Ok(Seen {
                        seq: seen.seq,
                        value: NextBatch::NotReady(none),
                    });
                }
                TakeOutcome::Drained => continue,
                TakeOutcome::OtherBatch { expected } => {
                    let refusal = Refusal::OtherBatch { expected };
                    return Err(LedgerError::Refused { seq: seen.seq, refusal });
                }
                TakeOutcome::Taken {
                    version,
                    entries,
                    redelivered,
                    replayed,
                    lineage,
                } => (version, entries, redelivered, replayed, lineage),
            };
            let read = self.read_batch(run, version, 0, entries).await;
            // A rewind meanwhile may have made it another batch, or none. Then the caller is told what it is told now.
            if self.view_run(run).await?.value.state.lineage != lineage {
                continue;
            }
            let batch = Batch {
                redelivered,
                replayed,
                ..read?.value
            };
            let taken = TakenBatch {
                batch,
                buffer_state: BufferState::Ready,
                finished: false,
            };
            return Ok(Seen {
                seq: seen.seq,
                value: NextBatch::Taken(taken),
            });
        }
    }

    /// Publishes a version. One that is published already stays; it gets `weights` if it has none yet.
    pub async fn publish(&self, run: &RunName, request: PublishRequest<'_>) -> Result<Seen<Published>, LedgerError> {
        let seen = self.call::<PublishOutcome>(&script::PUBLISH, run, &request).await?;
        match seen.value {
            PublishOutcome::Published(value) => Ok(Seen { seq: seen.seq, value }),
            PublishOutcome::PublishOutOfOrder {
                expected,
                taken,
                delivered,
            } => {
                let refusal = Refusal::PublishOutOfOrder {
                    expected,
                    taken,
                    delivered,
                };
                Err(refused(&seen, refusal))
            }
        }
    }

    /// The latest version and its weights.
    pub async fn latest_version(&self, run: &RunName) -> Result<Seen<LatestVersion>, LedgerError> {
        let view = self.view_run(run).await?;
        // Every run has a record of its latest version.
        let Some(latest) = &view.value.latest else {
            return Err(refused(&view, Refusal::UnknownRun));
        };
        let latest = LatestVersion {
            policy_version: view.value.state.policy_version,
            lineage: view.value.state.lineage,
            finished: view.value.finished,
            weights: latest.weights.clone(),
            published_at_ms: latest.published_at_ms,
        };
        Ok(Seen {
            seq: view.seq,
            value: latest,
        })
    }
}
