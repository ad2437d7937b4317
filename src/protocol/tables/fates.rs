//! What becomes of the prompt of a discarded entry: the table of *The prompt queue*.

use super::DiscardedFrom;
use crate::protocol::{PromptState, Reason};

/// What becomes of the prompt of a discarded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Back to its feed position, as the next attempt; past `max_attempts` it failed.
    Front,
    /// Back to its feed position, as the same attempt.
    FrontUncounted,
    /// Behind all that is fed, as the next attempt; past `max_attempts` it failed.
    Back,
    /// It leaves the queue for good, in this state.
    Leaves(PromptState),
}

/// What the caller of a Discard wishes for the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// What the reason stands for.
    #[default]
    ByReason,
    /// That it is tried again, whatever the client's reason is (`requeue`).
    Requeue,
}

impl Fate {
    /// By the table alone; `drop_on` may name the reason and change it.
    pub(super) fn of(reason: &Reason, was: DiscardedFrom, wish: Wish) -> Self {
        match reason {
            Reason::LeaseExpired | Reason::WorkerRestarted => Self::Front,
            Reason::Abandoned | Reason::Rewound | Reason::TooStale | Reason::Surplus => Self::FrontUncounted,
            Reason::StuckTimeout | Reason::TimedOut | Reason::GroupFailed => Self::Back,
            // Members are discarded as `group_filled`, and no entry is.
            Reason::ZeroVariance | Reason::GroupFilled => Self::Leaves(PromptState::Filtered),
            Reason::Drained => Self::Leaves(PromptState::Dropped),
            Reason::Client(_) if wish == Wish::Requeue => Self::Front,
            Reason::Client(_) => Self::Leaves(match was {
                DiscardedFrom::Reserved => PromptState::Failed,
                DiscardedFrom::Occupied => PromptState::Filtered,
            }),
        }
    }

    /// Whether a prompt with this fate is tried again: only such may be dropped instead.
    pub(super) fn returns(self) -> bool {
        !matches!(self, Self::Leaves(_))
    }
}
