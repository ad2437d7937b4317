//! A run as it is set up, and as it stands.

use serde::{Deserialize, Serialize};

use crate::protocol::{BufferId, Event, RunConfig, Version};

/// `PUT /v1/runs/{run}`: the part of the configuration that is not left at its default.
#[derive(Debug, Clone, Serialize)]
pub struct RunSettings {
    /// Entries in one batch.
    pub batch_size: u32,
    /// The bound on staleness, in policy versions.
    pub max_staleness: u64,
    /// How long a silent session keeps what it holds, in milliseconds.
    pub lease_ms: u64,
    /// The most trajectories that may be generating at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// Members of a prompt group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// Whether a group with finished members outlives the session that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopt_groups: Option<bool>,
    /// The age at which a reservation is discarded whatever its lease, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation_timeout_ms: Option<u64>,
    /// How long the trainer waits for a stuck buffer before its reservations are discarded, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_timeout_ms: Option<u64>,
}

impl RunSettings {
    /// A run of single trajectories, with nothing out of the ordinary but these.
    pub fn new(batch_size: u32, max_staleness: u64, lease_ms: u64) -> Self {
        Self {
            batch_size,
            max_staleness,
            lease_ms,
            max_concurrency: None,
            group_size: None,
            adopt_groups: None,
            reservation_timeout_ms: None,
            stuck_timeout_ms: None,
        }
    }
}

/// `GET /v1/runs/{run}`.
#[derive(Debug, Clone, Deserialize)]
pub struct RunStatus {
    /// What the run was created with.
    pub config: RunConfig,
    /// The latest published version.
    pub policy_version: Version,
    /// Entries that hold a slot and still generate.
    pub reserved: u64,
    /// Finished entries that wait for their batch.
    pub occupied: u64,
    /// The sequence number of the run's last event.
    pub seq: u64,
}

/// The answer to `GET …/buffers?slots=true`.
#[derive(Debug, Clone, Deserialize)]
pub struct Buffers {
    /// The latest published version.
    pub policy_version: Version,
    /// The first buffer that is not yet wholly taken.
    pub next_buffer: BufferId,
    /// The open buffers, front to rear.
    pub buffers: Vec<BufferTable>,
}

/// One open buffer.
#[derive(Debug, Clone, Deserialize)]
pub struct BufferTable {
    /// The version that its batch trains.
    pub version: BufferId,
    /// `ready`, `pending` or `stuck`.
    pub state: String,
    /// Its slots, front to rear.
    #[serde(default)]
    pub slots: Vec<SlotView>,
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SlotView {
    /// Nothing is in it.
    Empty,
    /// Somebody is generating for it.
    Reserved {
        /// Who; `None` for a group that is to be adopted.
        #[serde(default)]
        worker: Option<String>,
        /// The entry's name, if its client gave one.
        #[serde(default)]
        prompt: Option<String>,
    },
    /// A finished entry waits in it.
    Occupied {
        /// How stale that entry will be when this buffer is trained.
        staleness: u64,
        /// The entry's name, if its client gave one.
        #[serde(default)]
        prompt: Option<String>,
    },
    /// A finished entry was taken from it as a piece of a batch that is not complete.
    Taken {
        /// How stale that entry is.
        staleness: u64,
    },
    /// Something newer than this client.
    #[serde(other)]
    Other,
}

/// The answer to `GET …/workers`.
#[derive(Debug, Clone, Deserialize)]
pub struct Workers {
    /// The workers that the run knows.
    pub workers: Vec<WorkerView>,
}

/// One worker.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkerView {
    /// Its name.
    pub worker: String,
    /// The version it last said it holds.
    pub version: Option<Version>,
    /// How many entries it holds.
    pub reserved: u64,
    /// How many it has finished.
    pub finished: u64,
}

/// The answer to `GET …/events`.
#[derive(Debug, Clone, Deserialize)]
pub struct EventPage<E = Event> {
    /// The events, oldest first.
    pub events: Vec<E>,
    /// The `after` of the next page; `None` at the end.
    pub next: Option<u64>,
}
