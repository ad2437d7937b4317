//! `berth status`: a run in numbers, for a person in a terminal.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::looking::{self, LookArgs};
use crate::client::ClientError;
use crate::ledger::state::{Totals, Trainer};

/// What `berth status` is told.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    look: LookArgs,
}

/// The part of `GET /v1/runs/{run}` that is shown.
#[derive(Deserialize)]
struct Status {
    run: String,
    policy_version: u64,
    lineage: u64,
    trainer_version: u64,
    reserved: u64,
    generating: u64,
    occupied: u64,
    workers: u64,
    kept_batches: u64,
    oldest_kept: Option<u64>,
    seq: u64,
    #[serde(default)]
    draining: bool,
    #[serde(default)]
    finished: bool,
    buffers: Vec<Buffer>,
    trainer: Trainer,
    totals: Totals,
}

#[derive(Deserialize)]
struct Buffer {
    version: u64,
    state: String,
    occupied: u32,
    empty: u32,
    reserved: u32,
}

/// Prints the status.
pub async fn run(args: StatusArgs) -> ExitCode {
    looking::end("status", page(&args.look).await)
}

async fn page(look: &LookArgs) -> Result<String, ClientError> {
    let run = look.client()?;
    if look.json {
        return Ok(looking::pretty(&run.status_as().await?));
    }
    Ok(written(&run.status_as().await?))
}

fn written(status: &Status) -> String {
    let state = match (status.finished, status.draining) {
        (true, _) => ", finished",
        (false, true) => ", draining",
        (false, false) => "",
    };
    let oldest = status
        .oldest_kept
        .map_or_else(String::new, |oldest| format!(", from {oldest} on"));
    let totals = &status.totals;
    let mut lines = vec![
        format!("run {}: {} events{state}", status.run, status.seq),
        format!(
            "  version    {} (lineage {}), the trainer at {}",
            status.policy_version, status.lineage, status.trainer_version
        ),
        format!("  trainer    {}", looking::trainer(&status.trainer, None)),
        format!("  workers    {} with a lease", status.workers),
        format!(
            "  entries    {} reserved, {} trajectories generating, {} occupied",
            status.reserved, status.generating, status.occupied
        ),
    ];
    lines.extend(status.buffers.iter().map(|buffer| {
        format!(
            "  buffer     {} {}: {} occupied, {} empty, {} reserved",
            buffer.version, buffer.state, buffer.occupied, buffer.empty, buffer.reserved
        )
    }));
    lines.push(format!("  batches    {} kept{oldest}", status.kept_batches));
    lines.push(format!(
        "  in all     {} reserved, {} occupied ({} of them late), {} trained",
        totals.reserved, totals.occupied, totals.late, totals.trained
    ));
    let discarded = totals
        .discarded
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"));
    let discarded: Vec<_> = discarded.collect();
    if !discarded.is_empty() {
        lines.push(format!("  discarded  {}", discarded.join(", ")));
    }
    lines.push(String::new());
    lines.join("\n")
}
