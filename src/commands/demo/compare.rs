//! What the trainer says it got, checked by itself and against the event log.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::audit::Audit;
use super::record::BatchRecord;
use crate::protocol::{TrajectoryId, Version};

/// How many entries of a batch have each staleness.
pub(super) type Composition = BTreeMap<u64, u64>;

/// Everything that the trainer processes recorded.
#[derive(Debug, Default)]
pub(super) struct TrainerRecord {
    max_staleness: u64,
    batches: BTreeMap<Version, Delivered>,
    batch_of: HashMap<TrajectoryId, Version>,
    contradictions: Vec<String>,
}

/// A batch, with all its deliveries.
#[derive(Debug, Clone)]
pub(super) struct Delivered {
    /// As it was delivered first.
    pub(super) batch: BatchRecord,
    /// How often it was delivered.
    pub(super) times: u32,
    /// How long the trainer waited for it, in all.
    pub(super) waited: Duration,
}

impl TrainerRecord {
    /// A record in which nothing may be staler than `max_staleness`.
    pub(super) fn new(max_staleness: u64) -> Self {
        Self {
            max_staleness,
            ..Self::default()
        }
    }

    /// Notes a delivery.
    pub(super) fn add(&mut self, batch: BatchRecord) {
        let waited = Duration::from_millis(batch.waited_ms);
        if let Some(earlier) = self.batches.get_mut(&batch.version) {
            earlier.times += 1;
            earlier.waited += waited;
            if earlier.batch.entries != batch.entries {
                self.contradictions.push(format!(
                    "batch {} was not the same when it was redelivered",
                    batch.version
                ));
            }
            if !batch.redelivered {
                self.contradictions
                    .push(format!("batch {} was delivered twice as if it were new", batch.version));
            }
            return;
        }
        self.check_entries(&batch);
        self.batches.insert(
            batch.version,
            Delivered {
                batch,
                times: 1,
                waited,
            },
        );
    }

    fn check_entries(&mut self, batch: &BatchRecord) {
        for entry in &batch.entries {
            let staleness = batch.version.0.checked_sub(entry.version.0);
            if staleness != Some(entry.staleness) || entry.staleness > self.max_staleness {
                self.contradictions.push(format!(
                    "batch {}: entry {} of version {} has staleness {}",
                    batch.version, entry.id, entry.version, entry.staleness
                ));
            }
            if let Some(other) = self.batch_of.insert(entry.id, batch.version) {
                self.contradictions.push(format!(
                    "entry {} is in batch {other} and in batch {}",
                    entry.id, batch.version
                ));
            }
        }
    }

    /// Whether the batch has the entries that it had when it was delivered before; `None` if it never was.
    pub(super) fn was_the_same(&self, batch: &BatchRecord) -> Option<bool> {
        let earlier = self.batches.get(&batch.version)?;
        Some(earlier.batch.entries == batch.entries)
    }

    /// The batches, in order.
    pub(super) fn batches(&self) -> impl Iterator<Item = (&Version, &Delivered)> {
        self.batches.iter()
    }

    /// The last batch that was delivered.
    pub(super) fn last(&self) -> Option<Version> {
        self.batches.last_key_value().map(|(version, _)| *version)
    }

    /// How many entries were delivered, each counted once.
    pub(super) fn entries(&self) -> u64 {
        self.batch_of.len() as u64
    }

    /// The lengths of all entries, added up.
    pub(super) fn tokens(&self) -> u64 {
        self.batches.values().map(|delivered| delivered.batch.tokens).sum()
    }

    /// How long the trainer waited for batches.
    pub(super) fn waited(&self) -> Duration {
        self.batches.values().map(|delivered| delivered.waited).sum()
    }

    /// What does not fit together: within this record, and between it and the event log.
    pub(super) fn contradictions(&self, log: &Audit) -> Vec<String> {
        let mut found = self.contradictions.clone();
        for (version, delivered) in &self.batches {
            let said = composition(&delivered.batch);
            match log.batches.get(version) {
                None => found.push(format!("batch {version} was delivered, and is not in the event log")),
                Some(logged) if *logged != said => found.push(format!(
                    "batch {version} was delivered with staleness {}, and has {} in the event log",
                    in_words(&said),
                    in_words(logged)
                )),
                Some(_) => {}
            }
        }
        let undelivered = log.batches.keys().filter(|version| !self.batches.contains_key(version));
        found
            .extend(undelivered.map(|version| format!("batch {version} is in the event log, and was never delivered")));
        found
    }
}

/// How many entries of the batch have each staleness.
pub(super) fn composition(batch: &BatchRecord) -> Composition {
    let mut composition = Composition::new();
    for entry in &batch.entries {
        *composition.entry(entry.staleness).or_default() += 1;
    }
    composition
}

/// `0: 12, 1: 4`.
pub(super) fn in_words(composition: &Composition) -> String {
    let parts: Vec<String> = composition
        .iter()
        .map(|(staleness, count)| format!("{staleness}: {count}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::record::EntryRecord;

    fn entry(number: u128, version: u64, staleness: u64) -> EntryRecord {
        EntryRecord {
            id: TrajectoryId(uuid::Uuid::from_u128(number)),
            version: Version(version),
            staleness,
        }
    }

    fn batch(version: u64, redelivered: bool, entries: Vec<EntryRecord>) -> BatchRecord {
        BatchRecord {
            version: Version(version),
            redelivered,
            waited_ms: 100,
            tokens: 10,
            entries,
        }
    }

    fn log(batches: &[(u64, &[(u64, u64)])]) -> Audit {
        let batches = batches
            .iter()
            .map(|(version, counts)| (Version(*version), counts.iter().copied().collect()));
        Audit {
            batches: batches.collect(),
            ..Audit::default()
        }
    }

    #[test]
    fn a_redelivered_batch_counts_once_and_its_waits_add_up() {
        let mut record = TrainerRecord::new(1);
        record.add(batch(0, false, vec![entry(1, 0, 0), entry(2, 0, 0)]));
        record.add(batch(0, true, vec![entry(1, 0, 0), entry(2, 0, 0)]));
        record.add(batch(1, false, vec![entry(3, 0, 1), entry(4, 1, 0)]));
        assert_eq!(
            record.contradictions(&log(&[(0, &[(0, 2)]), (1, &[(0, 1), (1, 1)])])),
            Vec::<String>::new()
        );
        assert_eq!(
            (record.entries(), record.tokens(), record.waited()),
            (4, 20, Duration::from_millis(300))
        );
    }

    #[test]
    fn a_delivery_that_breaks_the_protocol_is_noticed() {
        let mut record = TrainerRecord::new(1);
        record.add(batch(2, false, vec![entry(1, 0, 2)]));
        record.add(batch(3, false, vec![entry(1, 3, 0), entry(2, 3, 1)]));
        record.add(batch(3, false, vec![entry(2, 3, 0)]));
        assert_eq!(
            record.contradictions(&log(&[(2, &[(2, 1)]), (3, &[(0, 1), (1, 1)])])),
            [
                "batch 2: entry 00000000-0000-0000-0000-000000000001 of version 0 has staleness 2",
                "entry 00000000-0000-0000-0000-000000000001 is in batch 2 and in batch 3",
                "batch 3: entry 00000000-0000-0000-0000-000000000002 of version 3 has staleness 1",
                "batch 3 was not the same when it was redelivered",
                "batch 3 was delivered twice as if it were new",
            ]
        );
    }

    #[test]
    fn the_event_log_must_say_the_same() {
        let mut record = TrainerRecord::new(1);
        record.add(batch(1, false, vec![entry(1, 0, 1)]));
        record.add(batch(2, false, vec![entry(2, 2, 0)]));
        assert_eq!(
            record.contradictions(&log(&[(1, &[(0, 1)]), (3, &[(0, 1)])])),
            [
                "batch 1 was delivered with staleness 1: 1, and has 0: 1 in the event log",
                "batch 2 was delivered, and is not in the event log",
                "batch 3 is in the event log, and was never delivered",
            ]
        );
    }
}
