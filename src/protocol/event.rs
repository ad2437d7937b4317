//! The run's event log: one event for every step that changed anything, with its effects in order (*Sequence*).

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Place, Reason, RunConfig, TrajectoryId, Version};

/// What kind of step an event records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// The run was created, with the event's `config`.
    RunCreated,
    /// A part of the configuration was changed: `config` holds all of it.
    RunChanged,
    /// A worker process was met for the first time; what its predecessor held is discarded, in as many steps as needed.
    SessionOpened,
    /// Entries were admitted.
    Reserve,
    /// An entry finished.
    Occupy,
    /// A client gave up a reserved entry or filtered an occupied one.
    Discard,
    /// A session's lease ran out: some of what it held was discarded.
    Expire,
    /// The caller's session became the holder of a reservation.
    Claim,
    /// A session said a version, acknowledged cancellations, or did not list what it was granted.
    Heartbeat,
    /// Buffer `version` was wholly taken for training.
    Take,
    /// `version` was published.
    Publish,
    /// Entries of batch `version`, which is no longer kept, were forgotten.
    Prune,
}

/// One change of one entry's place, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// The entry was admitted under `version` into an empty slot.
    Reserved {
        /// The entry.
        id: TrajectoryId,
        /// The policy version it was admitted under.
        version: Version,
        /// The slot it got.
        to: Place,
    },
    /// The entry changed its slot and nothing else: a reserved one in a cascade, or an occupied one within its buffer.
    Moved {
        /// The entry.
        id: TrajectoryId,
        /// The slot it left.
        from: Place,
        /// The slot it got.
        to: Place,
    },
    /// The entry finished.
    Occupied {
        /// The entry.
        id: TrajectoryId,
        /// The reserved slot it left.
        from: Place,
        /// The slot it occupies.
        to: Place,
    },
    /// An occupied entry moved forward into a buffer that is to be trained earlier.
    Promoted {
        /// The entry.
        id: TrajectoryId,
        /// The slot it left.
        from: Place,
        /// The slot it occupies now.
        to: Place,
    },
    /// The entry left the tables without being trained.
    Discarded {
        /// The entry.
        id: TrajectoryId,
        /// Why.
        reason: Reason,
        /// The slot it left.
        from: Place,
    },
    /// The entry's record was forgotten with its batch.
    Pruned {
        /// The entry.
        id: TrajectoryId,
    },
}

impl Effect {
    /// The entry that this effect is about.
    pub fn id(&self) -> TrajectoryId {
        match self {
            Self::Reserved { id, .. }
            | Self::Moved { id, .. }
            | Self::Occupied { id, .. }
            | Self::Promoted { id, .. }
            | Self::Discarded { id, .. }
            | Self::Pruned { id } => *id,
        }
    }

    /// The place that the entry left, if it had one.
    pub fn from(&self) -> Option<Place> {
        match self {
            Self::Moved { from, .. }
            | Self::Occupied { from, .. }
            | Self::Promoted { from, .. }
            | Self::Discarded { from, .. } => Some(*from),
            Self::Reserved { .. } | Self::Pruned { .. } => None,
        }
    }

    /// The place that the entry got, if it got one.
    pub fn to(&self) -> Option<Place> {
        match self {
            Self::Reserved { to, .. }
            | Self::Moved { to, .. }
            | Self::Occupied { to, .. }
            | Self::Promoted { to, .. } => Some(*to),
            Self::Discarded { .. } | Self::Pruned { .. } => None,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { id, version, to } => {
                write!(f, "{id} reserved {to} under version {version}")
            }
            Self::Moved { id, from, to } => write!(f, "{id} moved from {from} to {to}"),
            Self::Occupied { id, from, to } => write!(f, "{id} left {from} and occupied {to}"),
            Self::Promoted { id, from, to } => write!(f, "{id} was promoted from {from} to {to}"),
            Self::Discarded { id, reason, from } => {
                write!(f, "{id} was discarded from {from} as {reason}")
            }
            Self::Pruned { id } => write!(f, "{id} was pruned"),
        }
    }
}

/// An effect as the log keeps it: with what a reader of the log needs beside the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedEffect {
    /// The change itself.
    #[serde(flatten)]
    pub effect: Effect,
    /// The prompt of a reserved entry, if its client named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The payload reference of a discarded or pruned entry: nobody will read it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// One step of a run. The events of a run, from the first, are enough to rebuild its tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The run's sequence number after this step; the next event's is one more.
    pub seq: u64,
    /// When, in Unix milliseconds of the database's clock.
    pub at_ms: u64,
    /// A random word: two histories that reached the same `seq` differ in it.
    pub mark: String,
    /// What kind of step.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The worker that the step is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Why, where the step discarded the entries in `ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// A client's remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The version that the step is about: of the weights that `reserve` or `heartbeat` named, of the batch that was
    /// taken or pruned, or the one that was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Whether an `occupy` saved an entry that had been discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The configuration, of `run_created` and `run_changed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<RunConfig>,
    /// The cancellations that a `heartbeat` acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<TrajectoryId>,
    /// The entries that the step was asked to treat, in the order in which it did. Those that moved or were discarded in
    /// consequence stand in `effects` only.
    #[serde(default)]
    pub ids: Vec<TrajectoryId>,
    /// Every change of a place, in order.
    #[serde(default)]
    pub effects: Vec<LoggedEffect>,
}
