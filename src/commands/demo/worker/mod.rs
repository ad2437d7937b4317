//! The demo's rollout process: it reserves places, generates into them for as long as the drawn lengths say, and occupies
//! them; of groups it generates the members at once, reports each when it is done, and adopts what dead workers left.
//!
//! Three kinds of task: one admits, one keeps the heartbeat, and one stands for each response that is being generated.

mod generating;
mod heartbeat;
mod holdings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use uuid::Uuid;

use super::lengths::{Lengths, LengthsError};
use super::pace::Pace;
use crate::client::{Client, ClientError, Reserve, RunClient};
use crate::commands::processes::parent_died;
use crate::protocol::Version;
use holdings::Holdings;

/// How long a reserve waits for its first grant before it is made again.
const RESERVE_WAIT: Duration = Duration::from_secs(5);

/// How many places one call may ask for.
const MOST_AT_ONCE: usize = 1_024;

/// A rollout process of `berth demo`.
#[derive(Debug, clap::Args)]
pub struct DemoWorkerArgs {
    /// The server's address.
    #[arg(long)]
    url: String,
    /// The run.
    #[arg(long)]
    run: String,
    /// The worker's name.
    #[arg(long)]
    worker: String,
    /// How many responses it generates at once.
    #[arg(long)]
    concurrency: usize,
    /// Where its lengths and rewards come from.
    #[arg(long)]
    seed: u64,
    /// Simulated seconds in one second.
    #[arg(long)]
    speed: f64,
    /// A file of response lengths.
    #[arg(long)]
    lengths: Option<PathBuf>,
    /// One response of the first entry that is admitted under this version, or a newer one, never ends.
    #[arg(long)]
    hang_at: Option<u64>,
}

/// Why a rollout process gave up.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Call(#[from] ClientError),
    #[error(transparent)]
    Lengths(#[from] LengthsError),
}

/// What all tasks of the process share.
struct Rollout {
    run: RunClient,
    worker: String,
    /// New at each start of the process: a successor under the same name is somebody else.
    session: String,
    pace: Pace,
    lengths: Lengths,
    /// Members of a group, as the run has it.
    group_size: u32,
    /// The version of the weights that the process holds.
    version: watch::Sender<Version>,
    holdings: Holdings,
    /// Where a task leaves the error that ends the process.
    failures: mpsc::UnboundedSender<ClientError>,
}

/// Generates until it is stopped.
pub async fn run_worker(args: DemoWorkerArgs) -> ExitCode {
    let outcome = tokio::select! {
        outcome = roll_out(args) => outcome,
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

async fn roll_out(args: DemoWorkerArgs) -> Result<(), WorkerError> {
    let run = Client::new(&args.url)?.run(&args.run);
    let lengths = Lengths::load(args.lengths.as_deref())?;
    let status = run.status().await?;
    let (failures, mut failed) = mpsc::unbounded_channel();
    let rollout = Arc::new(Rollout {
        run,
        worker: args.worker.clone(),
        session: Uuid::new_v4().to_string(),
        pace: Pace::new(args.speed),
        lengths,
        group_size: status.config.group_size,
        version: watch::Sender::new(status.policy_version),
        holdings: Holdings::default(),
        failures,
    });
    // Reserving names no version: it goes by what the session has said last, also while it waits.
    rollout.beat(Duration::ZERO).await?;
    tokio::select! {
        outcome = rollout.keep_beating() => Ok(outcome?),
        outcome = rollout.admit(&args) => Ok(outcome?),
        Some(error) = failed.recv() => Err(error.into()),
    }
}

impl Rollout {
    /// Asks for as many places as there is capacity for, again and again.
    async fn admit(self: &Arc<Self>, args: &DemoWorkerArgs) -> Result<(), ClientError> {
        // One that could not generate a group at once would generate none.
        let concurrency = args.concurrency.max(self.group_size as usize);
        let capacity = Arc::new(Semaphore::new(concurrency));
        let mut random = StdRng::seed_from_u64(args.seed);
        let mut hang_at = args.hang_at.map(Version);
        let mut admitted: u64 = 0;
        loop {
            let mut free = free_capacity(&capacity, self.group_size).await;
            let request = self.reserve_request(free.len().min(MOST_AT_ONCE), admitted);
            let granted = match self.run.reserve(&request).await {
                Ok(answer) => answer.granted,
                Err(error) if error.code() == Some("version_too_stale") => {
                    // Newer weights are to be fetched, or have been, and the server was not told of it yet.
                    self.beat(Duration::ZERO).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            admitted += granted.len() as u64;
            for (grant, permits) in granted.iter().zip(free.drain(..)) {
                let hangs = hang_at
                    .take_if(|version| !grant.adopted && grant.version >= *version)
                    .is_some();
                self.generate(grant, permits, &mut random, hangs);
            }
        }
    }

    fn reserve_request(&self, count: usize, admitted: u64) -> Reserve {
        let process = &self.session[..4];
        let prompts = (admitted..)
            .take(count)
            .map(|number| format!("{}.{process}.{number}", self.worker))
            .collect();
        Reserve {
            worker: self.worker.clone(),
            session: self.session.clone(),
            count,
            version: None,
            prompts,
            adopt: None,
            wait_ms: RESERVE_WAIT.as_secs() * 1_000,
            request_id: Uuid::new_v4().to_string(),
        }
    }
}

/// All capacity that is free for whole entries, and at least for one: a permit for each member.
async fn free_capacity(capacity: &Arc<Semaphore>, members: u32) -> Vec<Vec<OwnedSemaphorePermit>> {
    let each_alone = |all: OwnedSemaphorePermit| {
        let mut all = all;
        (0..members).filter_map(|_| all.split(1)).collect()
    };
    let first = Arc::clone(capacity).acquire_many_owned(members).await;
    let mut free: Vec<Vec<_>> = first.map(each_alone).into_iter().collect();
    while let Ok(more) = Arc::clone(capacity).try_acquire_many_owned(members) {
        free.push(each_alone(more));
    }
    free
}
