//! The states of a prompt that the ledger hands out (*The prompt queue*), and how many are in each.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What has become of a prompt. Every prompt that was fed is at any time in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptState {
    /// To be handed out.
    Queued,
    /// Handed out, with an entry that is generating.
    InFlight,
    /// Its entry finished.
    Occupied,
    /// Its entry's batch, or the piece of it, was taken.
    Trained,
    /// Its entry was of no use for training.
    Filtered,
    /// It was tried as often as it may be, or its client gave it up.
    Failed,
    /// Its entry was discarded for a reason whose prompts are not tried again, or there was no batch for it.
    Dropped,
}

impl PromptState {
    /// The word for it in Lua, JSON and the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InFlight => "in_flight",
            Self::Occupied => "occupied",
            Self::Trained => "trained",
            Self::Filtered => "filtered",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for PromptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many prompts are in each state: together as many as were fed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptCounts {
    /// To be handed out.
    pub queued: u64,
    /// With an entry that is generating.
    pub in_flight: u64,
    /// With a finished entry that waits to be trained.
    pub occupied: u64,
    /// Taken for training.
    pub trained: u64,
    /// Of no use for training.
    pub filtered: u64,
    /// Tried as often as they may be, or given up.
    pub failed: u64,
    /// Not tried again, for the reason that their entries were discarded for.
    pub dropped: u64,
}

impl PromptCounts {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.queued + self.in_flight + self.occupied + self.trained + self.filtered + self.failed + self.dropped
    }

    /// The count of one state.
    pub fn of_mut(&mut self, state: PromptState) -> &mut u64 {
        match state {
            PromptState::Queued => &mut self.queued,
            PromptState::InFlight => &mut self.in_flight,
            PromptState::Occupied => &mut self.occupied,
            PromptState::Trained => &mut self.trained,
            PromptState::Filtered => &mut self.filtered,
            PromptState::Failed => &mut self.failed,
            PromptState::Dropped => &mut self.dropped,
        }
    }
}
