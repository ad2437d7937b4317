//! *Adoption*: a group with complete members outlives the session that held it.

use super::{DiscardRefusal, Discarded, DiscardedFrom, Effect, EntryState, Reason, SlotTables, TrajectoryId, Version};

impl SlotTables {
    /// The holder of a reservation is gone, or has never heard of it. A group with complete members keeps its slot and them,
    /// if the run is so configured, and waits for a new holder; any other is discarded. Of what is occupied nobody is the
    /// holder: it stays.
    ///
    /// # Errors
    ///
    /// As [`DiscardRefusal`] says.
    pub fn lose(&mut self, id: TrajectoryId, reason: Reason) -> Result<Discarded, DiscardRefusal> {
        let adopts = self.config.adopt_groups;
        let entry = self.entries.get_mut(&id).ok_or(DiscardRefusal::Unknown)?;
        let is_occupied = matches!(entry.state, EntryState::Occupied { .. });
        let is_kept = adopts && entry.is_reserved() && entry.complete() > 0;
        if !is_occupied && !is_kept {
            return self.discard(id, reason);
        }
        let (discarded_from, effects) = if is_occupied {
            (DiscardedFrom::Occupied, Vec::new())
        } else if std::mem::replace(&mut entry.orphan, true) {
            // Nobody can lose it twice.
            (DiscardedFrom::Reserved, Vec::new())
        } else {
            (DiscardedFrom::Reserved, vec![Effect::Orphaned { id }])
        };
        Ok(Discarded {
            discarded_from,
            repeated: effects.is_empty(),
            effects,
        })
    }

    /// The groups without an owner, front-most first.
    pub fn orphans(&self) -> impl Iterator<Item = (TrajectoryId, Version)> {
        let reserved = self.reservations();
        let orphaned = reserved.filter(|(_, id, _)| self.entries.get(id).is_some_and(|entry| entry.orphan));
        orphaned.map(|(_, id, version)| (id, version))
    }

    /// The groups without an owner that a worker with weights of `version` may go on with, front-most first.
    pub(super) fn adoptable(&self, version: Version) -> impl Iterator<Item = TrajectoryId> {
        let fitting = self.orphans().filter(move |(_, group)| *group <= version);
        fitting.map(|(id, _)| id)
    }

    /// A worker with weights of `version` becomes the holder of at most `count` groups without an owner.
    pub(super) fn adopt(&mut self, version: Version, count: usize, effects: &mut Vec<Effect>) {
        let adopted: Vec<TrajectoryId> = self.adoptable(version).take(count).collect();
        for id in adopted {
            self.give_owner(id, effects);
        }
    }

    /// A session makes itself the holder of a reservation. Of a group without an owner that is an adoption.
    pub fn claim(&mut self, id: TrajectoryId) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.give_owner(id, &mut effects);
        effects
    }

    fn give_owner(&mut self, id: TrajectoryId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.orphan) {
            entry.orphan = false;
            effects.push(Effect::Adopted { id });
        }
    }
}
