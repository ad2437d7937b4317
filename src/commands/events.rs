//! `berth events`: the event log of a run as JSON lines, for `berth verify --events` and for whoever wants to look into it.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use crate::client::{Client, ClientError, RunClient};
use crate::ledger::RunName;

/// How long one call waits for the next event.
const WAIT: Duration = Duration::from_secs(30);

/// What `berth events` is told.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// The run
    #[arg(long, env = "BERTH_RUN", value_name = "NAME")]
    pub run: RunName,
    /// The server
    #[arg(long, env = "BERTH_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Only the events behind this one
    #[arg(long, env = "BERTH_EVENTS_AFTER", value_name = "SEQ", default_value_t = 0)]
    pub after: u64,
    /// Go on as they come, until the run is deleted
    #[arg(long, env = "BERTH_EVENTS_FOLLOW")]
    pub follow: bool,
}

#[derive(Debug, thiserror::Error)]
enum EventsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Prints a log. Whoever reads may stop when they have enough.
pub async fn run(args: EventsArgs) -> ExitCode {
    match print(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(EventsError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth events: {error}");
            ExitCode::from(match error {
                EventsError::Client(ClientError::Url { .. }) => 2,
                _ => 1,
            })
        }
    }
}

async fn print(args: &EventsArgs) -> Result<(), EventsError> {
    let run = Client::new(&args.url)?.run(args.run.as_str());
    let mut output = BufWriter::new(io::stdout());
    let mut after = print_to_the_end(&run, args.after, Duration::ZERO, &mut output).await?;
    if !args.follow {
        return Ok(());
    }
    loop {
        after = print_to_the_end(&run, after, WAIT, &mut output).await?;
    }
}

/// Prints all pages that there are, and returns the number of the last event.
async fn print_to_the_end(
    run: &RunClient,
    mut after: u64,
    wait: Duration,
    output: &mut impl Write,
) -> Result<u64, EventsError> {
    loop {
        let page = run.events::<Box<RawValue>>(after, wait).await?;
        for event in &page.events {
            writeln!(output, "{event}")?;
        }
        // Each page at once, for those who follow.
        output.flush()?;
        if let Some(last) = page.events.last() {
            after = seq_of(run, last)?;
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(after),
        }
    }
}

fn seq_of(run: &RunClient, event: &RawValue) -> Result<u64, ClientError> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: u64,
    }
    let numbered: Numbered = serde_json::from_str(event.get()).map_err(|source| ClientError::Malformed {
        call: format!("events of {}", run.name()),
        source,
    })?;
    Ok(numbered.seq)
}
