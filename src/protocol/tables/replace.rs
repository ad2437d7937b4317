//! *Re-place*: what a rewind and a forced resume leave is laid out anew.

use std::collections::BTreeMap;

use super::{
    BatchEntry, Buffer, BufferId, DiscardedFrom, Effect, EntryState, Place, Reason, SlotState, SlotTables,
    TrajectoryId, Version, Wish, empty_window,
};

/// An entry between its old place and its new one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Displaced {
    pub(super) id: TrajectoryId,
    pub(super) version: Version,
    pub(super) from: Place,
    was: DiscardedFrom,
}

impl SlotTables {
    /// Back to `version`: the weights after it are abandoned, with every entry of which they generated any part, and the
    /// kept batches from it on are batches no longer.
    pub(super) fn rewind(&mut self, version: Version, effects: &mut Vec<Effect>) {
        self.forget_let_go_of(version, effects);
        let finished = self.dissolve_batches(version);
        let (staying, leaving) = self
            .in_order_of_placing(finished)
            .into_iter()
            .partition(|entry| self.newest(entry) <= version);
        self.start_from(version);
        self.oldest_kept = self.oldest_kept.min(version);
        self.leave(leaving, &Reason::Rewound, effects);
        self.place_anew(staying, effects);
    }

    /// On to `version`, which the ledger has not reached: what is too stale for it is lost, and batches stay. What was taken of
    /// an unfinished one is trained, and there is no batch to keep it in.
    pub(super) fn jump(&mut self, version: Version, effects: &mut Vec<Effect>) {
        let displaced = self.in_order_of_placing(Vec::new());
        for BatchEntry { id, .. } in self.streamed_entries() {
            self.forget(id);
            effects.push(Effect::Pruned { id });
        }
        let (staying, leaving) = displaced
            .into_iter()
            .filter(|entry| self.entries.contains_key(&entry.id))
            .partition(|entry| self.deadline(entry.version) >= BufferId(version.0));
        self.start_from(version);
        self.leave(leaving, &Reason::TooStale, effects);
        self.place_anew(staying, effects);
    }

    /// `V = T = H = version`, with nothing in the tables.
    pub(super) fn start_from(&mut self, version: Version) {
        self.policy_version = version;
        self.trainer_version = version;
        self.next_buffer = BufferId(version.0);
        self.window = empty_window(version, &self.config);
        self.streamed = 0;
    }

    /// Forgets what is left of the batches from `from` on that are let go of: their numbers are given anew.
    pub(super) fn forget_let_go_of(&mut self, from: Version, effects: &mut Vec<Effect>) {
        if from >= self.oldest_kept {
            return;
        }
        let batches = self.batches.range(from..self.oldest_kept);
        let left: Vec<TrajectoryId> = batches.flat_map(|(_, batch)| batch).map(|entry| entry.id).collect();
        for id in left {
            self.forget(id);
            effects.push(Effect::Pruned { id });
        }
    }

    /// The entries of the batches from `from` on, by place. The batches are no longer.
    pub(super) fn dissolve_batches(&mut self, from: Version) -> Vec<Displaced> {
        let mut displaced = Vec::new();
        self.finals.split_off(&from);
        for (batch, entries) in self.batches.split_off(&from) {
            for BatchEntry { id, version } in entries {
                let from = match self.entries.get(&id).map(|entry| &entry.state) {
                    Some(EntryState::Taken { place }) if place.buffer.0 == batch.0 => *place,
                    // A broken log may have put it elsewhere meanwhile.
                    _ => continue,
                };
                displaced.push(Displaced {
                    id,
                    version,
                    from,
                    was: DiscardedFrom::Occupied,
                });
            }
        }
        displaced
    }

    /// Everything that is to be placed, in its order: the finished entries, those of batches before those of the open
    /// buffers, then the reserved ones.
    pub(super) fn in_order_of_placing(&self, mut finished: Vec<Displaced>) -> Vec<Displaced> {
        let displaced = |was| move |(from, id, version)| Displaced { id, version, from, was };
        let occupied = self.window.iter().flat_map(Buffer::occupied);
        finished.extend(occupied.map(displaced(DiscardedFrom::Occupied)));
        finished.extend(self.reservations().map(displaced(DiscardedFrom::Reserved)));
        finished
    }

    /// The newest version that generated any part of it.
    fn newest(&self, displaced: &Displaced) -> Version {
        let entry = self.entries.get(&displaced.id);
        entry.map_or(displaced.version, |entry| entry.newest)
    }

    fn leave(&mut self, leaving: Vec<Displaced>, reason: &Reason, effects: &mut Vec<Effect>) {
        for entry in leaving {
            self.discard_displaced(entry, reason.clone(), effects);
        }
    }

    fn discard_displaced(&mut self, entry: Displaced, reason: Reason, effects: &mut Vec<Effect>) {
        let state = EntryState::Discarded {
            reason: reason.clone(),
            discarded_from: entry.was,
        };
        self.record(entry.id, entry.version, state);
        let prompt = self.settle_prompt(entry.id, &reason, entry.was, Wish::ByReason);
        effects.push(Effect::Discarded {
            id: entry.id,
            reason,
            from: entry.from,
        });
        effects.extend(prompt);
    }

    /// Lays the entries out in empty tables: all as reservations first, each in the latest legal place; then the
    /// finished ones occupy, nearest deadline first. The moves in between are nobody's business: what is told of an
    /// entry that stays is where it was and where it is.
    fn place_anew(&mut self, entries: Vec<Displaced>, effects: &mut Vec<Effect>) {
        let mut placed = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.latest_place(&entry) {
                Some(to) => {
                    self.set_reserved(entry.id, entry.version, to);
                    placed.push(entry);
                }
                None => self.discard_displaced(entry, Reason::TooStale, effects),
            }
        }
        let origins: BTreeMap<TrajectoryId, Place> = placed.iter().map(|entry| (entry.id, entry.from)).collect();

        placed.retain(|entry| entry.was == DiscardedFrom::Occupied);
        placed.sort_by_key(|entry| entry.version);
        let mut moves = Vec::new();
        for entry in placed {
            self.occupy_anew(entry, &mut moves);
        }
        self.discard_surplus(&mut moves);

        let discarded = moves.into_iter().filter_map(|effect| match effect {
            Effect::Discarded { id, reason, from } => {
                let from = origins.get(&id).copied().unwrap_or(from);
                Some(Effect::Discarded { id, reason, from })
            }
            Effect::Prompt { .. } => Some(effect),
            _ => None,
        });
        effects.extend(discarded);
        effects.extend(self.replaced(&origins));
    }

    /// The rear-most empty slot of the latest legal buffer that has one. Finished entries are placed before all others,
    /// so that every slot that is taken then is one of theirs, and at most `B` of them may be in a buffer.
    fn latest_place(&self, entry: &Displaced) -> Option<Place> {
        let batch_size = self.config.batch_size as usize;
        let finished = entry.was == DiscardedFrom::Occupied;
        self.legal_buffers(self.deadline(entry.version))
            .filter(|buffer| !finished || buffer.reservations().count() < batch_size)
            .rev()
            .find_map(Buffer::rear_most_empty)
    }

    /// With at most `B` finished entries in a buffer, and the nearest deadlines first, there is always a legal buffer
    /// that is not ready.
    fn occupy_anew(&mut self, entry: Displaced, moves: &mut Vec<Effect>) {
        let place = self.entries.get(&entry.id).and_then(super::Entry::place);
        let seat = place.map(|from| self.take_seat(entry.id, entry.version, from, moves));
        debug_assert!(
            matches!(seat, Some(Ok(_))),
            "a finished entry was placed and has no seat"
        );
    }

    /// One effect for each entry in the tables, in the order of its place.
    fn replaced(&self, origins: &BTreeMap<TrajectoryId, Place>) -> Vec<Effect> {
        let views = self.window.iter().map(Buffer::view);
        let slots = views.flat_map(|view| {
            let buffer = view.buffer;
            let slots = view.slots.into_iter().enumerate();
            slots.map(move |(index, content): (usize, SlotState)| (buffer, index, content))
        });
        let replaced = slots.filter_map(|(buffer, index, content)| {
            let (id, _) = content.entry()?;
            let to = Place {
                buffer,
                slot: super::slot(index),
            };
            let from = origins.get(&id).copied().unwrap_or(to);
            Some(Effect::Replaced { id, from, to })
        });
        replaced.collect()
    }
}
