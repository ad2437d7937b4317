//! *Drain*: a run out of prompts ends, with a last, shorter batch or without one.

use super::{Buffer, BufferId, Effect, PromptQueue, Reason, SlotTables};
use crate::protocol::{DrainQueue, FinalBatch, TrajectoryId, Version};

/// The most entries that one step discards.
const STEP: usize = 50;

impl SlotTables {
    /// From now on nothing is admitted, or, with `None`, things are again. Returns whether that is news; if not, nothing
    /// has changed.
    pub fn drain(&mut self, draining: Option<DrainQueue>) -> bool {
        let is_news = self.draining != draining;
        self.draining = draining;
        is_news
    }

    /// Whether the run is being finished, and what becomes of its queued prompts.
    pub fn draining(&self) -> Option<DrainQueue> {
        self.draining
    }

    /// Whether the run is drained and the last version published, so that every process may exit.
    pub fn is_finished(&self) -> bool {
        let is_empty = |buffer: &Buffer| buffer.occupied().next().is_none();
        self.draining.is_some() && self.is_idle() && self.nothing_to_come() && self.window.front().is_none_or(is_empty)
    }

    /// Whether the batch is shorter than the others because the run ended with it.
    pub fn is_final(&self, batch: Version) -> bool {
        self.finals.contains(&batch)
    }

    /// Whether draining is what blocks an admission.
    pub(super) fn is_draining_to_a_stop(&self) -> bool {
        self.draining.is_some() && !self.finishes_its_queue()
    }

    /// Nothing is reserved, or to be reserved, while the run is drained.
    pub(super) fn nothing_to_come(&self) -> bool {
        self.reservations().next().is_none() && !self.finishes_its_queue()
    }

    /// Whether there are queued prompts that are still to be handed out.
    fn finishes_its_queue(&self) -> bool {
        let has_queued = self.prompts.as_ref().is_some_and(PromptQueue::has_queued);
        self.draining == Some(DrainQueue::Finish) && has_queued
    }

    /// What becomes of the entries of buffer `H`, if there are some, they do not fill it, and none will come any more.
    pub(super) fn last_batch(&self) -> Option<FinalBatch> {
        let next = self.window.front()?;
        let is_left = self.draining.is_some()
            && self.is_idle()
            && self.nothing_to_come()
            && !next.is_ready()
            && next.occupied().next().is_some();
        // What was streamed is in training already.
        let policy = match self.config.final_batch {
            FinalBatch::Discard if self.streamed == 0 => FinalBatch::Discard,
            _ => FinalBatch::Short,
        };
        is_left.then_some(policy)
    }

    /// Discards what is left in buffer `H` as `drained`, front-most first, or as much of it as one step may.
    pub(super) fn discard_the_rest(&mut self) -> (Vec<TrajectoryId>, Vec<Effect>) {
        let mut ids = Vec::new();
        let mut effects = Vec::new();
        while ids.len() < STEP {
            let front = self.window.front().and_then(|next| next.occupied().next());
            let Some((_, id, _)) = front else { break };
            // It is in the tables, so that nothing refuses this.
            let Ok(discarded) = self.discard(id, Reason::Drained) else {
                break;
            };
            ids.push(id);
            effects.extend(discarded.effects);
        }
        (ids, effects)
    }

    /// `T == V == H`: the trainer waits for buffer `H`.
    fn is_idle(&self) -> bool {
        self.trainer_version == self.policy_version && self.next_buffer == BufferId(self.policy_version.0)
    }
}
