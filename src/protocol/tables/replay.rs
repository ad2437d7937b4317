//! The tables rebuilt from a log: effects followed as they stand, without asking whether they are right.

use std::collections::BTreeSet;

use super::{DiscardedFrom, Effect, Entry, EntryState, Place, SlotState, SlotTables, TrajectoryId, Version};
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
                let admitted_before = self.entries.get(&id);
                let entry = Entry {
                    version: *version,
                    lineage: admitted_before.map_or(self.lineage, |entry| entry.lineage),
                    late: admitted_before.is_some(),
                    state: EntryState::Reserved { place: *to },
                };
                self.entries.insert(id, entry);
            }
            Effect::Moved { to, .. } | Effect::Replaced { to, .. } => {
                let state = self.state_in_tables(id)?;
                *state = match state {
                    EntryState::Reserved { .. } => EntryState::Reserved { place: *to },
                    _ => EntryState::Occupied { place: *to },
                };
            }
            Effect::Occupied { to, .. } | Effect::Promoted { to, .. } => {
                *self.state_in_tables(id)? = EntryState::Occupied { place: *to };
            }
            Effect::Discarded { reason, .. } => {
                let state = self.state_in_tables(id)?;
                *state = EntryState::Discarded {
                    reason: reason.clone(),
                    discarded_from: match state {
                        EntryState::Reserved { .. } => DiscardedFrom::Reserved,
                        _ => DiscardedFrom::Occupied,
                    },
                };
            }
            Effect::Pruned { .. } => self.forget(id),
            Effect::Member { .. } | Effect::Continued { .. } | Effect::Orphaned { .. } | Effect::Adopted { .. } => {}
            Effect::Prompt {
                position,
                state,
                attempt,
                ..
            } => self.follow_prompt(id, *position, *state, *attempt)?,
        }
        Ok(())
    }

    fn state_in_tables(&mut self, id: TrajectoryId) -> Result<&mut EntryState, Misfit> {
        self.entries
            .get_mut(&id)
            .filter(|entry| entry.place().is_some())
            .map(|entry| &mut entry.state)
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
