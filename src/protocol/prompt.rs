//! The states of a prompt that the ledger hands out (*The prompt queue*).

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
