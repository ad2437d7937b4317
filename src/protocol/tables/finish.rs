//! *Occupy* by the client that says more than that: the segments of a trajectory, or the members of a group.

use super::generated::{Generated, WeightsRefusal};
use super::member::{Member, MemberRefusal};
use super::{Effect, Entry, EntryState, OccupyRefusal, Place, Reason, SlotTables, TrajectoryId, Weights};

/// What such an Occupy did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What the call ended with.
    pub end: FinishedAs,
    /// Whether the entry had been discarded, and was saved by this Occupy or by one before.
    pub late: bool,
    /// The changes, in order; none, if it had ended so before.
    pub effects: Vec<Effect>,
}

/// What an Occupy ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishedAs {
    /// The entry is finished, and here.
    Occupied {
        /// Its slot. If it was taken since: its batch, and its slot in it.
        place: Place,
    },
    /// The entry is of no use: its group failed or has zero variance, or abandoned weights generated a part of it.
    Discarded {
        /// Why.
        reason: Reason,
    },
    /// The group has fewer complete members than it needs. Those that were reported stay recorded.
    Incomplete {
        /// How many are complete.
        complete: usize,
    },
}

impl SlotTables {
    /// A single trajectory has finished, and weights newer than its version may have generated the end of it.
    ///
    /// # Errors
    ///
    /// As [`OccupyRefusal`] says.
    pub fn occupy_continued(&mut self, id: TrajectoryId, newest: Weights) -> Result<Finished, OccupyRefusal> {
        let entry = self.entries.get(&id).ok_or(OccupyRefusal::Unknown)?;
        if self.config.has_groups() {
            return Err(OccupyRefusal::Group);
        }
        let mut effects = Vec::new();
        match &entry.state {
            EntryState::Occupied { .. } | EntryState::Taken { .. } => return self.finished(id, effects),
            EntryState::Reserved { .. } => {}
            EntryState::Discarded { reason, .. } => self.refuse_late(id, entry, reason)?,
        }
        let generated = Generated {
            first: entry.version,
            newest: newest.version,
            lineage: newest.lineage,
        };
        if let Err(refusal) = self.refuse_generated(entry, generated) {
            return self.refused(id, refusal);
        }
        self.refuse_step_back(id, newest).map_err(MemberRefusal::from)?;
        if let EntryState::Discarded { reason, .. } = &entry.state {
            self.late_slot(id, reason)?;
        }
        self.go_on(id, newest.version, &mut effects);
        effects.extend(self.occupy(id)?.effects);
        self.finished(id, effects)
    }

    /// A group is finished by its client, with these members that were not reported before, in order. Those that do not
    /// count are passed over.
    ///
    /// # Errors
    ///
    /// As [`OccupyRefusal`] says. None of the members is recorded then.
    pub fn occupy_group(&mut self, id: TrajectoryId, members: &[Member]) -> Result<Finished, OccupyRefusal> {
        let entry = self.entries.get(&id).ok_or(OccupyRefusal::Unknown)?;
        for member in members {
            self.refuse_index(member.index)?;
        }
        if !self.config.has_groups() {
            return Err(OccupyRefusal::Unknown);
        }
        let mut effects = Vec::new();
        let late = match &entry.state {
            EntryState::Occupied { .. } | EntryState::Taken { .. } => return self.finished(id, effects),
            EntryState::Discarded { reason, .. } if reason.is_of_the_group() => return self.finished(id, effects),
            EntryState::Discarded { reason, .. } => {
                self.refuse_late(id, entry, reason)?;
                Some(reason.clone())
            }
            EntryState::Reserved { .. } => None,
        };
        let counting = match self.counting(entry, members) {
            Ok(counting) => counting,
            Err(refusal) => return self.refused(id, refusal),
        };
        let version = entry.version;
        let complete = entry.complete() + counting.iter().filter(|member| member.is_complete()).count();
        let fills = complete >= self.config.group_size as usize;
        let late_slot = match late.filter(|_| fills) {
            Some(reason) => Some(self.late_slot(id, &reason)?),
            None => None,
        };
        for member in counting {
            self.count(id, &member, &mut effects);
        }
        if let Some(slot) = late_slot {
            self.admit_late(id, version, slot, &mut effects);
        }
        if self.discard_if_failed(id, &mut effects) {
            return self.finished(id, effects);
        }
        let place = self.entries.get(&id).and_then(Entry::place);
        if let Some(from) = place.filter(|_| fills) {
            self.finish_group(id, from, &mut effects)?;
        }
        self.finished(id, effects)
    }

    /// The members that count, all of weights that may have generated them: each once, and none after the group was
    /// filled, or lost, by those before.
    fn counting(&self, entry: &Entry, members: &[Member]) -> Result<Vec<Member>, WeightsRefusal> {
        let mut group = entry.clone();
        let mut counting = Vec::new();
        for member in members {
            let is_lost = entry.is_reserved() && self.cannot_be_filled(&group);
            if self.is_filled(&group) || is_lost || group.members.contains_key(&member.index) {
                continue;
            }
            self.refuse_member(entry, member)?;
            group.members.insert(member.index, member.recorded());
            counting.push(*member);
        }
        Ok(counting)
    }

    /// A client that finishes an entry with abandoned weights is told so by its discard; any other refusal changes
    /// nothing.
    fn refused(&mut self, id: TrajectoryId, refusal: WeightsRefusal) -> Result<Finished, OccupyRefusal> {
        if !matches!(refusal, WeightsRefusal::Abandoned { .. }) {
            return Err(MemberRefusal::from(refusal).into());
        }
        if let Some(EntryState::Discarded { reason, .. }) = self.entries.get(&id).map(|entry| &entry.state) {
            return Err(OccupyRefusal::Discarded(reason.clone()));
        }
        let mut effects = Vec::new();
        self.discard_for(id, Reason::Rewound, &mut effects);
        self.finished(id, effects)
    }

    fn finished(&self, id: TrajectoryId, effects: Vec<Effect>) -> Result<Finished, OccupyRefusal> {
        let entry = self.entries.get(&id).ok_or(OccupyRefusal::Unknown)?;
        let complete = entry.complete();
        let end = match &entry.state {
            EntryState::Occupied { place } | EntryState::Taken { place } => FinishedAs::Occupied { place: *place },
            // A late group that is not filled yet is as it was.
            EntryState::Discarded { reason, .. } if reason.allows_late_occupy() => FinishedAs::Incomplete { complete },
            EntryState::Discarded { reason, .. } => FinishedAs::Discarded { reason: reason.clone() },
            EntryState::Reserved { .. } => FinishedAs::Incomplete { complete },
        };
        Ok(Finished {
            end,
            late: entry.late,
            effects,
        })
    }
}
