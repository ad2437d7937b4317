//! *Stream*: the trainer gets the next batch in pieces, while its last entries are still generated.

use super::{
    BatchEntry, Buffer, BufferId, BufferState, Delivery, Effect, EntryState, Misfit, Place, SessionRefusal, SlotTables,
};
use crate::protocol::{Epoch, FinalBatch, TrajectoryId, Version};

/// Which piece a trainer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRequest {
    /// How many entries of the batch it has already.
    pub from: usize,
    /// The fewest new entries that are worth taking, at least 1; what the batch lacks, if that is less.
    pub min_entries: usize,
    /// The most entries to be given, at least 1.
    pub max_entries: usize,
}

/// The answer to a Stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// Too few entries have finished. Nothing has changed.
    NotYet {
        /// What the next buffer waits for.
        state: BufferState,
        /// How many finished entries it holds, with those that are taken.
        occupied: usize,
        /// How many it needs: `batch_size`.
        needed: usize,
        /// Whether nothing will come any more (*Drain*).
        finished: bool,
    },
    /// A piece of a batch.
    Piece(Piece),
    /// The run ends without a batch for these: they were discarded as `drained`. There may be more; ask again.
    Drained {
        /// The entries, in the order in which they were.
        ids: Vec<TrajectoryId>,
        /// The changes, in order.
        effects: Vec<Effect>,
    },
}

/// A piece of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of it, under the contract's name"
)]
pub struct Piece {
    /// The version that the batch trains into the next one.
    pub version: Version,
    /// How many entries of the batch come before it.
    pub offset: usize,
    /// Its entries, in slot order.
    pub entries: Vec<BatchEntry>,
    /// Whether nothing of the batch comes after it.
    pub complete: bool,
    /// Whether it ends a batch that is shorter than the others, because the run does.
    pub is_final: bool,
    /// Whether it was given before: to this session, or, outside of a replay, to any.
    pub redelivered: bool,
    /// Whether it is trained again after a resume from an older checkpoint.
    pub replayed: bool,
    /// What the call was for the run: `Taken` is a step `stream`; `Delivered` one in which the end of a batch that was
    /// taken before was given to this session for the first time.
    pub delivery: Delivery,
    /// The reservations that were left in a buffer which it completed, discarded as surplus.
    pub effects: Vec<Effect>,
}

/// Why a Stream is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    /// The caller is not the trainer whose session is open.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// The caller says that it has more of the batch than was taken.
    #[error("only {taken} entries of the batch are taken")]
    BeyondTaken {
        /// How many entries of it are taken.
        taken: usize,
    },
}

impl SlotTables {
    /// Gives a piece of the batch that the trainer stands at: of what is taken, if that is more than the trainer has, and
    /// else of what has finished since, which is taken by it.
    ///
    /// # Errors
    ///
    /// As [`StreamRefusal`] says.
    pub fn stream(&mut self, request: StreamRequest, epoch: Option<Epoch>) -> Result<Stream, StreamRefusal> {
        self.refuse_session(epoch)?;
        let deliverable = self.deliverable();
        let taken = deliverable.map_or(self.streamed, |version| self.batch(version).len());
        if request.from > taken {
            return Err(StreamRefusal::BeyondTaken { taken });
        }
        if let Some(version) = deliverable {
            return Ok(Stream::Piece(self.piece_of_batch(version, request)));
        }
        if request.from < taken {
            return Ok(Stream::Piece(self.piece_again(request)));
        }
        Ok(self.take_piece(request))
    }

    /// How many entries of the next buffer are taken: those in its front-most slots.
    pub fn streamed(&self) -> usize {
        self.streamed
    }

    /// Whether the place is of an open buffer, and the entry in it is taken.
    pub fn is_streamed(&self, place: Place) -> bool {
        place.buffer == self.next_buffer && (place.slot.0 as usize) < self.streamed
    }

    /// The entries of the next buffer that are taken, in slot order.
    pub fn streamed_entries(&self) -> Vec<BatchEntry> {
        let occupied = self.window.front().into_iter().flat_map(Buffer::occupied);
        let taken = occupied.take(self.streamed);
        taken.map(|(_, id, version)| BatchEntry { id, version }).collect()
    }

    /// Some more entries of buffer `H` were taken; with `is_final` it is a batch now, whatever it holds. Returns the batch,
    /// if it is one. Reservations that were left in it count as discarded; the log says which.
    ///
    /// # Errors
    ///
    /// [`Misfit::TrainerBusy`] when the batch before was not followed by a publish.
    pub fn replay_stream(&mut self, entries: usize, is_final: bool) -> Result<Option<Vec<BatchEntry>>, Misfit> {
        let version = self.policy_version;
        if self.next_buffer != BufferId(version.0) {
            return Err(Misfit::TrainerBusy);
        }
        self.mark_streamed(entries);
        if !is_final && self.streamed < self.config.batch_size as usize {
            return Ok(None);
        }
        self.close_next_buffer(&mut Vec::new());
        Ok(Some(self.batch(version).to_vec()))
    }

    fn piece_of_batch(&mut self, version: Version, request: StreamRequest) -> Piece {
        let batch = self.batch(version);
        let end = batch.len().min(request.from.saturating_add(request.max_entries));
        let entries = batch[request.from..end].to_vec();
        let complete = end == batch.len();
        let replayed = version < self.policy_version;
        let had_it_all = self.session.delivered == Some(version);
        if complete {
            self.session.delivered = Some(version);
        }
        Piece {
            version,
            offset: request.from,
            entries,
            complete,
            is_final: complete && self.is_final(version),
            redelivered: had_it_all || !replayed,
            replayed,
            delivery: if complete && !had_it_all {
                Delivery::Delivered
            } else {
                Delivery::Repeated
            },
            effects: Vec::new(),
        }
    }

    fn piece_again(&self, request: StreamRequest) -> Piece {
        let taken = self.streamed_entries();
        let end = taken.len().min(request.from.saturating_add(request.max_entries));
        Piece {
            version: self.policy_version,
            offset: request.from,
            entries: taken[request.from..end].to_vec(),
            complete: false,
            is_final: false,
            redelivered: true,
            replayed: false,
            delivery: Delivery::Repeated,
            effects: Vec::new(),
        }
    }

    /// Takes what has finished. Buffer `H` is open, and nothing of it is taken that the trainer does not have.
    fn take_piece(&mut self, request: StreamRequest) -> Stream {
        let batch_size = self.config.batch_size as usize;
        let lacking = batch_size - self.streamed;
        let next = self.window.front();
        let occupied = next.map_or(0, |buffer| buffer.occupied().count());
        let finished_since = occupied - self.streamed;
        let rest = match self.last_batch() {
            Some(FinalBatch::Discard) => {
                let (ids, effects) = self.discard_the_rest();
                return Stream::Drained { ids, effects };
            }
            Some(FinalBatch::Short) => finished_since,
            None if finished_since < request.min_entries.max(1).min(lacking) => {
                return Stream::NotYet {
                    state: next.map_or(BufferState::Pending, Buffer::state),
                    occupied,
                    needed: batch_size,
                    finished: self.is_finished(),
                };
            }
            None => lacking,
        };
        let version = self.policy_version;
        let offset = self.streamed;
        let count = finished_since.min(request.max_entries);
        self.mark_streamed(count);
        let entries = self.streamed_entries().split_off(offset);
        let complete = count == rest;
        let mut effects = Vec::new();
        if complete {
            self.close_next_buffer(&mut effects);
            self.discard_surplus(&mut effects);
        }
        Stream::Piece(Piece {
            version,
            offset,
            entries,
            complete,
            is_final: complete && self.is_final(version),
            redelivered: false,
            replayed: false,
            delivery: Delivery::Taken,
            effects,
        })
    }

    /// So many more finished entries of buffer `H`, or as many as there are, are taken from now on.
    fn mark_streamed(&mut self, count: usize) {
        let occupied = self.window.front().into_iter().flat_map(Buffer::occupied);
        let newly: Vec<_> = occupied.skip(self.streamed).take(count).collect();
        self.streamed += newly.len();
        for (place, id, version) in newly {
            self.record(id, version, EntryState::Taken { place });
        }
    }
}
