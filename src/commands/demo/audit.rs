//! The run's whole event log, read over HTTP and checked.

use std::collections::BTreeMap;

use super::compare::Composition;
use super::groups::Groups;
use crate::client::RunClient;
use crate::commands::event_log::{LogError, Progress, read_live};
use crate::protocol::Version;
use crate::protocol::audit::Auditor;

/// What the event log says.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// How many events there are.
    pub(super) events: u64,
    /// Every break of an invariant, in words.
    pub(super) violations: Vec<String>,
    /// The staleness composition of each batch that was taken.
    pub(super) batches: BTreeMap<Version, Composition>,
    /// How many entries were discarded, by reason.
    pub(super) discarded: BTreeMap<String, u64>,
    /// How often a batch was delivered to be trained again.
    pub(super) replayed: u64,
    /// How many entries were saved after they had been discarded.
    pub(super) late: u64,
    /// How many groups were adopted.
    pub(super) adopted: u64,
    /// How many members of those were complete.
    pub(super) members_saved: u64,
}

/// Reads the log from its first event to its last, and checks every step.
pub(super) async fn audit(run: &RunClient) -> Result<Audit, LogError> {
    let mut auditor = Auditor::new();
    let mut groups = Groups::default();
    read_live(run, &mut Progress::default(), &mut |event| {
        auditor.apply(&event);
        groups.apply(&event);
        Ok(())
    })
    .await?;
    let report = auditor.report();
    let batches = report.batches.iter();
    Ok(Audit {
        events: report.events,
        violations: auditor.violations().iter().map(ToString::to_string).collect(),
        batches: batches.map(|batch| (batch.version, batch.staleness.clone())).collect(),
        discarded: report.discarded.clone(),
        replayed: report.replayed,
        late: report.late,
        adopted: groups.adopted,
        members_saved: groups.members_saved,
    })
}
