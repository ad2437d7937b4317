//! The batches that are kept, whole or in part, and the list of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::members::Which;
use super::state::State;
use super::training::VersionRecord;
use super::trajectories::{Surroundings, Trajectory};
use super::{Ledger, LedgerError, Refusal, RunName, Seen, error::refused};
use crate::protocol::BufferId;
use crate::store::StoreError;

/// How many records one read fetches.
const PAGE: usize = 500;

/// A batch, or a part of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of it, under the contract's name"
)]
pub struct Batch {
    /// The version that it trains into the next.
    pub version: BufferId,
    /// Whether it was given to the trainer before.
    pub redelivered: bool,
    /// Whether it is trained again, by a trainer that resumed from an older checkpoint.
    pub replayed: bool,
    /// How many entries of the batch come before these.
    pub offset: usize,
    /// Whether nothing of the batch comes after these.
    pub complete: bool,
    /// Whether the batch is the run's last one, and shorter than the others.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// The entries, in slot order.
    pub trajectories: Vec<Trajectory>,
}

#[derive(Deserialize)]
struct BatchRecord {
    entries: usize,
    taken_at_ms: u64,
    #[serde(default, rename = "final")]
    is_final: bool,
}

/// Whether a batch is still trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// The trainer has some pieces of it, and the others are still to come.
    Partial,
    /// The trainer has all of it.
    Taken,
    /// The version it trained was published.
    Trained,
}

/// A batch, without its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BatchSummary {
    /// The version that it trains into the next.
    pub version: BufferId,
    /// How many entries it has; of a partial one, how many are taken.
    pub entries: usize,
    /// How many of them have which staleness.
    pub staleness: BTreeMap<u64, u64>,
    /// Whether it is the last, shorter batch of a run that was drained.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Whether it is still trained.
    pub state: BatchState,
    /// When it, or its first piece, was taken, in Unix milliseconds of the database's clock.
    pub taken_at_ms: u64,
    /// When the version it trained was published.
    pub published_at_ms: Option<u64>,
}

/// A page of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BatchPage {
    /// The batches that are kept, oldest first.
    pub batches: Vec<BatchSummary>,
    /// The `after` of the next page; null at the end.
    pub next: Option<BufferId>,
}

impl Ledger {
    /// A part of a batch that was taken, or of what was taken of one, from entry `offset` on, at most `most` entries.
    pub async fn batch(
        &self,
        run: &RunName,
        version: BufferId,
        offset: usize,
        most: usize,
    ) -> Result<Seen<Batch>, LedgerError> {
        let view = self.view_run(run).await?;
        let state = &view.value.state;
        let is_in_pieces = version == state.next_buffer && state.streamed > 0;
        if (version >= state.next_buffer && !is_in_pieces) || state.is_in_gap(version) {
            return Err(refused(&view, Refusal::UnknownBatch { version }));
        }
        if version < state.oldest_kept {
            return Err(refused(&view, Refusal::BatchPruned { version }));
        }
        self.read_batch(run, version, offset, most).await
    }

    /// Reads entries of a batch that was taken. They do not change any more, so that many reads see one batch.
    pub(super) async fn read_batch(
        &self,
        run: &RunName,
        version: BufferId,
        offset: usize,
        most: usize,
    ) -> Result<Seen<Batch>, LedgerError> {
        let view = self.view_run(run).await?;
        let pruned = || refused(&view, Refusal::BatchPruned { version });
        let keys = Self::keys(run);
        let mut get = redis::cmd("HGET");
        get.arg(keys.part("batches")).arg(version.0);
        let packed: Option<Vec<u8>> = self.parts.store.command(&get).await?;
        let record: BatchRecord = rmp_serde::from_slice(&packed.ok_or_else(pruned)?).map_err(StoreError::from)?;
        let around = Surroundings {
            max_staleness: view.value.config.max_staleness,
            next_buffer: view.value.state.next_buffer,
            streamed: view.value.state.streamed,
            reserved_at: None,
            taken_at_ms: Some(record.taken_at_ms),
        };
        let end = offset.saturating_add(most).min(record.entries);
        let mut trajectories = Vec::with_capacity(end.saturating_sub(offset));
        for from in (offset..end).step_by(PAGE) {
            let fields = (from..end.min(from + PAGE)).map(|slot| format!("{version}:{slot}"));
            let ids = self.ids_in_slots(run, fields.collect()).await?;
            for (id, entry) in self.entry_records(run, ids).await? {
                trajectories.push(entry.ok_or_else(pruned)?.shown(id, around));
            }
        }
        let has_members = self.read_members(run, &mut trajectories, Which::Complete).await?;
        if !has_members || trajectories.len() != end.saturating_sub(offset) {
            return Err(pruned());
        }
        let batch = Batch {
            version,
            redelivered: true,
            replayed: false,
            offset,
            complete: end == record.entries && version < view.value.state.next_buffer,
            is_final: record.is_final,
            trajectories,
        };
        Ok(Seen {
            seq: view.seq,
            value: batch,
        })
    }

    /// A page of the batches that are kept, of those after `after`, oldest first.
    pub async fn batches(
        &self,
        run: &RunName,
        after: Option<BufferId>,
        limit: usize,
    ) -> Result<Seen<BatchPage>, LedgerError> {
        let view = self.view_run(run).await?;
        let state = &view.value.state;
        let first = after.map_or(0, |after| after.0.saturating_add(1));
        let mut versions = state.kept_batches_from(first);
        let mut batches = Vec::new();
        let mut last = None;
        for version in versions.by_ref().take(limit) {
            let batch_state = if version.0 < state.policy_version.0 {
                BatchState::Trained
            } else {
                BatchState::Taken
            };
            let max_staleness = view.value.config.max_staleness;
            batches.extend(self.summarize(run, version, max_staleness, batch_state).await?);
            last = Some(version);
        }
        let mut next = last.filter(|_| versions.next().is_some());
        // The pieces of a batch come behind all that are whole.
        if state.streamed > 0 && next.is_none() && state.next_buffer.0 >= first {
            if batches.len() < limit {
                batches.extend(self.summarize_pieces(run, state).await?);
            } else {
                next = last;
            }
        }
        Ok(Seen {
            seq: view.seq,
            value: BatchPage { batches, next },
        })
    }

    /// The batch of which the trainer has some pieces.
    async fn summarize_pieces(&self, run: &RunName, state: &State) -> Result<Option<BatchSummary>, LedgerError> {
        let version = state.next_buffer;
        let mut get = redis::cmd("HGET");
        get.arg(Self::keys(run).part("batches")).arg(version.0);
        let packed: Option<Vec<u8>> = self.parts.store.command(&get).await?;
        let Some(packed) = packed else { return Ok(None) };
        let begun: BatchRecord = rmp_serde::from_slice(&packed).map_err(StoreError::from)?;
        let mut staleness = BTreeMap::new();
        let streamed = state.streamed as usize;
        for from in (0..streamed).step_by(PAGE) {
            let slots = (from..streamed.min(from + PAGE)).map(|slot| format!("{version}:{slot}"));
            let ids = self.ids_in_slots(run, slots.collect()).await?;
            for (_, entry) in self.entry_records(run, ids).await? {
                let of_entry = entry.and_then(|entry| version.staleness(entry.version()));
                *staleness.entry(of_entry.unwrap_or(0)).or_default() += 1;
            }
        }
        Ok(Some(BatchSummary {
            version,
            entries: streamed,
            staleness,
            is_final: false,
            state: BatchState::Partial,
            taken_at_ms: begun.taken_at_ms,
            published_at_ms: None,
        }))
    }

    async fn summarize(
        &self,
        run: &RunName,
        version: BufferId,
        max_staleness: u64,
        state: BatchState,
    ) -> Result<Option<BatchSummary>, LedgerError> {
        let keys = Self::keys(run);
        let oldest = version.0.saturating_sub(max_staleness);
        let mut get = redis::cmd("HMGET");
        get.arg(keys.part("batches")).arg(version.0);
        for of_version in oldest..=version.0 {
            get.arg(format!("{version}/{of_version}"));
        }
        let mut fields: Vec<Option<Vec<u8>>> = self.parts.store.command(&get).await?;
        let counts = fields.split_off(1);
        let Some(Some(packed)) = fields.pop() else {
            return Ok(None);
        };
        let record: BatchRecord = rmp_serde::from_slice(&packed).map_err(StoreError::from)?;
        let counts = counts
            .into_iter()
            .map(|count| count.and_then(|text| String::from_utf8(text).ok()?.parse().ok()));
        let staleness = (oldest..=version.0)
            .zip(counts)
            .map(|(of_version, count)| (version.0 - of_version, count.unwrap_or(0)))
            .filter(|&(_, count)| count > 0)
            .collect();
        let mut get = redis::cmd("HGET");
        get.arg(keys.part("versions")).arg(version.0 + 1);
        let published: Option<Vec<u8>> = self.parts.store.command(&get).await?;
        let published: Option<VersionRecord> = published
            .map(|packed| rmp_serde::from_slice(&packed))
            .transpose()
            .map_err(StoreError::from)?;
        Ok(Some(BatchSummary {
            version,
            entries: record.entries,
            staleness,
            is_final: record.is_final,
            state,
            taken_at_ms: record.taken_at_ms,
            published_at_ms: published.map(|record| record.published_at_ms),
        }))
    }
}
