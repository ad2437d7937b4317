//! *Take* and *Publish*: the trainer's side. Also the forgetting of old batches.

use super::{Buffer, BufferId, BufferState, Effect, EntryState, Reason, SlotTables};
use crate::protocol::{TrajectoryId, Version};

/// The answer to a Take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// The next buffer is not ready. Nothing has changed.
    NotReady {
        /// What it waits for.
        state: BufferState,
        /// How many finished entries it holds.
        occupied: usize,
        /// How many it needs: `batch_size`.
        needed: usize,
    },
    /// A batch, to be trained now.
    Taken {
        /// The version that it trains into the next one.
        version: Version,
        /// Its entries, in slot order.
        entries: Vec<BatchEntry>,
        /// Whether it had been taken already: nothing has changed then.
        redelivered: bool,
        /// The reservations that were left in it, discarded as surplus.
        effects: Vec<Effect>,
    },
}

/// One entry of a taken batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The entry.
    pub id: TrajectoryId,
    /// The policy version it was admitted under.
    pub version: Version,
}

/// What a Publish did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// The version is the policy version now, and one more buffer is open.
    Advanced,
    /// It was published before. Nothing has changed.
    Unchanged,
}

/// Why a Publish is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// A version was skipped.
    #[error("the next version to publish is {expected}")]
    OutOfOrder {
        /// `V + 1`.
        expected: Version,
    },
    /// The batch that trains `V` into the version was not taken yet.
    #[error("batch {batch} was not taken yet")]
    NotTaken {
        /// `V`.
        batch: Version,
    },
}

/// Why an entry is not forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PruneRefusal {
    /// No such entry was ever admitted, or it has been forgotten.
    #[error("no such entry")]
    Unknown,
    /// It is in no batch.
    #[error("the entry was not taken")]
    NotTaken,
    /// Its batch is one of the last `keep_batches`, or in training.
    #[error("batch {batch} is kept")]
    Kept {
        /// The version that its batch trains.
        batch: Version,
    },
}

impl SlotTables {
    /// Takes the next buffer for training if it is ready, or redelivers the batch that is in training.
    pub fn take(&mut self) -> Take {
        let training = self.policy_version;
        let next = match self.window.front() {
            Some(next) if next.id() == BufferId(training.0) => next,
            _ => {
                return Take::Taken {
                    version: training,
                    entries: self.last_batch.clone(),
                    redelivered: true,
                    effects: Vec::new(),
                };
            }
        };
        let state = next.state();
        if state != BufferState::Ready {
            return Take::NotReady {
                state,
                occupied: next.occupied().count(),
                needed: self.config.batch_size as usize,
            };
        }
        let mut effects = Vec::new();
        self.close_next_buffer(&mut effects);
        self.discard_surplus(&mut effects);
        Take::Taken {
            version: training,
            entries: self.last_batch.clone(),
            redelivered: false,
            effects,
        }
    }

    /// `version` is published. Publishing an older version, or the latest again, changes nothing and succeeds.
    ///
    /// # Errors
    ///
    /// As [`PublishRefusal`] says.
    pub fn publish(&mut self, version: Version) -> Result<Publish, PublishRefusal> {
        if version <= self.policy_version {
            return Ok(Publish::Unchanged);
        }
        let expected = Version(self.policy_version.0 + 1);
        if version != expected {
            return Err(PublishRefusal::OutOfOrder { expected });
        }
        if self.next_buffer == BufferId(self.policy_version.0) {
            return Err(PublishRefusal::NotTaken {
                batch: self.policy_version,
            });
        }
        self.policy_version = version;
        self.window
            .push_back(Buffer::empty(self.deadline(version), &self.config));
        self.note_oldest_kept();
        Ok(Publish::Advanced)
    }

    /// Forgets an entry of a batch that is past `keep_batches`.
    ///
    /// # Errors
    ///
    /// As [`PruneRefusal`] says.
    pub fn prune(&mut self, id: TrajectoryId) -> Result<Effect, PruneRefusal> {
        let entry = self.entries.get(&id).ok_or(PruneRefusal::Unknown)?;
        let EntryState::Taken { place } = entry.state else {
            return Err(PruneRefusal::NotTaken);
        };
        let batch = Version(place.buffer.0);
        if batch >= self.oldest_kept {
            return Err(PruneRefusal::Kept { batch });
        }
        self.entries.remove(&id);
        Ok(Effect::Pruned { id })
    }

    /// Makes the finished entries of buffer `H` a batch, and `H` the buffer after it; what is reserved there is
    /// surplus. Does nothing when no buffer is open.
    pub(super) fn close_next_buffer(&mut self, effects: &mut Vec<Effect>) {
        let Some(next) = self.window.front() else {
            return;
        };
        let next_buffer = BufferId(next.id().0 + 1);
        let reserved: Vec<_> = next.reservations().map(|(place, ..)| place).collect();
        let occupied: Vec<_> = next.occupied().collect();

        for place in reserved {
            self.drop_from(place, Reason::Surplus, effects);
        }
        self.last_batch.clear();
        for (place, id, version) in occupied {
            self.record(id, version, EntryState::Taken { place });
            self.last_batch.push(BatchEntry { id, version });
        }
        self.window.pop_front();
        self.next_buffer = next_buffer;
        self.note_oldest_kept();
    }

    /// At most `keep_batches` taken batches are kept, but always those from `V` on. What was once let go of is not
    /// kept again when the number is raised.
    pub(super) fn note_oldest_kept(&mut self) {
        let beyond_limit = self.next_buffer.0.saturating_sub(self.config.keep_batches);
        let oldest = Version(beyond_limit).min(self.policy_version);
        self.oldest_kept = self.oldest_kept.max(oldest);
    }
}
