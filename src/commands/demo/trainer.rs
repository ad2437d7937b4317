//! The demo's trainer process: it takes a batch, spends the time that training would take, publishes, and begins again.
//!
//! It remembers nothing. Restarted, it asks for the next batch like any other time, and gets the one that its predecessor
//! did not finish.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::record::{BatchRecord, EntryRecord, Record};
use crate::client::{Client, ClientError, RunClient, TakenBatch};
use crate::commands::processes::parent_died;
use crate::protocol::Version;

/// How long one call waits for a batch before it is made again.
const WAIT: Duration = Duration::from_secs(10);

/// The trainer process of `berth demo`.
#[derive(Debug, clap::Args)]
pub struct DemoTrainerArgs {
    /// The server's address.
    #[arg(long)]
    url: String,
    /// The run.
    #[arg(long)]
    run: String,
    /// The version that ends the job once it is published.
    #[arg(long)]
    last_version: u64,
    /// Simulated seconds in one second.
    #[arg(long)]
    speed: f64,
}

/// Trains until the last version is published.
pub async fn run_trainer(args: DemoTrainerArgs) -> ExitCode {
    let outcome = tokio::select! {
        outcome = train(&args) => outcome,
        () = parent_died() => return ExitCode::FAILURE,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn train(args: &DemoTrainerArgs) -> Result<(), ClientError> {
    let run = Client::new(&args.url)?.run(&args.run);
    let pace = Pace::new(args.speed);
    loop {
        Record::Waiting.write();
        let asked_at = Instant::now();
        let batch = next_batch(&run).await?;
        let record = record_of(&batch, asked_at.elapsed());
        let (tokens, entries) = (record.tokens, record.entries.len());
        Record::Batch(record).write();

        tokio::time::sleep(pace.training(tokens, entries)).await;

        let version = Version(batch.version.0 + 1);
        run.publish(version, &format!("demo://weights/{version}")).await?;
        Record::Published { version }.write();
        if version.0 >= args.last_version {
            return Ok(());
        }
    }
}

async fn next_batch(run: &RunClient) -> Result<TakenBatch, ClientError> {
    loop {
        if let Some(batch) = run.next_batch(WAIT).await?.batch {
            return Ok(batch);
        }
    }
}

fn record_of(batch: &TakenBatch, waited: Duration) -> BatchRecord {
    let entries = batch.trajectories.iter();
    BatchRecord {
        version: batch.version,
        redelivered: batch.redelivered,
        waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        tokens: entries.clone().filter_map(|entry| entry.tokens).sum(),
        entries: entries
            .map(|entry| EntryRecord {
                id: entry.id,
                version: entry.version,
                staleness: entry.staleness,
            })
            .collect(),
    }
}
