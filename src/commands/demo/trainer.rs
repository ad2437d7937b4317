//! The demo's trainer process: it takes a batch, spends the time that training would take, publishes, and begins again.
//!
//! All that it remembers is its checkpoint. Restarted, it opens a session that goes on from there, and gets the batches that
//! its predecessor trained since then, as they were, and the one that it did not finish.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::cast::TRAINER;
use super::checkpoint::{CheckpointError, CheckpointFile};
use super::delivery::Delivery;
use super::pace::Pace;
use super::plan::CHECKPOINT_EVERY;
use super::record::{Record, SessionRecord};
use crate::client::{Client, ClientError, OpenTrainerSession, Piece, RunClient, TakenBatch};
use crate::commands::processes::parent_died;
use crate::protocol::{Epoch, Version};

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
    /// The file that holds its checkpoint.
    #[arg(long)]
    checkpoint: PathBuf,
    /// Take batches in pieces.
    #[arg(long)]
    stream: bool,
}

/// Why a trainer gave up.
#[derive(Debug, thiserror::Error)]
enum TrainerError {
    #[error("another trainer has opened a session, and this one's is over: it stops ({0})")]
    Fenced(ClientError),
    #[error("the ledger can't go on from this trainer's checkpoint: it stops ({0})")]
    NoWayOn(ClientError),
    #[error(transparent)]
    Call(ClientError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl From<ClientError> for TrainerError {
    fn from(error: ClientError) -> Self {
        match error.code() {
            Some("fenced") => Self::Fenced(error),
            Some("ledger_behind" | "batch_pruned") => Self::NoWayOn(error),
            _ => Self::Call(error),
        }
    }
}

/// A trainer whose session is open.
struct Trainer {
    run: RunClient,
    epoch: Option<Epoch>,
    pace: Pace,
    checkpoint: CheckpointFile,
    /// Responses in a batch of this run.
    responses: u64,
    /// Whether it takes its batches in pieces.
    streams: bool,
}

/// Trains until the last version is published.
pub async fn run_trainer(args: DemoTrainerArgs) -> ExitCode {
    let outcome = tokio::select! {
        outcome = train(args) => outcome,
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

async fn train(args: DemoTrainerArgs) -> Result<(), TrainerError> {
    let last_version = Version(args.last_version);
    let (trainer, mut version) = Trainer::start(args).await?;
    // One that died just before its end has nothing left to do.
    while version < last_version {
        version = trainer.train_one(version).await?;
        if version.0.is_multiple_of(CHECKPOINT_EVERY) || version == last_version {
            trainer.save(version).await?;
        }
    }
    Ok(())
}

impl Trainer {
    /// Opens the session. Returns the version that the trainer goes on from, too.
    async fn start(args: DemoTrainerArgs) -> Result<(Self, Version), TrainerError> {
        let run = Client::new(&args.url)?.run(&args.run);
        let checkpoint = CheckpointFile::new(args.checkpoint);
        let resume_from = checkpoint.load()?;
        let request = OpenTrainerSession {
            trainer: TRAINER.to_owned(),
            session: Uuid::new_v4().to_string(),
            resume_from,
        };
        let config = run.status().await?.config;
        let session = run.open_trainer_session(&request).await?;
        if resume_from.is_none() {
            // What it begins with is a checkpoint too: once a version is published, its successor must name one.
            checkpoint.save(session.trainer_version)?;
        }
        Record::Opened(SessionRecord {
            resume_from,
            trainer_version: session.trainer_version,
            policy_version: session.policy_version,
        })
        .write();
        let trainer = Self {
            run,
            epoch: Some(session.epoch),
            pace: Pace::new(args.speed),
            checkpoint,
            responses: u64::from(config.batch_size) * u64::from(config.group_size),
            streams: args.stream,
        };
        Ok((trainer, session.trainer_version))
    }

    /// Trains the batch of weights of this version, and returns the version that they were trained into.
    async fn train_one(&self, version: Version) -> Result<Version, TrainerError> {
        if self.streams {
            self.train_in_pieces(version).await?;
        } else {
            self.train_whole(version).await?;
        }
        let version = Version(version.0 + 1);
        let weights = format!("demo://weights/{version}");
        let policy_version = self.run.publish(self.epoch, version, &weights).await?.policy_version;
        Record::Published {
            version,
            policy_version,
        }
        .write();
        Ok(version)
    }

    async fn train_whole(&self, version: Version) -> Result<(), TrainerError> {
        Record::Waiting { has: 0 }.write();
        let asked_at = Instant::now();
        let batch = loop {
            if let Some(batch) = self.run.next_batch(self.epoch, WAIT).await?.batch {
                break batch;
            }
        };
        let mut delivery = Delivery::of(version);
        delivery.add(&batch, asked_at.elapsed());
        let tokens = delivery.record.tokens;
        Record::Batch(delivery.record).write();
        self.train_on(tokens).await;
        Ok(())
    }

    /// Trains on each piece as it comes.
    async fn train_in_pieces(&self, version: Version) -> Result<(), TrainerError> {
        let mut delivery = Delivery::of(version);
        loop {
            let has = delivery.record.entries.len();
            Record::Waiting { has }.write();
            let asked_at = Instant::now();
            let piece = self.next_piece(version, has).await?;
            let record = delivery.add(&piece, asked_at.elapsed());
            let (tokens, is_complete) = (record.tokens, record.complete);
            Record::Piece(record).write();
            if is_complete {
                Record::Batch(delivery.record).write();
                self.train_on(tokens).await;
                return Ok(());
            }
            self.train_on(tokens).await;
        }
    }

    async fn next_piece(&self, version: Version, from_offset: usize) -> Result<TakenBatch, ClientError> {
        let piece = Piece {
            version,
            from_offset,
            min_entries: 1,
        };
        loop {
            if let Some(piece) = self.run.next_piece(self.epoch, piece, WAIT).await?.batch {
                return Ok(piece);
            }
        }
    }

    async fn train_on(&self, tokens: u64) {
        tokio::time::sleep(self.pace.training(tokens, self.responses)).await;
    }

    /// Saves a checkpoint, and then lets go of the batches that it makes dispensable.
    async fn save(&self, version: Version) -> Result<(), TrainerError> {
        self.checkpoint.save(version)?;
        Record::Saved { version }.write();
        self.run.checkpoint(self.epoch, version).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_that_has_to_stop_says_why() {
        let told = |code: &str| {
            TrainerError::from(ClientError::Refused {
                call: "POST /v1/runs/demo/versions".to_owned(),
                status: 409,
                code: code.to_owned(),
                reason: None,
                first_seq: None,
                detail: "No.".to_owned(),
                retry_after: None,
            })
            .to_string()
        };
        let because = |code: &str| format!("POST /v1/runs/demo/versions: 409 {code}: No.");
        for (code, expected) in [
            (
                "fenced",
                "another trainer has opened a session, and this one's is over: it stops (…)",
            ),
            (
                "ledger_behind",
                "the ledger can't go on from this trainer's checkpoint: it stops (…)",
            ),
            (
                "batch_pruned",
                "the ledger can't go on from this trainer's checkpoint: it stops (…)",
            ),
            ("unknown_run", "…"),
        ] {
            assert_eq!(told(code), expected.replace('…', &because(code)));
        }
    }
}
