//! *Groups*: one member after the other finishes or fails, each once.

use super::generated::{Generated, WeightsRefusal};
use super::group::GroupMember;
use super::{Effect, Entry, EntryState, OccupyRefusal, Reason, SlotTables, TrajectoryId};
use crate::protocol::Reward;

/// What is reported of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Which of the group's candidates, from 0.
    pub index: u32,
    /// What has become of it.
    pub end: MemberEnd,
}

/// What has become of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberEnd {
    /// It finished.
    Complete {
        /// What generated it.
        generated: Generated,
        /// Its reward, if it has one.
        reward: Option<Reward>,
    },
    /// It failed. Under which weights does not matter.
    Failed,
}

/// What a report of a member did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOutcome {
    /// Whether it counts. If not, nothing has changed.
    pub counted: bool,
    /// How many members are complete.
    pub complete: usize,
    /// How many failed.
    pub failed: usize,
    /// What has become of the group.
    pub state: EntryState,
    /// Whether the group had been discarded, and was saved by this member or by one before.
    pub late: bool,
    /// The changes, in order.
    pub effects: Vec<Effect>,
}

/// Why a report of a member, or of a segment, is refused. Nothing is changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefusal {
    /// No such entry was ever admitted, or it has been forgotten.
    #[error("no such entry")]
    Unknown,
    /// The entry has no such candidate. A single trajectory has none.
    #[error("there is no member {index}: a group has {candidates} candidates")]
    NoSuchMember {
        /// The index that was named.
        index: u32,
        /// `G'`.
        candidates: u32,
    },
    /// A segment of a group is one of a member.
    #[error("the entry is a group, and no member is named")]
    NoMemberNamed,
    /// The entry was discarded, and cannot come back; or this member would have brought it back, and there is no slot
    /// that Reserve could give it.
    #[error("the entry was discarded: {0}")]
    Discarded(Reason),
    /// As [`OccupyRefusal::Superseded`].
    #[error("the prompt of the entry was handed out again, has failed or was dropped")]
    Superseded,
    /// The weights that generated it are not such as may be recorded.
    #[error(transparent)]
    Weights(#[from] WeightsRefusal),
    /// As [`OccupyRefusal::NoPlace`]: met only in tables that were replayed from a broken log.
    #[error("every buffer up to the group's deadline is ready")]
    NoPlace,
}

impl SlotTables {
    /// A member finished or failed. The group is occupied with the last one that it needs, if that is done at once, and
    /// discarded when it cannot be filled any more, or is of no use.
    ///
    /// # Errors
    ///
    /// As [`MemberRefusal`] says.
    pub fn member(&mut self, id: TrajectoryId, member: &Member) -> Result<MemberOutcome, MemberRefusal> {
        let entry = self.entries.get(&id).ok_or(MemberRefusal::Unknown)?;
        self.refuse_index(member.index)?;
        let is_recorded = self.is_recorded(id, entry).map_err(MemberRefusal::of)?;
        let mut effects = Vec::new();
        if !is_recorded || entry.members.contains_key(&member.index) {
            return self.outcome(id, effects);
        }
        self.refuse_member(entry, member)?;

        let fills = entry.complete() + usize::from(member.is_complete()) >= self.config.group_size as usize;
        let is_to_finish = fills && self.config.auto_occupy;
        // A late group that is filled must have a slot before its last member is recorded.
        let late_slot = match &entry.state {
            EntryState::Discarded { reason, .. } if is_to_finish => {
                Some(self.late_slot(id, reason).map_err(MemberRefusal::of)?)
            }
            _ => None,
        };
        let version = entry.version;
        self.count(id, member, &mut effects);
        if let Some(slot) = late_slot {
            self.admit_late(id, version, slot, &mut effects);
        }
        let failed = self.discard_if_failed(id, &mut effects);
        let place = self.entries.get(&id).and_then(Entry::place);
        if let Some(from) = place.filter(|_| is_to_finish && !failed) {
            self.finish_group(id, from, &mut effects).map_err(MemberRefusal::of)?;
        }
        self.outcome(id, effects)
    }

    /// Writes down a member that counts.
    pub(super) fn count(&mut self, id: TrajectoryId, member: &Member, effects: &mut Vec<Effect>) {
        let recorded = member.recorded();
        self.write_member(id, member.index, recorded);
        effects.push(member_effect(id, member.index, recorded));
    }

    /// Writes the member into the group's record.
    pub(super) fn write_member(&mut self, id: TrajectoryId, index: u32, member: GroupMember) {
        if let GroupMember::Complete { newest, .. } = member {
            self.raise_newest(id, newest);
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.members.insert(index, member);
        }
    }

    /// Refuses an index that no candidate has.
    pub(super) fn refuse_index(&self, index: u32) -> Result<(), MemberRefusal> {
        let candidates = self.config.group_candidates;
        if !self.config.has_groups() || index >= candidates {
            return Err(MemberRefusal::NoSuchMember { index, candidates });
        }
        Ok(())
    }

    /// Refuses a member of weights that may not generate it. A failed one is of none.
    pub(super) fn refuse_member(&self, entry: &Entry, member: &Member) -> Result<(), WeightsRefusal> {
        match member.end {
            MemberEnd::Complete { generated, .. } => self.refuse_generated(entry, generated),
            MemberEnd::Failed => Ok(()),
        }
    }

    fn outcome(&self, id: TrajectoryId, effects: Vec<Effect>) -> Result<MemberOutcome, MemberRefusal> {
        let entry = self.entries.get(&id).ok_or(MemberRefusal::Unknown)?;
        Ok(MemberOutcome {
            counted: !effects.is_empty(),
            complete: entry.complete(),
            failed: entry.failed(),
            state: entry.state.clone(),
            late: entry.late,
            effects,
        })
    }
}

impl Member {
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.end, MemberEnd::Complete { .. })
    }

    /// What is written down of it.
    pub(super) fn recorded(&self) -> GroupMember {
        match self.end {
            MemberEnd::Complete { generated, reward } => GroupMember::Complete {
                version: generated.first,
                newest: generated.newest,
                reward,
            },
            MemberEnd::Failed => GroupMember::Failed,
        }
    }
}

impl MemberRefusal {
    /// Why the occupy that the member is a part of is refused.
    pub(super) fn of(refusal: OccupyRefusal) -> Self {
        match refusal {
            OccupyRefusal::Discarded(reason) => Self::Discarded(reason),
            OccupyRefusal::Superseded => Self::Superseded,
            OccupyRefusal::Member(refusal) => refusal,
            OccupyRefusal::NoPlace => Self::NoPlace,
            OccupyRefusal::Unknown | OccupyRefusal::Group => Self::Unknown,
        }
    }
}

/// What the log says of the member.
fn member_effect(id: TrajectoryId, index: u32, member: GroupMember) -> Effect {
    match member {
        GroupMember::Complete {
            version,
            newest,
            reward,
        } => Effect::Member {
            id,
            index,
            failed: false,
            version: Some(version),
            newest: (newest != version).then_some(newest),
            reward,
        },
        GroupMember::Failed => Effect::Member {
            id,
            index,
            failed: true,
            version: None,
            newest: None,
            reward: None,
        },
    }
}
