//! What a run of the test amounted to.

use std::collections::BTreeMap;
use std::fmt;

use berth::protocol::{Effect, EventType};

use crate::diary::{Entry, Line};
use crate::history::History;
use crate::rehearsal::Rehearsal;
use crate::stage::Play;

/// Counted in the order in which they are shown.
pub(crate) struct Figures {
    title: String,
    faults: BTreeMap<String, usize>,
    rest: Vec<(&'static str, String)>,
}

impl Figures {
    pub(crate) fn of(play: &Play, history: &History, rehearsal: &Rehearsal, violations: usize) -> Self {
        let lines = || play.workers.iter().chain(&play.trainer);
        let count = |is: fn(&Entry) -> bool| lines().filter(|line| is(&line.entry)).count();
        let mut faults: BTreeMap<String, usize> = BTreeMap::new();
        for (kind, _) in &play.faults {
            *faults.entry((*kind).to_owned()).or_default() += 1;
        }
        for Line { entry, .. } in &play.trainer {
            if let Entry::Dies { between } = entry {
                *faults.entry(format!("trainer died between {between}")).or_default() += 1;
            }
        }
        let operations =
            count(|entry| !matches!(entry, Entry::Retried { .. } | Entry::Dies { .. } | Entry::Saved { .. }));
        let late = history.stories.values().filter(|story| story.late).count();
        let of_type = |event_type| {
            let events = play.events.iter();
            events.filter(|event| event.event_type == event_type).count()
        };
        let (whole, pieces) = (of_type(EventType::Take), of_type(EventType::Stream));
        let adopted: usize = history.stories.values().map(|story| story.adoptions).sum();
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        for line in lines() {
            if let Entry::Refused { code, .. } = &line.entry {
                *refused.entry(code).or_default() += 1;
            }
        }
        let mut discarded: BTreeMap<&str, usize> = BTreeMap::new();
        for logged in play.events.iter().flat_map(|event| &event.effects) {
            if let Effect::Discarded { reason, .. } = &logged.effect {
                *discarded.entry(reason.as_str()).or_default() += 1;
            }
        }
        let advances = history.advances.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let rest = vec![
            ("connections cut after the request", play.answers_dropped.to_string()),
            ("operations acknowledged", operations.to_string()),
            ("events", play.events.len().to_string()),
            ("trajectories admitted", history.stories.len().to_string()),
            (
                "occupies acknowledged",
                count(|entry| matches!(entry, Entry::Occupied { .. })).to_string(),
            ),
            ("late occupies", late.to_string()),
            ("discards", format!("{discarded:?}")),
            (
                "members acknowledged",
                count(|entry| matches!(entry, Entry::Member(_))).to_string(),
            ),
            ("groups adopted", adopted.to_string()),
            (
                "pages of prompts fed",
                count(|entry| matches!(entry, Entry::Fed { .. })).to_string(),
            ),
            ("prompts", play.status["prompts"].to_string()),
            (
                "pieces given",
                count(|entry| matches!(entry, Entry::Piece(_))).to_string(),
            ),
            ("pieces taken", pieces.to_string()),
            ("batches taken whole, or to their end", whole.to_string()),
            ("batches that count", history.final_batches().count().to_string()),
            ("versions published", history.advances.len().to_string()),
            (
                "longest time between two",
                format!("{} ms", advances.max().unwrap_or(0)),
            ),
            (
                "trainer sessions",
                count(|entry| matches!(entry, Entry::Opened(_))).to_string(),
            ),
            (
                "redeliveries",
                count(|entry| matches!(entry, Entry::Trained(batch) if batch.redelivered)).to_string(),
            ),
            (
                "replays",
                count(|entry| matches!(entry, Entry::Trained(batch) if batch.replayed)).to_string(),
            ),
            ("rewinds", history.rewinds.to_string()),
            ("forced resumes", history.jumps.to_string()),
            (
                "retries",
                count(|entry| matches!(entry, Entry::Retried { .. })).to_string(),
            ),
            (
                "answered calls repeated",
                count(|entry| matches!(entry, Entry::Repeated { .. })).to_string(),
            ),
            ("refusals that may be", format!("{refused:?}")),
            ("violations", violations.to_string()),
        ];
        let title = format!(
            "chaos: seed {}, {:?}, {} s of faults",
            rehearsal.seed,
            rehearsal.config.kind,
            rehearsal.length.as_secs()
        );
        Self { title, faults, rest }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<52}{count:>8}")?;
        }
        writeln!(f, "  {:<52}{:>8}", "faults", self.faults.values().sum::<usize>())?;
        for (what, figure) in &self.rest {
            writeln!(f, "  {what:<52}{figure:>8}")?;
        }
        Ok(())
    }
}
