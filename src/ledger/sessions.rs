//! Workers and their sessions: heartbeats, claims, and the list of workers (protocol, *Workers, leases, time*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names::Caller;
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::{BufferId, Lineage, Reason, TrajectoryId, Version};
use crate::store::script;

/// What a worker says when it calls to keep its lease.
#[derive(Debug, Clone)]
pub struct HeartbeatRequest {
    /// Who calls.
    pub caller: Caller,
    /// The version of the weights that it holds now.
    pub version: Option<Version>,
    /// The lineage of those weights; the current one if left out, but for a session that has seen it rise.
    pub lineage: Option<Lineage>,
    /// All that it holds: what it was granted more than a lease ago and is not listed never arrived.
    pub holding: Option<Vec<TrajectoryId>>,
    /// Cancellations that it has acted on.
    pub acknowledged: Vec<TrajectoryId>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Heartbeat {
    /// How long the session keeps what it holds if it stays silent, in milliseconds.
    pub lease_expires_in_ms: u64,
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
    /// `H`: the first buffer that is not taken.
    pub next_buffer: BufferId,
    /// What the session is to stop generating, until it acknowledges.
    pub cancelled: Vec<Cancelled>,
    /// Whether the run is finished and a process may exit.
    pub finished: bool,
    /// The version that the session last said.
    #[serde(skip)]
    pub known_version: Option<Version>,
}

/// A reservation that was taken from the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// The entry.
    pub id: TrajectoryId,
    /// Why.
    pub reason: Reason,
    /// The members concerned, when only those of a group are; null for the whole entry.
    #[serde(default)]
    pub members: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct HeartbeatArgs<'a> {
    #[serde(flatten)]
    caller: &'a Caller,
    version: Option<Version>,
    lineage: Option<Lineage>,
    holding: Option<&'a [TrajectoryId]>,
    holding_after: Option<TrajectoryId>,
    acknowledged: &'a [TrajectoryId],
}

#[derive(Deserialize)]
struct HeartbeatBody {
    lease_expires_in_ms: u64,
    policy_version: Version,
    lineage: Lineage,
    next_buffer: BufferId,
    cancelled: Vec<Cancelled>,
    finished: bool,
    known_version: Option<Version>,
    holding_next: Option<TrajectoryId>,
}

#[derive(Serialize)]
struct ClaimArgs<'a> {
    #[serde(flatten)]
    caller: &'a Caller,
    id: TrajectoryId,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum ClaimOutcome {
    Claimed,
    UnknownTrajectory,
    TrajectoryDiscarded { reason: Reason },
    VersionTooStale { policy_version: Version },
}

/// A worker and its current session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// The worker's name.
    pub worker: String,
    /// Its session's token; empty for a worker that sends none.
    pub session: String,
    /// The version that the session last said.
    pub version: Option<Version>,
    /// When it last called, in Unix milliseconds of the database's clock.
    pub heartbeat_at_ms: u64,
    /// How long its lease still runs; 0 when it ran out.
    pub lease_expires_in_ms: u64,
    /// Reservations that it holds.
    pub reserved: u64,
    /// Entries that it finished.
    pub finished: u64,
    /// Cancellations that it has not acknowledged.
    pub cancelled_pending: u64,
    /// The code with which its last Reserve was refused; null when it was not.
    pub last_refusal: Option<String>,
}

/// A page of workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPage {
    /// The workers, in the order of their names.
    pub workers: Vec<Worker>,
    /// The `after` of the next page; null at the end.
    pub next: Option<String>,
}

#[derive(Serialize)]
struct PageArgs<'a> {
    after: Option<&'a str>,
    limit: usize,
}

impl Ledger {
    /// Renews the caller's lease, records the version it holds, and tells what was cancelled. Safe to repeat.
    pub async fn heartbeat(&self, run: &RunName, request: &HeartbeatRequest) -> Result<Seen<Heartbeat>, LedgerError> {
        let mut args = HeartbeatArgs {
            caller: &request.caller,
            version: request.version,
            lineage: request.lineage,
            holding: request.holding.as_deref(),
            holding_after: None,
            acknowledged: &request.acknowledged,
        };
        loop {
            let seen = self.call::<HeartbeatBody>(&script::HEARTBEAT, run, &args).await?;
            if seen.value.holding_next.is_some() {
                args.holding_after = seen.value.holding_next;
                continue;
            }
            return Ok(seen.map(|body| Heartbeat {
                lease_expires_in_ms: body.lease_expires_in_ms,
                policy_version: body.policy_version,
                lineage: body.lineage,
                next_buffer: body.next_buffer,
                cancelled: body.cancelled,
                finished: body.finished,
                known_version: body.known_version,
            }));
        }
    }

    /// Makes the caller's session the holder of a reservation. Safe to repeat.
    pub async fn claim(&self, run: &RunName, caller: &Caller, id: TrajectoryId) -> Result<Seen<()>, LedgerError> {
        let seen = self
            .call::<ClaimOutcome>(&script::CLAIM, run, &ClaimArgs { caller, id })
            .await?;
        let refusal = match seen.value {
            ClaimOutcome::Claimed => {
                return Ok(Seen {
                    seq: seen.seq,
                    value: (),
                });
            }
            ClaimOutcome::UnknownTrajectory => Refusal::UnknownTrajectory,
            ClaimOutcome::TrajectoryDiscarded { reason } => Refusal::TrajectoryDiscarded { reason },
            ClaimOutcome::VersionTooStale { policy_version } => Refusal::VersionTooStale { policy_version },
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }

    /// A page of the workers after `after`, in the order of their names.
    pub async fn workers(
        &self,
        run: &RunName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Seen<WorkerPage>, LedgerError> {
        self.call(&script::VIEW_WORKERS, run, &PageArgs { after, limit }).await
    }
}
