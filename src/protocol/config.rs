//! A run's configuration, with its defaults filled in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a run was created with (`PUT /v1/runs/{run}`), defaults filled in. The symbols are those of *Terms*.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunConfig {
    /// `B`: entries in one training batch, 1 to 65,536.
    pub batch_size: u32,
    /// `η`: the bound on staleness, in policy versions, 0 to 64. 0 is synchronous training.
    pub max_staleness: u64,
    /// `S`: slots in one buffer, `batch_size` to `2 * batch_size + 64`. More than `batch_size` is oversampling.
    pub slots_per_buffer: u32,
    /// The most trajectories that may be generating at once; `None` sets no limit.
    pub max_concurrency: Option<u64>,
    /// How long a silent session keeps what it holds, in milliseconds of the run's clock.
    pub lease_ms: u64,
    /// How many taken batches are kept for looking back, at least 1. The batch in training is always kept.
    pub keep_batches: u64,
    /// The policy version that the run starts with.
    pub initial_version: u64,
}
