//! A run's state as the scripts keep it (`state` in `lua/prelude/run.lua`).

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::protocol::tables::BufferState;
use crate::protocol::{BufferId, Epoch, Lineage, RunConfig, Version};

/// The state of a run.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct State {
    pub(super) policy_version: Version,
    pub(super) next_buffer: BufferId,
    pub(super) trainer_version: Version,
    pub(super) lineage: Lineage,
    epoch: Epoch,
    pub(super) seq: u64,
    pub(super) oldest_kept: BufferId,
    /// Numbers, from the first to before the second, that a forced resume jumped over.
    #[serde(default)]
    gaps: Vec<(u64, u64)>,
    /// How many entries of `next_buffer` are taken, in its front-most slots.
    #[serde(default)]
    pub(super) streamed: u32,
    draining: Option<Draining>,
    /// Of each open buffer, from `next_buffer` on: its occupied and its reserved entries.
    buffers: Vec<(u32, u32)>,
    pub(super) generating: u64,
    totals: Totals,
    trainer: Option<TrainerSession>,
}

/// What the run is being finished with.
#[derive(Debug, Clone, Deserialize)]
struct Draining {}

/// What was done in a run since it was created, in entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Entries admitted.
    pub reserved: u64,
    /// Entries finished.
    pub occupied: u64,
    /// Entries taken for training.
    pub trained: u64,
    /// Entries discarded, by reason.
    #[serde(deserialize_with = "map_or_empty")]
    pub discarded: BTreeMap<String, u64>,
    /// Entries that were finished after they had been discarded.
    pub late: u64,
    /// Groups that got a new owner.
    pub adopted: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum MapOrEmpty {
    Map(BTreeMap<String, u64>),
    Empty([u64; 0]),
}

/// Lua does not tell an empty map from an empty list.
fn map_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    match MapOrEmpty::deserialize(deserializer)? {
        MapOrEmpty::Map(map) => Ok(map),
        MapOrEmpty::Empty(_) => Ok(BTreeMap::new()),
    }
}

/// The trainer's session; nameless, with the times of its calls alone, where none was opened.
#[derive(Debug, Clone, Deserialize)]
struct TrainerSession {
    name: Option<String>,
    epoch: Option<Epoch>,
    last_call_at_ms: Option<u64>,
    waiting_since_at_ms: Option<u64>,
    training_since_at_ms: Option<u64>,
}

/// What the trainer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrainerActivity {
    /// It asked for a batch and got none yet.
    Waiting,
    /// It has a batch, or does something that the ledger does not see.
    Training,
    /// It never called.
    NeverSeen,
}

/// The trainer, as far as its calls tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trainer {
    /// The name of the trainer whose session is open.
    pub name: Option<String>,
    /// The number of its session, or of the last one that there was; 0 before the first.
    pub epoch: Epoch,
    /// What it is doing.
    pub state: TrainerActivity,
    /// Since when, in Unix milliseconds of the database's clock.
    pub since_at_ms: Option<u64>,
    /// When it last called.
    pub last_call_at_ms: Option<u64>,
}

/// The counts of one open buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BufferCounts {
    /// The buffer: the batch that trains this version into the next.
    pub version: BufferId,
    /// Whether it can be trained, still admits, or waits.
    pub state: BufferState,
    /// Finished entries in it.
    pub occupied: u32,
    /// Empty slots.
    pub empty: u32,
    /// Entries that are still generating.
    pub reserved: u32,
}

impl State {
    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    pub(super) fn buffers(&self, config: &RunConfig) -> Vec<BufferCounts> {
        let numbers = self.next_buffer.0..;
        numbers
            .zip(&self.buffers)
            .map(|(number, &counts)| buffer_counts(BufferId(number), counts, config))
            .collect()
    }

    /// Whether no batch ever had this number.
    pub(super) fn is_in_gap(&self, batch: BufferId) -> bool {
        self.gaps.iter().any(|&(first, past)| (first..past).contains(&batch.0))
    }

    /// The numbers of the batches that are kept, from `first` on, in ranges.
    fn kept_ranges(&self, first: u64) -> Vec<Range<u64>> {
        without_gaps(&self.gaps, self.oldest_kept.0.max(first)..self.next_buffer.0)
    }

    /// The numbers of the batches that are kept, from `first` on.
    pub(super) fn kept_batches_from(&self, first: u64) -> impl Iterator<Item = BufferId> {
        self.kept_ranges(first).into_iter().flatten().map(BufferId)
    }

    /// How many batches are kept.
    pub(super) fn kept_batches(&self) -> u64 {
        self.kept_ranges(0).iter().map(|range| range.end - range.start).sum()
    }

    /// Whether the run is being finished.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    pub(super) fn reserved(&self) -> u64 {
        self.buffers.iter().map(|&(_, reserved)| u64::from(reserved)).sum()
    }

    /// Finished entries that are not taken.
    pub(super) fn occupied(&self) -> u64 {
        let occupied: u64 = self.buffers.iter().map(|&(occupied, _)| u64::from(occupied)).sum();
        occupied - u64::from(self.streamed)
    }

    pub(super) fn trainer(&self) -> Trainer {
        let session = self.trainer.as_ref();
        let since = session.map(|session| (session.waiting_since_at_ms, session.training_since_at_ms));
        let (state, since_at_ms) = match since {
            None => (TrainerActivity::NeverSeen, None),
            Some((Some(since), _)) => (TrainerActivity::Waiting, Some(since)),
            Some((None, since)) => (TrainerActivity::Training, since),
        };
        Trainer {
            name: session.and_then(|session| session.name.clone()),
            epoch: session.and_then(|session| session.epoch).unwrap_or(self.epoch),
            state,
            since_at_ms,
            last_call_at_ms: session.and_then(|session| session.last_call_at_ms),
        }
    }
}

fn buffer_counts(version: BufferId, (occupied, reserved): (u32, u32), config: &RunConfig) -> BufferCounts {
    let empty = config.slots_per_buffer - occupied - reserved;
    let state = if occupied == config.batch_size {
        BufferState::Ready
    } else if empty > 0 {
        BufferState::Pending
    } else {
        BufferState::Stuck
    };
    BufferCounts {
        version,
        state,
        occupied,
        empty,
        reserved,
    }
}
/// The numbers that are in none of the gaps, in ranges. A gap may be so wide that nobody may count its numbers.
pub(super) fn without_gaps(gaps: &[(u64, u64)], numbers: Range<u64>) -> Vec<Range<u64>> {
    let mut from = numbers.start;
    let mut ranges = Vec::with_capacity(gaps.len() + 1);
    for &(gap, past) in gaps {
        ranges.push(from..gap.max(from));
        from = from.max(past);
    }
    ranges.push(from..numbers.end.max(from));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_around_wide_gaps_are_told_without_counting_those_in_them() {
        let gaps = [(2, 4), (6, 1 << 52)];
        assert_eq!(
            without_gaps(&gaps, 1..(1 << 52) + 3),
            [1..2, 4..6, 1 << 52..(1 << 52) + 3]
        );
        assert_eq!(
            without_gaps(&gaps, 3..8),
            [3..3, 4..6, 1 << 52..1 << 52],
            "from within one into another"
        );
    }
}
