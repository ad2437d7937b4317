//! What the commands that look at a run share: which run, on which server, and how they end.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use crate::client::{Client, ClientError, RunClient};
use crate::ledger::RunName;
use crate::ledger::explain::Length;
use crate::ledger::state::{Trainer, TrainerActivity};

/// A run to look at.
#[derive(Debug, Args)]
pub(super) struct LookArgs {
    /// The run
    #[arg(long, env = "BERTH_RUN", value_name = "NAME")]
    pub run: RunName,
    /// The server
    #[arg(
        long,
        visible_alias = "server",
        env = "BERTH_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub url: String,
    /// Print the server's answer as JSON
    #[arg(long, env = "BERTH_JSON")]
    pub json: bool,
}

impl LookArgs {
    pub(super) fn client(&self) -> Result<RunClient, ClientError> {
        Ok(Client::new(&self.url)?.run(self.run.as_str()))
    }
}

/// Prints what a look came to. Whoever reads may stop when they have enough.
pub(super) fn end(command: &str, page: Result<String, ClientError>) -> ExitCode {
    let page = match page {
        Ok(page) => page,
        Err(error) => {
            eprintln!("berth {command}: {error}");
            return ExitCode::from(if matches!(error, ClientError::Url { .. }) { 2 } else { 1 });
        }
    };
    match io::stdout().write_all(page.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("berth {command}: standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// A JSON answer for people and `jq`.
pub(super) fn pretty(answer: &serde_json::Value) -> String {
    format!("{answer:#}\n")
}

/// The trainer in one line; `now_ms` is the database's clock, where it is known.
pub(super) fn trainer(trainer: &Trainer, now_ms: Option<u64>) -> String {
    let state = match trainer.state {
        TrainerActivity::NeverSeen => return "never seen".to_owned(),
        TrainerActivity::Waiting => "waiting",
        TrainerActivity::Training => "training",
    };
    let ago = |at: Option<u64>| now_ms.zip(at).map(|(now, at)| Length(now.saturating_sub(at)));
    let name = trainer.name.as_deref().unwrap_or("without a session");
    let mut line = format!("{name}, epoch {}, {state}", trainer.epoch);
    if let Some(since) = ago(trainer.since_at_ms) {
        line = format!("{line} for {since}");
    }
    if let Some(last) = ago(trainer.last_call_at_ms) {
        line = format!("{line}, last call {last} ago");
    }
    line
}
