//! What was checked and found, for a person.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use crate::commands::event_log::{Checked, Invariant, Violation, in_words};
use crate::protocol::audit::Resumes;

/// Writes the whole page.
pub(super) fn write(out: &mut impl Write, name: Option<&str>, runs: &[Checked]) -> io::Result<()> {
    for (index, run) in runs.iter().enumerate() {
        let is_present = index + 1 == runs.len();
        let name = name.map_or_else(|| "the run".to_owned(), |name| format!("run {name}"));
        let which = if is_present { "" } else { ", which was deleted" };
        writeln!(
            out,
            "{name}{which}: {}, seq {} to {}",
            counted(run.events, "event", "events"),
            run.first_seq,
            run.last_seq
        )?;
        figures(out, run)?;
        invariants(out, run)?;
        violations(out, run)?;
    }
    Ok(())
}

fn figures(out: &mut impl Write, run: &Checked) -> io::Result<()> {
    writeln!(
        out,
        "  entries    {} reserved, {} occupied ({} of them late)",
        run.reserved, run.occupied, run.late
    )?;
    if run.members > 0 {
        let reported = counted(run.members, "member reported", "members reported");
        let orphaned = counted(run.orphaned, "group", "groups");
        let adopted = run.adopted;
        writeln!(
            out,
            "  groups     {reported}, {orphaned} left without an owner, {adopted} adopted"
        )?;
    }
    writeln!(out, "  discarded  {}", spread(&run.discarded))?;
    let pieces = match run.pieces {
        0 => String::new(),
        pieces => format!(" ({} in all)", counted(pieces, "streamed piece", "streamed pieces")),
    };
    writeln!(
        out,
        "  batches    {} taken{pieces}, {} published",
        run.batches, run.published
    )?;
    writeln!(out, "  staleness  {}", spread(&run.staleness))?;
    writeln!(
        out,
        "  trainer    {}, {}, {}",
        sessions(&run.trainer_sessions),
        counted(run.redelivered, "redelivery", "redeliveries"),
        counted(run.replayed, "replayed batch", "replayed batches"),
    )
}

/// How many there were, and how they went on: as in `3 sessions (continued: 1, replay: 2; 1 after lost writes)`.
fn sessions(resumes: &Resumes) -> String {
    let kinds = [
        ("continued", resumes.continued),
        ("replay", resumes.replay),
        ("rewind", resumes.rewind),
        ("forced", resumes.forced),
    ];
    let of_kind = kinds.into_iter().filter(|(_, count)| *count > 0);
    let after_loss = match resumes.behind {
        0 => String::new(),
        behind => format!("; {behind} after lost writes"),
    };
    let total = counted(resumes.all(), "session", "sessions");
    match resumes.all() {
        0 => total,
        _ => format!("{total} ({}{after_loss})", spread(&of_kind.collect())),
    }
}

fn invariants(out: &mut impl Write, run: &Checked) -> io::Result<()> {
    for invariant in Invariant::ALL {
        let verdict = match (run.invariants.get(&invariant).copied().unwrap_or(0), run.followed_to) {
            (0, None) => "holds".to_owned(),
            (0, Some(seq)) => format!("holds up to event {seq}; nothing behind it can be followed"),
            (times, _) => counted(times, "violation", "violations"),
        };
        writeln!(out, "  {invariant:<20}  {verdict}")?;
    }
    Ok(())
}

fn violations(out: &mut impl Write, run: &Checked) -> io::Result<()> {
    for (index, violation) in run.violations.iter().enumerate() {
        writeln!(out)?;
        write_violation(out, index + 1, violation)?;
    }
    let shown = run.violations.len() as u64;
    if run.violated() > shown {
        writeln!(out, "\n{} more, not shown (--most)", run.violated() - shown)?;
    }
    Ok(())
}

fn write_violation(out: &mut impl Write, number: usize, violation: &Violation) -> io::Result<()> {
    let Violation {
        seq,
        invariant,
        finding,
        around,
        ..
    } = violation;
    writeln!(out, "{number}. {invariant}, at event {seq}: {finding}")?;
    // Of two events with one number, the second is the one that was found.
    let found = around.iter().rposition(|event| event.seq == *seq);
    for (index, event) in around.iter().enumerate() {
        let pointer = if found == Some(index) { '>' } else { ' ' };
        let said = in_words(event).join("\n         ");
        writeln!(out, "   {pointer} {said}")?;
    }
    Ok(())
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn spread(counts: &BTreeMap<impl Display, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<_> = counts.iter().map(|(what, count)| format!("{what}: {count}")).collect();
    each.join(", ")
}
