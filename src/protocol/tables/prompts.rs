//! *The prompt queue*: the prompts that the ledger hands out, each at any time in exactly one state.
//!
//! A reservation takes the next one in the same step. While its entry is in the tables or in a batch, a prompt's state is
//! what the entry's state says; everything else that happens to it is an [`Effect::Prompt`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fates::{Fate, Wish};
use super::{DiscardedFrom, Effect, Entry, EntryState, Misfit, SlotTables, TrajectoryId};
use crate::protocol::{Attempt, FedPrompt, FeedPosition, PromptCounts, PromptOrder, PromptState, Reason, RunConfig};

/// The prompts of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptQueue {
    /// Within how many feed positions the longest go first; 1 where they go as they were fed.
    window: u64,
    max_attempts: Attempt,
    drop_on: Vec<Reason>,
    fed: u64,
    /// How often a prompt was put behind all others.
    returned: u64,
    /// Those that are not forgotten, by feed position.
    prompts: BTreeMap<FeedPosition, Prompt>,
    /// The turns of the queued ones, in the order in which they are handed out.
    queue: BTreeMap<Turn, FeedPosition>,
    /// What each entry that is remembered was handed out with.
    handed_out: BTreeMap<TrajectoryId, HandedOut>,
    /// How many were trained, and are forgotten with their batches.
    forgotten: u64,
}

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The client's name for it; another one may have the same.
    pub id: String,
    /// How many tokens its trajectory is expected to have.
    pub expected_tokens: Option<u64>,
    /// Which attempt at it this is, or will be.
    pub attempt: Attempt,
    /// The entry that it was handed out with last.
    pub entry: Option<TrajectoryId>,
    standing: Standing,
}

/// Where a prompt is, as far as its entry does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Queued(Turn),
    /// With its entry, which is in the tables or in a batch.
    HandedOut,
    /// Filtered, failed or dropped.
    Left(PromptState),
}

/// When a queued prompt is handed out: those that were put behind all that is fed come last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Front {
        window: u64,
        /// Unknown lengths come after the known ones.
        expected_tokens: Reverse<Option<u64>>,
        position: FeedPosition,
    },
    Back {
        turn: u64,
    },
}

/// The prompt of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOut {
    /// Where it was fed.
    pub position: FeedPosition,
    /// Which attempt at it the entry is.
    pub attempt: Attempt,
}

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

impl PromptQueue {
    /// The empty queue of a run, if it has one.
    pub(super) fn of(config: &RunConfig) -> Option<Self> {
        config.prompt_queue.then(|| Self {
            window: match config.order {
                PromptOrder::Fed => 1,
                PromptOrder::LongestFirst => config.order_window.max(1),
            },
            max_attempts: Attempt(config.max_attempts),
            drop_on: config.drop_on.clone(),
            fed: 0,
            returned: 0,
            prompts: BTreeMap::new(),
            queue: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            forgotten: 0,
        })
    }

    /// How many prompts were fed.
    pub fn fed(&self) -> u64 {
        self.fed
    }

    /// How many of them are forgotten: they were trained.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The most attempts that a prompt is given.
    pub fn max_attempts(&self) -> Attempt {
        self.max_attempts
    }

    /// Whether there is one to be handed out.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Those that are not forgotten, in the order of feeding.
    pub fn prompts(&self) -> impl Iterator<Item = (FeedPosition, &Prompt)> {
        self.prompts.iter().map(|(position, prompt)| (*position, prompt))
    }

    /// The positions of the queued ones, in the order in which they are handed out.
    pub fn queued(&self) -> impl Iterator<Item = FeedPosition> {
        self.queue.values().copied()
    }

    /// The prompt that the entry was handed out with, even if it was handed out again since; `None` once it is forgotten.
    pub fn of_entry(&self, id: TrajectoryId) -> Option<(HandedOut, &Prompt)> {
        let handed_out = self.handed_out.get(&id)?;
        Some((*handed_out, self.prompts.get(&handed_out.position)?))
    }

    fn append(&mut self, prompts: &[FedPrompt]) {
        for prompt in prompts {
            let position = FeedPosition(self.fed);
            self.fed += 1;
            self.prompts.insert(
                position,
                Prompt {
                    id: prompt.id.clone(),
                    expected_tokens: prompt.expected_tokens,
                    attempt: Attempt(1),
                    entry: None,
                    standing: Standing::HandedOut,
                },
            );
            self.put_in_front(position);
        }
    }

    /// Sets the prompt's standing, in the queue too.
    fn stand(&mut self, position: FeedPosition, standing: Standing) {
        let Some(prompt) = self.prompts.get_mut(&position) else {
            return;
        };
        if let Standing::Queued(turn) = &prompt.standing {
            self.queue.remove(turn);
        }
        if let Standing::Queued(turn) = &standing {
            self.queue.insert(turn.clone(), position);
        }
        prompt.standing = standing;
    }

    fn put_in_front(&mut self, position: FeedPosition) {
        let expected_tokens = self.prompts.get(&position).and_then(|prompt| prompt.expected_tokens);
        let turn = Turn::Front {
            window: position.0 / self.window,
            expected_tokens: Reverse(expected_tokens),
            position,
        };
        self.stand(position, Standing::Queued(turn));
    }

    fn put_behind(&mut self, position: FeedPosition) {
        let turn = Turn::Back { turn: self.returned };
        self.returned += 1;
        self.stand(position, Standing::Queued(turn));
    }

    /// The prompt is the entry's from now on.
    fn give(&mut self, position: FeedPosition, attempt: Attempt, id: TrajectoryId) {
        self.stand(position, Standing::HandedOut);
        if let Some(prompt) = self.prompts.get_mut(&position) {
            prompt.attempt = attempt;
            prompt.entry = Some(id);
        }
        self.handed_out.insert(id, HandedOut { position, attempt });
    }

    /// The state in which the prompt of an entry that is discarded is, and the attempt at it that this was or the next
    /// one will be.
    fn take_back(
        &mut self,
        from: HandedOut,
        reason: &Reason,
        was: DiscardedFrom,
        wish: Wish,
    ) -> (PromptState, Attempt) {
        let HandedOut { position, attempt } = from;
        let next = Attempt(attempt.0.saturating_add(1));
        let fate = match Fate::of(reason, was, wish) {
            fate if fate.returns() && self.drop_on.contains(reason) => Fate::Leaves(PromptState::Dropped),
            Fate::Front | Fate::Back if next > self.max_attempts => Fate::Leaves(PromptState::Failed),
            fate => fate,
        };
        let (state, attempt) = match fate {
            Fate::Front | Fate::Back => (PromptState::Queued, next),
            Fate::FrontUncounted => (PromptState::Queued, attempt),
            Fate::Leaves(state) => (state, attempt),
        };
        match fate {
            Fate::Front | Fate::FrontUncounted => self.put_in_front(position),
            Fate::Back => self.put_behind(position),
            Fate::Leaves(state) => self.stand(position, Standing::Left(state)),
        }
        if let Some(prompt) = self.prompts.get_mut(&position) {
            prompt.attempt = attempt;
        }
        (state, attempt)
    }

    /// The entry is forgotten, and with it the prompt that was trained by it.
    fn forget(&mut self, id: TrajectoryId) {
        let Some(HandedOut { position, .. }) = self.handed_out.remove(&id) else {
            return;
        };
        let is_its_own = |prompt: &Prompt| prompt.entry == Some(id) && prompt.standing == Standing::HandedOut;
        if self.prompts.get(&position).is_some_and(is_its_own) {
            self.prompts.remove(&position);
            self.forgotten += 1;
        }
    }
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
        let fed = queue.fed;
        let offset = offset.unwrap_or(fed);
        let known = fed.checked_sub(offset).ok_or(FeedRefusal::Gap { offset, fed })?;
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(prompts.len());
        if self.draining.is_some() && known < prompts.len() {
            return Err(FeedRefusal::Draining);
        }
        queue.append(&prompts[known..]);
        Ok(queue.fed)
    }

    /// The prompt queue, if the run has one.
    pub fn prompt_queue(&self) -> Option<&PromptQueue> {
        self.prompts.as_ref()
    }

    /// The state of a prompt that is not forgotten.
    pub fn prompt_state(&self, position: FeedPosition) -> Option<PromptState> {
        let prompt = self.prompts.as_ref()?.prompts.get(&position)?;
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
            counts.trained = queue.forgotten;
            let states = queue.prompts.keys().filter_map(|position| self.prompt_state(*position));
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
        let Some(position) = queue.queue.values().next().copied() else {
            return;
        };
        let Some(attempt) = queue.prompts.get(&position).map(|prompt| prompt.attempt) else {
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
        let Some(&HandedOut { position, attempt }) = queue.handed_out.get(&id) else {
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
        let from = *queue.handed_out.get(&id)?;
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
        if !queue.prompts.contains_key(&position) {
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
        if let Some(prompt) = queue.prompts.get_mut(&position) {
            prompt.attempt = attempt;
        }
        Ok(())
    }
}

impl Prompt {
    /// Whether it is with its entry.
    pub fn is_handed_out(&self) -> bool {
        self.standing == Standing::HandedOut
    }
}
