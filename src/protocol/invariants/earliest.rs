//! *Earliest* (`S == B`): an occupy lands in the earliest buffer that leaves every other reservation a legal place.

use std::collections::BTreeMap;

use super::Violation;
use crate::protocol::tables::{SlotState, SlotTables};
use crate::protocol::{BufferId, TrajectoryId, Version};

/// What the entries that are still generating need, and what there is for them: as much of the tables as *Earliest* is
/// about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    max_staleness: u64,
    /// The slots of each open buffer that no finished entry occupies.
    free: BTreeMap<BufferId, usize>,
    /// How many reservations have each deadline.
    deadlines: BTreeMap<BufferId, usize>,
}

impl Demand {
    /// The demand of all reservations but `id`'s, which is about to finish.
    ///
    /// Meant for tables with `slots_per_buffer == batch_size`: with oversampling a reservation may be left without a
    /// place.
    pub fn beside(tables: &SlotTables, id: TrajectoryId) -> Self {
        let max_staleness = tables.config().max_staleness;
        let mut free = BTreeMap::new();
        let mut deadlines = BTreeMap::new();
        for view in tables.buffers() {
            free.insert(view.buffer, view.slots.len() - view.occupied());
            for slot in view.slots {
                if let SlotState::Reserved { id: other, version } = slot
                    && other != id
                {
                    *deadlines.entry(version.deadline(max_staleness)).or_insert(0) += 1;
                }
            }
        }
        Self {
            max_staleness,
            free,
            deadlines,
        }
    }

    /// Whether an entry of `version` that finished rightly occupied `buffer`.
    pub fn check(&self, id: TrajectoryId, version: Version, buffer: BufferId) -> Option<Violation> {
        let deadline = version.deadline(self.max_staleness);
        let mut legal = self.free.keys().filter(|open| **open <= deadline);
        match legal.find(|open| self.leaves_a_place_for_everyone(**open)) {
            Some(&earliest) if earliest == buffer => None,
            Some(&earlier) if earlier < buffer => Some(Violation::NotEarliest { id, buffer, earlier }),
            _ => Some(Violation::LeavesNoPlace { id, buffer }),
        }
    }

    /// Hall's condition with one more slot of `taken` occupied: for every deadline `d`, the reservations with deadline
    /// `<= d` fit in the free slots of the buffers `<= d`.
    fn leaves_a_place_for_everyone(&self, taken: BufferId) -> bool {
        let free_up_to = |deadline: BufferId| {
            let free: usize = self.free.range(..=deadline).map(|(_, free)| free).sum();
            free - usize::from(taken <= deadline)
        };
        let reserved_up_to =
            |deadline: BufferId| -> usize { self.deadlines.range(..=deadline).map(|(_, count)| count).sum() };
        let has_room = self.free.get(&taken).is_some_and(|free| *free > 0);
        has_room && self.free.keys().all(|d| reserved_up_to(*d) <= free_up_to(*d))
    }
}
