//! The protocol's numbers and names as types of their own, so that a version is never passed where a buffer is meant.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

/// The greatest number that whoever counts in floating point holds exactly, as Lua and many readers of JSON do.
pub const GREATEST_EXACT: u64 = 1 << 53;

/// A greater number would go to the scripts as another one, or even as a negative one.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if number > GREATEST_EXACT {
        let expected = &"a number of at most 9007199254740992";
        return Err(D::Error::invalid_value(Unexpected::Unsigned(number), expected));
    }
    Ok(number)
}

/// A policy version: how many times the policy has been published since version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Version(#[serde(deserialize_with = "exact")] pub u64);

/// A buffer: the batch that trains the version of the same number into the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct BufferId(#[serde(deserialize_with = "exact")] pub u64);

/// A trainer session, counted from 1; 0 where there was none yet (*The trainer*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Epoch(#[serde(deserialize_with = "exact")] pub u64);

/// How often the weights went another way: raised by each rewind and each forced resume (*Terms*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Lineage(#[serde(deserialize_with = "exact")] pub u64);

/// Weights that somebody holds: a version, and the lineage in which it is spoken of (*Terms*). The same version of two
/// lineages may be two different sets of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Weights {
    /// The policy version.
    pub version: Version,
    /// The lineage.
    pub lineage: Lineage,
}

/// A slot of a buffer, from 0 at the front to `slots_per_buffer - 1` at the rear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Slot(pub u32);

/// Where an entry sits. Places order front to rear: by buffer, then by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// The buffer.
    pub buffer: BufferId,
    /// The slot in it.
    pub slot: Slot,
}

/// Where in the order of all prompts one was fed, from 0 (*The prompt queue*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct FeedPosition(#[serde(deserialize_with = "exact")] pub u64);

/// Which attempt at a prompt an entry is, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// A reward. Rewards are finite, so that all can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Reward(pub f64);

impl Eq for Reward {}

impl Place {
    /// The place in slot `slot` of buffer `buffer`.
    pub fn new(buffer: u64, slot: u32) -> Self {
        Self {
            buffer: BufferId(buffer),
            slot: Slot(slot),
        }
    }
}

impl Version {
    /// The last buffer that an entry admitted under this version may be trained in (*Terms*: `version + η`).
    pub fn deadline(self, max_staleness: u64) -> BufferId {
        BufferId(self.0.saturating_add(max_staleness))
    }
}

impl BufferId {
    /// The staleness that an entry of `version` has in this buffer, or `None` for a version newer than the buffer.
    pub fn staleness(self, version: Version) -> Option<u64> {
        self.0.checked_sub(version.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of buffer {}", self.slot, self.buffer)
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of an entry, a `UUIDv7` made by the server. It is also the fence of its reservation.
///
/// Written as a hyphenated string in every format, because the scripts use it as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = Uuid)]
pub struct TrajectoryId(pub Uuid);

impl TrajectoryId {
    /// A new id; later ones order after earlier ones.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TrajectoryId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

impl Serialize for TrajectoryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TrajectoryId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
