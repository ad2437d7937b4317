//! What `lua/view_explain.lua` shows.

use serde::Deserialize;

use super::freeing::Freed;
use super::{BufferState, WaitingOn};
use crate::ledger::state::{BufferCounts, State};
use crate::protocol::{BufferId, RunConfig, Slot, TrajectoryId, Version};

/// The trainer no longer waits when none has called for so long, in milliseconds of the run's clock (*Stuck timeout*).
const QUIET_MS: u64 = 60_000;

/// A run, with the reservations of its next buffer. What has no `_ms` behind it is on the run's clock.
#[derive(Debug, Deserialize)]
pub(super) struct View {
    pub(super) config: RunConfig,
    pub(super) state: State,
    pub(super) now_ms: u64,
    pub(super) clock: u64,
    pub(super) waiting_since: Option<u64>,
    pub(super) last_call: Option<u64>,
    pub(super) stuck_since: Option<u64>,
    pub(super) last_admission: Option<u64>,
    pub(super) draining: Option<DrainedQueue>,
    #[serde(default)]
    pub(super) streamed: u32,
    pub(super) generating: u64,
    #[serde(default)]
    pub(super) queued: u64,
    pub(super) last_reserve_at_ms: Option<u64>,
    pub(super) waiting_on: Vec<Waiting>,
    /// The oldest reservation of the run.
    pub(super) oldest: Option<Waiting>,
}

/// What a drain does with the prompts that are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DrainedQueue {
    /// They are handed out.
    Finish,
    /// They stay queued.
    Keep,
}

/// A reservation and its holder.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Waiting {
    pub(super) id: TrajectoryId,
    pub(super) entry: Entry,
    pub(super) buffer: BufferId,
    slot: Slot,
    pub(super) granted_at: u64,
    pub(super) orphan: bool,
    /// What its holder's lease has left; `None` where nobody holds it.
    pub(super) lease_left_ms: Option<u64>,
    pub(super) heartbeat_at_ms: Option<u64>,
}

/// What the entry's record says.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Entry {
    prompt: Option<String>,
    worker: String,
    version: Version,
    attempt: u32,
    pub(super) complete: Option<u32>,
    reserved_at_ms: u64,
}

impl View {
    /// Buffer `H`, if it is open.
    pub(super) fn next(&self) -> Option<BufferCounts> {
        self.state.buffers(&self.config).into_iter().next()
    }

    /// Reservations in buffer `H`.
    pub(super) fn reserved_in_next(&self) -> u32 {
        self.next().map_or(0, |buffer| buffer.reserved)
    }

    /// Whether kept batches are trained again.
    pub(super) fn is_replaying(&self) -> bool {
        self.state.trainer_version < self.state.policy_version
    }

    /// Whether the trainer has the batch of the latest version.
    pub(super) fn is_training(&self) -> bool {
        self.state.next_buffer.0 > self.state.policy_version.0
    }

    /// Since when the trainer waits, unless it fell quiet.
    pub(super) fn waits_since(&self) -> Option<u64> {
        self.waiting_since.filter(|_| self.quiet_for() <= QUIET_MS)
    }

    /// How long no trainer has called.
    pub(super) fn quiet_for(&self) -> u64 {
        self.last_call.map_or(0, |last| self.clock.saturating_sub(last))
    }

    /// Whether the prompt queue, if there is one, has nothing to hand out any more.
    pub(super) fn is_nothing_queued(&self) -> bool {
        let is_kept = self.draining == Some(DrainedQueue::Keep);
        !self.config.prompt_queue || self.queued == 0 || is_kept
    }

    /// Whether nothing more will come into the tables (*Drain*).
    pub(super) fn is_drained(&self) -> bool {
        self.draining.is_some() && self.state.reserved() == 0 && self.is_nothing_queued()
    }

    /// Whether the run is finished (*Drain*).
    pub(super) fn is_finished(&self) -> bool {
        let is_idle = !self.is_replaying() && !self.is_training();
        self.is_drained() && is_idle && self.state.occupied() == 0 && self.streamed == 0
    }

    /// Whether buffer `H` can be taken whole.
    pub(super) fn is_takeable(&self) -> bool {
        let is_ready = self.next().is_some_and(|buffer| buffer.state == BufferState::Ready);
        is_ready && !self.is_training() && !self.is_replaying()
    }
}

impl Waiting {
    pub(super) fn shown(&self, freed: Option<Freed>) -> WaitingOn {
        let entry = &self.entry;
        WaitingOn {
            id: self.id,
            prompt: entry.prompt.clone(),
            slot: self.slot,
            worker: (!self.orphan).then(|| entry.worker.clone()),
            version: entry.version,
            attempt: entry.attempt,
            members_complete: entry.complete,
            reserved_at_ms: entry.reserved_at_ms,
            heartbeat_at_ms: self.heartbeat_at_ms.filter(|_| !self.orphan),
            frees_at_ms: freed.map(|freed| freed.at_ms),
            freed_by: freed.map(|freed| freed.by),
        }
    }
}
