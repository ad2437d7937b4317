//! Pieces of batches, as far as they were delivered.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::commands::demo::record::{EntryRecord, PieceRecord};
use crate::protocol::Version;

/// What was delivered of batches in pieces, complete or not.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Of each batch, its entries from the first on.
    seen: BTreeMap<Version, Vec<EntryRecord>>,
    /// How long the trainer that runs waited for pieces of a batch that is not complete.
    open_wait: Duration,
    /// How long trainers waited for pieces that they had no use for: they died before the batch was complete.
    lost_wait: Duration,
}

impl Pieces {
    /// Notes a piece. Returns whether it is as it was, as far as it was delivered before.
    pub(super) fn add(&mut self, piece: &PieceRecord) -> bool {
        self.open_wait += Duration::from_millis(piece.waited_ms);
        let seen = self.seen.entry(piece.version).or_default();
        let known = seen.len().saturating_sub(piece.offset).min(piece.entries.len());
        let fits = piece.offset <= seen.len();
        let is_same = fits && seen[piece.offset..piece.offset + known] == piece.entries[..known];
        if fits {
            seen.extend_from_slice(&piece.entries[known..]);
        }
        is_same
    }

    /// How many entries of the batch were delivered in pieces.
    pub(super) fn count(&self, version: Version) -> usize {
        self.seen.get(&version).map_or(0, Vec::len)
    }

    /// A batch is complete: what was waited for it is told with it.
    pub(super) fn completed(&mut self) {
        self.open_wait = Duration::ZERO;
    }

    /// The trainer has died, and another has begun.
    pub(super) fn trainer_replaced(&mut self) {
        self.lost_wait += std::mem::take(&mut self.open_wait);
    }

    /// How long trainers waited for pieces of batches that they did not complete.
    pub(super) fn lost_wait(&self) -> Duration {
        self.lost_wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TrajectoryId;

    fn piece(offset: usize, entries: &[u128]) -> PieceRecord {
        let entry = |number: &u128| EntryRecord {
            id: TrajectoryId(uuid::Uuid::from_u128(*number)),
            version: Version(3),
            staleness: 0,
        };
        PieceRecord {
            version: Version(3),
            offset,
            redelivered: false,
            replayed: false,
            complete: false,
            waited_ms: 100,
            tokens: 1,
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn pieces_that_come_again_are_compared_however_they_are_cut() {
        let mut pieces = Pieces::default();
        assert!(pieces.add(&piece(0, &[1, 2])));
        assert!(pieces.add(&piece(2, &[3])));
        pieces.trainer_replaced();
        assert_eq!((pieces.count(Version(3)), pieces.lost_wait().as_millis()), (3, 200));
        assert!(pieces.add(&piece(0, &[1])));
        assert!(pieces.add(&piece(1, &[2, 3, 4])));
        assert!(!pieces.add(&piece(3, &[5])), "another entry");
        assert!(!pieces.add(&piece(7, &[8])), "a gap");
        pieces.completed();
        pieces.trainer_replaced();
        assert_eq!((pieces.count(Version(3)), pieces.lost_wait().as_millis()), (4, 200));
    }
}
