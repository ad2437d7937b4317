//! *The prompt queue*: how the tables hand prompts out and take them back.
//!
//! A reservation takes the next one in the same step. While its entry is in the tables or in a batch, a prompt's state is
//! what the entry's state says; everything else that happens to it is an [`Effect::Prompt`].

use super::fates::{Fate, Wish};
use super::prompt_queue::{HandedOut, Prompt, PromptQueue, Standing};
use super::{DiscardedFrom, Effect, Entry, EntryState, Misfit, SlotTables, TrajectoryId};
use crate::protocol::{Attempt, FedPrompt, FeedPosition, PromptCounts, PromptState, Reason};

/// Why a page of prompts is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FeedRefusal {
    /// The run hands out no prompts.
    #[error("the run has no prompt queue")]
    NoPromptQueue,
    /// The run is being finished, and the page would add something.
    #[error("the run is being finished")]
    Draining,
    /// Prompts between what was fed and this page are missing.
    #[error("{fed} prompts were fed, and the page begins at {offset}")]
    Gap {
        /// Where the page begins.
        offset: u64,
        /// How many prompts were fed before.
        fed: u64,
    },
}

impl SlotTables {
    /// Adds prompts to the queue: those of a page that begins at `offset` that were not fed before, or, without an offset,
    /// all of it. Returns how many were fed in all.
    ///
    /// # Errors
    ///
    /// As [`FeedRefusal`] says.
    pub fn feed(&mut self, offset: Option<u64>, prompts: &[FedPrompt]) -> Result<u64, FeedRefusal> {
        let queue = self.prompts.as_mut().ok_or(FeedRefusal::NoPromptQueue)?;
        let fed = queue.fed();
        let offset = offset.unwrap_or(fed);
        let known = fed.checked_sub(offset).ok_or(FeedRefusal::Gap { offset, fed })?;
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(prompts.len());
        if self.draining.is_some() && known < prompts.len() {
            return Err(FeedRefusal::Draining);
        }
        queue.append(&prompts[known..]);
        Ok(queue.fed())
    }

    /// The prompt queue, if the run has one.
    pub fn prompt_queue(&self) -> Option<&PromptQueue> {
        self.prompts.as_ref()
    }

    /// The state of a prompt that is not forgotten.
    pub fn prompt_state(&self, position: FeedPosition) -> Option<PromptState> {
        let prompt = self.prompts.as_ref()?.prompt(position)?;
        Some(match prompt.standing {
            Standing::Queued(_) => PromptState::Queued,
            Standing::Left(state) => state,
            Standing::HandedOut => match prompt.entry.and_then(|id| self.entries.get(&id)) {
                Some(Entry {
                    state: EntryState::Reserved { .. },
                    ..
                }) => PromptState::InFlight,
                Some(Entry {
                    state: EntryState::Occupied { .. },
                    ..
                }) => PromptState::Occupied,
                Some(Entry {
                    state: EntryState::Taken { .. },
                    ..
                }) => PromptState::Trained,
                _ => return None,
            },
        })
    }

    /// How many prompts are in each state; in a run without a queue none.
    pub fn prompt_counts(&self) -> PromptCounts {
        let mut counts = PromptCounts::default();
        if let Some(queue) = &self.prompts {
            counts.trained = queue.forgotten();
            let states = queue.prompts().filter_map(|(position, _)| self.prompt_state(position));
            states.for_each(|state| *counts.of_mut(state) += 1);
        }
        counts
    }

    /// Whether a Reserve finds a prompt, or needs none.
    pub(super) fn has_prompt(&self) -> bool {
        self.prompts.as_ref().is_none_or(PromptQueue::has_queued)
    }

    /// The next prompt goes to the entry that was just admitted.
    pub(super) fn hand_out(&mut self, id: TrajectoryId, effects: &mut Vec<Effect>) {
        let Some(queue) = &mut self.prompts else { return };
        let Some(position) = queue.queued().next() else {
            return;
        };
        let Some(attempt) = queue.prompt(position).map(|prompt| prompt.attempt) else {
            return;
        };
        queue.give(position, attempt, id);
        effects.push(Effect::Prompt {
            id,
            position,
            state: PromptState::InFlight,
            attempt,
        });
    }

    /// Whether the prompt of a discarded entry was handed out again, has failed or was dropped: the entry comes too late.
    pub(super) fn is_superseded(&self, id: TrajectoryId) -> bool {
        let Some(queue) = &self.prompts else { return false };
        let is_waiting = |prompt: &Prompt| prompt.entry == Some(id) && matches!(prompt.standing, Standing::Queued(_));
        !queue.of_entry(id).is_some_and(|(_, prompt)| is_waiting(prompt))
    }

    /// *Late occupy*: the prompt leaves the queue, for the attempt that the entry was.
    pub(super) fn reclaim_prompt(&mut self, id: TrajectoryId, effects: &mut Vec<Effect>) {
        let Some(queue) = &mut self.prompts else { return };
        let Some(HandedOut { position, attempt }) = queue.handed_out(id) else {
            return;
        };
        queue.give(position, attempt, id);
        effects.push(Effect::Prompt {
            id,
            position,
            state: PromptState::Occupied,
            attempt,
        });
    }

    /// An entry is discarded: its prompt has the fate that the reason stands for. Returns what is to be told of that.
    pub(super) fn settle_prompt(
        &mut self,
        id: TrajectoryId,
        reason: &Reason,
        was: DiscardedFrom,
        wish: Wish,
    ) -> Option<Effect> {
        let queue = self.prompts.as_mut()?;
        let from = queue.handed_out(id)?;
        let (state, attempt) = queue.take_back(from, reason, was, wish);
        Some(Effect::Prompt {
            id,
            position: from.position,
            state,
            attempt,
        })
    }

    /// The entry is forgotten.
    pub(super) fn forget_prompt(&mut self, id: TrajectoryId) {
        if let Some(queue) = &mut self.prompts {
            queue.forget(id);
        }
    }

    /// `prompts` were fed.
    ///
    /// # Errors
    ///
    /// [`Misfit::NoPromptQueue`] in a run without one.
    pub fn replay_feed(&mut self, prompts: &[FedPrompt]) -> Result<(), Misfit> {
        let queue = self.prompts.as_mut().ok_or(Misfit::NoPromptQueue)?;
        queue.append(prompts);
        Ok(())
    }

    /// The prompt is what the log says, right or wrong.
    pub(super) fn follow_prompt(
        &mut self,
        id: TrajectoryId,
        position: FeedPosition,
        state: PromptState,
        attempt: Attempt,
    ) -> Result<(), Misfit> {
        let goes_behind = match self.entries.get(&id).map(|entry| &entry.state) {
            Some(EntryState::Discarded { reason, discarded_from }) => {
                Fate::of(reason, *discarded_from, Wish::ByReason) == Fate::Back
            }
            _ => false,
        };
        let queue = self.prompts.as_mut().ok_or(Misfit::NoPromptQueue)?;
        if queue.prompt(position).is_none() {
            return Err(Misfit::NoSuchPrompt { position });
        }
        match state {
            PromptState::InFlight | PromptState::Occupied | PromptState::Trained => queue.give(position, attempt, id),
            PromptState::Queued if goes_behind => queue.put_behind(position),
            PromptState::Queued => queue.put_in_front(position),
            left @ (PromptState::Filtered | PromptState::Failed | PromptState::Dropped) => {
                queue.stand(position, Standing::Left(left));
            }
        }
        queue.set_attempt(position, attempt);
        Ok(())
    }
}
