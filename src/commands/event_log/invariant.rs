//! Which promise of the protocol a fault breaks.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::protocol::Effect;
use crate::protocol::audit::Fault;
use crate::protocol::invariants::Violation;
use crate::protocol::tables::{Misfit, OccupyRefusal, ReserveRefusal};

/// What is checked, in the words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) enum Invariant {
    /// Staleness is within `0 ..= η`.
    Bound,
    /// Every entry has a place, and is where its record says.
    APlaceForEveryone,
    /// No more entries in a buffer than there is room.
    Capacity,
    /// An entry is in one place, and in one batch at most.
    Once,
    /// Nobody could sit better.
    Packed,
    /// Who finishes gets the earliest place that leaves the others theirs.
    Earliest,
    /// Versions and batches come one after the other, each in its turn.
    Versions,
    /// A batch has exactly `B` entries, or, as the run's last one, those that are left; and its pieces are all of it.
    BatchesComplete,
    /// A group is finished with exactly the members that it needs, each of weights no older than it; one that loses its
    /// worker goes on with another.
    Groups,
    /// A batch that is delivered again is the one that was taken.
    ReplaysIdentical,
    /// Every prompt that was fed is in exactly one state, as often tried as it may be.
    Prompts,
    /// Each step did exactly what the protocol has for it.
    Steps,
    /// No event is missing, doubled or out of order.
    Sequence,
}

impl Invariant {
    /// All of them, in the order in which they are told.
    pub(in crate::commands) const ALL: [Self; 13] = [
        Self::Bound,
        Self::APlaceForEveryone,
        Self::Capacity,
        Self::Once,
        Self::Packed,
        Self::Earliest,
        Self::Versions,
        Self::BatchesComplete,
        Self::Groups,
        Self::ReplaysIdentical,
        Self::Prompts,
        Self::Steps,
        Self::Sequence,
    ];

    /// The one that a fault breaks.
    pub(super) fn broken_by(fault: &Fault) -> Self {
        match fault {
            Fault::Invariant(violation) => Self::violated(violation),
            Fault::CannotGoOn(Misfit::NoSuchPlace { .. }) => Self::APlaceForEveryone,
            Fault::InTwoBatches { .. } | Fault::CannotGoOn(Misfit::NotInTables { .. }) => Self::Once,
            Fault::Incomplete { .. } | Fault::Final { .. } | Fault::Piece { .. } | Fault::TakenNotDrained { .. } => {
                Self::BatchesComplete
            }
            Fault::OutOfTurn { .. }
            | Fault::Publish { .. }
            | Fault::Checkpoint { .. }
            | Fault::Session(_)
            | Fault::Resume { .. }
            | Fault::Resumed { .. }
            | Fault::Reserve(
                ReserveRefusal::VersionNotPublished { .. }
                | ReserveRefusal::VersionTooStale { .. }
                | ReserveRefusal::LineageUnknown { .. },
            )
            | Fault::CannotGoOn(Misfit::TrainerBusy | Misfit::NotNext { .. }) => Self::Versions,
            Fault::Delivered { .. } | Fault::Replayed { .. } | Fault::NotAsTaken { .. } => Self::ReplaysIdentical,
            Fault::Sequence { .. } | Fault::RaisedFrom { .. } | Fault::NotCreated | Fault::CreatedAgain => {
                Self::Sequence
            }
            Fault::CannotGoOn(Misfit::Shared { .. }) => Self::Capacity,
            Fault::Effect { logged, expected, .. }
                if is_of_a_prompt(logged.as_deref()) || is_of_a_prompt(expected.as_deref()) =>
            {
                Self::Prompts
            }
            Fault::Effect { logged, expected, .. } if is_of_a_group(logged) || is_of_a_group(expected) => Self::Groups,
            Fault::GroupIncomplete { .. } | Fault::Adopted { .. } => Self::Groups,
            Fault::Feed(_)
            | Fault::Fed { .. }
            | Fault::Occupy {
                refusal: OccupyRefusal::Superseded,
                ..
            }
            | Fault::CannotGoOn(Misfit::NoPromptQueue | Misfit::NoSuchPrompt { .. }) => Self::Prompts,
            Fault::Config
            | Fault::Missing(_)
            | Fault::Reconfigured(_)
            | Fault::Effect { .. }
            | Fault::Reserve(ReserveRefusal::IdReused { .. })
            | Fault::Occupy { .. }
            | Fault::Late { .. }
            | Fault::Discard { .. }
            | Fault::Member { .. }
            | Fault::NotCounted { .. }
            | Fault::CheckpointRepeated { .. }
            | Fault::DrainRepeated
            | Fault::NotDrained
            | Fault::Prune { .. }
            | Fault::PrunedElsewhere { .. } => Self::Steps,
        }
    }

    fn violated(violation: &Violation) -> Self {
        match violation {
            Violation::Bound { .. } | Violation::NotPublished { .. } => Self::Bound,
            Violation::Slots { .. } | Violation::Capacity { .. } | Violation::State { .. } => Self::Capacity,
            Violation::Twice { .. } => Self::Once,
            Violation::Misplaced { .. } => Self::APlaceForEveryone,
            Violation::Order { .. } | Violation::ReservedTooEarly { .. } | Violation::OccupiedTooLate { .. } => {
                Self::Packed
            }
            Violation::NotEarliest { .. } | Violation::LeavesNoPlace { .. } => Self::Earliest,
            Violation::Window { .. } | Violation::Abandoned { .. } | Violation::TrainerAhead { .. } => Self::Versions,
            Violation::Streamed { .. } => Self::BatchesComplete,
            Violation::Group(_) => Self::Groups,
            Violation::NotKept { .. } => Self::ReplaysIdentical,
            Violation::WithoutPrompt { .. }
            | Violation::PromptLost { .. }
            | Violation::Attempts { .. }
            | Violation::PromptCounts { .. } => Self::Prompts,
            Violation::SurplusKept { .. } => Self::Steps,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::APlaceForEveryone => "a place for everyone",
            Self::Capacity => "capacity",
            Self::Once => "once",
            Self::Packed => "packed",
            Self::Earliest => "earliest",
            Self::Versions => "versions",
            Self::BatchesComplete => "batches complete",
            Self::Groups => "groups",
            Self::ReplaysIdentical => "replays identical",
            Self::Prompts => "prompts",
            Self::Steps => "steps",
            Self::Sequence => "sequence",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

fn is_of_a_prompt(effect: Option<&Effect>) -> bool {
    matches!(effect, Some(Effect::Prompt { .. }))
}

fn is_of_a_group(effect: &Option<Box<Effect>>) -> bool {
    matches!(
        effect.as_deref(),
        Some(Effect::Member { .. } | Effect::Orphaned { .. } | Effect::Adopted { .. })
    )
}
