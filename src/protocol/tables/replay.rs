//! The tables rebuilt from a log: effects followed as they stand, without asking whether they are right.

use std::collections::BTreeSet;

use super::{
    DiscardedFrom, Effect, Entry, EntryState, GroupMember, Place, SlotState, SlotTables, TrajectoryId, Version,
};
use crate::protocol::FeedPosition;

/// A step that tables cannot follow. They are unusable afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// An effect moves an entry that has no place.
    #[error("{id} is not in the tables")]
    NotInTables {
        /// The entry.
        id: TrajectoryId,
    },
    /// A place is in no open buffer, or past the end of one.
    #[error("there is no {place}, where {id} is said to be")]
    NoSuchPlace {
        /// The entry.
        id: TrajectoryId,
        /// Where it is said to be.
        place: Place,
    },
    /// Two entries are left in one slot.
    #[error("{id} and {other} are both said to be in {place}")]
    Shared {
        /// The one entry.
        id: TrajectoryId,
        /// The other.
        other: TrajectoryId,
        /// The slot.
        place: Place,
    },
    /// Prompts are fed to a run that hands out none, or are said to be handed out by it.
    #[error("the run has no prompt queue")]
    NoPromptQueue,
    /// No prompt was fed there, or it is forgotten.
    #[error("there is no prompt that was fed as {position}")]
    NoSuchPrompt {
        /// Where it is said to have been fed.
        position: FeedPosition,
    },
    /// A batch is taken while another one is in training.
    #[error("the trainer is busy with the batch before")]
    TrainerBusy,
    /// A version is published that is not the next, or whose batch was not taken.
    #[error("version {version} cannot come next")]
    NotNext {
        /// The version.
        version: Version,
    },
}

impl SlotTables {
    /// Follows the effects of one operation, or of several in a row.
    ///
    /// Within an operation a slot may be filled before the entry in it is said to have left: a cascade goes before the
    /// `occupied` that makes its first gap. So entries are set down only after all of them have been followed.
    ///
    /// # Errors
    ///
    /// [`Misfit`] when the tables that result could not exist. They may still break every invariant: that is for
    /// [`invariants::check`](crate::protocol::invariants::check) to say.
    pub fn replay(&mut self, effects: &[Effect]) -> Result<(), Misfit> {
        let touched: BTreeSet<TrajectoryId> = effects.iter().map(Effect::id).collect();
        for id in &touched {
            if let Some(place) = self.entries.get(id).and_then(Entry::place) {
                self.lift(place);
            }
        }
        for effect in effects {
            self.follow(effect)?;
        }
        for id in touched {
            self.set_down(id)?;
        }
        Ok(())
    }

    /// Writes into the entry's record what the effect says.
    pub(super) fn follow(&mut self, effect: &Effect) -> Result<(), Misfit> {
        let id = effect.id();
        match effect {
            Effect::Reserved { version, to, .. } => {
                let late = self.entries.contains_key(&id);
                self.record(id, *version, EntryState::Reserved { place: *to });
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.version = *version;
                    entry.late = late;
                }
            }
            Effect::Moved { to, .. } | Effect::Replaced { to, .. } => {
                let entry = self.entry_in_tables(id)?;
                entry.state = match entry.state {
                    EntryState::Reserved { .. } => EntryState::Reserved { place: *to },
                    _ => EntryState::Occupied { place: *to },
                };
            }
            Effect::Occupied { to, .. } | Effect::Promoted { to, .. } => {
                self.entry_in_tables(id)?.become_of(EntryState::Occupied { place: *to });
            }
            Effect::Discarded { reason, .. } => {
                let entry = self.entry_in_tables(id)?;
                let discarded_from = match entry.state {
                    EntryState::Reserved { .. } => DiscardedFrom::Reserved,
                    _ => DiscardedFrom::Occupied,
                };
                entry.become_of(EntryState::Discarded {
                    reason: reason.clone(),
                    discarded_from,
                });
            }
            Effect::Pruned { .. } => self.forget(id),
            // Members and segments are recorded of discarded entries too, for a late occupy.
            Effect::Member {
                index,
                failed,
                version,
                newest,
                reward,
                ..
            } => {
                let entry = self.entries.get(&id).ok_or(Misfit::NotInTables { id })?;
                let version = version.unwrap_or(entry.version);
                let member = match failed {
                    true => GroupMember::Failed,
                    false => GroupMember::Complete {
                        version,
                        newest: newest.unwrap_or(version),
                        reward: *reward,
                    },
                };
                self.write_member(id, *index, member);
            }
            Effect::Continued { version, .. } => {
                self.entries.get(&id).ok_or(Misfit::NotInTables { id })?;
                self.raise_newest(id, *version);
            }
            Effect::Orphaned { .. } => self.entry_in_tables(id)?.orphan = true,
            Effect::Adopted { .. } => self.entry_in_tables(id)?.orphan = false,
            Effect::Prompt {
                position,
                state,
                attempt,
                ..
            } => self.follow_prompt(id, *position, *state, *attempt)?,
        }
        Ok(())
    }

    fn entry_in_tables(&mut self, id: TrajectoryId) -> Result<&mut Entry, Misfit> {
        self.entries
            .get_mut(&id)
            .filter(|entry| entry.place().is_some())
            .ok_or(Misfit::NotInTables { id })
    }

    /// Puts the entry into the slot that its record names, if it names one.
    pub(super) fn set_down(&mut self, id: TrajectoryId) -> Result<(), Misfit> {
        let Some(entry) = self.entries.get(&id) else {
            return Ok(());
        };
        let Some(place) = entry.place() else {
            return Ok(());
        };
        let version = entry.version;
        let finished = matches!(entry.state, EntryState::Occupied { .. });
        let content = self
            .open_buffer(place.buffer)
            .and_then(|buffer| buffer.get(place.slot))
            .ok_or(Misfit::NoSuchPlace { id, place })?;
        match content {
            SlotState::Empty if finished => self.set_occupied(id, version, place),
            SlotState::Empty => self.set_reserved(id, version, place),
            SlotState::Reserved { id: other, .. } | SlotState::Occupied { id: other, .. } => {
                return Err(Misfit::Shared { id, other, place });
            }
        }
        Ok(())
    }
}
