//! Batches that are taken in pieces, and runs that are finished.

use berth::ledger::Refusal;
use berth::ledger::training::{NextBatch, PieceRequest, TakeRequest};
use berth::ledger::trajectories::TrajectoryState;
use berth::protocol::tables::{Delivery, Stream, StreamRefusal, StreamRequest};
use berth::protocol::{BufferId, DrainQueue, Effect, EventType, Reason, TrajectoryId};

use crate::trainer::of_session;
use crate::twins::{Twins, effects_of, refusal_of};

impl Twins {
    pub(crate) async fn stream(&mut self, back: i64, min_entries: usize, max_entries: Option<usize>, later: i64) {
        let epoch = self.epoch(later);
        let deliverable = self.model.deliverable();
        let taken = deliverable.map_or(self.model.streamed(), |version| self.model.batch(version).len());
        let from = taken.saturating_add_signed(isize::try_from(-back).expect("a few"));
        let request = PieceRequest {
            from,
            min_entries,
            max_entries,
        };
        let batch = TakeRequest { epoch, version: None };
        let answer = self.ledger.stream(&self.run, batch, request).await;
        let expected = self.model.stream(
            StreamRequest {
                from,
                min_entries,
                max_entries: max_entries.unwrap_or(usize::MAX),
            },
            epoch,
        );
        let expected = match expected {
            Ok(expected) => expected,
            Err(refusal) => {
                let refusal = match refusal {
                    StreamRefusal::Session(refusal) => of_session(refusal),
                    StreamRefusal::BeyondTaken { taken } => Refusal::BeyondTaken { taken },
                };
                assert_eq!(refusal_of(answer), refusal);
                return assert_eq!(self.new_events().await, []);
            }
        };
        match (answer.expect("a stream is answered").value, expected) {
            (answer, Stream::Drained { ids, effects }) => self.drained(&answer, &ids, &effects).await,
            (
                NextBatch::NotReady(none),
                Stream::NotYet {
                    state,
                    occupied,
                    needed,
                    finished,
                },
            ) => {
                assert_eq!((none.buffer_state, none.finished), (Some(state), finished));
                assert_eq!((none.occupied as usize, none.needed as usize), (occupied, needed));
                assert_eq!(self.new_events().await, []);
            }
            (NextBatch::Taken(taken), Stream::Piece(piece)) => {
                let batch = &taken.batch;
                assert_eq!(
                    (batch.version, batch.offset, batch.complete, batch.is_final),
                    (BufferId(piece.version.0), piece.offset, piece.complete, piece.is_final)
                );
                assert_eq!((batch.redelivered, batch.replayed), (piece.redelivered, piece.replayed));
                let got: Vec<_> = batch.trajectories.iter().map(|each| (each.id, each.version)).collect();
                let expected: Vec<_> = piece.entries.iter().map(|entry| (entry.id, entry.version)).collect();
                assert_eq!(got, expected);
                let mut trajectories = batch.trajectories.iter();
                assert!(trajectories.all(|each| each.state == TrajectoryState::Taken));

                let events = self.new_events().await;
                let logged: Vec<_> = events
                    .iter()
                    .map(|event| {
                        (
                            event.event_type,
                            event.offset,
                            event.entries,
                            event.is_final,
                            effects_of(event),
                        )
                    })
                    .collect();
                let offset = Some(piece.offset as u64);
                let count = Some(piece.entries.len() as u64);
                let expected = match piece.delivery {
                    Delivery::Taken => vec![(EventType::Stream, offset, count, piece.is_final, piece.effects)],
                    Delivery::Delivered => vec![(EventType::Deliver, offset, None, false, Vec::new())],
                    Delivery::Repeated => Vec::new(),
                };
                assert_eq!(logged, expected);
                self.compare_pieces().await;
            }
            (answer, expected) => panic!("the ledger answers {answer:?}, the model {expected:?}"),
        }
    }

    /// What is taken of the next batch can be looked at.
    async fn compare_pieces(&self) {
        let taken = self.model.streamed_entries();
        if taken.is_empty() {
            return;
        }
        let batch = self.ledger.batch(&self.run, self.model.next_buffer(), 0, 1_000).await;
        let batch = batch.expect("it is partly taken").value;
        assert!(!batch.complete);
        let got: Vec<_> = batch.trajectories.iter().map(|each| each.id).collect();
        let expected: Vec<_> = taken.iter().map(|entry| entry.id).collect();
        assert_eq!(got, expected);
    }

    pub(crate) async fn drain(&mut self, draining: Option<DrainQueue>) {
        let answer = self.ledger.drain(&self.run, draining).await.expect("a drain").value;
        let is_news = self.model.drain(draining);
        assert_eq!(
            (answer.draining, answer.finished, answer.reserved),
            (
                draining.is_some(),
                self.model.is_finished(),
                self.model.reserved() as u64
            )
        );
        let events = self.new_events().await;
        let logged: Vec<_> = events
            .iter()
            .map(|event| (event.event_type, event.drain, event.queue))
            .collect();
        let expected = is_news.then_some((EventType::Drain, Some(draining.is_some()), draining));
        assert_eq!(logged, Vec::from_iter(expected));
    }

    /// What is left over was discarded, and then the run was finished.
    pub(crate) async fn drained(&mut self, answer: &NextBatch, ids: &[TrajectoryId], effects: &[Effect]) {
        assert!(
            matches!(answer, NextBatch::NotReady(none) if none.finished),
            "{answer:?}"
        );
        let events = self.new_events().await;
        let logged: Vec<_> = events
            .iter()
            .map(|event| {
                (
                    event.event_type,
                    event.reason.clone(),
                    event.ids.clone(),
                    effects_of(event),
                )
            })
            .collect();
        let expected = (
            EventType::Discard,
            Some(Reason::Drained),
            ids.to_vec(),
            effects.to_vec(),
        );
        assert_eq!(logged, [expected]);
    }
}
