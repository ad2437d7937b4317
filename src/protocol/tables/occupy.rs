//! *Occupy* and *Late occupy*: an entry finishes, and takes the earliest legal place there is at that moment.

use super::{Buffer, Effect, EntryState, MemberRefusal, Place, Reason, SlotTables, TrajectoryId, Version};

/// What an Occupy did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupied {
    /// Where the entry is now. If it was taken since: its batch, and its slot in it.
    pub place: Place,
    /// Whether it had been discarded, and was saved by this Occupy or by the one that this one repeats.
    pub late: bool,
    /// Whether it was occupied already: nothing has changed then.
    pub repeated: bool,
    /// The changes, in order.
    pub effects: Vec<Effect>,
}

/// Why an Occupy is refused. Nothing is changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OccupyRefusal {
    /// No such entry was ever admitted, or it has been forgotten.
    #[error("no such entry")]
    Unknown,
    /// The entry is a group, which [`SlotTables::occupy_group`] occupies.
    #[error("the entry is a group")]
    Group,
    /// What the caller reports with it is refused.
    #[error(transparent)]
    Member(#[from] MemberRefusal),
    /// It was discarded, and cannot come back: its reason forbids it, its weights are abandoned, the run is finished, or
    /// there is no slot that Reserve could give it.
    #[error("the entry was discarded: {0}")]
    Discarded(Reason),
    /// Its prompt was handed out again, has failed or was dropped, since the entry was discarded (*Late occupy*).
    #[error("the prompt of the entry was handed out again, has failed or was dropped")]
    Superseded,
    /// All buffers that it may be trained in are ready. The surplus rule discards such a reservation at once, so this
    /// is met only in tables that were replayed from a broken log.
    #[error("every buffer up to the entry's deadline is ready")]
    NoPlace,
}

impl SlotTables {
    /// The entry, a single trajectory, has finished: it occupies the front-most empty slot of the earliest legal buffer
    /// that is not ready and has one, after a cascade into the slot that it leaves.
    ///
    /// # Errors
    ///
    /// As [`OccupyRefusal`] says.
    pub fn occupy(&mut self, id: TrajectoryId) -> Result<Occupied, OccupyRefusal> {
        let entry = self.entries.get(&id).ok_or(OccupyRefusal::Unknown)?;
        let (version, late) = (entry.version, entry.late);
        if self.config.has_groups() {
            return Err(OccupyRefusal::Group);
        }
        match &entry.state {
            EntryState::Occupied { place } | EntryState::Taken { place } => Ok(Occupied {
                place: *place,
                late,
                repeated: true,
                effects: Vec::new(),
            }),
            &EntryState::Reserved { place } => {
                let mut effects = Vec::new();
                let to = self.finish(id, version, place, &mut effects)?;
                Ok(Occupied {
                    place: to,
                    late: false,
                    repeated: false,
                    effects,
                })
            }
            EntryState::Discarded { reason, .. } => {
                let from = self.late_slot(id, reason)?;
                let mut effects = Vec::new();
                self.admit_late(id, version, from, &mut effects);
                let place = self.finish(id, version, from, &mut effects)?;
                Ok(Occupied {
                    place,
                    late: true,
                    repeated: false,
                    effects,
                })
            }
        }
    }

    /// *Late occupy*: the slot that an entry discarded for `reason` comes back to, if it may.
    pub(super) fn late_slot(&self, id: TrajectoryId, reason: &Reason) -> Result<Place, OccupyRefusal> {
        let entry = self.entries.get(&id).ok_or(OccupyRefusal::Unknown)?;
        self.refuse_late(id, entry, reason)?;
        self.reservable(entry.version)
            .ok_or_else(|| OccupyRefusal::Discarded(reason.clone()))
    }

    /// *Late occupy*: reserved, to be occupied in the same step.
    pub(super) fn admit_late(&mut self, id: TrajectoryId, version: Version, to: Place, effects: &mut Vec<Effect>) {
        self.admit(id, version, to, effects);
        self.reclaim_prompt(id, effects);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.late = true;
        }
    }

    /// *Occupy* of an entry reserved at `from`, with the surplus rule. Returns the slot it occupies.
    pub(super) fn finish(
        &mut self,
        id: TrajectoryId,
        version: Version,
        from: Place,
        effects: &mut Vec<Effect>,
    ) -> Result<Place, OccupyRefusal> {
        let to = self.take_seat(id, version, from, effects)?;
        self.discard_surplus(effects);
        Ok(to)
    }

    /// The three steps of *Occupy* for an entry reserved at `from`, without the surplus rule.
    pub(super) fn take_seat(
        &mut self,
        id: TrajectoryId,
        version: Version,
        from: Place,
        effects: &mut Vec<Effect>,
    ) -> Result<Place, OccupyRefusal> {
        let deadline = self.deadline(version);
        if self.legal_buffers(deadline).all(Buffer::is_ready) {
            return Err(OccupyRefusal::NoPlace);
        }

        self.lift(from);
        let gap = self.cascade(from, effects);

        let empty = self
            .legal_buffers(deadline)
            .find(|buffer| buffer.is_pending())
            .and_then(Buffer::front_most_empty);
        let to = match empty {
            Some(place) => place,
            None => self.displace(version, gap, effects).ok_or(OccupyRefusal::NoPlace)?,
        };
        self.set_occupied(id, version, to);
        effects.push(Effect::Occupied { id, from, to });
        Ok(to)
    }

    /// *Occupy*, step 3: the legal buffers that are not ready are all full. The front-most reserved slot of the
    /// earliest of them is cleared: its reservation goes to the gap if that is legal for it, else it is surplus.
    fn displace(&mut self, version: Version, gap: Place, effects: &mut Vec<Effect>) -> Option<Place> {
        let (from, displaced, its_version) = self
            .legal_buffers(self.deadline(version))
            .find(|buffer| !buffer.is_ready())
            .and_then(|stuck| stuck.reservations().next())?;
        if gap.buffer <= self.deadline(its_version) {
            self.shift(from, gap);
            effects.push(Effect::Moved {
                id: displaced,
                from,
                to: gap,
            });
        } else {
            self.drop_from(from, Reason::Surplus, effects);
        }
        Some(from)
    }
}
