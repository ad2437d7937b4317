//! Why the trainer waits (protocol, *Explain*): who holds each unfinished slot of buffer `H`, since when, when it will be freed
//! and by what, or that nothing will, and what blocks new admissions.

mod admission;
mod freeing;
mod length;
mod summary;
mod view;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::admission::{Admission, AdmissionBlock};
pub use self::freeing::FreedBy;
pub use self::length::Length;
use self::view::View;
use super::sessions::Worker;
use super::state::Trainer;
use super::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::tables::BufferState;
use crate::protocol::{BufferId, Slot, TrajectoryId, Version};
use crate::store::script;

/// The most reservations that are shown.
const MOST_SHOWN: usize = 100;
/// How many workers one script shows.
const WORKERS_A_PAGE: usize = 200;

/// Why the trainer waits, or that it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// All of it for a reader in a hurry.
    #[schema(
        example = "Buffer 12 has 15 of 16. 0197… on rollout-3, reserved 52 min ago, is still out; its heartbeat is 0.9 s old. Nothing will free it: stuck_timeout_ms is not set."
    )]
    pub summary: String,
    /// When the run was looked at, in Unix milliseconds of the database's clock, as all instants here.
    pub at_ms: u64,
    /// The trainer, as far as its calls tell.
    pub trainer: Trainer,
    /// `H`: the first buffer that is not taken; null when none is open (`max_staleness` 0, while the trainer is busy).
    pub buffer: Option<BufferId>,
    /// Its state.
    pub buffer_state: Option<BufferState>,
    /// Finished entries in it.
    pub occupied: u32,
    /// Entries that make a batch.
    pub needed: u32,
    /// Its reservations, front to rear, at most 100 of them; none during a replay, when no reservation is waited for.
    pub waiting_on: Vec<WaitingOn>,
    /// What stands in the way of new reservations.
    pub admission: Admission,
    /// The workers whose lease has not run out, by the version that they last said.
    pub workers: Vec<WorkersOfVersion>,
}

/// A reservation that the trainer waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingOn {
    /// The entry.
    pub id: TrajectoryId,
    /// What it is generated from, if that is known.
    pub prompt: Option<String>,
    /// Its slot.
    pub slot: Slot,
    /// The worker that holds it; null for a group that waits to be adopted.
    pub worker: Option<String>,
    /// The policy version that it was admitted under.
    pub version: Version,
    /// Which attempt at its prompt it is, from 1.
    pub attempt: u32,
    /// How many members of the group are complete; null for a single trajectory.
    pub members_complete: Option<u32>,
    /// When it was admitted, in Unix milliseconds of the database's clock.
    pub reserved_at_ms: u64,
    /// When its worker last called; null for a group that waits to be adopted.
    pub heartbeat_at_ms: Option<u64>,
    /// When it will be discarded if nothing else happens; null when nothing will.
    pub frees_at_ms: Option<u64>,
    /// By what. A lease counts only after half of it passed in silence.
    pub freed_by: Option<FreedBy>,
}

/// The workers that hold weights of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkersOfVersion {
    /// The version; null for those who have not said one, or not since the lineage rose.
    pub version: Option<Version>,
    /// How many workers.
    pub workers: u64,
    /// The code with which the last Reserve of one of them was refused; null when none was.
    pub last_refusal: Option<String>,
}

#[derive(Serialize)]
struct ExplainArgs {
    most: usize,
}

impl Ledger {
    /// Why the trainer waits. The workers are looked at after the tables, in pages.
    pub async fn explain(&self, run: &RunName) -> Result<Seen<Explanation>, LedgerError> {
        let args = ExplainArgs { most: MOST_SHOWN };
        let seen = self.call::<View>(&script::VIEW_EXPLAIN, run, &args).await?;
        let workers = by_version(&self.live_workers(run).await?);
        Ok(seen.map(|view| explanation(&view, workers)))
    }

    async fn live_workers(&self, run: &RunName) -> Result<Vec<Worker>, LedgerError> {
        let mut live = Vec::new();
        let mut after = None;
        loop {
            let page = self.workers(run, after.as_deref(), WORKERS_A_PAGE).await?.value;
            let alive = page.workers.into_iter().filter(|worker| worker.lease_expires_in_ms > 0);
            live.extend(alive);
            after = page.next;
            if after.is_none() {
                return Ok(live);
            }
        }
    }
}

fn by_version(workers: &[Worker]) -> Vec<WorkersOfVersion> {
    let mut groups: BTreeMap<Option<Version>, WorkersOfVersion> = BTreeMap::new();
    for worker in workers {
        let group = groups.entry(worker.version).or_insert_with(|| WorkersOfVersion {
            version: worker.version,
            workers: 0,
            last_refusal: None,
        });
        group.workers += 1;
        group.last_refusal = group.last_refusal.take().or_else(|| worker.last_refusal.clone());
    }
    groups.into_values().collect()
}

fn explanation(view: &View, workers: Vec<WorkersOfVersion>) -> Explanation {
    let admission = admission::of(view, &workers);
    let waiting_on: Vec<_> = view
        .waiting_on
        .iter()
        .map(|waiting| {
            let freed = freeing::of(view, &admission, waiting);
            waiting.shown(freed)
        })
        .collect();
    let next = view.next();
    Explanation {
        summary: summary::of(view, &admission, &workers, &waiting_on),
        at_ms: view.now_ms,
        trainer: view.state.trainer(),
        buffer: next.as_ref().map(|buffer| buffer.version),
        buffer_state: next.as_ref().map(|buffer| buffer.state),
        occupied: next.as_ref().map_or(0, |buffer| buffer.occupied),
        needed: view.config.batch_size,
        waiting_on,
        admission,
        workers,
    }
}

#[cfg(test)]
mod tests;
