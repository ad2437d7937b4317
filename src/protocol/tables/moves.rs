//! The changes that the operations are made of: an entry lifted out of its slot or set down in one, the cascade, and
//! the surplus rule.
//!
//! Slots are written only here, together with the record of the entry, so that the two never disagree.

use std::collections::BTreeMap;

use super::{
    Buffer, BufferId, DiscardedFrom, Effect, Entry, EntryState, Place, Reason, SlotState, SlotTables, TrajectoryId,
    Version, Wish,
};

impl SlotTables {
    /// Empties an open slot and returns what it held. Its entry must be set down or discarded next.
    pub(super) fn lift(&mut self, place: Place) -> SlotState {
        self.open_buffer_mut(place.buffer).replace(place.slot, SlotState::Empty)
    }

    /// Sets a reserved entry down in an open, empty slot.
    pub(super) fn set_reserved(&mut self, id: TrajectoryId, version: Version, to: Place) {
        self.open_buffer_mut(to.buffer)
            .replace(to.slot, SlotState::Reserved { id, version });
        self.record(id, version, EntryState::Reserved { place: to });
    }

    /// Sets a finished entry down in an open, empty slot.
    pub(super) fn set_occupied(&mut self, id: TrajectoryId, version: Version, to: Place) {
        self.open_buffer_mut(to.buffer)
            .replace(to.slot, SlotState::Occupied { id, version });
        self.record(id, version, EntryState::Occupied { place: to });
    }

    /// Takes an entry from one slot to another, as what it is.
    pub(super) fn shift(&mut self, from: Place, to: Place) {
        match self.lift(from) {
            SlotState::Empty => {}
            SlotState::Reserved { id, version } => self.set_reserved(id, version, to),
            SlotState::Occupied { id, version } => self.set_occupied(id, version, to),
        }
    }

    /// Takes an entry out of the tables for good.
    pub(super) fn drop_from(&mut self, from: Place, reason: Reason, effects: &mut Vec<Effect>) {
        self.drop_with(from, reason, Wish::ByReason, effects);
    }

    /// The same, with a wish for its prompt.
    pub(super) fn drop_with(&mut self, from: Place, reason: Reason, wish: Wish, effects: &mut Vec<Effect>) {
        let (id, version, discarded_from) = match self.lift(from) {
            SlotState::Empty => return,
            SlotState::Reserved { id, version } => (id, version, DiscardedFrom::Reserved),
            SlotState::Occupied { id, version } => (id, version, DiscardedFrom::Occupied),
        };
        let state = EntryState::Discarded {
            reason: reason.clone(),
            discarded_from,
        };
        self.record(id, version, state);
        let prompt = self.settle_prompt(id, &reason, discarded_from, wish);
        effects.push(Effect::Discarded { id, reason, from });
        effects.extend(prompt);
    }

    /// *Cascade*: while some reserved entry sits before the gap and the gap is legal for it, the earliest such entry
    /// moves into the gap, and its old slot is the new gap. Returns the gap that is left.
    pub(super) fn cascade(&mut self, mut gap: Place, effects: &mut Vec<Effect>) -> Place {
        while let Some((from, id)) = self.earliest_reservation_for(gap) {
            self.shift(from, gap);
            effects.push(Effect::Moved { id, from, to: gap });
            gap = from;
        }
        gap
    }

    fn earliest_reservation_for(&self, gap: Place) -> Option<(Place, TrajectoryId)> {
        self.reservations()
            .take_while(|(place, ..)| *place < gap)
            .find(|(.., version)| gap.buffer <= self.deadline(*version))
            .map(|(place, id, _)| (place, id))
    }

    /// *The surplus rule*: each reservation whose open buffers up to its deadline are all ready is discarded,
    /// front-most first, with a cascade into each gap.
    pub(super) fn discard_surplus(&mut self, effects: &mut Vec<Effect>) {
        while let Some(gap) = self.front_most_surplus() {
            self.drop_from(gap, Reason::Surplus, effects);
            self.cascade(gap, effects);
        }
    }

    fn front_most_surplus(&self) -> Option<Place> {
        let first_not_ready = self.window.iter().find(|b| !b.is_ready()).map(Buffer::id);
        self.reservations()
            .find(|(.., version)| first_not_ready.is_none_or(|b| self.deadline(*version) < b))
            .map(|(place, ..)| place)
    }

    /// The open buffer of this number. The places that the operations work on come from the tables themselves, and
    /// those of a replayed log are checked before they are used, so it is always open.
    fn open_buffer_mut(&mut self, id: BufferId) -> &mut Buffer {
        let index = self.index(id).expect("places in use are in open buffers");
        &mut self.window[index]
    }

    /// Writes what has become of an entry; one that was not known before is from now on.
    pub(super) fn record(&mut self, id: TrajectoryId, version: Version, state: EntryState) {
        let lineage = self.lineage;
        let entry = self.entries.entry(id).or_insert_with(|| Entry {
            version,
            newest: version,
            lineage,
            late: false,
            orphan: false,
            members: BTreeMap::new(),
            state: state.clone(),
        });
        entry.become_of(state);
    }
}
