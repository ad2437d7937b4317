//! *The prompt queue*: the prompts of a run and their order, apart from the tables.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fates::{Fate, Wish};
use super::{DiscardedFrom, TrajectoryId};
use crate::protocol::{Attempt, FedPrompt, FeedPosition, PromptOrder, PromptState, Reason, RunConfig};

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
    pub(super) standing: Standing,
}

/// Where a prompt is, as far as its entry does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Queued(Turn),
    /// With its entry, which is in the tables or in a batch.
    HandedOut,
    /// Filtered, failed or dropped.
    Left(PromptState),
}

/// When a queued prompt is handed out: those that were put behind all that is fed come last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
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

    pub(super) fn prompt(&self, position: FeedPosition) -> Option<&Prompt> {
        self.prompts.get(&position)
    }

    /// What the entry was handed out with.
    pub(super) fn handed_out(&self, id: TrajectoryId) -> Option<HandedOut> {
        self.handed_out.get(&id).copied()
    }

    pub(super) fn set_attempt(&mut self, position: FeedPosition, attempt: Attempt) {
        if let Some(prompt) = self.prompts.get_mut(&position) {
            prompt.attempt = attempt;
        }
    }

    pub(super) fn append(&mut self, prompts: &[FedPrompt]) {
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
    pub(super) fn stand(&mut self, position: FeedPosition, standing: Standing) {
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

    pub(super) fn put_in_front(&mut self, position: FeedPosition) {
        let expected_tokens = self.prompts.get(&position).and_then(|prompt| prompt.expected_tokens);
        let turn = Turn::Front {
            window: position.0 / self.window,
            expected_tokens: Reverse(expected_tokens),
            position,
        };
        self.stand(position, Standing::Queued(turn));
    }

    pub(super) fn put_behind(&mut self, position: FeedPosition) {
        let turn = Turn::Back { turn: self.returned };
        self.returned += 1;
        self.stand(position, Standing::Queued(turn));
    }

    /// The prompt is the entry's from now on.
    pub(super) fn give(&mut self, position: FeedPosition, attempt: Attempt, id: TrajectoryId) {
        self.stand(position, Standing::HandedOut);
        if let Some(prompt) = self.prompts.get_mut(&position) {
            prompt.attempt = attempt;
            prompt.entry = Some(id);
        }
        self.handed_out.insert(id, HandedOut { position, attempt });
    }

    /// The state in which the prompt of an entry that is discarded is, and the attempt at it that this was or the next
    /// one will be.
    pub(super) fn take_back(
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
        self.set_attempt(position, attempt);
        (state, attempt)
    }

    /// The entry is forgotten, and with it the prompt that was trained by it.
    pub(super) fn forget(&mut self, id: TrajectoryId) {
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

impl Prompt {
    /// Whether it is with its entry.
    pub fn is_handed_out(&self) -> bool {
        self.standing == Standing::HandedOut
    }
}
