//! The records of entries: how they are read, and how an entry is shown wherever it is shown.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::members::Member;
use super::segments::Segment;
use super::{Ledger, LedgerError, RunName};
use crate::protocol::{BufferId, Place, Reason, Slot, TrajectoryId, Version};
use crate::store::StoreError;

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrajectoryState {
    /// Admitted, still generating.
    Reserved,
    /// Finished, and waiting to be trained.
    Occupied,
    /// In a batch.
    Taken,
    /// Out of the tables without being trained.
    Discarded,
}

/// An entry as the scripts keep it (`entries` in `lua/prelude/run.lua`). A reserved one's place is not in it, and that an
/// occupied one was taken follows from its buffer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EntryRecord {
    state: TrajectoryState,
    prompt: Option<String>,
    worker: String,
    session: String,
    version: Version,
    attempt: u32,
    #[serde(default)]
    segments: Vec<Segment>,
    /// Of a group: a letter for each of its candidates, `c` if it is complete, `f` if it failed, `-` otherwise.
    marks: Option<String>,
    #[serde(default)]
    orphan: bool,
    #[serde(default)]
    late: bool,
    reward: Option<f64>,
    tokens: Option<u64>,
    payload: Option<String>,
    meta: Option<String>,
    reason: Option<Reason>,
    note: Option<String>,
    buffer: Option<BufferId>,
    slot: Option<Slot>,
    reserved_at_ms: u64,
    occupied_at_ms: Option<u64>,
}

/// A trajectory (an entry of the tables) as it stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Trajectory {
    /// Its id.
    pub id: TrajectoryId,
    /// What it is generated from, if the client said.
    pub prompt: Option<String>,
    /// Its state.
    pub state: TrajectoryState,
    /// Why it was discarded.
    pub reason: Option<Reason>,
    /// What the client that discarded it remarked.
    pub note: Option<String>,
    /// Whether it is a group that has lost its owner, and waits for another.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// The worker that holds it, or held it last.
    pub worker: String,
    /// That worker's session.
    pub session: String,
    /// The policy version that it was admitted under.
    pub version: Version,
    /// The last buffer that it may be trained in.
    pub deadline: BufferId,
    /// Its buffer less its version: what it has, or would have if it were trained where it is.
    pub staleness: Option<u64>,
    /// Its buffer.
    pub buffer: Option<BufferId>,
    /// Its slot.
    pub slot: Option<Slot>,
    /// Which attempt at its prompt it is, from 1.
    pub attempt: u32,
    /// Whether it had been discarded and was saved.
    pub late: bool,
    /// Its reward.
    pub reward: Option<f64>,
    /// Its length, in tokens.
    pub tokens: Option<u64>,
    /// Where its tokens are.
    pub payload: Option<String>,
    /// What the client added.
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
    /// The segments that a trajectory was generated in, from token 0 on; null for a group, whose members have them.
    pub segments: Option<Vec<Segment>>,
    /// The members of a group, by index, where they are shown; null for a single trajectory. A batch has the complete ones.
    pub members: Option<Vec<Member>>,
    /// Which of them there are to be read.
    #[serde(skip)]
    pub(super) marks: Option<String>,
    /// When it was admitted, in Unix milliseconds of the database's clock.
    pub reserved_at_ms: u64,
    /// When it finished.
    pub occupied_at_ms: Option<u64>,
    /// When its batch, or the first piece of it, was taken.
    pub taken_at_ms: Option<u64>,
}

/// What the tables say of an entry beside its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings {
    pub(super) max_staleness: u64,
    pub(super) next_buffer: BufferId,
    /// How many entries of `next_buffer` are taken, in its front-most slots.
    pub(super) streamed: u32,
    pub(super) reserved_at: Option<Place>,
    pub(super) taken_at_ms: Option<u64>,
}

impl EntryRecord {
    /// Whether the record is of this worker's.
    pub(super) fn is_of(&self, worker: &str) -> bool {
        self.worker == worker
    }

    /// Its length, once it has finished and if the client said it.
    pub(super) fn tokens(&self) -> Option<u64> {
        self.tokens
    }

    /// The policy version that it was admitted under.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// When it finished.
    pub(super) fn occupied_at_ms(&self) -> Option<u64> {
        self.occupied_at_ms
    }

    pub(super) fn shown(self, id: TrajectoryId, around: Surroundings) -> Trajectory {
        let buffer = around.reserved_at.map(|place| place.buffer).or(self.buffer);
        let is_in_batch = buffer.is_some_and(|buffer| buffer < around.next_buffer);
        let is_in_piece = buffer == Some(around.next_buffer) && self.slot.is_some_and(|slot| slot.0 < around.streamed);
        let is_taken = self.state == TrajectoryState::Occupied && (is_in_batch || is_in_piece);
        Trajectory {
            id,
            prompt: self.prompt,
            state: if is_taken { TrajectoryState::Taken } else { self.state },
            reason: self.reason,
            note: self.note,
            orphaned: self.orphan,
            worker: self.worker,
            session: self.session,
            version: self.version,
            deadline: self.version.deadline(around.max_staleness),
            staleness: buffer.and_then(|buffer| buffer.staleness(self.version)),
            buffer,
            slot: around.reserved_at.map(|place| place.slot).or(self.slot),
            attempt: self.attempt,
            late: self.late,
            reward: self.reward,
            tokens: self.tokens,
            payload: self.payload,
            // It was valid JSON when it came in, and went through the database as opaque text.
            meta: self.meta.and_then(|text| RawValue::from_string(text).ok()),
            segments: self.marks.is_none().then(|| {
                let first = Segment {
                    version: self.version,
                    from_token: 0,
                };
                std::iter::once(first).chain(self.segments).collect()
            }),
            members: None,
            marks: self.marks,
            reserved_at_ms: self.reserved_at_ms,
            occupied_at_ms: self.occupied_at_ms,
            taken_at_ms: around.taken_at_ms.filter(|_| is_taken),
        }
    }
}

impl Ledger {
    /// The ids in slots of occupied entries (`buffer:slot`); empty ones are left out.
    pub(super) async fn ids_in_slots(
        &self,
        run: &RunName,
        slots: Vec<String>,
    ) -> Result<Vec<TrajectoryId>, LedgerError> {
        let mut get = redis::cmd("HMGET");
        get.arg(Self::keys(run).part("occupied")).arg(slots);
        let ids: Vec<Option<String>> = self.parts.store.read(&get).await?;
        let parsed: Result<Vec<_>, _> = ids.into_iter().flatten().map(|id| id.parse()).collect();
        Ok(parsed.map_err(|error: uuid::Error| StoreError::Broken(error.to_string()))?)
    }

    /// The records of entries, in the order of the ids.
    pub(super) async fn entry_records(
        &self,
        run: &RunName,
        ids: Vec<TrajectoryId>,
    ) -> Result<Vec<(TrajectoryId, Option<EntryRecord>)>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("HMGET");
        get.arg(Self::keys(run).part("entries"));
        for id in &ids {
            get.arg(id.to_string());
        }
        let packed: Vec<Option<Vec<u8>>> = self.parts.store.read(&get).await?;
        let mut records = Vec::with_capacity(ids.len());
        for (id, packed) in ids.into_iter().zip(packed) {
            let record = packed
                .map(|packed| rmp_serde::from_slice(&packed))
                .transpose()
                .map_err(StoreError::from)?;
            records.push((id, record));
        }
        Ok(records)
    }
}
