//! Why an entry was discarded.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Why an entry was discarded: one of the ledger's own reasons, or a client's word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The lease of the session that held it ran out.
    LeaseExpired,
    /// Its worker opened a new session.
    WorkerRestarted,
    /// Its grant never reached the worker.
    Abandoned,
    /// Every buffer it could still have gone to is ready (`slots_per_buffer > batch_size` only).
    Surplus,
    /// A version above the one that the trainer went back to generated it, or a part of it.
    Rewound,
    /// No batch to come may have it: a rewind or a forced resume left it without a legal place.
    TooStale,
    /// The trainer waited for its buffer for too long.
    StuckTimeout,
    /// It was reserved for too long.
    TimedOut,
    /// So many of its candidates failed that the group cannot be filled.
    GroupFailed,
    /// All rewards of the group are equal.
    ZeroVariance,
    /// The run ends without a batch for it.
    Drained,
    /// Of members and no entry: the group has all that it needs.
    GroupFilled,
    /// A word of the client that discarded it.
    Client(String),
}

/// The words that the protocol keeps for the ledger: no client may give one of them as its reason.
pub const LEDGER_REASONS: [&str; 12] = [
    "lease_expired",
    "worker_restarted",
    "abandoned",
    "surplus",
    "rewound",
    "too_stale",
    "stuck_timeout",
    "timed_out",
    "group_failed",
    "group_filled",
    "zero_variance",
    "drained",
];

impl Reason {
    /// The word for it in Lua, JSON, the event log and metrics.
    pub fn as_str(&self) -> &str {
        match self {
            Self::LeaseExpired => "lease_expired",
            Self::WorkerRestarted => "worker_restarted",
            Self::Abandoned => "abandoned",
            Self::Surplus => "surplus",
            Self::Rewound => "rewound",
            Self::TooStale => "too_stale",
            Self::StuckTimeout => "stuck_timeout",
            Self::TimedOut => "timed_out",
            Self::GroupFailed => "group_failed",
            Self::ZeroVariance => "zero_variance",
            Self::Drained => "drained",
            Self::GroupFilled => "group_filled",
            Self::Client(word) => word,
        }
    }

    /// Whether the worker, if it was only slow, may still finish an entry discarded for this (*Late occupy*).
    pub fn allows_late_occupy(&self) -> bool {
        matches!(
            self,
            Self::LeaseExpired | Self::Abandoned | Self::StuckTimeout | Self::TimedOut
        )
    }

    /// Whether it says that the holder of an entry is gone, or never had it: a group may outlive that (*Adoption*).
    pub fn is_of_the_holder(&self) -> bool {
        matches!(self, Self::LeaseExpired | Self::WorkerRestarted | Self::Abandoned)
    }

    /// Whether it is a group's own end: what is reported of its members afterwards changes nothing, and succeeds.
    pub fn is_of_the_group(&self) -> bool {
        matches!(self, Self::GroupFailed | Self::ZeroVariance)
    }
}

impl From<&str> for Reason {
    fn from(word: &str) -> Self {
        match word {
            "lease_expired" => Self::LeaseExpired,
            "worker_restarted" => Self::WorkerRestarted,
            "abandoned" => Self::Abandoned,
            "surplus" => Self::Surplus,
            "rewound" => Self::Rewound,
            "too_stale" => Self::TooStale,
            "stuck_timeout" => Self::StuckTimeout,
            "timed_out" => Self::TimedOut,
            "group_failed" => Self::GroupFailed,
            "zero_variance" => Self::ZeroVariance,
            "drained" => Self::Drained,
            "group_filled" => Self::GroupFilled,
            other => Self::Client(other.to_owned()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}

/// In the contract a reason is a word.
impl PartialSchema for Reason {
    fn schema() -> RefOr<Schema> {
        let word: Object = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "Why an entry was discarded: one of the ledger's own reasons, or a client's word.",
            ))
            .examples(["lease_expired"])
            .build();
        word.into()
    }
}

impl ToSchema for Reason {}
