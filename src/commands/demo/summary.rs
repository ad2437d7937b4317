//! The last page of the demo: what was trained on what, what was lost, who waited, and whether the protocol held.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::audit::Audit;
use super::compare::{Delivered, TrainerRecord, composition};
use super::ink::{Ink, Line};
use super::pace::Pace;
use super::text::{counted, grouped, grouped_rate, percent, seconds};
use crate::protocol::Version;

/// Up to this bound, the table has a column for every staleness that is allowed.
const FEW_COLUMNS: u64 = 4;

/// Everything that the last page is made of.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) max_staleness: u64,
    /// Responses in one entry.
    pub(super) group_size: u32,
    pub(super) pace: Pace,
    /// From the start of the processes to the last published version.
    pub(super) took: Duration,
    pub(super) record: &'a TrainerRecord,
    pub(super) audit: &'a Audit,
    pub(super) contradictions: &'a [String],
}

impl Summary<'_> {
    /// Whether nothing was violated.
    pub(super) fn is_clean(&self) -> bool {
        self.audit.violations.is_empty() && self.record.differences().is_empty() && self.contradictions.is_empty()
    }

    /// The page.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::default(), self.table_head()];
        lines.extend(
            self.record
                .batches()
                .map(|(version, delivered)| self.table_row(*version, delivered)),
        );
        lines.extend([self.table_foot(), Line::default()]);
        lines.extend(self.figures());
        lines.extend(self.verdict());
        lines
    }

    fn table_head(&self) -> Line {
        let entries = if self.group_size == 1 { "entries" } else { "groups" };
        let mut head = format!("{:>7} {entries:>8}  staleness", "batch");
        for staleness in self.columns_shown() {
            // Writing into a string does not fail.
            let _ = write!(head, "{staleness:>5}");
        }
        let _ = write!(head, " {:>11} {:>8}", "tokens", "waited");
        Line::default().then(Ink::Bold, head)
    }

    fn table_row(&self, version: Version, delivered: &Delivered) -> Line {
        let composition = composition(&delivered.batch);
        let columns = self.columns(|staleness| composition.get(&staleness).copied().unwrap_or(0));
        let Delivered { batch, waited, .. } = delivered;
        let row = format!(
            "{:>7} {:>8}           {columns} {:>11} {:>8}",
            version.0,
            grouped(batch.entries.len() as u64),
            grouped(batch.tokens),
            seconds(*waited)
        );
        Line::new(row).then(Ink::Yellow, remark(delivered))
    }

    fn table_foot(&self) -> Line {
        let total = |staleness| {
            let batches = self.record.batches();
            batches
                .filter_map(|(_, delivered)| composition(&delivered.batch).get(&staleness).copied())
                .sum()
        };
        let row = format!(
            "{:>7} {:>8}           {} {:>11} {:>8}",
            "all",
            grouped(self.record.entries()),
            self.columns(total),
            grouped(self.record.tokens()),
            seconds(self.record.waited())
        );
        Line::default().then(Ink::Bold, row)
    }

    /// The staleness values that have a column: all that are allowed, or of many those up to the highest there was.
    fn columns_shown(&self) -> RangeInclusive<u64> {
        let entries = self
            .record
            .batches()
            .flat_map(|(_, delivered)| &delivered.batch.entries);
        let highest = entries.map(|entry| entry.staleness).max().unwrap_or(0);
        0..=highest.max(self.max_staleness.min(FEW_COLUMNS))
    }

    fn columns(&self, count: impl Fn(u64) -> u64) -> String {
        let cell = |staleness| match count(staleness) {
            0 => format!("{:>5}", "·"),
            count => format!("{:>5}", grouped(count)),
        };
        (self.columns_shown()).map(cell).collect()
    }

    fn figures(&self) -> Vec<Line> {
        let discarded: Vec<String> = self
            .audit
            .discarded
            .iter()
            .map(|(reason, count)| format!("{reason} {}", grouped(*count)))
            .collect();
        let discarded = if discarded.is_empty() {
            "none".to_owned()
        } else {
            discarded.join(", ")
        };
        let waited = self.record.waited();
        let figure = |name: &str, value: String| Line::new(format!("  {name:<18} {value}"));
        let mut figures = vec![figure("discards", discarded)];
        if self.group_size > 1 {
            figures.push(figure("adopted", self.adopted()));
        }
        figures.extend([
            figure("saved late", grouped(self.audit.late)),
            figure(
                "trainer waited",
                format!(
                    "{} of {} ({})",
                    seconds(waited),
                    seconds(self.took),
                    percent(waited, self.took)
                ),
            ),
            figure("throughput", self.throughput()),
        ]);
        figures
    }

    /// What the deaths of workers did not cost.
    fn adopted(&self) -> String {
        let Audit {
            adopted, members_saved, ..
        } = self.audit;
        let groups = counted(*adopted, "group");
        format!("{groups}, with {} saved", counted(*members_saved, "finished member"))
    }

    fn throughput(&self) -> String {
        let took = self.took.as_secs_f64().max(0.001);
        let per_second = |count: u64| as_f64(count) / took;
        format!(
            "{:.1} responses/s here; {} tokens/s in the cluster's time",
            per_second(self.record.entries() * u64::from(self.group_size)),
            grouped_rate(per_second(self.record.tokens()) / self.pace.speed())
        )
    }

    fn verdict(&self) -> Vec<Line> {
        let Audit { events, violations, .. } = self.audit;
        let mut lines = vec![verdict_line(
            "event log",
            violations.len(),
            &format!("in {}, replayed through the model", counted(*events, "event")),
            "violation",
        )];
        lines.extend(violations.iter().map(|violation| problem(violation)));
        let (redelivered, replayed) = (self.record.redelivered(), self.record.replayed());
        let differences = self.record.differences();
        lines.push(verdict_line(
            "delivered again",
            differences.len(),
            &format!(
                "in {} ({} redelivered, {} replayed), compared entry by entry",
                counted(redelivered + replayed, "batch"),
                grouped(redelivered),
                grouped(replayed)
            ),
            "difference",
        ));
        lines.extend(differences.iter().map(|difference| problem(difference)));
        lines.push(verdict_line(
            "trainer's record",
            self.contradictions.len(),
            &format!(
                "to the event log in {}",
                counted(self.record.batches().count() as u64, "batch")
            ),
            "contradiction",
        ));
        lines.extend(self.contradictions.iter().map(|contradiction| problem(contradiction)));
        lines
    }
}

/// What happened to a batch beside its first delivery.
fn remark(delivered: &Delivered) -> String {
    let times = [(delivered.redelivered, "redelivered"), (delivered.replayed, "replayed")];
    let remarks: Vec<&str> = times
        .iter()
        .filter(|(times, _)| *times > 0)
        .map(|(_, what)| *what)
        .collect();
    if remarks.is_empty() {
        String::new()
    } else {
        format!("   {}", remarks.join(", "))
    }
}

fn verdict_line(name: &str, count: usize, what: &str, noun: &str) -> Line {
    let ink = if count == 0 { Ink::Green } else { Ink::Red };
    Line::new(format!("  {name:<18} "))
        .then(ink, counted(count as u64, noun))
        .then(Ink::Plain, format!(" {what}"))
}

fn problem(text: &str) -> Line {
    Line::new(" ".repeat(21)).then(Ink::Red, text)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::record::{BatchRecord, EntryRecord, SessionRecord};
    use crate::protocol::TrajectoryId;

    fn batch(version: u64, versions: &[u64]) -> BatchRecord {
        let entry = |(index, &from): (usize, &u64)| EntryRecord {
            id: TrajectoryId(uuid::Uuid::from_u128(u128::from(version) * 100 + index as u128)),
            version: Version(from),
            staleness: version - from,
        };
        BatchRecord {
            version: Version(version),
            redelivered: false,
            replayed: false,
            pieces: 1,
            waited_ms: 1_250,
            tokens: 140_000,
            entries: versions.iter().enumerate().map(entry).collect(),
        }
    }

    fn page(record: &TrainerRecord, audit: &Audit) -> String {
        let contradictions = record.contradictions(audit);
        let summary = Summary {
            max_staleness: 1,
            group_size: 4,
            pace: Pace::new(250.0),
            took: Duration::from_secs(10),
            record,
            audit,
            contradictions: &contradictions,
        };
        assert_eq!(
            summary.is_clean(),
            audit.violations.is_empty() && record.differences().is_empty() && contradictions.is_empty()
        );
        summary.lines().iter().map(Line::plain).collect::<Vec<_>>().join("\n")
    }

    fn record() -> TrainerRecord {
        let mut record = TrainerRecord::new(1);
        record.add(batch(0, &[0, 0, 0, 0]));
        record.published(Version(1), Version(1));
        record.add(batch(1, &[0, 1, 1, 0]));
        record.opened(&SessionRecord {
            resume_from: Some(Version(0)),
            trainer_version: Version(0),
            policy_version: Version(1),
        });
        record.add(BatchRecord {
            replayed: true,
            ..batch(0, &[0, 0, 0, 0])
        });
        record.published(Version(1), Version(1));
        record.add(BatchRecord {
            redelivered: true,
            ..batch(1, &[0, 1, 1, 0])
        });
        record
    }

    #[test]
    fn the_page_of_a_clean_run() {
        let audit = Audit {
            events: 1_234,
            batches: [(Version(0), [(0, 4)].into()), (Version(1), [(0, 2), (1, 2)].into())].into(),
            discarded: [("lease_expired".to_owned(), 11)].into(),
            replayed: 1,
            late: 1,
            adopted: 3,
            members_saved: 7,
            violations: Vec::new(),
        };
        assert_eq!(
            page(&record(), &audit),
            "
  batch   groups  staleness    0    1      tokens   waited
      0        4               4    ·     140,000    2.5 s   replayed
      1        4               2    2     140,000    2.5 s   redelivered
    all        8               6    2     280,000    5.0 s

  discards           lease_expired 11
  adopted            3 groups, with 7 finished members saved
  saved late         1
  trainer waited     5.0 s of 10.0 s (50 %)
  throughput         3.2 responses/s here; 112 tokens/s in the cluster's time
  event log          0 violations in 1,234 events, replayed through the model
  delivered again    0 differences in 2 batches (1 redelivered, 1 replayed), compared entry by entry
  trainer's record   0 contradictions to the event log in 2 batches"
        );
    }

    #[test]
    fn the_page_of_a_run_that_broke_the_protocol() {
        let audit = Audit {
            events: 1,
            replayed: 1,
            batches: [(Version(0), [(0, 4)].into())].into(),
            violations: vec!["seq 7: entry x is too stale".to_owned()],
            ..Audit::default()
        };
        let mut record = record();
        record.add(BatchRecord {
            redelivered: true,
            ..batch(1, &[1, 1, 1, 0])
        });
        let page = page(&record, &audit);
        let verdict = page.split_once("time\n").map(|(_, verdict)| verdict);
        assert_eq!(
            verdict,
            Some(
                "  event log          1 violation in 1 event, replayed through the model
                     seq 7: entry x is too stale
  delivered again    1 difference in 3 batches (2 redelivered, 1 replayed), compared entry by entry
                     batch 1 was not the same when it was redelivered
  trainer's record   1 contradiction to the event log in 2 batches
                     batch 1 was delivered, and is not in the event log"
            )
        );
    }
}
