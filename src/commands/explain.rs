//! `berth explain`: why the trainer of a run waits, for a person in a terminal.

use std::process::ExitCode;

use clap::Args;

use super::looking::{self, LookArgs};
use crate::client::ClientError;
use crate::ledger::explain::{Explanation, FreedBy, Length, WaitingOn};

/// What `berth explain` is told.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    look: LookArgs,
}

/// Prints the explanation.
pub async fn run(args: ExplainArgs) -> ExitCode {
    looking::end("explain", page(&args.look).await)
}

async fn page(look: &LookArgs) -> Result<String, ClientError> {
    let run = look.client()?;
    if look.json {
        return Ok(looking::pretty(&run.explain().await?));
    }
    let explanation: Explanation = run.explain().await?;
    Ok(written(look.run.as_str(), &explanation))
}

fn written(run: &str, explanation: &Explanation) -> String {
    let Explanation {
        summary,
        at_ms,
        trainer,
        admission,
        ..
    } = explanation;
    let mut lines = vec![
        format!("run {run}"),
        summary.clone(),
        String::new(),
        format!("  trainer    {}", looking::trainer(trainer, Some(*at_ms))),
        format!("  buffer     {}", buffer(explanation)),
    ];
    let blocked = admission
        .blocked_by
        .map_or_else(|| "open".to_owned(), |block| format!("blocked by {}", word(&block)));
    lines.push(format!(
        "  admission  {blocked}, {} slots free, {} reserved",
        admission.free_slots, admission.reserved
    ));
    lines.push(format!("  workers    {}", workers(explanation)));
    if !explanation.waiting_on.is_empty() {
        lines.push(String::new());
        lines.extend(table(&explanation.waiting_on, *at_ms));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn buffer(explanation: &Explanation) -> String {
    match (explanation.buffer, explanation.buffer_state) {
        (Some(buffer), Some(state)) => format!(
            "{buffer}, {}, {} of {}",
            word(&state),
            explanation.occupied,
            explanation.needed
        ),
        _ => "none is open".to_owned(),
    }
}

fn workers(explanation: &Explanation) -> String {
    let groups = explanation.workers.iter().map(|group| {
        let version = group
            .version
            .map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        let refused = group
            .last_refusal
            .as_ref()
            .map_or_else(String::new, |code| format!(" (refused: {code})"));
        format!("{} at version {version}{refused}", group.workers)
    });
    let groups: Vec<_> = groups.collect();
    if groups.is_empty() {
        return "none with a lease".to_owned();
    }
    groups.join(", ")
}

/// The reservations in columns.
fn table(waiting_on: &[WaitingOn], now_ms: u64) -> Vec<String> {
    let ago = |at_ms: u64| format!("{} ago", Length(now_ms.saturating_sub(at_ms)));
    let head = [
        "slot",
        "id",
        "prompt",
        "worker",
        "version",
        "attempt",
        "members",
        "reserved",
        "heartbeat",
        "freed",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(waiting_on.iter().map(|waiting| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let freed = waiting.frees_at_ms.zip(waiting.freed_by).map(|(at, by)| {
            let left = Length(at.saturating_sub(now_ms));
            format!("in {left}, by {}", word::<FreedBy>(&by))
        });
        [
            waiting.slot.0.to_string(),
            waiting.id.to_string(),
            or_dash(waiting.prompt.clone()),
            or_dash(waiting.worker.clone()),
            waiting.version.to_string(),
            waiting.attempt.to_string(),
            or_dash(waiting.members_complete.map(|complete| complete.to_string())),
            ago(waiting.reserved_at_ms),
            or_dash(waiting.heartbeat_at_ms.map(ago)),
            freed.unwrap_or_else(|| "by nothing".to_owned()),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(line).collect()
}

/// The contract's word for a value.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
