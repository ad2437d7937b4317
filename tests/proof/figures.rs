//! What a job amounted to: its row of the table, and what must be true of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use berth::protocol::audit::Report;
use serde_json::{Value, json};

use crate::job::{GROUP_SIZE, GROUPS_PER_BATCH, Job};

/// How many entries have each staleness.
type Composition = BTreeMap<u64, u64>;

pub(crate) struct Figures {
    pub(crate) job: Job,
    /// The staleness of the entries of each batch, as the trainer was told.
    pub(crate) batches: Vec<Vec<u64>>,
    /// The run's own figures at its end.
    pub(crate) status: Value,
    /// What the audit of the event log found.
    pub(crate) violations: Vec<String>,
    /// What it counted.
    pub(crate) report: Report,
    pub(crate) took: Duration,
    /// How long the trainer waited for batches.
    pub(crate) waited: Duration,
}

impl Figures {
    /// The heads of the columns, with one for each staleness.
    pub(crate) fn head(columns: RangeInclusive<u64>) -> String {
        let mut head = format!("\n{:>3} {:>8} {:>8}  staleness", "η", "batches", "groups");
        for staleness in columns {
            let _ = write!(head, "{staleness:>7}");
        }
        let rest = ["violations", "discards", "waited", "took"];
        let _ = write!(head, "  {:>11} {:>9} {:>8} {:>8}", rest[0], rest[1], rest[2], rest[3]);
        head
    }

    pub(crate) fn row(&self, columns: RangeInclusive<u64>) -> String {
        let composition = self.composition();
        let groups: u64 = composition.values().sum();
        let mut row = format!(
            "{:>3} {:>8} {groups:>8}           ",
            self.job.max_staleness,
            self.batches.len()
        );
        for staleness in columns {
            let cell = match composition.get(&staleness) {
                _ if staleness > self.job.max_staleness => String::new(),
                None => String::from("·"),
                Some(count) => share(*count, groups),
            };
            let _ = write!(row, "{cell:>7}");
        }
        let _ = write!(
            row,
            "  {:>11} {:>9} {:>6.1} s {:>6.1} s",
            self.violations.len(),
            self.discards(),
            self.waited.as_secs_f64(),
            self.took.as_secs_f64()
        );
        row
    }

    /// All of them in one sentence.
    pub(crate) fn foot(all: &[Self]) -> String {
        let batches: usize = all.iter().map(|figures| figures.batches.len()).sum();
        let violations: usize = all.iter().map(|figures| figures.violations.len()).sum();
        let discards: u64 = all.iter().map(Self::discards).sum();
        let events: u64 = all.iter().map(|figures| figures.report.events).sum();
        let took: Duration = all.iter().map(|figures| figures.took).sum();
        format!(
            "\n{batches} whole batches of {GROUPS_PER_BATCH} groups of {GROUP_SIZE}: {violations} violations in {events} \
             events, {discards} discards, {:.1} s\n",
            took.as_secs_f64()
        )
    }

    /// Fails unless every batch is whole, nothing was discarded, and the log holds.
    pub(crate) fn check(&self) {
        let Job { max_staleness, batches } = self.job;
        let (batch_count, groups) = (self.batches.len() as u64, batches * GROUPS_PER_BATCH);
        assert_eq!(self.violations, Vec::<String>::new(), "η = {max_staleness}");
        assert_eq!(
            (batch_count, self.report.takes),
            (batches, batches),
            "η = {max_staleness}"
        );
        assert_eq!(self.discards(), 0, "η = {max_staleness}: {:?}", self.report.discarded);
        assert_eq!(
            (self.report.reserved, self.report.occupied, self.report.late),
            (groups, groups, 0),
            "η = {max_staleness}"
        );
        let logged: Vec<Composition> = self
            .report
            .batches
            .iter()
            .map(|batch| batch.staleness.clone())
            .collect();
        let told: Vec<Composition> = self.batches.iter().map(counted).collect();
        assert_eq!(logged, told, "η = {max_staleness}: the log and the trainer agree");
        let highest = self.composition().into_keys().max();
        assert!(
            highest <= Some(max_staleness),
            "η = {max_staleness}: staleness {highest:?}"
        );
        let totals = &self.status["totals"];
        assert_eq!(
            (&self.status["reserved"], &self.status["occupied"], &totals["trained"]),
            (&json!(0), &json!(0), &json!(groups)),
            "η = {max_staleness}: nothing is left over"
        );
        assert_eq!(totals["discarded"], json!({}), "η = {max_staleness}");
    }

    fn composition(&self) -> Composition {
        counted(self.batches.iter().flatten())
    }

    fn discards(&self) -> u64 {
        self.report.discarded.values().sum()
    }
}

fn counted<'a>(entries: impl IntoIterator<Item = &'a u64>) -> Composition {
    let mut composition = Composition::new();
    for staleness in entries {
        *composition.entry(*staleness).or_default() += 1;
    }
    composition
}

/// In per cent, so that rows of different bounds compare.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn share(count: u64, of: u64) -> String {
    format!("{:.1}%", 100.0 * count as f64 / of as f64)
}
