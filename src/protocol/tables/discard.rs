//! *Discard*: an entry leaves the tables without being trained, and the gap is settled.

use super::{Buffer, DiscardedFrom, Effect, EntryState, Place, Reason, SlotTables, TrajectoryId, Version, Wish};

/// What a Discard did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    /// What the entry was.
    pub discarded_from: DiscardedFrom,
    /// Whether it was discarded, or lost, already, or nobody held it: nothing has changed then.
    pub repeated: bool,
    /// The changes, in order.
    pub effects: Vec<Effect>,
}

/// Why a Discard is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscardRefusal {
    /// No such entry was ever admitted, or it has been forgotten.
    #[error("no such entry")]
    Unknown,
    /// It is trained, or in training.
    #[error("the entry was taken with batch {batch}")]
    Taken {
        /// The version that its batch trains.
        batch: Version,
    },
}

impl SlotTables {
    /// Takes an entry out of the tables, reserved or occupied, and settles the gap.
    ///
    /// Of several, discard one at a time, front-most first.
    ///
    /// # Errors
    ///
    /// As [`DiscardRefusal`] says.
    pub fn discard(&mut self, id: TrajectoryId, reason: Reason) -> Result<Discarded, DiscardRefusal> {
        self.discard_with(id, reason, Wish::ByReason)
    }

    /// [`Self::discard`], with a wish for the entry's prompt.
    ///
    /// # Errors
    ///
    /// As [`DiscardRefusal`] says.
    pub fn discard_with(&mut self, id: TrajectoryId, reason: Reason, wish: Wish) -> Result<Discarded, DiscardRefusal> {
        let mut effects = Vec::new();
        let entry = self.entries.get(&id).ok_or(DiscardRefusal::Unknown)?;
        let discarded_from = match entry.state {
            EntryState::Taken { place } => {
                return Err(DiscardRefusal::Taken {
                    batch: Version(place.buffer.0),
                });
            }
            EntryState::Discarded { discarded_from, .. } => {
                return Ok(Discarded {
                    discarded_from,
                    repeated: true,
                    effects,
                });
            }
            EntryState::Reserved { place } => {
                self.drop_with(place, reason, wish, &mut effects);
                self.settle(place, &mut effects);
                DiscardedFrom::Reserved
            }
            EntryState::Occupied { place } => {
                self.drop_with(place, reason, wish, &mut effects);
                let gap = self.close_ranks(place, &mut effects);
                self.settle(gap, &mut effects);
                DiscardedFrom::Occupied
            }
        };
        self.discard_surplus(&mut effects);
        Ok(Discarded {
            discarded_from,
            repeated: false,
            effects,
        })
    }

    /// The hole that an occupied entry left is filled by the last occupied entry of the same buffer. Returns the gap.
    fn close_ranks(&mut self, hole: Place, effects: &mut Vec<Effect>) -> Place {
        let last = self.last_occupied(hole);
        match last.filter(|(from, _)| *from > hole) {
            Some((from, id)) => {
                self.shift(from, hole);
                effects.push(Effect::Moved { id, from, to: hole });
                from
            }
            None => hole,
        }
    }

    /// *Settle*: a cascade into the gap; then, if a later buffer holds finished entries that the gap's buffer lacks,
    /// the last of the nearest such buffer moves up, and the gap that it leaves is settled likewise.
    fn settle(&mut self, gap: Place, effects: &mut Vec<Effect>) {
        let mut gap = self.cascade(gap, effects);
        while let Some((id, from, to)) = self.promotion(gap) {
            self.shift(from, to);
            effects.push(Effect::Promoted { id, from, to });
            gap = self.cascade(from, effects);
        }
    }

    /// The entry to be promoted into the buffer of the gap: who, from where, to where.
    fn promotion(&self, gap: Place) -> Option<(TrajectoryId, Place, Place)> {
        let buffer = self.open_buffer(gap.buffer).filter(|b| !b.is_ready())?;
        let to = buffer.front_most_empty()?;
        let (from, id, _) = self
            .window
            .iter()
            .filter(|later| later.id() > buffer.id())
            .find_map(|later| later.occupied().next_back())?;
        Some((id, from, to))
    }

    fn last_occupied(&self, hole: Place) -> Option<(Place, TrajectoryId)> {
        let buffer: &Buffer = self.open_buffer(hole.buffer)?;
        buffer.occupied().next_back().map(|(place, id, _)| (place, id))
    }
}
