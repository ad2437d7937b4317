//! The figures of an audited run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::protocol::tables::{BatchEntry, ResumeKind};
use crate::protocol::{BufferId, Effect, Event, EventType, Version};

/// What happened in a run, counted from its events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Events seen.
    pub events: u64,
    /// Entries admitted.
    pub reserved: u64,
    /// Entries finished, with the late ones.
    pub occupied: u64,
    /// Entries that were discarded and saved by a late occupy.
    pub late: u64,
    /// Members of groups that finished, and that failed, as far as they count.
    pub members: u64,
    /// Groups whose session ended, and that kept their slot and members.
    pub orphaned: u64,
    /// Groups that got another owner.
    pub adopted: u64,
    /// Entries discarded, by reason. One that was saved by a late occupy counts here too.
    pub discarded: BTreeMap<String, u64>,
    /// Batches taken: as many as there are in `batches`.
    pub takes: u64,
    /// Pieces of batches that were taken.
    pub pieces: u64,
    /// Times that the batch in training was delivered to another trainer session.
    pub redelivered: u64,
    /// Times that a batch was delivered to be trained again in a replay.
    pub replayed: u64,
    /// Trainer sessions, by how they went on.
    pub resumes: Resumes,
    /// The batches taken, in order. One that a rewind took back stays here, and its number comes again.
    pub batches: Vec<BatchReport>,
}

/// Trainer sessions that were opened. Each counts once, by how it went on, and those that ended that the run was behind
/// count there too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Resumes {
    /// From the latest version, or from the next, which its checkpoint held and nobody had published.
    pub continued: u64,
    /// From an older version, with the batches taken since.
    pub replay: u64,
    /// From an older version, abandoning the weights after it.
    pub rewind: u64,
    /// From a version that the ledger had not reached.
    pub forced: u64,
    /// After the database had lost writes.
    pub behind: u64,
}

impl Resumes {
    /// How many there were.
    pub fn all(&self) -> u64 {
        self.continued + self.replay + self.rewind + self.forced
    }

    pub(super) fn count(&mut self, kind: ResumeKind, behind: bool) {
        match kind {
            ResumeKind::Continued | ResumeKind::Published => self.continued += 1,
            ResumeKind::Replay => self.replay += 1,
            ResumeKind::Rewind => self.rewind += 1,
            ResumeKind::Forced => self.forced += 1,
        }
        self.behind += u64::from(behind);
    }
}

/// One batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BatchReport {
    /// The version that it trains.
    pub version: Version,
    /// How many entries it has.
    pub entries: u64,
    /// How many of them have each staleness, in policy versions. One that is newer than its batch counts as 0: it is a
    /// violation, told elsewhere.
    pub staleness: BTreeMap<u64, u64>,
}

impl Report {
    pub(super) fn count(&mut self, event: &Event) {
        for logged in &event.effects {
            match &logged.effect {
                Effect::Reserved { .. } if event.event_type == EventType::Reserve => {
                    self.reserved += 1;
                }
                Effect::Reserved { .. } => self.late += 1,
                Effect::Occupied { .. } => self.occupied += 1,
                Effect::Discarded { reason, .. } => {
                    *self.discarded.entry(reason.to_string()).or_insert(0) += 1;
                }
                Effect::Member { .. } => self.members += 1,
                Effect::Orphaned { .. } => self.orphaned += 1,
                Effect::Adopted { .. } => self.adopted += 1,
                _ => {}
            }
        }
    }
}

impl BatchReport {
    pub(super) fn of(version: Version, entries: &[BatchEntry]) -> Self {
        let mut staleness = BTreeMap::new();
        for entry in entries {
            let versions_behind = BufferId(version.0).staleness(entry.version).unwrap_or(0);
            *staleness.entry(versions_behind).or_insert(0) += 1;
        }
        Self {
            version,
            entries: entries.len() as u64,
            staleness,
        }
    }
}
