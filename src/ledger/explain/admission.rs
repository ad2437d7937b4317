//! What stands in the way of new reservations (protocol, *Reserve*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::WorkersOfVersion;
use super::view::{DrainedQueue, View};
use crate::protocol::Version;
use crate::protocol::tables::BufferState;

/// What a Reserve would be blocked by now. Staleness is looked at for the newest weights that a live worker has said, or for
/// the latest version where none has: older weights may be blocked, or refused, all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Admission {
    /// By what; null when something can be admitted.
    pub blocked_by: Option<AdmissionBlock>,
    /// Empty slots of the open buffers that are not ready.
    pub free_slots: u64,
    /// Reservations, in all buffers.
    pub reserved: u64,
}

/// What blocks admissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionBlock {
    /// The run is draining.
    Draining,
    /// `max_concurrency` trajectories are being generated, or so many that a group does not fit.
    Concurrency,
    /// No place is legal for the newest weights that there are.
    Staleness,
    /// No prompt is queued.
    Prompts,
}

impl AdmissionBlock {
    /// Whether it blocks workers with any weights, so that nothing can be admitted (*Stuck timeout*).
    pub(super) fn is_of_everybody(self) -> bool {
        self != Self::Staleness
    }
}

/// The newest weights that a live worker has said.
pub(super) fn newest(workers: &[WorkersOfVersion]) -> Option<Version> {
    workers.iter().filter_map(|group| group.version).max()
}

pub(super) fn of(view: &View, workers: &[WorkersOfVersion]) -> Admission {
    let buffers = view.state.buffers(&view.config);
    let open = buffers.iter().filter(|buffer| buffer.state != BufferState::Ready);
    Admission {
        blocked_by: blocked_by(view, workers),
        free_slots: open.map(|buffer| u64::from(buffer.empty)).sum(),
        reserved: view.state.reserved(),
    }
}

fn blocked_by(view: &View, workers: &[WorkersOfVersion]) -> Option<AdmissionBlock> {
    let hands_out_the_rest = view.draining == Some(DrainedQueue::Finish) && !view.is_nothing_queued();
    if view.draining.is_some() && !hands_out_the_rest {
        return Some(AdmissionBlock::Draining);
    }
    let candidates = u64::from(view.config.group_candidates);
    let most = view.config.max_concurrency;
    if most.is_some_and(|most| view.generating + candidates > most) {
        return Some(AdmissionBlock::Concurrency);
    }
    if !is_a_place_for(view, newest(workers).unwrap_or(view.state.policy_version)) {
        return Some(AdmissionBlock::Staleness);
    }
    (view.config.prompt_queue && view.queued == 0).then_some(AdmissionBlock::Prompts)
}

fn is_a_place_for(view: &View, version: Version) -> bool {
    let deadline = version.deadline(view.config.max_staleness);
    view.state.buffers(&view.config).iter().any(|buffer| {
        let is_open = buffer.state != BufferState::Ready && buffer.empty > 0;
        is_open && buffer.version <= deadline
    })
}
