//! *Reserve*: an entry is admitted under a version, to the latest legal place there is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Buffer, BufferId, Effect, Lineage, Place, SlotTables, TrajectoryId, Version, Weights};

/// What a Reserve did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// How many entries were granted: the adopted groups, and the first so many of the others.
    pub granted: usize,
    /// How many groups without an owner were adopted.
    pub adopted: usize,
    /// What blocked the next one, if not all were.
    pub blocked_by: Option<BlockedBy>,
    /// One [`Effect::Adopted`] for each adopted group, then one [`Effect::Reserved`] for each admitted entry, and, of a run
    /// with a prompt queue, the prompt that it took.
    pub effects: Vec<Effect>,
}

/// Why no more can be admitted now. Not an error: wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// The run is being finished.
    Draining,
    /// As many trajectories are being generated as `max_concurrency` allows, or not all of a group's candidates would fit.
    Concurrency,
    /// No buffer that an entry of this version may be trained in is both not ready and in possession of an empty slot.
    Staleness,
    /// No prompt is queued.
    Prompts,
}

/// Why a Reserve is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveRefusal {
    /// The worker speaks of a lineage that the run has not reached: the database lost writes.
    #[error("lineage {named} is not known: the latest is {lineage}")]
    LineageUnknown {
        /// The lineage that was named.
        named: Lineage,
        /// The run's.
        lineage: Lineage,
    },
    /// The worker claims weights that were never published, or that were abandoned.
    #[error("version {version} is not published, or was abandoned: the latest is {policy_version}")]
    VersionNotPublished {
        /// The version that was named.
        version: Version,
        /// `V`.
        policy_version: Version,
    },
    /// The worker must fetch newer weights: what they generate is too stale for every buffer to come.
    #[error("version {version} is too stale: its deadline is buffer {deadline}, the next one {next_buffer}")]
    VersionTooStale {
        /// The version that was named.
        version: Version,
        /// The last buffer that an entry of it may be trained in.
        deadline: BufferId,
        /// `H`.
        next_buffer: BufferId,
    },
    /// An id belongs to one entry for ever, and this one was given before.
    #[error("{id} was admitted before")]
    IdReused {
        /// The id.
        id: TrajectoryId,
    },
}

impl SlotTables {
    /// Admits entries that these weights are to generate, in order, until one is blocked.
    ///
    /// # Errors
    ///
    /// As [`ReserveRefusal`] says.
    pub fn reserve(&mut self, weights: Weights, ids: &[TrajectoryId]) -> Result<Reserved, ReserveRefusal> {
        self.refuse_weights(weights)?;
        self.refuse_reused(ids)?;
        Ok(self.admit_each(weights.version, ids))
    }

    /// As [`reserve`](Self::reserve), but groups without an owner come first, before all that blocks an admission
    /// (*Adoption*). Each takes the place of one of `ids` from the first on, which is then not used.
    ///
    /// # Errors
    ///
    /// As [`ReserveRefusal`] says.
    pub fn reserve_adopting(&mut self, weights: Weights, ids: &[TrajectoryId]) -> Result<Reserved, ReserveRefusal> {
        self.refuse_weights(weights)?;
        let version = weights.version;
        let adopted = self.adoptable(version).count().min(ids.len());
        self.refuse_reused(&ids[adopted..])?;
        let mut effects = Vec::new();
        self.adopt(version, adopted, &mut effects);
        let reserved = self.admit_each(version, &ids[adopted..]);
        effects.extend(reserved.effects);
        Ok(Reserved {
            granted: adopted + reserved.granted,
            adopted,
            effects,
            ..reserved
        })
    }

    fn admit_each(&mut self, version: Version, ids: &[TrajectoryId]) -> Reserved {
        let mut reserved = Reserved {
            granted: 0,
            adopted: 0,
            blocked_by: None,
            effects: Vec::new(),
        };
        for &id in ids {
            match self.admission(version) {
                Ok(to) => {
                    self.admit(id, version, to, &mut reserved.effects);
                    self.hand_out(id, &mut reserved.effects);
                }
                Err(blocked_by) => {
                    reserved.blocked_by = Some(blocked_by);
                    break;
                }
            }
            reserved.granted += 1;
        }
        reserved
    }

    /// The slot that Reserve gives to an entry of this version, concurrency aside: in the latest legal buffer that is
    /// not ready and has an empty slot, the rear-most one.
    pub(super) fn reservable(&self, version: Version) -> Option<Place> {
        self.legal_buffers(self.deadline(version))
            .rfind(|buffer| buffer.is_pending())
            .and_then(Buffer::rear_most_empty)
    }

    pub(super) fn admit(&mut self, id: TrajectoryId, version: Version, to: Place, effects: &mut Vec<Effect>) {
        self.set_reserved(id, version, to);
        effects.push(Effect::Reserved { id, version, to });
    }

    fn refuse_weights(&self, weights: Weights) -> Result<(), ReserveRefusal> {
        let Weights { version, lineage } = weights;
        if lineage > self.lineage {
            return Err(ReserveRefusal::LineageUnknown {
                named: lineage,
                lineage: self.lineage,
            });
        }
        if version > self.policy_version || self.is_abandoned(weights) {
            return Err(ReserveRefusal::VersionNotPublished {
                version,
                policy_version: self.policy_version,
            });
        }
        let deadline = self.deadline(version);
        // The newest weights are never too stale: with η = 0 they wait for the publish that opens the next buffer.
        if deadline < self.next_buffer && version < self.policy_version {
            return Err(ReserveRefusal::VersionTooStale {
                version,
                deadline,
                next_buffer: self.next_buffer,
            });
        }
        Ok(())
    }

    fn refuse_reused(&self, ids: &[TrajectoryId]) -> Result<(), ReserveRefusal> {
        let mut seen = BTreeSet::new();
        let reused = ids
            .iter()
            .find(|id| self.entries.contains_key(id) || !seen.insert(**id));
        match reused {
            Some(&id) => Err(ReserveRefusal::IdReused { id }),
            None => Ok(()),
        }
    }

    fn admission(&self, version: Version) -> Result<Place, BlockedBy> {
        if self.is_draining_to_a_stop() {
            return Err(BlockedBy::Draining);
        }
        let generating = self.generating().saturating_add(self.candidates());
        if self.config.max_concurrency.is_some_and(|limit| generating > limit) {
            return Err(BlockedBy::Concurrency);
        }
        let place = self.reservable(version).ok_or(BlockedBy::Staleness)?;
        if !self.has_prompt() {
            return Err(BlockedBy::Prompts);
        }
        Ok(place)
    }
}
