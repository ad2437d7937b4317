//! How an entry ends: it finishes, or it is given up or filtered (protocol, *Occupy*, *Late occupy* and *Discard*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::coalescing::Coalescer;
use super::members::{MemberReport, newest_named};
use super::names::{Caller, ClientReason};
use super::refusing::RefusedEntry;
use super::segments::Segment;
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::tables::{BufferState, DiscardedFrom, Wish};
use crate::protocol::{BufferId, Lineage, Reason, Slot, TrajectoryId, Version};
use crate::store::script;

/// What one script finishes at most, but for a group that has more members: so many entries, each worth [`ENTRY`] members.
const STEP: usize = 20 * ENTRY;
/// How many members of a group take as long as the entry itself.
const ENTRY: usize = 4;

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
    /// The segments that a trajectory was generated in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Members of a group that finished or failed, and are reported with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberReport>,
}

impl Finished {
    /// An entry to finish, with nothing of its parts.
    pub fn new(id: TrajectoryId, finish: Finish) -> Self {
        Self {
            id,
            finish,
            segments: Vec::new(),
            members: Vec::new(),
        }
    }

    fn weight(&self) -> usize {
        ENTRY + self.members.len()
    }

    /// The newest version that is named, if any is.
    fn newest_named(&self) -> Option<Version> {
        let of_segments = self.segments.iter().map(|segment| segment.version).max();
        let of_members = self.members.iter().filter_map(newest_named).max();
        of_segments.max(of_members)
    }
}

/// What became of an entry that was finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Concluded {
    /// It has its place.
    Occupied(OccupiedPlace),
    /// It is a group of no use for training.
    Discarded(DiscardedGroup),
}

/// A group that was discarded instead of occupied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscardedGroup {
    /// `discarded`
    pub state: DiscardedState,
    /// Why: `zero_variance` or `group_failed`.
    pub reason: Reason,
}

/// The state of a group that was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscardedState {
    /// Out of the tables without being trained.
    Discarded,
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
    lineage: Option<Lineage>,
    items: Vec<Finished>,
}

#[derive(Deserialize)]
pub(super) struct OccupyBody {
    results: Vec<ItemResult>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ItemResult {
    Done(Concluded),
    Refused(RefusedEntry),
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
    requeue: bool,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum DiscardOutcome {
    Discarded(Discarded),
    UnknownTrajectory,
    TrajectoryTaken,
    NoPromptQueue,
}

impl Ledger {
    /// Finishes one entry: it takes the earliest legal place there is, unless it is a group of no use. Repeated, it shows where the
    /// entry is.
    pub async fn occupy(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        lineage: Option<Lineage>,
        finished: Finished,
    ) -> Result<Seen<Concluded>, LedgerError> {
        let Seen { seq, value } = self.occupy_many(run, caller, lineage, &[finished]).await?;
        match value.into_iter().next() {
            Some(Ok(value)) => Ok(Seen { seq, value }),
            Some(Err(refusal)) => Err(LedgerError::Refused { seq, refusal }),
            None => Err(crate::store::StoreError::Broken("no result of an occupy".to_owned()).into()),
        }
    }

    /// Finishes many entries, generated by weights of the current or the named lineage, in the order given, in steps; there is a
    /// result for each, and one bad id spoils no other.
    pub async fn occupy_many(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        lineage: Option<Lineage>,
        finished: &[Finished],
    ) -> Result<Seen<Vec<Result<Concluded, Refusal>>>, LedgerError> {
        let mut seen = Seen {
            seq: None,
            value: Vec::with_capacity(finished.len()),
        };
        for items in steps(finished) {
            let entries = items.iter().map(Finished::weight).sum::<usize>().div_ceil(ENTRY);
            let call = OccupyCall {
                caller: caller.cloned(),
                lineage,
                items: items.to_vec(),
            };
            let step = self.shared_call(&self.parts.occupies, run, &call, entries).await?;
            seen.seq = step.seq;
            let results = step.value.results.into_iter().zip(items);
            seen.value.extend(results.map(|(result, item)| match result {
                ItemResult::Done(concluded) => Ok(concluded),
                ItemResult::Refused(refused) => Err(refused.refusal(item.newest_named())),
            }));
        }
        Ok(seen)
    }

    /// Gives up a reserved entry, or filters an occupied one, with a wish for its prompt. Repeated, it changes nothing.
    pub async fn discard(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        id: TrajectoryId,
        reason: &ClientReason,
        note: Option<&str>,
        wish: Wish,
    ) -> Result<Seen<Discarded>, LedgerError> {
        let args = DiscardArgs {
            caller,
            id,
            reason: reason.as_str(),
            note,
            requeue: wish == Wish::Requeue,
        };
        let seen = self.call::<DiscardOutcome>(&script::DISCARD, run, &args).await?;
        let refusal = match seen.value {
            DiscardOutcome::Discarded(value) => return Ok(Seen { seq: seen.seq, value }),
            DiscardOutcome::UnknownTrajectory => Refusal::UnknownTrajectory,
            DiscardOutcome::TrajectoryTaken => Refusal::TrajectoryTaken,
            DiscardOutcome::NoPromptQueue => Refusal::NoPromptQueue,
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }
}

/// Parts of at most [`STEP`] each, or of one entry.
fn steps(mut finished: &[Finished]) -> impl Iterator<Item = &[Finished]> {
    std::iter::from_fn(move || {
        let mut weight = 0;
        let fitting = finished.iter().take_while(|each| {
            weight += each.weight();
            weight <= STEP
        });
        let count = fitting.count().max(1).min(finished.len());
        let (step, rest) = finished.split_at(count);
        finished = rest;
        (!step.is_empty()).then_some(step)
    })
}
