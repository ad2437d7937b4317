//! The trainer's steps rebuilt from a log: followed as they stand, without asking whether they are right.

use std::collections::BTreeSet;

use super::{BatchEntry, BufferId, Effect, EntryState, Misfit, Resume, ResumeKind, SlotTables, TrajectoryId, Version};
use crate::protocol::ids::GREATEST_EXACT;
use crate::protocol::{Epoch, Lineage};

impl SlotTables {
    /// Buffer `H` becomes a batch, whatever it holds. Reservations in it count as discarded; the log says which.
    ///
    /// # Errors
    ///
    /// [`Misfit::TrainerBusy`] when the batch before was not followed by a publish.
    pub fn replay_take(&mut self) -> Result<Vec<BatchEntry>, Misfit> {
        let version = self.policy_version;
        if self.next_buffer != BufferId(version.0) {
            return Err(Misfit::TrainerBusy);
        }
        self.close_next_buffer(&mut Vec::new());
        Ok(self.batch(version).to_vec())
    }

    /// Batch `version` was delivered to the trainer session.
    pub fn replay_deliver(&mut self, version: Version) {
        self.session.delivered = Some(version);
    }

    /// `version` was published, whether its batch had been delivered or not.
    ///
    /// # Errors
    ///
    /// [`Misfit::NotNext`] when it is not the next one, or its batch was not taken.
    pub fn replay_publish(&mut self, version: Version) -> Result<(), Misfit> {
        if version <= self.trainer_version {
            return Ok(());
        }
        if version.0 != self.trainer_version.0 + 1 || self.deliverable().is_none() {
            return Err(Misfit::NotNext { version });
        }
        self.advance();
        Ok(())
    }

    /// There is a checkpoint of `version`.
    pub fn replay_checkpoint(&mut self, version: Version) {
        self.let_go_below(version.min(self.trainer_version));
    }

    /// The trainer session `epoch` was opened in this way, refused or not, and `lineage` is the run's since; the effects
    /// say what became of the entries. Returns how the run goes on.
    ///
    /// # Errors
    ///
    /// [`Misfit`] when the tables that result could not exist.
    pub fn replay_resume(
        &mut self,
        resume: &Resume,
        epoch: Epoch,
        lineage: Lineage,
        effects: &[Effect],
    ) -> Result<ResumeKind, Misfit> {
        let from = resume.resume_from.unwrap_or(self.policy_version);
        if from.0 > GREATEST_EXACT {
            return Err(Misfit::NotNext { version: from });
        }
        let kind = self.kind_of_resume(from, resume.mode);
        match kind {
            ResumeKind::Continued | ResumeKind::Published | ResumeKind::Replay => {
                self.stand_at(from);
                self.replay(effects)?;
            }
            ResumeKind::Rewind => {
                self.forget_let_go_of(from, &mut Vec::new());
                self.oldest_kept = self.oldest_kept.min(from);
                self.replay_layout(from, Some(from), effects)?;
            }
            ResumeKind::Forced => self.replay_layout(from, None, effects)?,
        }
        self.open_session(epoch, lineage);
        Ok(kind)
    }

    /// The tables were laid out anew from `version` on, with the entries of the batches from `dissolved` on. An entry
    /// that no effect speaks of stays where it was.
    fn replay_layout(
        &mut self,
        version: Version,
        dissolved: Option<Version>,
        effects: &[Effect],
    ) -> Result<(), Misfit> {
        let in_batches = dissolved.map_or_else(Vec::new, |from| self.dissolve_batches(from));
        let mut displaced = self.in_order_of_placing(in_batches);
        if dissolved.is_none() {
            displaced.retain(|entry| !self.is_streamed(entry.from));
        }
        for entry in &displaced {
            let taken = self.entries.get_mut(&entry.id);
            if let Some(taken) = taken.filter(|taken| matches!(taken.state, EntryState::Taken { .. })) {
                taken.state = EntryState::Occupied { place: entry.from };
            }
        }
        self.start_from(version);

        let ids = displaced.iter().map(|entry| entry.id);
        let touched: BTreeSet<TrajectoryId> = ids.chain(effects.iter().map(Effect::id)).collect();
        for effect in effects {
            self.follow(effect)?;
        }
        for id in touched {
            self.set_down(id)?;
        }
        Ok(())
    }
}
