//! What the trainer says it got, checked by itself and against the event log.

mod pieces;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::audit::Audit;
use super::record::{BatchRecord, PieceRecord, SessionRecord};
use super::text::counted;
use crate::protocol::{TrajectoryId, Version};
use pieces::Pieces;

/// How many entries of a batch have each staleness.
pub(super) type Composition = BTreeMap<u64, u64>;

/// Everything that the trainer processes recorded.
#[derive(Debug)]
pub(super) struct TrainerRecord {
    max_staleness: u64,
    batches: BTreeMap<Version, Delivered>,
    batch_of: HashMap<TrajectoryId, Version>,
    pieces: Pieces,
    /// The version of the weights that the trainer holds.
    trainer_version: Version,
    /// The latest published version, as the trainer was told.
    policy_version: Version,
    contradictions: Vec<String>,
    /// How later deliveries differ from the first ones.
    differences: Vec<String>,
}

/// A batch, with all its deliveries.
#[derive(Debug, Clone)]
pub(super) struct Delivered {
    /// As it was delivered first.
    pub(super) batch: BatchRecord,
    /// How often it was delivered again because it had not been published.
    pub(super) redelivered: u64,
    /// How often it was delivered again, after it had been published, to be trained again.
    pub(super) replayed: u64,
    /// How long the trainer waited for it, in all.
    pub(super) waited: Duration,
}

impl TrainerRecord {
    /// A record in which nothing may be staler than `max_staleness`.
    pub(super) fn new(max_staleness: u64) -> Self {
        Self {
            max_staleness,
            batches: BTreeMap::new(),
            batch_of: HashMap::new(),
            pieces: Pieces::default(),
            trainer_version: Version(0),
            policy_version: Version(0),
            contradictions: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Notes that a trainer has opened its session.
    pub(super) fn opened(&mut self, session: &SessionRecord) {
        self.trainer_version = session.trainer_version;
        self.pieces.trainer_replaced();
        self.told_policy_version(session.policy_version);
        if let Some(from) = session.resume_from.filter(|from| *from != session.trainer_version) {
            self.contradictions.push(format!(
                "the trainer resumed from version {from}, and goes on from version {}",
                session.trainer_version
            ));
        }
    }

    /// Notes that the trainer has published a version, and what the latest one is since.
    pub(super) fn published(&mut self, version: Version, policy_version: Version) {
        self.trainer_version = version;
        self.told_policy_version(policy_version);
    }

    fn told_policy_version(&mut self, version: Version) {
        if version < self.policy_version {
            self.contradictions.push(format!(
                "the policy version went back from {} to {version}",
                self.policy_version
            ));
        }
        self.policy_version = version;
    }

    /// Notes a piece of a batch. Returns whether it is as it was, as far as it was delivered before.
    pub(super) fn add_piece(&mut self, piece: &PieceRecord) -> bool {
        let is_same = self.pieces.add(piece);
        if !is_same {
            self.differences.push(format!(
                "the piece from {} of batch {} was not the same when it was delivered again",
                piece.offset, piece.version
            ));
        }
        is_same
    }

    /// How many entries of a batch were delivered in pieces.
    pub(super) fn in_pieces(&self, version: Version) -> usize {
        self.pieces.count(version)
    }

    /// Notes the delivery of a whole batch, or that the last piece of it has come.
    pub(super) fn add(&mut self, batch: BatchRecord) {
        self.pieces.completed();
        self.check_turn(&batch);
        let waited = Duration::from_millis(batch.waited_ms);
        if let Some(earlier) = self.batches.get_mut(&batch.version) {
            earlier.waited += waited;
            if batch.replayed {
                earlier.replayed += 1;
            } else {
                earlier.redelivered += 1;
            }
            if !earlier.holds_the_same_as(&batch) {
                self.differences.push(format!(
                    "batch {} was not the same when it was {}",
                    batch.version,
                    if batch.replayed { "replayed" } else { "redelivered" }
                ));
            }
            if !batch.redelivered && !batch.replayed {
                self.contradictions
                    .push(format!("batch {} was delivered twice as if it were new", batch.version));
            }
            return;
        }
        self.check_entries(&batch);
        self.batches.insert(
            batch.version,
            Delivered {
                // Pieces of it came to a trainer that died.
                redelivered: u64::from(batch.redelivered),
                batch,
                replayed: 0,
                waited,
            },
        );
    }

    /// The batch must be the one that the trainer's weights are to be trained with, and `replayed` say whether that was
    /// done before.
    fn check_turn(&mut self, batch: &BatchRecord) {
        let version = batch.version;
        if version != self.trainer_version {
            self.contradictions.push(format!(
                "batch {version} was delivered to a trainer with weights of version {}",
                self.trainer_version
            ));
        }
        if batch.replayed != (version < self.policy_version) {
            self.contradictions.push(format!(
                "batch {version} was delivered as {} when version {} was the latest",
                if batch.replayed { "replayed" } else { "not replayed" },
                self.policy_version
            ));
        }
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
        Some(earlier.holds_the_same_as(batch))
    }

    /// How often batches were delivered again because they had not been published.
    pub(super) fn redelivered(&self) -> u64 {
        self.batches.values().map(|delivered| delivered.redelivered).sum()
    }

    /// How often batches were delivered again to be trained again.
    pub(super) fn replayed(&self) -> u64 {
        self.batches.values().map(|delivered| delivered.replayed).sum()
    }

    /// How later deliveries of a batch differ from its first one.
    pub(super) fn differences(&self) -> &[String] {
        &self.differences
    }

    /// The batches, in order.
    pub(super) fn batches(&self) -> impl Iterator<Item = (&Version, &Delivered)> {
        self.batches.iter()
    }

    /// The last batch that was delivered.
    pub(super) fn last(&self) -> Option<Version> {
        self.batches.last_key_value().map(|(version, _)| *version)
    }

    /// Whether the whole batch was delivered.
    pub(super) fn has(&self, version: Version) -> bool {
        self.batches.contains_key(&version)
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
        let complete: Duration = self.batches.values().map(|delivered| delivered.waited).sum();
        complete + self.pieces.lost_wait()
    }

    /// What does not fit together: within this record, and between it and the event log.
    pub(super) fn contradictions(&self, log: &Audit) -> Vec<String> {
        let mut found = self.contradictions.clone();
        if self.replayed() != log.replayed {
            found.push(format!(
                "{} to be trained again, and {} in the event log",
                counted(self.replayed(), "delivery"),
                log.replayed
            ));
        }
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

impl Delivered {
    /// Whether the delivery has the entries of the first one, in the same order.
    fn holds_the_same_as(&self, batch: &BatchRecord) -> bool {
        self.batch.entries == batch.entries && self.batch.tokens == batch.tokens
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
