//! What a trainer is given of one batch: all at once, or piece by piece.

use std::time::Duration;

use super::record::{BatchRecord, EntryRecord, PieceRecord};
use crate::client::TakenBatch;
use crate::protocol::Version;

/// A batch on its way to the trainer.
#[derive(Debug)]
pub(super) struct Delivery {
    /// All of it that has come.
    pub(super) record: BatchRecord,
}

impl Delivery {
    /// Nothing yet of the batch that trains `version`.
    pub(super) fn of(version: Version) -> Self {
        Self {
            record: BatchRecord {
                version,
                redelivered: false,
                replayed: false,
                pieces: 0,
                waited_ms: 0,
                tokens: 0,
                entries: Vec::new(),
            },
        }
    }

    /// Adds what has come, and returns the record of that alone. A batch is delivered again if any of it is.
    pub(super) fn add(&mut self, piece: &TakenBatch, waited: Duration) -> PieceRecord {
        let entries = piece.trajectories.iter();
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let piece_record = PieceRecord {
            version: piece.version,
            offset: piece.offset,
            redelivered: piece.redelivered,
            replayed: piece.replayed,
            complete: piece.complete == Some(true),
            waited_ms,
            tokens: entries.clone().filter_map(|entry| entry.tokens).sum(),
            entries: entries
                .map(|entry| EntryRecord {
                    id: entry.id,
                    version: entry.version,
                    staleness: entry.staleness,
                })
                .collect(),
        };
        let record = &mut self.record;
        record.version = piece.version;
        record.redelivered |= piece.redelivered;
        record.replayed |= piece.replayed;
        record.pieces += 1;
        record.waited_ms += waited_ms;
        record.tokens += piece_record.tokens;
        record.entries.extend(piece_record.entries.iter().cloned());
        piece_record
    }
}
