//! Batches that are taken in pieces, and runs that are finished.

use berth::protocol::invariants;
use berth::protocol::tables::{BatchEntry, Delivery, SlotTables, Stream, StreamRefusal, StreamRequest};
use berth::protocol::{BufferId, DrainQueue, Effect, EventType, FinalBatch, Reason, TrajectoryId, Version};

use crate::run::Run;

impl Run {
    pub(crate) fn stream(&mut self, back: i64, min_entries: usize, max_entries: usize) {
        if !self.may_train() {
            return;
        }
        let before = self.tables.clone();
        let deliverable = before.deliverable();
        let taken = deliverable.map_or(before.streamed(), |version| before.batch(version).len());
        let request = StreamRequest {
            from: taken.saturating_add_signed(isize::try_from(-back).expect("a few")),
            min_entries,
            max_entries,
        };
        let piece = match self.tables.stream(request, self.session()) {
            Ok(Stream::Piece(piece)) => piece,
            Ok(Stream::NotYet { occupied, finished, .. }) => {
                assert!(deliverable.is_none() && request.from == taken);
                assert!(occupied - taken < min_entries);
                assert_eq!(finished, before.is_finished());
                return assert_eq!(self.tables, before);
            }
            Ok(Stream::Drained { ids, effects }) => return self.drained(&before, ids, &effects),
            Err(refusal) => {
                assert_eq!(refusal, StreamRefusal::BeyondTaken { taken });
                assert!(request.from > taken);
                return assert_eq!(self.tables, before, "a refusal changes nothing");
            }
        };

        assert!(piece.offset == request.from && piece.entries.len() <= max_entries);
        assert_eq!(piece.version, deliverable.unwrap_or(before.policy_version()));
        let end = piece.offset + piece.entries.len();
        match piece.delivery {
            Delivery::Taken => {
                assert!(!piece.redelivered && !piece.replayed);
                assert!(piece.is_final || piece.entries.len() >= min_entries.min(max_entries) || piece.complete);
                self.train_on(piece.version, &piece.entries);
                let event = self.log.event(EventType::Stream, &piece.effects);
                event.version = Some(piece.version);
                event.offset = Some(piece.offset as u64);
                event.entries = Some(piece.entries.len() as u64);
                event.is_final = piece.is_final;
                self.follow(&piece.effects);
                let batch = self
                    .rebuilt
                    .replay_stream(piece.entries.len(), piece.is_final)
                    .expect("the trainer was idle");
                assert_eq!(batch.is_some(), piece.complete);
                if let Some(batch) = batch {
                    assert_eq!(batch[..taken], before.streamed_entries());
                    assert_eq!(batch[taken..], piece.entries);
                    check_length(&before, batch.len(), piece.is_final);
                    self.taken.insert(piece.version, batch);
                }
            }
            delivery => {
                let whole =
                    deliverable.map_or_else(|| before.streamed_entries(), |version| before.batch(version).to_vec());
                assert_eq!(piece.entries, whole[piece.offset..end], "as they were taken");
                assert_eq!(piece.complete, deliverable.is_some() && end == whole.len());
                if delivery == Delivery::Delivered {
                    assert!(piece.complete && before.delivered() != deliverable);
                    let event = self.log.event(EventType::Deliver, &[]);
                    event.version = Some(piece.version);
                    event.offset = Some(piece.offset as u64);
                    event.replayed = piece.replayed;
                    self.rebuilt.replay_deliver(piece.version);
                } else {
                    assert_eq!(self.tables, before);
                }
            }
        }
    }

    pub(crate) fn drain(&mut self, draining: Option<DrainQueue>) {
        let before = self.tables.clone();
        if !self.tables.drain(draining) {
            return assert_eq!(self.tables, before);
        }
        let event = self.log.event(EventType::Drain, &[]);
        event.drain = Some(draining.is_some());
        event.queue = draining;
        assert!(self.rebuilt.drain(draining));
    }

    /// What a run has left over is discarded, and nothing else.
    pub(crate) fn drained(&mut self, before: &SlotTables, ids: Vec<TrajectoryId>, effects: &[Effect]) {
        assert_eq!(before.config().final_batch, FinalBatch::Discard);
        assert!(before.draining().is_some() && before.reserved() == 0 && before.streamed() == 0);
        for id in &ids {
            self.finished.remove(id);
        }
        let event = self.log.event(EventType::Discard, effects);
        event.reason = Some(Reason::Drained);
        event.ids = ids;
        self.follow(effects);
        assert!(self.tables.is_finished());
    }

    /// The entries are taken, within the bound, and for the first time.
    pub(crate) fn train_on(&mut self, version: Version, entries: &[BatchEntry]) {
        let config = self.tables.config();
        for entry in entries {
            let buffer = BufferId(version.0);
            assert_eq!(invariants::bound(config, entry.id, entry.version, buffer), None);
            assert_eq!(self.batches.insert(entry.id, version), None, "in two batches");
            assert!(self.finished.contains(&entry.id));
        }
    }
}

/// A batch holds `batch_size` entries, unless it is the last of a run in which nothing more is to come.
pub(crate) fn check_length(before: &SlotTables, entries: usize, is_final: bool) {
    let batch_size = before.config().batch_size as usize;
    assert_eq!(is_final, entries < batch_size);
    if is_final {
        assert!(before.draining().is_some() && before.reserved() == 0);
    }
}
