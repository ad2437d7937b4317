//! What was trained, filtered and discarded, by length and staleness: whether a run trains on short samples rather than on
//! long ones (`GET …/distribution`).
//!
//! The scripts count what cannot be taken back. What is taken and not forgotten yet a rewind may still give back to the tables,
//! so it is counted here, from the batches' entries, each batch once.

mod buckets;
mod figures;
mod kept;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::buckets::Bucket;
use self::figures::{ByLength, Figures, Sums};
pub(super) use self::kept::Counted;
use super::{Ledger, LedgerError, RunName, Seen, call::NoArgs};
use crate::protocol::{BufferId, Lineage};
use crate::store::{StoreError, script};

/// How often batches may be forgotten or given back while they are counted, before the call fails.
const MOST_LOOKS: usize = 100;

/// What became of a run's entries. Entries that are still in the tables are in `admitted`, and in `finished` if they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// The quarters of the lengths of all entries that finished, shortest first; none as long as no length is known.
    pub quarters: Vec<Quarter>,
    /// Entries that were admitted. The means are over those of which the value is known: the length of what has finished,
    /// staleness and waiting time of what is no longer in the tables.
    pub admitted: Share,
    /// Entries that finished, whatever became of them since; groups that were discarded as `zero_variance` among them.
    pub finished: Share,
    /// Entries that were taken for training.
    pub trained: Share,
    /// Finished entries that a client discarded, and groups that were discarded as `zero_variance`.
    pub filtered: Share,
    /// Entries that were discarded otherwise.
    pub discarded: Share,
    /// The filtered and the discarded ones, by reason.
    pub by_reason: BTreeMap<String, Share>,
}

/// A quarter of the lengths: entries that are no longer than this, and longer than those of the quarter before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Quarter {
    /// The greatest length in it, in tokens, to about six per cent.
    pub up_to_tokens: u64,
    /// Entries of these lengths that finished.
    pub finished: Share,
    /// Those that were trained.
    pub trained: Share,
    /// Those that were filtered.
    pub filtered: Share,
    /// Those that were discarded otherwise, after they had finished. What was discarded before has no length.
    pub discarded: Share,
}

/// Some entries, as a count and means; a mean is null where there is nothing to take it of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// How many.
    pub entries: u64,
    /// The mean of their lengths, in tokens.
    pub mean_tokens: Option<f64>,
    /// The mean of their stalenesses: the buffer that they left the tables from, less their version.
    pub mean_staleness: Option<f64>,
    /// The mean time from finished to taken or discarded, in milliseconds.
    pub mean_queued_ms: Option<f64>,
}

/// What the script shows.
#[derive(Deserialize)]
struct View {
    figures: Vec<(String, [f64; 6])>,
    admitted: u64,
    lineage: Lineage,
    pruned: Pruned,
    gaps: Vec<(u64, u64)>,
    next_buffer: BufferId,
    streamed: usize,
}

/// The first entry of a batch that the scripts have not counted.
#[derive(Deserialize)]
struct Pruned {
    buffer: BufferId,
    slot: usize,
}

impl Ledger {
    /// What became of the run's entries, at one moment.
    pub async fn distribution(&self, run: &RunName) -> Result<Seen<Distribution>, LedgerError> {
        let mut counting = kept::Counting::begin();
        for _ in 0..MOST_LOOKS {
            let seen = self.call::<View>(&script::VIEW_DISTRIBUTION, run, &NoArgs {}).await?;
            let parts = kept::parts_of(&seen.value);
            // Only when all that this view leaves to count is known, the two make one picture.
            if let Some(trained) = self.count_kept(run, seen.value.lineage, &parts, &mut counting).await? {
                return Ok(seen.map(|view| {
                    let mut figures = Figures::from_fields(view.figures);
                    figures.trained.add_all(&trained);
                    distribution(view.admitted, &figures)
                }));
            }
        }
        Err(StoreError::Broken("the batches changed whenever they were counted".to_owned()).into())
    }
}

fn distribution(admitted: u64, figures: &Figures) -> Distribution {
    let (finished, trained) = (figures.finished.total(), figures.trained.total());
    let (filtered, discarded) = (figures.filtered.total(), figures.discarded.total());
    let left: Sums = [trained, filtered, discarded].iter().collect();
    let admitted_share = Share {
        entries: admitted,
        mean_tokens: mean(finished.tokens, finished.with_tokens),
        ..Share::from(left)
    };
    Distribution {
        quarters: quarters(figures),
        admitted: admitted_share,
        finished: finished_share(finished),
        trained: trained.into(),
        filtered: filtered.into(),
        discarded: discarded.into(),
        by_reason: figures
            .by_reason
            .iter()
            .map(|(reason, sums)| (reason.clone(), (*sums).into()))
            .collect(),
    }
}

fn quarters(figures: &Figures) -> Vec<Quarter> {
    let mut above = None;
    let quarter = |up_to: Bucket| {
        let of = |by_length: &ByLength| by_length.within(above, up_to);
        let quarter = Quarter {
            up_to_tokens: up_to.greatest(),
            finished: finished_share(of(&figures.finished)),
            trained: of(&figures.trained).into(),
            filtered: of(&figures.filtered).into(),
            discarded: of(&figures.discarded).into(),
        };
        above = Some(up_to);
        quarter
    };
    boundaries(figures).into_iter().map(quarter).collect()
}

/// The last bucket of each quarter.
fn boundaries(figures: &Figures) -> Vec<Bucket> {
    let mut lengths: BTreeMap<Bucket, f64> = figures.finished.entries_of_known_length().collect();
    // In a run that an older server began, more may have left the tables than was counted as finished.
    let mut left = ByLength::default();
    for by_length in [&figures.trained, &figures.filtered, &figures.discarded] {
        left.add_all(by_length);
    }
    for (bucket, entries) in left.entries_of_known_length() {
        let finished = lengths.entry(bucket).or_default();
        *finished = finished.max(entries);
    }
    let all: f64 = lengths.values().sum();
    let mut boundaries = Vec::with_capacity(4);
    let mut up_to_here = 0.0;
    for (bucket, entries) in lengths {
        up_to_here += entries;
        // A bucket with more than a quarter of all ends several quarters.
        #[expect(clippy::cast_precision_loss, reason = "at most four")]
        while boundaries.len() < 4 && up_to_here * 4.0 >= all * (boundaries.len() + 1) as f64 {
            boundaries.push(bucket);
        }
    }
    boundaries
}

/// Their staleness and how long they wait are not known yet.
fn finished_share(sums: Sums) -> Share {
    Share {
        mean_staleness: None,
        mean_queued_ms: None,
        ..sums.into()
    }
}

fn mean(sum: f64, count: f64) -> Option<f64> {
    // Thousandths are enough to read.
    (count > 0.0).then(|| (sum / count * 1_000.0).round() / 1_000.0)
}

impl From<Sums> for Share {
    fn from(sums: Sums) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which is whole and not negative"
        )]
        let entries = sums.entries as u64;
        Self {
            entries,
            mean_tokens: mean(sums.tokens, sums.with_tokens),
            mean_staleness: mean(sums.staleness, sums.entries),
            mean_queued_ms: mean(sums.queued_ms, sums.queued),
        }
    }
}

#[cfg(test)]
mod tests;
