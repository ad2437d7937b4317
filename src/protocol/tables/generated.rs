//! *Partial rollout*: which versions have generated an entry, and may go on with it.

use super::{Effect, Entry, EntryState, Lineage, OccupyRefusal, Reason, SlotTables, TrajectoryId, Version, Weights};

/// What generated a trajectory or a member: the weights that began it, and the newest that went on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// The version that it was begun under.
    pub first: Version,
    /// The newest version that generated a part of it.
    pub newest: Version,
    /// The lineage in which both are spoken of.
    pub lineage: Lineage,
}

/// Why nothing can be recorded that these weights are said to have generated. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeightsRefusal {
    /// The caller speaks of a lineage that the run has not reached: the database lost writes.
    #[error("lineage {named} is not known: the latest is {lineage}")]
    LineageUnknown {
        /// The lineage that was named.
        named: Lineage,
        /// The run's.
        lineage: Lineage,
    },
    /// A later rewind or forced resume went to below the version.
    #[error("version {version} was abandoned: the latest is {policy_version}")]
    Abandoned {
        /// The version.
        version: Version,
        /// `V`.
        policy_version: Version,
    },
    /// The version was never published.
    #[error("version {version} is not published: the latest is {policy_version}")]
    NotPublished {
        /// The version.
        version: Version,
        /// `V`.
        policy_version: Version,
    },
    /// A member is of weights older than its group.
    #[error("version {version} is too stale: the group is of version {group}")]
    TooStale {
        /// The version that it was begun under.
        version: Version,
        /// The group's.
        group: Version,
    },
    /// The versions of the segments do not rise.
    #[error("version {version} comes after version {newest}")]
    OutOfOrder {
        /// The version that comes too late.
        version: Version,
        /// The one that it comes after.
        newest: Version,
    },
}

impl Generated {
    /// By these weights from the beginning to the end.
    pub fn by(weights: Weights) -> Self {
        Self {
            first: weights.version,
            newest: weights.version,
            lineage: weights.lineage,
        }
    }
}

impl Entry {
    /// The newest weights that generated any part of it.
    pub fn newest_weights(&self) -> Weights {
        Weights {
            version: self.newest,
            lineage: self.lineage,
        }
    }
}

impl SlotTables {
    /// What may be recorded lies between the entry's version and `V`, and is of weights that are not abandoned.
    pub(super) fn refuse_generated(&self, entry: &Entry, generated: Generated) -> Result<(), WeightsRefusal> {
        let Generated { first, newest, lineage } = generated;
        let policy_version = self.policy_version;
        if lineage > self.lineage {
            return Err(WeightsRefusal::LineageUnknown {
                named: lineage,
                lineage: self.lineage,
            });
        }
        let version = newest;
        if self.is_abandoned(Weights { version, lineage }) {
            return Err(WeightsRefusal::Abandoned {
                version,
                policy_version,
            });
        }
        if version > policy_version {
            return Err(WeightsRefusal::NotPublished {
                version,
                policy_version,
            });
        }
        if newest < first {
            return Err(WeightsRefusal::OutOfOrder {
                version: newest,
                newest: first,
            });
        }
        if first < entry.version {
            return Err(WeightsRefusal::TooStale {
                version: first,
                group: entry.version,
            });
        }
        Ok(())
    }

    /// Notes that `version` generated a part of the entry; nothing, if a newer one did.
    pub(super) fn raise_newest(&mut self, id: TrajectoryId, version: Version) {
        let lineage = self.lineage;
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| version > entry.newest) {
            entry.newest = version;
            entry.lineage = lineage;
        }
    }

    /// Notes that `version` went on with the entry, which is a change of its own if it is the newest.
    pub(super) fn go_on(&mut self, id: TrajectoryId, version: Version, effects: &mut Vec<Effect>) {
        if self.entries.get(&id).is_some_and(|entry| version > entry.newest) {
            self.raise_newest(id, version);
            effects.push(Effect::Continued { id, version });
        }
    }

    /// Whether what is reported of the entry is recorded: while it is being generated, and while a late occupy may bring
    /// it back. `false` is what changes nothing and succeeds.
    ///
    /// # Errors
    ///
    /// Why an entry that was discarded cannot come back.
    pub(super) fn is_recorded(&self, id: TrajectoryId, entry: &Entry) -> Result<bool, OccupyRefusal> {
        match &entry.state {
            EntryState::Occupied { .. } | EntryState::Taken { .. } => Ok(false),
            EntryState::Reserved { .. } => Ok(!self.is_filled(entry)),
            EntryState::Discarded { reason, .. } if reason.is_of_the_group() => Ok(false),
            EntryState::Discarded { reason, .. } => {
                self.refuse_late(id, entry, reason)?;
                Ok(!self.is_filled(entry))
            }
        }
    }

    /// Refuses a discarded entry that no late occupy may bring back, whether or not there is a slot for it.
    pub(super) fn refuse_late(&self, id: TrajectoryId, entry: &Entry, reason: &Reason) -> Result<(), OccupyRefusal> {
        if reason.allows_late_occupy() && self.is_superseded(id) {
            return Err(OccupyRefusal::Superseded);
        }
        let is_of_no_use = self.is_abandoned(entry.newest_weights()) || self.is_finished();
        if !reason.allows_late_occupy() || is_of_no_use {
            return Err(OccupyRefusal::Discarded(reason.clone()));
        }
        Ok(())
    }
}
