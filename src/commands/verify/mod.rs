//! `berth verify`: a run rebuilt from its event log, and held to every invariant of the protocol.

mod page;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::client::{Client, ClientError};
use crate::commands::event_log::{Checked, Checker, LogError, read_files, read_run};
use crate::ledger::RunName;

/// What `berth verify` is told.
///
/// The log is that of a run on a server, with what the servers archived of it, or one that `berth events` wrote. Exit status:
/// 0 if every invariant holds, 1 if one does not or the log cannot be read from its beginning, 2 on wrong use.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The run whose log to check
    // No environment variable: one that is set for other commands must not forbid --events.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "events",
        conflicts_with = "events"
    )]
    pub run: Option<RunName>,
    /// The server that has it
    #[arg(long, env = "BERTH_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Directories that the servers archive in (their --archive-dir)
    #[arg(long, env = "BERTH_ARCHIVE_DIR", value_name = "DIR", num_args = 1.., value_delimiter = ',')]
    pub archive: Vec<PathBuf>,
    /// Files of JSON lines, in the order of their events; `-` is standard input, of a directory the chunks in it
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub events: Vec<PathBuf>,
    /// The most violations to show
    #[arg(long, env = "BERTH_VERIFY_MOST", value_name = "VIOLATIONS", default_value_t = 20)]
    pub most: usize,
    /// Print JSON, for machines
    #[arg(long, env = "BERTH_VERIFY_JSON")]
    pub json: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Verdict<'a> {
    /// Whether every invariant holds.
    ok: bool,
    /// The run, after those of its name that were deleted before.
    runs: &'a [Checked],
}

/// Checks a log and prints what was found.
pub async fn run(args: VerifyArgs) -> ExitCode {
    let checked = match check(&args).await {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("berth verify: {error}");
            return ExitCode::from(match error {
                LogError::Client(ClientError::Url { .. }) => 2,
                _ => 1,
            });
        }
    };
    let ok = checked.iter().all(|run| run.violated() == 0);
    if let Err(error) = print(&args, &checked, ok)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("berth verify: standard output: {error}");
        return ExitCode::FAILURE;
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn check(args: &VerifyArgs) -> Result<Vec<Checked>, LogError> {
    let mut checker = Checker::new(args.most);
    let mut each = |event| checker.apply(event);
    if let Some(run) = &args.run {
        let client = Client::new(&args.url)?.run(run.as_str());
        let archives: Vec<PathBuf> = args.archive.iter().map(|dir| dir.join(run.as_str())).collect();
        for dir in &args.archive {
            // One that is not there is a slip of the pen; one without this run has nothing of it yet.
            std::fs::read_dir(dir).map_err(|source| LogError::File {
                path: dir.clone(),
                source,
            })?;
        }
        read_run(&client, &archives, &mut each).await?;
    } else {
        read_files(&args.events, &mut each)?;
    }
    checker.end()
}

fn print(args: &VerifyArgs, checked: &[Checked], ok: bool) -> io::Result<()> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut output, &Verdict { ok, runs: checked })?;
        writeln!(output)?;
    } else {
        let name = args.run.as_ref().map(RunName::as_str);
        page::write(&mut output, name, checked)?;
    }
    output.flush()
}
