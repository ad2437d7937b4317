//! The batches of a run as they were taken, beside what the tables have made of them since.

use std::collections::BTreeMap;

use super::Fault;
use crate::protocol::tables::BatchEntry;
use crate::protocol::{TrajectoryId, Version};

#[derive(Debug, Default)]
pub(super) struct Batches {
    /// The batch that each entry was trained in. Not forgotten when the batch is.
    of: BTreeMap<TrajectoryId, Version>,
    /// The entries of each kept batch, in slot order.
    taken: BTreeMap<Version, Vec<TrajectoryId>>,
}

impl Batches {
    /// The batch that the entry was trained in.
    pub(super) fn of(&self, id: TrajectoryId) -> Option<Version> {
        self.of.get(&id).copied()
    }

    /// A batch was taken, and those below `oldest_kept` are let go of. *Once*: none of its entries is in another one.
    pub(super) fn take(&mut self, version: Version, entries: &[BatchEntry], oldest_kept: Version) -> Vec<Fault> {
        self.keep_from(oldest_kept);
        self.taken
            .insert(version, entries.iter().map(|entry| entry.id).collect());
        let in_two = entries.iter().filter_map(|entry| {
            let first = self.of.insert(entry.id, version)?;
            Some(Fault::InTwoBatches {
                id: entry.id,
                first,
                second: version,
            })
        });
        in_two.collect()
    }

    /// A batch is given again: it must be what was taken, entry by entry.
    pub(super) fn check_delivered(&self, version: Version, entries: &[BatchEntry]) -> Option<Fault> {
        let taken = self.taken.get(&version).map_or(&[][..], Vec::as_slice);
        let delivered = entries.iter().map(|entry| entry.id);
        (!delivered.eq(taken.iter().copied())).then_some(Fault::NotAsTaken {
            version,
            taken: taken.len(),
            delivered: entries.len(),
        })
    }

    pub(super) fn keep_from(&mut self, oldest_kept: Version) {
        self.taken = self.taken.split_off(&oldest_kept);
    }

    /// The kept batches from `from` on are batches no longer: their entries may be trained in other ones.
    pub(super) fn rewind(&mut self, from: Version) {
        for id in self.taken.split_off(&from).into_values().flatten() {
            self.of.remove(&id);
        }
    }
}
