//! *Partial rollout*: generation goes on under a newer version, and the ledger is told before the end.

use super::generated::{Generated, WeightsRefusal};
use super::member::MemberRefusal;
use super::{Effect, SlotTables, TrajectoryId, Weights};

/// What a segment did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segmented {
    /// Whether it is recorded: what it belongs to was not finished yet. If not, nothing has changed.
    pub counted: bool,
    /// One [`Effect::Continued`], if no version as new had generated a part of the entry before.
    pub effects: Vec<Effect>,
}

impl SlotTables {
    /// The entry, or one member of a group, goes on under these weights. At which token, and whether it was said before,
    /// is for the caller to know.
    ///
    /// # Errors
    ///
    /// As [`MemberRefusal`] says.
    pub fn segment(
        &mut self,
        id: TrajectoryId,
        member: Option<u32>,
        weights: Weights,
    ) -> Result<Segmented, MemberRefusal> {
        let entry = self.entries.get(&id).ok_or(MemberRefusal::Unknown)?;
        match member {
            Some(index) => self.refuse_index(index)?,
            None if self.config.has_groups() => return Err(MemberRefusal::NoMemberNamed),
            None => {}
        }
        let is_reported = member.is_some_and(|index| entry.members.contains_key(&index));
        let is_recorded = self.is_recorded(id, entry).map_err(MemberRefusal::of)?;
        if !is_recorded || is_reported {
            return Ok(Segmented {
                counted: false,
                effects: Vec::new(),
            });
        }
        self.go_on_under(id, weights)
    }

    /// Records that these weights went on with an entry, or with some member of it.
    pub(crate) fn go_on_under(&mut self, id: TrajectoryId, weights: Weights) -> Result<Segmented, MemberRefusal> {
        let entry = self.entries.get(&id).ok_or(MemberRefusal::Unknown)?;
        let counted = self.is_recorded(id, entry).map_err(MemberRefusal::of)?;
        let mut effects = Vec::new();
        if counted {
            self.refuse_generated(entry, Generated::by(weights))?;
            self.refuse_step_back(id, weights)?;
            self.go_on(id, weights.version, &mut effects);
        }
        Ok(Segmented { counted, effects })
    }

    /// The versions of one trajectory rise; the members of a group have versions of their own.
    pub(super) fn refuse_step_back(&self, id: TrajectoryId, weights: Weights) -> Result<(), WeightsRefusal> {
        let newest = self.entries.get(&id).map(|entry| entry.newest);
        match newest.filter(|newest| !self.config.has_groups() && *newest > weights.version) {
            Some(newest) => Err(WeightsRefusal::OutOfOrder {
                version: weights.version,
                newest,
            }),
            None => Ok(()),
        }
    }
}
