//! The block that shows how things stand: progress, slot tables, trainer, workers. Pure text; nothing is asked here.

use std::time::Duration;

use super::ink::{Ink, Line};
use super::text::{counted, grouped, seconds};
use crate::client::{BufferTable, SlotView};
use crate::protocol::Version;

/// How wide the progress bar is, in characters.
const BAR: usize = 40;
/// What stands before the slots of a buffer, in characters.
const LABEL: usize = 13;
/// What follows them: `  replayed, 65,536 of 65,536`.
const REMARK: usize = 27;

/// Everything that the block shows.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) elapsed: Duration,
    pub(super) published: u64,
    pub(super) batches: u64,
    pub(super) batch_size: u32,
    pub(super) policy_version: Version,
    /// The batch that was taken and whose version is not published yet, shown as the buffer it was.
    pub(super) taken: Option<BufferTable>,
    /// The batch that is trained again, shown as the buffer it was.
    pub(super) replayed: Option<BufferTable>,
    /// The open buffers.
    pub(super) buffers: Vec<BufferTable>,
    /// The version of the weights that the trainer holds.
    pub(super) trainer_version: Version,
    pub(super) trainer: TrainerView,
    pub(super) workers: Vec<WorkerLine>,
}

/// What the trainer is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrainerView {
    Starting,
    Waiting { since: Duration, has: usize },
    Training { tokens: u64, replayed: bool },
    Killed,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerLine {
    pub(super) name: String,
    pub(super) version: Option<Version>,
    pub(super) reserved: u64,
    pub(super) finished: u64,
    pub(super) is_alive: bool,
}

/// The block, for a terminal of `width` characters.
pub(super) fn block(view: &View, width: usize) -> Vec<Line> {
    let mut lines = vec![Line::default(), progress(view), Line::default()];
    // The tables were asked for a moment ago: they may still show the batch as a buffer.
    let is_taken = |buffer: &BufferTable| view.taken.as_ref().is_some_and(|taken| taken.version == buffer.version);
    let open = view.buffers.iter().filter(|buffer| !is_taken(buffer));
    let batches = view.replayed.iter().chain(&view.taken);
    lines.extend(slot_tables(batches.chain(open), view.batch_size, width));
    lines.push(Line::default());
    lines.push(trainer(view));
    lines.extend(view.workers.iter().map(worker));
    lines.push(Line::default());
    let is_taken = |slot: &SlotView| matches!(slot, SlotView::Taken { .. });
    let has_pieces = view.buffers.iter().flat_map(|buffer| &buffer.slots).any(is_taken);
    lines.push(if has_pieces {
        legend().then(Ink::Plain, " □").then(Ink::Dim, " in training")
    } else {
        legend()
    });
    lines
}

fn progress(view: &View) -> Line {
    let filled = share(BAR, view.published, view.batches);
    Line::new("  ")
        .then(Ink::Green, "█".repeat(filled))
        .then(Ink::Dim, "░".repeat(BAR - filled))
        .then(Ink::Bold, format!("  {} of {} batches", view.published, view.batches))
        .then(
            Ink::Plain,
            format!("   policy_version {}   {}", view.policy_version, seconds(view.elapsed)),
        )
}

/// `part` of `whole`, on a scale of `length`.
fn share(length: usize, part: u64, whole: u64) -> usize {
    let scaled = u128::from(part.min(whole)) * length as u128 / u128::from(whole.max(1));
    usize::try_from(scaled).unwrap_or(length)
}

/// Buffers, one a line, a mark for each slot. Of wide buffers every second, third, … slot is shown: slots are
/// sorted by state, so that the picture stays true.
pub(super) fn slot_tables<'a>(
    buffers: impl IntoIterator<Item = &'a BufferTable>,
    batch_size: u32,
    width: usize,
) -> Vec<Line> {
    let room = width.saturating_sub(LABEL + REMARK).max(8);
    let tables = buffers.into_iter().map(|buffer| slot_table(buffer, batch_size, room));
    tables.collect()
}

fn slot_table(buffer: &BufferTable, batch_size: u32, room: usize) -> Line {
    let step = buffer.slots.len().div_ceil(room).max(1);
    let label = format!("buffer {}", buffer.version);
    let line = Line::new(format!("  {label:<width$}", width = LABEL - 2));
    let line = buffer.slots.iter().step_by(step).fold(line, |line, slot| {
        let (ink, mark) = mark(slot);
        line.then(ink, mark)
    });
    let occupied = buffer
        .slots
        .iter()
        .filter(|slot| matches!(slot, SlotView::Occupied { .. } | SlotView::Taken { .. }))
        .count() as u64;
    let remark = format!(
        "  {}, {} of {}",
        buffer.state,
        grouped(occupied),
        grouped(batch_size.into())
    );
    line.then(Ink::Dim, remark)
}

fn mark(slot: &SlotView) -> (Ink, String) {
    match slot {
        SlotView::Taken { staleness } => (staleness_ink(*staleness), "□".to_owned()),
        SlotView::Occupied { staleness, .. } => (staleness_ink(*staleness), "■".to_owned()),
        SlotView::Reserved {
            worker: Some(worker), ..
        } => (Ink::Cyan, worker_mark(worker).to_string()),
        SlotView::Reserved { worker: None, .. } => (Ink::Red, "?".to_owned()),
        SlotView::Empty | SlotView::Other => (Ink::Dim, "·".to_owned()),
    }
}

/// The one character that stands for a worker: `rollout-3` is `3`, `rollout-12` is `c`.
fn worker_mark(worker: &str) -> char {
    let number = worker.rsplit('-').next().and_then(|digits| digits.parse().ok());
    number
        .and_then(|number: u32| char::from_digit(number, 36))
        .unwrap_or('?')
}

fn staleness_ink(staleness: u64) -> Ink {
    match staleness {
        0 => Ink::Green,
        1 => Ink::Yellow,
        _ => Ink::Magenta,
    }
}

fn legend() -> Line {
    Line::new("  ")
        .then(Ink::Cyan, "1 2 …")
        .then(Ink::Dim, " reserved by that worker · empty; finished, staleness ")
        .then(Ink::Green, "■")
        .then(Ink::Dim, " 0 ")
        .then(Ink::Yellow, "■")
        .then(Ink::Dim, " 1 ")
        .then(Ink::Magenta, "■")
        .then(Ink::Dim, " 2+")
}

fn trainer(view: &View) -> Line {
    let line = Line::new("  trainer      ");
    match view.trainer {
        TrainerView::Starting => line.then(Ink::Dim, "starting"),
        TrainerView::Waiting { since, has } => {
            let waited = seconds(view.elapsed.saturating_sub(since));
            let what = match has {
                0 => format!("waits for batch {}: {waited}", view.trainer_version),
                _ => format!("has {has} of batch {}, waits for more: {waited}", view.trainer_version),
            };
            line.then(Ink::Yellow, what)
        }
        TrainerView::Training { tokens, replayed } => {
            let again = if replayed { " again" } else { "" };
            let what = format!(
                "trains on batch {}{again}, {} tokens",
                view.trainer_version,
                grouped(tokens)
            );
            line.then(if replayed { Ink::Yellow } else { Ink::Green }, what)
        }
        TrainerView::Killed => line.then(Ink::Red, "killed"),
    }
}

fn worker(worker: &WorkerLine) -> Line {
    let name = format!("{} {}", worker_mark(&worker.name), worker.name);
    let line = Line::new(format!("  {name:<12} "));
    let holds = counted(worker.reserved, "reservation");
    if !worker.is_alive {
        return line.then(Ink::Red, format!("killed; {holds} left behind"));
    }
    let Some(version) = worker.version else {
        return line.then(Ink::Dim, "starting");
    };
    let finished = grouped(worker.finished);
    line.then(
        Ink::Plain,
        format!("weights of version {version}, {holds}, {finished} finished"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::BufferId;

    fn buffer(version: u64, state: &str, slots: &str) -> BufferTable {
        let slots = slots.chars().map(|slot| match slot {
            '.' => SlotView::Empty,
            'A'..='D' => SlotView::Occupied {
                staleness: u64::from(slot) - u64::from('A'),
                prompt: None,
            },
            digit => SlotView::Reserved {
                worker: Some(format!("rollout-{digit}")),
                prompt: None,
            },
        });
        BufferTable {
            version: BufferId(version),
            state: state.to_owned(),
            slots: slots.collect(),
        }
    }

    fn plain(lines: &[Line]) -> String {
        lines.iter().map(|line| line.plain() + "\n").collect()
    }

    #[test]
    fn the_block_shows_progress_tables_trainer_and_workers() {
        let view = View {
            elapsed: Duration::from_millis(12_340),
            published: 7,
            batches: 20,
            batch_size: 8,
            policy_version: Version(7),
            trainer_version: Version(7),
            taken: None,
            replayed: None,
            buffers: vec![buffer(7, "stuck", "AABBBB13"), buffer(8, "pending", "A....231")],
            trainer: TrainerView::Waiting {
                since: Duration::from_secs(12),
                has: 0,
            },
            workers: vec![
                WorkerLine {
                    name: "rollout-1".to_owned(),
                    version: Some(Version(7)),
                    reserved: 2,
                    finished: 30,
                    is_alive: true,
                },
                WorkerLine {
                    name: "rollout-2".to_owned(),
                    version: Some(Version(6)),
                    reserved: 1,
                    finished: 30,
                    is_alive: false,
                },
                WorkerLine {
                    name: "rollout-3".to_owned(),
                    version: None,
                    reserved: 0,
                    finished: 30,
                    is_alive: true,
                },
            ],
        };
        assert_eq!(
            plain(&block(&view, 80)),
            "
  ██████████████░░░░░░░░░░░░░░░░░░░░░░░░░░  7 of 20 batches   policy_version 7   12.3 s

  buffer 7   ■■■■■■13  stuck, 6 of 8
  buffer 8   ■····231  pending, 1 of 8

  trainer      waits for batch 7: 0.3 s
  1 rollout-1  weights of version 7, 2 reservations, 30 finished
  2 rollout-2  killed; 1 reservation left behind
  3 rollout-3  starting

  1 2 … reserved by that worker · empty; finished, staleness ■ 0 ■ 1 ■ 2+
"
        );
    }

    #[test]
    fn a_batch_that_is_trained_again_stands_above_the_buffers_of_the_newer_version() {
        let view = View {
            elapsed: Duration::from_millis(23_400),
            published: 11,
            batches: 20,
            batch_size: 4,
            policy_version: Version(11),
            trainer_version: Version(8),
            taken: Some(buffer(11, "taken", "BBBB")),
            replayed: Some(buffer(8, "replayed", "AABB")),
            buffers: vec![buffer(12, "pending", "A.12")],
            trainer: TrainerView::Training {
                tokens: 31_000,
                replayed: true,
            },
            workers: Vec::new(),
        };
        let shown = plain(&block(&view, 80));
        let tables = "
  buffer 8   ■■■■  replayed, 4 of 4
  buffer 11  ■■■■  taken, 4 of 4
  buffer 12  ■·12  pending, 1 of 4

  trainer      trains on batch 8 again, 31,000 tokens
";
        assert!(shown.contains(tables), "{shown}");
        assert!(shown.contains("11 of 20 batches   policy_version 11"), "{shown}");
    }

    #[test]
    fn of_a_wide_buffer_every_nth_slot_is_shown() {
        let wide = buffer(
            3,
            "pending",
            &format!("{}{}{}", "A".repeat(64), ".".repeat(32), "2".repeat(32)),
        );
        let lines = slot_tables([&wide], 128, LABEL + REMARK + 32);
        assert_eq!(
            plain(&lines),
            "  buffer 3   ■■■■■■■■■■■■■■■■········22222222  pending, 64 of 128\n"
        );
    }

    #[test]
    fn staleness_shows_in_the_ink() {
        let line = slot_table(&buffer(0, "ready", "ABCD"), 4, 10);
        assert_eq!(
            line.coloured(80),
            "  buffer 0   \x1b[32m■\x1b[0m\x1b[33m■\x1b[0m\x1b[35m■\x1b[0m\x1b[35m■\x1b[0m\x1b[2m  ready, 4 of 4\x1b[0m"
        );
    }

    #[test]
    fn workers_beyond_nine_have_letters() {
        assert_eq!(["rollout-3", "rollout-12", "other"].map(worker_mark), ['3', 'c', '?']);
    }
}
