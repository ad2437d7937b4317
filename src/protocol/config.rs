//! A run's configuration, with its defaults filled in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Reason;

/// What a run was created with (`PUT /v1/runs/{run}`), defaults filled in. The symbols are those of *Terms*.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches a behaviour of its own, under the contract's name"
)]
pub struct RunConfig {
    /// `B`: entries in one training batch, 1 to 65,536.
    pub batch_size: u32,
    /// `η`: the bound on staleness, in policy versions, 0 to 64. 0 is synchronous training.
    pub max_staleness: u64,
    /// `S`: slots in one buffer, `batch_size` to `2 * batch_size + 64`. More than `batch_size` is oversampling.
    pub slots_per_buffer: u32,
    /// The most trajectories that may be generating at once; `None` sets no limit.
    pub max_concurrency: Option<u64>,
    /// `G`: members that make a prompt group, 1 to 1,024.
    pub group_size: u32,
    /// `G'`: members that are generated for a group, `group_size` to 1,024; the surplus is cancelled once it is filled.
    pub group_candidates: u32,
    /// Whether a group with `group_size` members is occupied at once, and not by its client.
    pub auto_occupy: bool,
    /// Whether a group whose rewards are all equal is discarded instead of occupied.
    pub drop_zero_variance: bool,
    /// Whether a group with finished members outlives the session that holds it.
    pub adopt_groups: bool,
    /// How long a silent session keeps what it holds, in milliseconds of the run's clock.
    pub lease_ms: u64,
    /// The age at which a reservation is discarded whatever its lease, in milliseconds of the run's clock.
    pub reservation_timeout_ms: Option<u64>,
    /// How long the trainer waits for a stuck buffer before its reservations are discarded, in milliseconds.
    pub stuck_timeout_ms: Option<u64>,
    /// The most reservations in the next buffer with which `stuck_timeout_ms` counts; `None` sets no limit.
    pub stuck_max_reserved: Option<u64>,
    /// How many taken batches are kept for looking back, at least 1. The batch in training is always kept.
    pub keep_batches: u64,
    /// The policy version that the run starts with.
    pub initial_version: u64,
    /// Whether the ledger hands out the prompts.
    pub prompt_queue: bool,
    /// The order in which it does.
    pub order: PromptOrder,
    /// Within how many feed positions `longest_first` sorts, at least 1.
    pub order_window: u64,
    /// How often a prompt is tried before it counts as failed, at least 1.
    pub max_attempts: u32,
    /// Reasons whose prompts are dropped and not queued again.
    pub drop_on: Vec<Reason>,
    /// What becomes of the entries that are left when a drained run cannot fill another batch.
    pub final_batch: FinalBatch,
}

/// The order in which prompts are handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptOrder {
    /// As they were fed.
    #[default]
    Fed,
    /// The one with the most expected tokens first, within each window of feed positions.
    LongestFirst,
}

/// What becomes of the entries that are left when a drained run cannot fill another batch (*Drain*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinalBatch {
    /// They are a last, shorter batch.
    #[default]
    Short,
    /// They are discarded as `drained`.
    Discard,
}

impl RunConfig {
    /// The configuration with these two and all else by default.
    pub fn new(batch_size: u32, max_staleness: u64) -> Self {
        Self {
            batch_size,
            max_staleness,
            slots_per_buffer: batch_size,
            max_concurrency: None,
            group_size: 1,
            group_candidates: 1,
            auto_occupy: true,
            drop_zero_variance: false,
            adopt_groups: false,
            lease_ms: 30_000,
            reservation_timeout_ms: None,
            stuck_timeout_ms: None,
            stuck_max_reserved: None,
            keep_batches: 256,
            initial_version: 0,
            prompt_queue: false,
            order: PromptOrder::Fed,
            order_window: u64::from(batch_size),
            max_attempts: 3,
            drop_on: Vec::new(),
            final_batch: FinalBatch::Short,
        }
    }

    /// Whether an entry is a group of members, and not one trajectory.
    pub fn has_groups(&self) -> bool {
        self.group_candidates > 1
    }

    /// Whether buffers have more slots than a batch has entries.
    pub fn oversamples(&self) -> bool {
        self.slots_per_buffer > self.batch_size
    }
}
