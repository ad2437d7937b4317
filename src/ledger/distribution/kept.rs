//! The entries that are taken and not forgotten yet, counted from their records.
//!
//! A batch that was taken whole does not change under one lineage, so a server counts it once and remembers the sums.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::View;
use super::buckets::Bucket;
use super::figures::{ByLength, Sums};
use crate::ledger::state::without_gaps;
use crate::ledger::{Ledger, LedgerError, RunName};
use crate::protocol::{BufferId, Lineage};
use crate::store::StoreError;

/// How many records one read fetches.
const PAGE: usize = 500;
/// How many runs' batches a server remembers.
const MOST_RUNS: usize = 32;

/// A batch, or the part of one that is left or that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Part {
    batch: BufferId,
    from: usize,
    /// `None` for all that the batch has.
    past: Option<usize>,
}

impl Part {
    fn is_whole(self) -> bool {
        self.from == 0 && self.past.is_none()
    }
}

/// The sums of whole batches, by run.
#[derive(Default)]
pub(in crate::ledger) struct Counted {
    runs: Mutex<HashMap<RunName, CountedRun>>,
}

struct CountedRun {
    lineage: Lineage,
    batches: BTreeMap<BufferId, ByLength>,
}

/// What one call has counted of parts, each under its lineage.
pub(super) struct Counting(HashMap<(Lineage, Part), ByLength>);

impl Counting {
    pub(super) fn begin() -> Self {
        Self(HashMap::new())
    }
}

#[derive(Deserialize)]
struct BatchRecord {
    entries: Option<usize>,
    taken_at_ms: Option<u64>,
}

/// What a view leaves to be counted, in order.
pub(super) fn parts_of(view: &View) -> Vec<Part> {
    let first = view.pruned.buffer.0;
    let mut parts: Vec<_> = without_gaps(&view.gaps, first..view.next_buffer.0)
        .into_iter()
        .flatten()
        .map(|number| Part {
            batch: BufferId(number),
            from: if number == first { view.pruned.slot } else { 0 },
            past: None,
        })
        .collect();
    if view.streamed > 0 {
        parts.push(Part {
            batch: view.next_buffer,
            from: 0,
            past: Some(view.streamed),
        });
    }
    parts
}

impl Counted {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunName, CountedRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds up what is known of `parts`, and returns it with those that are not.
    fn sum(&self, run: &RunName, lineage: Lineage, parts: &[Part], counting: &Counting) -> (ByLength, Vec<Part>) {
        let runs = self.lock();
        let known = runs.get(run).filter(|known| known.lineage == lineage);
        let mut sum = ByLength::default();
        let mut missing = Vec::new();
        for part in parts {
            let remembered = known.and_then(|known| known.batches.get(&part.batch));
            let counted = remembered
                .filter(|_| part.is_whole())
                .or_else(|| counting.0.get(&(lineage, *part)));
            match counted {
                Some(counted) => sum.add_all(counted),
                None => missing.push(*part),
            }
        }
        (sum, missing)
    }

    /// Remembers a batch, unless the run is in a later lineage by now; what comes before `first` is forgotten.
    fn remember(&self, run: &RunName, lineage: Lineage, first: BufferId, batch: BufferId, sums: ByLength) {
        let mut runs = self.lock();
        if runs.len() >= MOST_RUNS && !runs.contains_key(run) {
            runs.clear();
        }
        let known = runs.entry(run.clone()).or_insert_with(|| CountedRun {
            lineage,
            batches: BTreeMap::new(),
        });
        if known.lineage < lineage {
            known.batches.clear();
            known.lineage = lineage;
        }
        if known.lineage == lineage {
            known.batches = known.batches.split_off(&first);
            known.batches.insert(batch, sums);
        }
    }
}

impl Ledger {
    /// The sums of all parts, if they were all counted before; else counts what is missing and returns `None`: the run is to
    /// be looked at again.
    pub(super) async fn count_kept(
        &self,
        run: &RunName,
        lineage: Lineage,
        parts: &[Part],
        counting: &mut Counting,
    ) -> Result<Option<ByLength>, LedgerError> {
        let counted = &self.parts.counted;
        let (sum, missing) = counted.sum(run, lineage, parts, counting);
        if missing.is_empty() {
            return Ok(Some(sum));
        }
        for part in missing {
            // It was forgotten or given back meanwhile.
            let Some(sums) = self.count(run, part).await? else {
                break;
            };
            if part.is_whole() {
                counted.remember(run, lineage, parts[0].batch, part.batch, sums.clone());
            }
            counting.0.insert((lineage, part), sums);
        }
        Ok(None)
    }

    async fn count(&self, run: &RunName, part: Part) -> Result<Option<ByLength>, LedgerError> {
        let keys = Self::keys(run);
        let mut get = redis::cmd("HGET");
        get.arg(keys.part("batches")).arg(part.batch.0);
        let packed: Option<Vec<u8>> = self.parts.store.read(&get).await?;
        let Some(packed) = packed else { return Ok(None) };
        let record: BatchRecord = rmp_serde::from_slice(&packed).map_err(StoreError::from)?;
        let end = part.past.or(record.entries).unwrap_or(0);
        let mut sums = ByLength::default();
        for from in (part.from..end).step_by(PAGE) {
            let slots: Vec<_> = (from..end.min(from + PAGE))
                .map(|slot| format!("{}:{slot}", part.batch))
                .collect();
            let asked = slots.len();
            let ids = self.ids_in_slots(run, slots).await?;
            if ids.len() < asked {
                return Ok(None);
            }
            for (_, entry) in self.entry_records(run, ids).await? {
                let Some(entry) = entry else { return Ok(None) };
                let queued_ms = entry.occupied_at_ms().zip(record.taken_at_ms);
                let queued_ms = queued_ms.map(|(from, to)| to.saturating_sub(from));
                sums.add(
                    entry.tokens().map(Bucket::of),
                    sums_of(entry.tokens(), part.batch.staleness(entry.version()), queued_ms),
                );
            }
        }
        Ok(Some(sums))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "as in the scripts, which count in floating point"
)]
fn sums_of(tokens: Option<u64>, staleness: Option<u64>, queued_ms: Option<u64>) -> Sums {
    let is = |value: Option<u64>| if value.is_some() { 1.0 } else { 0.0 };
    Sums {
        entries: 1.0,
        with_tokens: is(tokens),
        tokens: tokens.unwrap_or(0) as f64,
        staleness: staleness.unwrap_or(0) as f64,
        queued: is(queued_ms),
        queued_ms: queued_ms.unwrap_or(0) as f64,
    }
}
