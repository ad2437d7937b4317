//! The batches that are kept for a replay, a rewind or a reader, and those that are let go of and forgotten.

use super::{BatchEntry, Effect, EntryState, SessionRefusal, SlotTables};
use crate::protocol::{Epoch, TrajectoryId, Version};

/// What a Checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpointed {
    /// The oldest batch that is kept, if one is.
    pub oldest_kept: Option<Version>,
    /// Whether the batches below it had not all been let go of. If not, nothing has changed.
    pub changed: bool,
}

/// Why a Checkpoint is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointRefusal {
    /// The caller is not the trainer whose session is open.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// The trainer has not come as far.
    #[error("there can be no checkpoint of version {version}: the trainer stands at {trainer_version}")]
    VersionNotPublished {
        /// The version that it is said to hold.
        version: Version,
        /// `T`.
        trainer_version: Version,
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
    /// Its batch is not let go of.
    #[error("batch {batch} is kept")]
    Kept {
        /// The version that its batch trains.
        batch: Version,
    },
}

impl SlotTables {
    /// The numbers of the kept batches, oldest first. A forced resume leaves some out, which never were batches.
    pub fn kept_batches(&self) -> impl DoubleEndedIterator<Item = Version> {
        self.batches.range(self.oldest_kept..).map(|(version, _)| *version)
    }

    /// The entries of a batch in slot order, or those of one that is being forgotten that are left.
    pub fn batch(&self, version: Version) -> &[BatchEntry] {
        self.batches.get(&version).map_or(&[], Vec::as_slice)
    }

    /// Whether the batch was taken and is not let go of.
    pub fn is_kept(&self, version: Version) -> bool {
        version >= self.oldest_kept && self.batches.contains_key(&version)
    }

    /// A durable checkpoint of `version` makes the batches below it unnecessary.
    ///
    /// # Errors
    ///
    /// As [`CheckpointRefusal`] says.
    pub fn checkpoint(&mut self, version: Version, epoch: Option<Epoch>) -> Result<Checkpointed, CheckpointRefusal> {
        self.refuse_session(epoch)?;
        if version > self.trainer_version {
            return Err(CheckpointRefusal::VersionNotPublished {
                version,
                trainer_version: self.trainer_version,
            });
        }
        let changed = version > self.oldest_kept;
        self.let_go_below(version);
        Ok(Checkpointed {
            oldest_kept: self.kept_batches().next(),
            changed,
        })
    }

    /// Forgets an entry of a batch that is let go of.
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
        self.forget(id);
        Ok(Effect::Pruned { id })
    }

    /// Forgets the entry, in its batch and altogether.
    pub(super) fn forget(&mut self, id: TrajectoryId) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        self.forget_prompt(id);
        let EntryState::Taken { place } = entry.state else {
            return;
        };
        let version = Version(place.buffer.0);
        if let Some(batch) = self.batches.get_mut(&version) {
            batch.retain(|entry| entry.id != id);
            if batch.is_empty() {
                self.batches.remove(&version);
                self.finals.remove(&version);
            }
        }
    }

    /// At most `keep_batches` taken batches are kept, counted by number, but always those from `T` on.
    pub(super) fn note_oldest_kept(&mut self) {
        let beyond_limit = self.next_buffer.0.saturating_sub(self.config.keep_batches);
        self.let_go_below(Version(beyond_limit).min(self.trainer_version));
    }

    /// What was once let go of is not kept again.
    pub(super) fn let_go_below(&mut self, version: Version) {
        self.oldest_kept = self.oldest_kept.max(version);
    }

    /// The first of the batches `from ..= to - 1` that is not kept.
    pub(super) fn first_not_kept(&self, from: Version, to: Version) -> Option<Version> {
        (from.0..to.0).map(Version).find(|batch| !self.is_kept(*batch))
    }
}
