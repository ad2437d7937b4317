//! When a reservation will be discarded if its worker does not finish it, and by what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BufferState;
use super::admission::{Admission, AdmissionBlock};
use super::view::{View, Waiting};

/// What frees a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FreedBy {
    /// The lease of the session that holds it: half of it has passed in silence.
    Lease,
    /// `reservation_timeout_ms`.
    ReservationTimeout,
    /// `stuck_timeout_ms`, whose clock runs.
    StuckTimeout,
}

/// When and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Freed {
    pub(super) at_ms: u64,
    pub(super) by: FreedBy,
}

/// The first of what will free it.
pub(super) fn of(view: &View, admission: &Admission, waiting: &Waiting) -> Option<Freed> {
    let lease = lease_left_ms(view, waiting).map(|left| (left, FreedBy::Lease));
    let timeout = view.config.reservation_timeout_ms.map(|limit| {
        let left = (waiting.granted_at + limit).saturating_sub(view.clock);
        (left, FreedBy::ReservationTimeout)
    });
    let is_meant = view.reserved_in_next() == 0 || Some(waiting.buffer) == view.next().map(|buffer| buffer.version);
    let stuck = stuck_left_ms(view, admission)
        .filter(|_| is_meant)
        .map(|left| (left, FreedBy::StuckTimeout));
    let first = [lease, timeout, stuck].into_iter().flatten().min();
    first.map(|(left, by)| Freed {
        at_ms: view.now_ms + left,
        by,
    })
}

/// What the lease has left, if it has been silent for long. A group with finished members outlives its holder, where groups are
/// adopted: then its lease frees nothing.
fn lease_left_ms(view: &View, waiting: &Waiting) -> Option<u64> {
    let is_adopted = view.config.adopt_groups && waiting.entry.complete.unwrap_or(0) > 0;
    let left = waiting.lease_left_ms.filter(|_| !waiting.orphan && !is_adopted)?;
    (left * 2 <= view.config.lease_ms).then_some(left)
}

/// How long the stuck timeout still takes, if its clock runs (*Stuck timeout*).
fn stuck_left_ms(view: &View, admission: &Admission) -> Option<u64> {
    let limit = view.config.stuck_timeout_ms?;
    let waits_since = view.waits_since()?;
    let since = match view.next()?.state {
        BufferState::Stuck => view.stuck_since,
        BufferState::Pending if admission.blocked_by.is_some_and(AdmissionBlock::is_of_everybody) => {
            view.last_admission
        }
        _ => return None,
    };
    if !is_few_enough(view) {
        return None;
    }
    let began = waits_since.max(since.unwrap_or(0));
    Some((began + limit).saturating_sub(view.clock))
}

/// Whether so few reservations remain in buffer `H` that `stuck_max_reserved` lets the clock run.
pub(super) fn is_few_enough(view: &View) -> bool {
    let most = view.config.stuck_max_reserved;
    most.is_none_or(|most| u64::from(view.reserved_in_next()) <= most)
}
