//! What the protocol has for the events of groups and segments, and for those that may adopt a group.

use super::Fault;
use super::run::{Run, check_late, version};
use crate::protocol::tables::{FinishedAs, Generated, Member, MemberEnd, ReserveRefusal, Segmented};
use crate::protocol::{Effect, Event, Lineage, TrajectoryId, Version, Weights};

impl Run {
    /// Only a Reserve that adopts says so, by its effects; then it adopts all that it can before it admits anything.
    pub(super) fn expected_of_reserve(&mut self, event: &Event, weights: Weights) -> Result<Vec<Effect>, Fault> {
        let is_adopted = |id| {
            event
                .effects
                .iter()
                .any(|logged| logged.effect == Effect::Adopted { id })
        };
        if !event.ids.iter().copied().any(is_adopted) {
            return Ok(self.model.reserve(weights, &event.ids)?.effects);
        }
        match self.model.reserve_adopting(weights, &event.ids) {
            Ok(reserved) => Ok(reserved.effects),
            Err(ReserveRefusal::IdReused { id }) if is_adopted(id) => Err(Fault::Adopted { id }),
            Err(refusal) => Err(refusal.into()),
        }
    }

    pub(super) fn expected_of_member(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let &id = event.ids.first().ok_or(Fault::Missing("id"))?;
        let members = self.members(event, id)?;
        if members.is_empty() {
            return Err(Fault::Missing("member"));
        }
        let mut effects = Vec::new();
        for member in members {
            match self.model.member(id, &member) {
                Ok(outcome) if outcome.counted => effects.extend(outcome.effects),
                Ok(_) => return Err(Fault::NotCounted { id }),
                Err(refusal) => return Err(Fault::Member { id, refusal }),
            }
        }
        check_late(event, &effects)?;
        Ok(effects)
    }

    pub(super) fn expected_of_segment(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let &id = event.ids.first().ok_or(Fault::Missing("id"))?;
        let weights = self.weights(event, version(event)?);
        match self.model.go_on_under(id, weights) {
            Ok(Segmented { counted: true, effects }) => Ok(effects),
            Ok(_) => Err(Fault::NotCounted { id }),
            Err(refusal) => Err(Fault::Member { id, refusal }),
        }
    }

    /// What an `occupy` does to one of its entries: with what its client said of it, as far as that is logged.
    pub(super) fn finish(&mut self, event: &Event, id: TrajectoryId) -> Result<Vec<Effect>, Fault> {
        let refused = |refusal| Fault::Occupy { id, refusal };
        if !self.model.config().has_groups() {
            return match continued(event, id) {
                Some(newest) => {
                    let newest = self.weights(event, newest);
                    let finished = self.model.occupy_continued(id, newest).map_err(refused)?;
                    Ok(finished.effects)
                }
                None => Ok(self.model.occupy(id).map_err(refused)?.effects),
            };
        }
        let members = self.members(event, id)?;
        let finished = self.model.occupy_group(id, &members).map_err(refused)?;
        match finished.end {
            FinishedAs::Incomplete { complete } => Err(Fault::GroupIncomplete {
                id,
                complete,
                group_size: self.model.config().group_size,
            }),
            FinishedAs::Occupied { .. } | FinishedAs::Discarded { .. } => Ok(finished.effects),
        }
    }

    /// The members of the group that the event says were reported.
    fn members(&self, event: &Event, group: TrajectoryId) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::new();
        for logged in &event.effects {
            let Effect::Member {
                id,
                index,
                failed,
                version,
                newest,
                reward,
            } = logged.effect
            else {
                continue;
            };
            if id != group {
                continue;
            }
            let end = if failed {
                MemberEnd::Failed
            } else {
                let first = version.ok_or(Fault::Missing("version"))?;
                let newest = newest.unwrap_or(first);
                let lineage = self.lineage_of_member(event, group, first, newest);
                MemberEnd::Complete {
                    generated: Generated { first, newest, lineage },
                    reward,
                }
            };
            members.push(Member { index, end });
        }
        Ok(members)
    }

    /// The lineage of the weights that generated a member. The one that the event names may be older than that of the
    /// segments which were recorded of the member before.
    fn lineage_of_member(&self, event: &Event, group: TrajectoryId, first: Version, newest: Version) -> Lineage {
        let named = self.weights(event, newest);
        let is_first_good = !self.model.is_abandoned(self.weights(event, first));
        let entry = self.model.entry(group);
        let may_be_recorded = first < newest && entry.is_some_and(|entry| newest <= entry.newest);
        if self.model.is_abandoned(named) && is_first_good && may_be_recorded {
            return self.model.lineage();
        }
        named.lineage
    }

    /// Weights that the event speaks of. It names their lineage where that is not the run's.
    fn weights(&self, event: &Event, version: Version) -> Weights {
        Weights {
            version,
            lineage: event.lineage.unwrap_or(self.model.lineage()),
        }
    }
}

/// The version that the event says the entry went on under, if it says so.
fn continued(event: &Event, entry: TrajectoryId) -> Option<Version> {
    event.effects.iter().find_map(|logged| match logged.effect {
        Effect::Continued { id, version } if id == entry => Some(version),
        _ => None,
    })
}
