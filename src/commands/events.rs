//! `berth events`: the event log of a run. On a terminal in words, for whoever looks into it; otherwise as JSON lines, for
//! files, pipes and `berth verify --events`.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use super::event_log::in_words;
use crate::client::{Client, ClientError, RunClient};
use crate::ledger::RunName;
use crate::protocol::Event;

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
    /// In words, as on a terminal, whatever else is said
    #[arg(long, env = "BERTH_EVENTS_WORDS")]
    pub words: bool,
    /// As JSON lines, as everywhere else
    #[arg(long, env = "BERTH_JSON")]
    pub json: bool,
}

/// How events are printed.
#[derive(Debug, Clone, Copy)]
enum Form {
    Words,
    JsonLines,
}

impl EventsArgs {
    fn form(&self) -> Form {
        if self.words || !self.json && io::stdout().is_terminal() {
            Form::Words
        } else {
            Form::JsonLines
        }
    }
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
    let form = args.form();
    let mut after = print_to_the_end(&run, args.after, Duration::ZERO, form, &mut output).await?;
    if !args.follow {
        return Ok(());
    }
    loop {
        after = print_to_the_end(&run, after, WAIT, form, &mut output).await?;
    }
}

/// Prints all pages that there are, and returns the number of the last event.
async fn print_to_the_end(
    run: &RunClient,
    mut after: u64,
    wait: Duration,
    form: Form,
    output: &mut impl Write,
) -> Result<u64, EventsError> {
    loop {
        let page = run.events::<Box<RawValue>>(after, wait).await?;
        for event in &page.events {
            match form {
                Form::JsonLines => writeln!(output, "{event}")?,
                Form::Words => {
                    let event = parsed::<Event>(run, event)?;
                    let said = in_words(&event).join("\n            ");
                    writeln!(output, "{}  {said}", TimeOfDay(event.at_ms))?;
                }
            }
        }
        // Each page at once, for those who follow.
        output.flush()?;
        if let Some(last) = page.events.last() {
            after = parsed::<Numbered>(run, last)?.seq;
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(after),
        }
    }
}

/// What is needed of an event to ask for the next.
#[derive(serde::Deserialize)]
struct Numbered {
    seq: u64,
}

fn parsed<T: serde::de::DeserializeOwned>(run: &RunClient, event: &RawValue) -> Result<T, ClientError> {
    serde_json::from_str(event.get()).map_err(|source| ClientError::Malformed {
        call: format!("events of {}", run.name()),
        source,
    })
}

/// An instant in Unix milliseconds, as the time of its day (UTC) in seconds.
struct TimeOfDay(u64);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000;
        let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::TimeOfDay;

    #[test]
    fn an_instant_is_told_as_the_time_of_its_day() {
        assert_eq!(TimeOfDay(0).to_string(), "00:00:00");
        assert_eq!(TimeOfDay(1_767_225_599_999).to_string(), "23:59:59");
    }
}
