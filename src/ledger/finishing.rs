//! How an entry ends: it finishes, or it is given up or filtered (protocol, *Occupy*, *Late occupy* and *Discard*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::coalescing::Coalescer;
use super::names::{Caller, ClientReason};
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::tables::{BufferState, DiscardedFrom};
use crate::protocol::{BufferId, Reason, Slot, TrajectoryId};
use crate::store::script;

/// The most entries that one script finishes.
const STEP: usize = 20;

/// What a finished trajectory leaves in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// Its reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Its length, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Where its tokens are: a reference of at most 2 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// A JSON object of at most 16 KiB, as the client wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
}

/// One entry to finish.
#[derive(Debug, Clone, Serialize)]
pub struct Finished {
    /// The entry.
    pub id: TrajectoryId,
    /// What it leaves.
    pub finish: Finish,
}

/// Where a finished entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OccupiedPlace {
    /// `occupied`, or `taken` once its batch was.
    pub state: OccupiedState,
    /// Its buffer.
    pub buffer: BufferId,
    /// Its slot.
    pub slot: Slot,
    /// The state of the buffer.
    pub buffer_state: BufferState,
    /// Whether it had been discarded and was saved.
    pub late: bool,
}

/// The state of a finished entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OccupiedState {
    /// Finished, and waiting to be trained.
    Occupied,
    /// In a batch.
    Taken,
}

/// The Occupy calls that are on their way.
pub(super) type Occupies = Coalescer<OccupyCall, OccupyBody>;

#[derive(Clone, Serialize)]
pub(super) struct OccupyCall {
    #[serde(flatten)]
    caller: Option<Caller>,
    items: Vec<Finished>,
}

#[derive(Deserialize)]
pub(super) struct OccupyBody {
    results: Vec<ItemResult>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ItemResult {
    Done(OccupiedPlace),
    Refused(ItemRefusal),
}

#[derive(Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
enum ItemRefusal {
    UnknownTrajectory,
    TrajectoryDiscarded { reason: Reason },
}

/// What was done with a discarded entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Discarded {
    /// What it was.
    pub discarded_from: DiscardedFrom,
    /// Finished entries that moved forward into buffers that are trained earlier.
    pub promoted: Vec<PromotedEntry>,
}

/// A finished entry that moved forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromotedEntry {
    /// The entry.
    pub id: TrajectoryId,
    /// The buffer it left.
    pub from: BufferId,
    /// The buffer it is in.
    pub to: BufferId,
}

#[derive(Serialize)]
struct DiscardArgs<'a> {
    #[serde(flatten)]
    caller: Option<&'a Caller>,
    id: TrajectoryId,
    reason: &'a str,
    note: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum DiscardOutcome {
    Discarded(Discarded),
    UnknownTrajectory,
    TrajectoryTaken,
}

impl Ledger {
    /// Finishes one entry: it takes the earliest legal place there is. Repeated, it shows where the entry is.
    pub async fn occupy(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        finished: Finished,
    ) -> Result<Seen<OccupiedPlace>, LedgerError> {
        let Seen { seq, value } = self.occupy_many(run, caller, &[finished]).await?;
        match value.into_iter().next() {
            Some(Ok(place)) => Ok(Seen { seq, value: place }),
            Some(Err(refusal)) => Err(LedgerError::Refused { seq, refusal }),
            None => Err(crate::store::StoreError::Broken("no result of an occupy".to_owned()).into()),
        }
    }

    /// Finishes many entries in the order given, in steps; there is a result for each, and one bad id spoils no other.
    pub async fn occupy_many(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        finished: &[Finished],
    ) -> Result<Seen<Vec<Result<OccupiedPlace, Refusal>>>, LedgerError> {
        let mut seen = Seen {
            seq: None,
            value: Vec::with_capacity(finished.len()),
        };
        for items in finished.chunks(STEP) {
            let call = OccupyCall {
                caller: caller.cloned(),
                items: items.to_vec(),
            };
            let step = self.shared_call(&self.occupies, run, &call, items.len()).await?;
            seen.seq = step.seq;
            seen.value
                .extend(step.value.results.into_iter().map(|result| match result {
                    ItemResult::Done(place) => Ok(place),
                    ItemResult::Refused(ItemRefusal::UnknownTrajectory) => Err(Refusal::UnknownTrajectory),
                    ItemResult::Refused(ItemRefusal::TrajectoryDiscarded { reason }) => {
                        Err(Refusal::TrajectoryDiscarded { reason })
                    }
                }));
        }
        Ok(seen)
    }

    /// Gives up a reserved entry, or filters an occupied one. Repeated, it changes nothing.
    pub async fn discard(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        id: TrajectoryId,
        reason: &ClientReason,
        note: Option<&str>,
    ) -> Result<Seen<Discarded>, LedgerError> {
        self.discard_as(run, caller, id, reason.as_str(), note).await
    }

    /// Discards a reservation whose grant reached nobody.
    pub(crate) async fn abandon(&self, run: &RunName, id: TrajectoryId) -> Result<Seen<Discarded>, LedgerError> {
        self.discard_as(run, None, id, Reason::Abandoned.as_str(), None).await
    }

    async fn discard_as(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        id: TrajectoryId,
        reason: &str,
        note: Option<&str>,
    ) -> Result<Seen<Discarded>, LedgerError> {
        let args = DiscardArgs {
            caller,
            id,
            reason,
            note,
        };
        let seen = self.call::<DiscardOutcome>(&script::DISCARD, run, &args).await?;
        let refusal = match seen.value {
            DiscardOutcome::Discarded(value) => return Ok(Seen { seq: seen.seq, value }),
            DiscardOutcome::UnknownTrajectory => Refusal::UnknownTrajectory,
            DiscardOutcome::TrajectoryTaken => Refusal::TrajectoryTaken,
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }
}
