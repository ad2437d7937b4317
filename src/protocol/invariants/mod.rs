//! The invariants of the protocol as pure functions, shared by the model's tests, the auditor and the tests of the
//! Lua scripts.
//!
//! They look at tables from outside, slot by slot, and know nothing of how the operations work. That each batch is
//! whole and each entry in at most one (*Once*) is a matter of a run's history: the [`audit`](super::audit) follows it.

mod earliest;
mod groups;
mod prompts;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

use super::tables::{BufferState, BufferView, EntryState, SlotState, SlotTables};
use super::{BufferId, Place, RunConfig, Slot, TrajectoryId, Version, Weights};

pub use earliest::Demand;
pub use groups::GroupViolation;
pub use violation::Violation;

/// Everything that is wrong with the tables; nothing, if all is well.
pub fn check(tables: &SlotTables) -> Vec<Violation> {
    let mut violations = check_buffers(
        tables.config(),
        tables.policy_version(),
        tables.next_buffer(),
        &tables.buffers(),
    );
    records(tables, &mut violations);
    streamed(tables, &mut violations);
    trainer(tables, &mut violations);
    groups::check(tables, &mut violations);
    prompts::check(tables, &mut violations);
    violations
}

/// Everything that is wrong with the open buffers of a run, as far as the buffers alone show it.
pub fn check_buffers(
    config: &RunConfig,
    policy_version: Version,
    next_buffer: BufferId,
    buffers: &[BufferView],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let window = Window { config, buffers };
    window.is_open(policy_version, next_buffer, &mut violations);
    window.bound(policy_version, &mut violations);
    window.capacity(&mut violations);
    window.order(&mut violations);
    window.once(&mut violations);
    window.packed(&mut violations);
    window.surplus(&mut violations);
    violations
}

/// *Bound* of one entry in one buffer or batch.
pub fn bound(config: &RunConfig, id: TrajectoryId, version: Version, buffer: BufferId) -> Option<Violation> {
    let within = buffer
        .staleness(version)
        .is_some_and(|staleness| staleness <= config.max_staleness);
    (!within).then_some(Violation::Bound { id, version, buffer })
}

struct Window<'a> {
    config: &'a RunConfig,
    buffers: &'a [BufferView],
}

impl Window<'_> {
    /// The open buffers are `H ..= V + η`, and `H` is `V` or `V + 1`.
    fn is_open(&self, policy_version: Version, next_buffer: BufferId, violations: &mut Vec<Violation>) {
        let last = policy_version.deadline(self.config.max_staleness);
        let open = self.buffers.iter().map(|view| view.buffer.0);
        let ahead = next_buffer.0.checked_sub(policy_version.0);
        if !matches!(ahead, Some(0 | 1)) || !open.eq(next_buffer.0..=last.0) {
            violations.push(Violation::Window {
                policy_version,
                next_buffer,
            });
        }
    }

    /// *Bound*, for each entry where it sits now. No entry is of a version that is not published.
    fn bound(&self, policy_version: Version, violations: &mut Vec<Violation>) {
        for (place, id, version) in self.entries() {
            violations.extend(bound(self.config, id, version, place.buffer));
            if version > policy_version {
                violations.push(Violation::NotPublished { id, version });
            }
        }
    }

    /// *Capacity*, and that each buffer's state is what its slots say.
    fn capacity(&self, violations: &mut Vec<Violation>) {
        let batch_size = self.config.batch_size as usize;
        let slots_per_buffer = self.config.slots_per_buffer as usize;
        for view in self.buffers {
            let buffer = view.buffer;
            if view.slots.len() != slots_per_buffer {
                violations.push(Violation::Slots {
                    buffer,
                    slots: view.slots.len(),
                    slots_per_buffer,
                });
            }
            let occupied = view.occupied();
            if occupied > batch_size {
                violations.push(Violation::Capacity {
                    buffer,
                    occupied,
                    batch_size,
                });
            }
            let state = match (occupied >= batch_size, view.empty() > 0) {
                (true, _) => BufferState::Ready,
                (false, true) => BufferState::Pending,
                (false, false) => BufferState::Stuck,
            };
            if view.state != state {
                violations.push(Violation::State {
                    buffer,
                    said: view.state,
                    state,
                });
            }
        }
    }

    /// In every buffer the occupied slots come first, then the empty ones, then the reserved ones.
    fn order(&self, violations: &mut Vec<Violation>) {
        let rank = |slot: &SlotState| match slot {
            SlotState::Occupied { .. } => 0,
            SlotState::Empty => 1,
            SlotState::Reserved { .. } => 2,
        };
        for view in self.buffers {
            if !view.slots.is_sorted_by_key(rank) {
                violations.push(Violation::Order { buffer: view.buffer });
            }
        }
    }

    /// *Once*: no entry sits in two slots.
    fn once(&self, violations: &mut Vec<Violation>) {
        let mut seen = BTreeMap::new();
        for (place, id, _) in self.entries() {
            if let Some(first) = seen.insert(id, place) {
                violations.push(Violation::Twice {
                    id,
                    first,
                    second: place,
                });
            }
        }
    }

    /// *Packed*: no reserved entry could legally sit in a later empty slot; no occupied entry could sit in an earlier
    /// buffer that is not ready and has an empty slot.
    fn packed(&self, violations: &mut Vec<Violation>) {
        let rear_most_empty = |view: &BufferView| {
            let index = view.slots.iter().rposition(SlotState::is_empty)?;
            Some(place(view, index))
        };
        let empty: Vec<Place> = self.buffers.iter().filter_map(rear_most_empty).collect();
        let first_pending = self
            .buffers
            .iter()
            .find(|view| view.state == BufferState::Pending)
            .map(|view| view.buffer);

        for (place, content) in self.slots() {
            match content {
                SlotState::Empty => {}
                SlotState::Reserved { id, version } => {
                    let deadline = version.deadline(self.config.max_staleness);
                    let latest = empty.iter().rfind(|empty| empty.buffer <= deadline);
                    if let Some(&free) = latest.filter(|empty| **empty > place) {
                        violations.push(Violation::ReservedTooEarly { id, place, free });
                    }
                }
                SlotState::Occupied { id, .. } => {
                    if let Some(free) = first_pending.filter(|pending| *pending < place.buffer) {
                        violations.push(Violation::OccupiedTooLate { id, place, free });
                    }
                }
            }
        }
    }

    /// *The surplus rule* has been followed: each reservation has an open buffer up to its deadline that is not ready.
    fn surplus(&self, violations: &mut Vec<Violation>) {
        let first_not_ready = self
            .buffers
            .iter()
            .find(|view| view.state != BufferState::Ready)
            .map(|view| view.buffer);
        for (place, content) in self.slots() {
            let SlotState::Reserved { id, version } = content else {
                continue;
            };
            let deadline = version.deadline(self.config.max_staleness);
            if first_not_ready.is_none_or(|buffer| deadline < buffer) {
                violations.push(Violation::SurplusKept { id, place });
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = (Place, SlotState)> {
        self.buffers.iter().flat_map(|view| {
            let slots = view.slots.iter().enumerate();
            slots.map(|(index, content)| (place(view, index), *content))
        })
    }

    fn entries(&self) -> impl Iterator<Item = (Place, TrajectoryId, Version)> {
        self.slots().filter_map(|(place, content)| {
            let (id, version) = content.entry()?;
            Some((place, id, version))
        })
    }
}

/// `T` is `V` or below it, the batches from `T` on are kept, and no entry in the tables is of abandoned weights.
fn trainer(tables: &SlotTables, violations: &mut Vec<Violation>) {
    let trainer_version = tables.trainer_version();
    let policy_version = tables.policy_version();
    if trainer_version > policy_version {
        violations.push(Violation::TrainerAhead {
            trainer_version,
            policy_version,
        });
    }
    let taken = (trainer_version.0..tables.next_buffer().0).map(Version);
    if let Some(batch) = taken.into_iter().find(|batch| !tables.is_kept(*batch)) {
        violations.push(Violation::NotKept { batch });
    }
    for (id, entry) in tables.entries().filter(|(_, entry)| entry.place().is_some()) {
        let Weights { version, lineage } = entry.newest_weights();
        if tables.is_abandoned(Weights { version, lineage }) {
            violations.push(Violation::Abandoned { id, version, lineage });
        }
    }
}

/// Pieces are taken of buffer `V` alone, and of what has finished; a batch of which nothing is left is one, and open no more.
fn streamed(tables: &SlotTables, violations: &mut Vec<Violation>) {
    let streamed = tables.streamed();
    if streamed == 0 {
        return;
    }
    let batch_size = tables.config().batch_size as usize;
    let next_buffer = tables.next_buffer();
    let is_idle = next_buffer == BufferId(tables.policy_version().0);
    if !is_idle || streamed >= batch_size || tables.streamed_entries().len() != streamed {
        violations.push(Violation::Streamed { next_buffer, streamed });
    }
}

/// *A place for everyone*, and *Once* between records and slots: a live entry sits in exactly the slot that its record
/// names, as what it is, and no slot holds another one.
fn records(tables: &SlotTables, violations: &mut Vec<Violation>) {
    let mut slots = BTreeMap::new();
    for view in tables.buffers() {
        for (index, content) in view.slots.iter().enumerate() {
            if let Some((id, version)) = content.entry() {
                slots.insert(id, (place(&view, index), version, content.is_occupied()));
            }
        }
    }
    for (id, entry) in tables.entries() {
        let recorded = match entry.state {
            EntryState::Reserved { place } => Some((place, entry.version, false)),
            EntryState::Occupied { place } if !tables.is_streamed(place) => Some((place, entry.version, true)),
            EntryState::Taken { place } if tables.is_streamed(place) => Some((place, entry.version, true)),
            EntryState::Occupied { .. } | EntryState::Taken { .. } | EntryState::Discarded { .. } => None,
        };
        if slots.remove(&id) != recorded {
            violations.push(Violation::Misplaced { id });
        }
    }
    let strangers = slots.into_keys().map(|id| Violation::Misplaced { id });
    violations.extend(strangers);
}

fn place(view: &BufferView, index: usize) -> Place {
    Place {
        buffer: view.buffer,
        slot: Slot(u32::try_from(index).unwrap_or(u32::MAX)),
    }
}
