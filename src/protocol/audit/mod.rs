//! A run audited from its event log alone.
//!
//! The auditor follows the log in two sets of tables. One is moved by the logged effects, whatever they say: that is
//! what really happened, and every invariant is checked on it. The other is moved by the model: that is what should
//! have happened, and its effects are held against the logged ones, one by one. Where they part, the difference is a
//! finding, and the model goes on from what was logged.

mod batches;
mod finding;
mod groups;
mod happening;
mod report;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod trainer;

use super::tables::SlotTables;
use super::{Event, EventType, RunConfig};
use run::Run;

pub use finding::{Fault, Finding, PieceTold};
pub use report::{BatchReport, Report, Resumes};

/// Follows the events of one run, from its first.
///
/// It never panics, however broken the log is: what it cannot follow is a finding, and the last one.
#[derive(Debug, Default)]
pub struct Auditor {
    stage: Stage,
    last_seq: Option<u64>,
    findings: Vec<Finding>,
    report: Report,
}

#[derive(Debug, Default)]
enum Stage {
    /// No event was seen.
    #[default]
    Waiting,
    Following(Box<Run>),
    /// Something was logged that no tables can follow.
    Stopped,
}

impl Auditor {
    /// An auditor that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows one event. The events of a run come in the order of `seq`, none left out.
    pub fn apply(&mut self, event: &Event) {
        let mut faults = Vec::new();
        self.follow_sequence(event, &mut faults);
        self.report.events += 1;
        let followed = match &mut self.stage {
            Stage::Waiting => begin(event).map(|run| self.stage = Stage::Following(Box::new(run))),
            Stage::Following(run) => run.follow(event, &mut self.report, &mut faults),
            Stage::Stopped => Ok(()),
        };
        if let Err(fault) = followed {
            faults.push(fault);
            self.stage = Stage::Stopped;
        }
        let seq = event.seq;
        let findings = faults.into_iter().map(|fault| Finding { seq, fault });
        self.findings.extend(findings);
    }

    /// What is wrong with the run, in the order of the log. Each breach of an invariant is told once, at the event that
    /// brought it.
    pub fn violations(&self) -> &[Finding] {
        &self.findings
    }

    /// The figures of the run as far as it was followed.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// `seq` rises by exactly one, but for the trainer session that ends that a run is behind: it passes over all that
    /// was seen of the writes that are lost. A run that was created under the name of a deleted one goes on from its
    /// last.
    fn follow_sequence(&mut self, event: &Event, faults: &mut Vec<Fault>) {
        let last = self.last_seq.replace(event.seq);
        if let Some(said) = event.raised_from {
            let may_rise = event.event_type == EventType::TrainerOpened && event.behind;
            if !may_rise || last != Some(said) || event.seq <= said {
                faults.push(Fault::RaisedFrom { said });
            }
            return;
        }
        let expected = last.map(|last| last.saturating_add(1));
        if let Some(expected) = expected.filter(|expected| *expected != event.seq) {
            faults.push(Fault::Sequence { expected });
        }
    }
}

/// The first event creates the run. One that goes on from a deleted run begins a lineage, and says which.
fn begin(event: &Event) -> Result<Run, Fault> {
    if event.event_type != EventType::RunCreated {
        return Err(Fault::NotCreated);
    }
    let config = event.config.as_ref().ok_or(Fault::Missing("config"))?;
    if !within_bounds(config) {
        return Err(Fault::Config);
    }
    let epoch = event.epoch.unwrap_or_default();
    let tables = match event.lineage {
        Some(lineage) => SlotTables::continued(config.clone(), epoch, lineage),
        None => SlotTables::new(config.clone()),
    };
    Ok(Run::new(tables))
}

/// Whether tables can be laid out for the configuration. The bounds are those of the HTTP contract.
fn within_bounds(config: &RunConfig) -> bool {
    const GREATEST_EXACT_IN_JSON: u64 = 1 << 53;
    let slots = config.batch_size..=config.batch_size.saturating_mul(2).saturating_add(64);
    (1..=65_536).contains(&config.batch_size)
        && slots.contains(&config.slots_per_buffer)
        && config.max_staleness <= 64
        && (1..=1_024).contains(&config.group_size)
        && (config.group_size..=1_024).contains(&config.group_candidates)
        && config.order_window > 0
        && config.max_attempts > 0
        && config.initial_version <= GREATEST_EXACT_IN_JSON
}
