//! *Groups*: what the members of a group make of it.

use super::{Effect, Entry, EntryState, OccupyRefusal, Place, Reason, SlotTables, TrajectoryId, Version};
use crate::protocol::Reward;

/// A member of a group that was reported, and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMember {
    /// It finished.
    Complete {
        /// The version that it was begun under.
        version: Version,
        /// The newest version that generated a part of it.
        newest: Version,
        /// Its reward, if it has one.
        reward: Option<Reward>,
    },
    /// It failed.
    Failed,
}

impl GroupMember {
    /// Whether it finished.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete { .. })
    }

    /// Its reward, if it finished and has one.
    pub fn reward(&self) -> Option<Reward> {
        match self {
            Self::Complete { reward, .. } => *reward,
            Self::Failed => None,
        }
    }
}

impl Entry {
    /// How many members are complete.
    pub fn complete(&self) -> usize {
        self.members.values().filter(|member| member.is_complete()).count()
    }

    /// How many members failed.
    pub fn failed(&self) -> usize {
        self.members.len() - self.complete()
    }

    /// Whether the complete members have rewards, all equal. A missing one equals nothing.
    pub fn has_zero_variance(&self) -> bool {
        let complete = self.members.values().filter(|member| member.is_complete());
        let mut rewards = complete.map(GroupMember::reward);
        let first = rewards.next().flatten();
        first.is_some() && rewards.all(|reward| reward == first)
    }
}

impl SlotTables {
    /// How many trajectories are being generated, which is what `max_concurrency` limits: one for each reserved entry,
    /// or the unfinished candidates of a group. A group that was filled counts none.
    pub fn generating(&self) -> u64 {
        let entries = self.reservations().filter_map(|(_, id, _)| self.entries.get(&id));
        entries.map(|entry| self.unfinished(entry)).sum()
    }

    /// How many trajectories an entry is that is admitted.
    pub(super) fn candidates(&self) -> u64 {
        u64::from(self.config.group_candidates)
    }

    fn unfinished(&self, entry: &Entry) -> u64 {
        if self.is_filled(entry) {
            return 0;
        }
        self.candidates().saturating_sub(entry.members.len() as u64)
    }

    /// Whether the group has all the members that it needs.
    pub(super) fn is_filled(&self, entry: &Entry) -> bool {
        entry.complete() >= self.config.group_size as usize
    }

    /// Whether so many members failed that the group cannot be filled any more.
    pub(super) fn cannot_be_filled(&self, entry: &Entry) -> bool {
        let spare = self.config.group_candidates.saturating_sub(self.config.group_size);
        entry.failed() > spare as usize
    }

    /// A reserved group that cannot be filled is discarded. Returns whether it was.
    pub(super) fn discard_if_failed(&mut self, id: TrajectoryId, effects: &mut Vec<Effect>) -> bool {
        let reserved = self.entries.get(&id).filter(|entry| entry.is_reserved());
        let failed = reserved.is_some_and(|entry| self.cannot_be_filled(entry));
        if failed {
            self.discard_for(id, Reason::GroupFailed, effects);
        }
        failed
    }

    /// A filled group that is reserved at `from` is occupied, or, if nothing can be learnt from it and the run is so
    /// configured, discarded.
    pub(super) fn finish_group(
        &mut self,
        id: TrajectoryId,
        from: Place,
        effects: &mut Vec<Effect>,
    ) -> Result<(), OccupyRefusal> {
        let Some(entry) = self.entries.get(&id) else {
            return Err(OccupyRefusal::Unknown);
        };
        if self.config.drop_zero_variance && entry.has_zero_variance() {
            self.discard_for(id, Reason::ZeroVariance, effects);
            return Ok(());
        }
        self.finish(id, entry.version, from, effects)?;
        Ok(())
    }

    /// Discards an entry that is in the tables.
    pub(super) fn discard_for(&mut self, id: TrajectoryId, reason: Reason, effects: &mut Vec<Effect>) {
        if let Ok(discarded) = self.discard(id, reason) {
            effects.extend(discarded.effects);
        }
    }
}

impl Entry {
    /// Whether it was admitted and is not finished.
    pub(super) fn is_reserved(&self) -> bool {
        matches!(self.state, EntryState::Reserved { .. })
    }

    /// Writes what has become of it. Only what is reserved can lack an owner.
    pub(super) fn become_of(&mut self, state: EntryState) {
        self.state = state;
        self.orphan &= self.is_reserved();
    }
}
