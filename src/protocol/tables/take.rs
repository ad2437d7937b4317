//! *Take*: the trainer gets the next batch, or again one that was taken before.

use super::{Buffer, BufferId, BufferState, Effect, EntryState, Reason, SessionRefusal, SlotTables};
use crate::protocol::{Epoch, FinalBatch, TrajectoryId, Version};

/// The answer to a Take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// The next buffer is not ready. Nothing has changed.
    NotReady {
        /// What it waits for.
        state: BufferState,
        /// How many finished entries it holds.
        occupied: usize,
        /// How many it needs: `batch_size`.
        needed: usize,
        /// Whether nothing will come any more (*Drain*).
        finished: bool,
    },
    /// A batch, to be trained now.
    Taken {
        /// The version that it trains into the next one.
        version: Version,
        /// Its entries, in slot order.
        entries: Vec<BatchEntry>,
        /// Whether it was given before: to this session, or, outside of a replay, to any.
        redelivered: bool,
        /// Whether it is trained again after a resume from an older checkpoint.
        replayed: bool,
        /// Whether it is shorter than the others, because the run ends.
        is_final: bool,
        /// What the call was for the run.
        delivery: Delivery,
        /// The reservations that were left in it, discarded as surplus.
        effects: Vec<Effect>,
    },
    /// The run ends without a batch for these: they were discarded as `drained`. There may be more; ask again.
    Drained {
        /// The entries, in the order in which they were.
        ids: Vec<TrajectoryId>,
        /// The changes, in order.
        effects: Vec<Effect>,
    },
}

/// What it was for the run that a batch was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// A step, `take`: the buffer became a batch.
    Taken,
    /// A step, `deliver`: the batch, taken earlier, was given to this session for the first time.
    Delivered,
    /// No step: this session had the batch before, and nothing has changed.
    Repeated,
}

/// One entry of a taken batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The entry.
    pub id: TrajectoryId,
    /// The policy version it was admitted under.
    pub version: Version,
}

impl SlotTables {
    /// Gives the batch that the trainer stands at: a kept one during a replay, the one in training, or, if it is ready,
    /// the next buffer.
    ///
    /// # Errors
    ///
    /// As [`SessionRefusal`] says.
    pub fn take(&mut self, epoch: Option<Epoch>) -> Result<Take, SessionRefusal> {
        self.refuse_session(epoch)?;
        if let Some(version) = self.deliverable() {
            return Ok(self.deliver(version));
        }
        // What is not taken is open: buffer H stands here.
        let next = self.window.front();
        let state = next.map_or(BufferState::Pending, Buffer::state);
        let last_batch = self.last_batch();
        if last_batch == Some(FinalBatch::Discard) {
            let (ids, effects) = self.discard_the_rest();
            return Ok(Take::Drained { ids, effects });
        }
        if state != BufferState::Ready && last_batch.is_none() {
            return Ok(Take::NotReady {
                state,
                occupied: next.map_or(0, |buffer| buffer.occupied().count()),
                needed: self.config.batch_size as usize,
                finished: self.is_finished(),
            });
        }
        let version = self.policy_version;
        let mut effects = Vec::new();
        self.close_next_buffer(&mut effects);
        self.discard_surplus(&mut effects);
        Ok(Take::Taken {
            version,
            entries: self.batch(version).to_vec(),
            redelivered: false,
            replayed: false,
            is_final: self.is_final(version),
            delivery: Delivery::Taken,
            effects,
        })
    }

    /// The batch that a Take would give and that was taken before, if there is one: `T` in a replay, or the one in
    /// training.
    pub fn deliverable(&self) -> Option<Version> {
        let is_taken = BufferId(self.trainer_version.0) < self.next_buffer;
        is_taken.then_some(self.trainer_version)
    }

    /// The batch that was delivered last to the open session, if one was.
    pub fn delivered(&self) -> Option<Version> {
        self.session.delivered
    }

    fn deliver(&mut self, version: Version) -> Take {
        let replayed = version < self.policy_version;
        let repeated = self.session.delivered == Some(version);
        self.session.delivered = Some(version);
        Take::Taken {
            version,
            entries: self.batch(version).to_vec(),
            redelivered: repeated || !replayed,
            replayed,
            is_final: self.is_final(version),
            delivery: if repeated {
                Delivery::Repeated
            } else {
                Delivery::Delivered
            },
            effects: Vec::new(),
        }
    }

    /// Makes the finished entries of buffer `H` a batch, and `H` the buffer after it; what is reserved there is
    /// surplus. Does nothing when no buffer is open.
    pub(super) fn close_next_buffer(&mut self, effects: &mut Vec<Effect>) {
        let Some(next) = self.window.front() else {
            return;
        };
        let buffer = next.id();
        let reserved: Vec<_> = next.reservations().map(|(place, ..)| place).collect();
        let occupied: Vec<_> = next.occupied().collect();

        for place in reserved {
            self.drop_from(place, Reason::Surplus, effects);
        }
        let mut entries = Vec::with_capacity(occupied.len());
        for (place, id, version) in occupied {
            self.record(id, version, EntryState::Taken { place });
            entries.push(BatchEntry { id, version });
        }
        let batch = Version(buffer.0);
        if entries.len() < self.config.batch_size as usize {
            self.finals.insert(batch);
        }
        self.batches.insert(batch, entries);
        self.streamed = 0;
        self.session.delivered = Some(batch);
        self.window.pop_front();
        self.next_buffer = BufferId(buffer.0 + 1);
        self.note_oldest_kept();
    }
}
