//! What the demo's processes write on their standard output: one JSON object a line.
//!
//! It is their own record of what they did. The ledger is never asked for it, so that the two can be compared.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::protocol::{TrajectoryId, Version};

/// One line of a worker's or a trainer's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum Record {
    /// A worker was told that something it generates is no longer wanted, and stopped it.
    Stopped {
        /// Why.
        reason: String,
        /// How many responses it stopped.
        responses: u64,
    },
    /// One of a worker's responses will never end.
    Hangs {
        /// Its entry.
        entry: TrajectoryId,
    },
    /// A worker's finished entry found no place any more.
    Refused {
        /// The server's word.
        code: String,
    },
    /// A worker's entry had been discarded, and was saved all the same.
    SavedLate,
    /// A trainer has opened its session.
    Opened(SessionRecord),
    /// A trainer asks for a batch, or for more of one.
    Waiting {
        /// How many entries of it it has.
        has: usize,
    },
    /// A trainer got a piece of a batch, and is about to train on it.
    Piece(PieceRecord),
    /// A trainer has all of a batch, and trains on it, or on its last piece.
    Batch(BatchRecord),
    /// A trainer has published a version.
    Published {
        /// Which.
        version: Version,
        /// The latest one after it: a newer one, when it was published before.
        policy_version: Version,
    },
    /// A trainer's checkpoint of a version is on disk.
    Saved {
        /// Which.
        version: Version,
    },
}

/// A trainer session as it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    /// The version that the trainer's checkpoint holds, if it has one.
    pub(super) resume_from: Option<Version>,
    /// The version that it goes on from.
    pub(super) trainer_version: Version,
    /// The latest published version.
    pub(super) policy_version: Version,
}

/// A batch as the trainer got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BatchRecord {
    /// The version that it trains into the next one.
    pub(super) version: Version,
    /// Whether it was handed out before.
    pub(super) redelivered: bool,
    /// Whether it is trained again, after its version was published.
    pub(super) replayed: bool,
    /// How many pieces it came in.
    pub(super) pieces: u64,
    /// How long the trainer waited for it, in milliseconds.
    pub(super) waited_ms: u64,
    /// The lengths of its entries, added up.
    pub(super) tokens: u64,
    /// Its entries, in order.
    pub(super) entries: Vec<EntryRecord>,
}

/// A piece of a batch as the trainer got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PieceRecord {
    /// The version that the batch trains into the next one.
    pub(super) version: Version,
    /// How many of its entries come before this piece.
    pub(super) offset: usize,
    /// Whether it was handed out before.
    pub(super) redelivered: bool,
    /// Whether the batch is trained again, after its version was published.
    pub(super) replayed: bool,
    /// Whether nothing of the batch comes after it.
    pub(super) complete: bool,
    /// How long the trainer waited for it, in milliseconds.
    pub(super) waited_ms: u64,
    /// The lengths of its entries, added up.
    pub(super) tokens: u64,
    /// Its entries, in order.
    pub(super) entries: Vec<EntryRecord>,
}

/// An entry of a batch as the trainer got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryRecord {
    /// Its identity.
    pub(super) id: TrajectoryId,
    /// The version it was admitted under.
    pub(super) version: Version,
    /// How stale the server said it is.
    pub(super) staleness: u64,
}

impl Record {
    /// Writes the record at once: whatever kills this process a moment later, the line stands.
    pub(super) fn write(&self) {
        let Ok(mut line) = serde_json::to_vec(self) else { return };
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        // When nobody reads any more, the parent is gone and this process follows it.
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }

    /// Reads a line; `None` for one that is not a record.
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json() {
        let record = Record::Saved { version: Version(3) };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(line, r#"{"record":"saved","version":3}"#);
        assert_eq!(Record::read(&line), Some(record));
        assert_eq!(Record::read("thread 'main' panicked"), None);
    }
}
