//! What the user asked for, with everything that follows from it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::lengths::{Lengths, LengthsError};
use super::pace::Pace;
use super::text::counted;
use crate::client::RunSettings;

/// The lease of the demo's run, in milliseconds: short, so that a killed worker is missed within the demo.
pub(super) const LEASE_MS: u64 = 2_000;
/// By how much a reservation may be older than the longest response takes, before it counts as hung: what a busy machine adds.
const HUNG_SLACK: Duration = Duration::from_millis(500);
/// How many versions lie between two checkpoints of the trainer.
pub(super) const CHECKPOINT_EVERY: u64 = 4;
/// The run's name.
pub(super) const RUN: &str = "demo";

/// What `berth demo` can play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scenario {
    /// A training job, with everything that goes wrong in one.
    Job,
    /// The worked example of the protocol, step by step, each compared with the protocol's table. No other flag matters.
    Example,
}

/// A whole asynchronous training job on this machine: a server, rollout workers and a trainer, as real processes.
///
/// Nothing is generated or trained: response lengths are drawn, and time is compressed. On the way one response hangs behind
/// a live heartbeat until its reservation is given up; one worker is killed with SIGKILL, and others adopt the groups of
/// which it had finished some members; and the trainer is killed while it trains: it resumes from its last checkpoint and
/// trains the batches since then again, as they were. At the end the event log is read and every invariant checked. Exit
/// status 1 if one is violated.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// What is played.
    #[arg(long, env = "BERTH_DEMO_SCENARIO", value_enum, default_value_t = Scenario::Job)]
    pub(super) scenario: Scenario,
    /// Entries in one training batch [default: 8 groups, or 16 single responses].
    #[arg(long, env = "BERTH_DEMO_BATCH_SIZE", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch_size: Option<u32>,
    /// Responses in one entry, a prompt group; 1 for entries that are single responses.
    #[arg(
        long,
        env = "BERTH_DEMO_GROUP_SIZE",
        default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=1_024)
    )]
    group_size: u32,
    /// Let the trainer take its batches in pieces, as their entries finish. The job is played twice with the same seed, first
    /// with whole batches, and the two are compared.
    #[arg(long, env = "BERTH_DEMO_STREAM")]
    stream: bool,
    /// How many policy versions a trained entry may be old; 0 is synchronous training.
    #[arg(
        long,
        env = "BERTH_DEMO_MAX_STALENESS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(..=64)
    )]
    max_staleness: u64,
    /// How many batches to train.
    #[arg(long, env = "BERTH_DEMO_BATCHES", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    batches: u64,
    /// How many rollout processes there are.
    #[arg(
        long,
        env = "BERTH_DEMO_WORKERS",
        default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=35)
    )]
    workers: u64,
    /// How many responses one rollout process generates at once [default: what fills every place of the window].
    #[arg(long, env = "BERTH_DEMO_CONCURRENCY")]
    concurrency: Option<NonZeroUsize>,
    /// Where lengths and rewards are drawn from. Which process finishes first is up to the machine all the same.
    #[arg(long, env = "BERTH_DEMO_SEED", default_value_t = 0)]
    seed: u64,
    /// Response lengths of your own: a file with one number of tokens a line, and `#` comments [default: log-normal, median
    /// 6,000, sigma 0.9, cut at 38,912].
    #[arg(long, env = "BERTH_DEMO_LENGTHS", value_name = "FILE")]
    lengths: Option<PathBuf>,
    /// Simulated seconds in one second; a response grows by 50 tokens in a simulated one [default: so that a response of mean
    /// length takes 0.5 s].
    #[arg(long, env = "BERTH_DEMO_SPEED", value_parser = speed)]
    speed: Option<f64>,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        _ => Err("not a number above 0".to_owned()),
    }
}

/// The demo as it will run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) batch_size: u32,
    /// Responses in one entry.
    pub(super) group_size: u32,
    /// Whether the trainer takes its batches in pieces.
    pub(super) stream: bool,
    pub(super) max_staleness: u64,
    pub(super) batches: u64,
    pub(super) workers: u64,
    /// Responses that one worker generates at once.
    pub(super) concurrency: usize,
    pub(super) seed: u64,
    pub(super) lengths_file: Option<PathBuf>,
    pub(super) lengths: Lengths,
    pub(super) pace: Pace,
}

impl Plan {
    /// Reads the lengths, and fills in what was not said.
    pub(super) fn new(args: DemoArgs) -> Result<Self, LengthsError> {
        let lengths = Lengths::load(args.lengths.as_deref())?;
        let pace = args.speed.map_or_else(|| Pace::for_lengths(&lengths), Pace::new);
        let batch_size = args.batch_size.unwrap_or(if args.group_size == 1 { 16 } else { 8 });
        let places = u64::from(batch_size) * u64::from(args.group_size) * (args.max_staleness + 1);
        let enough = usize::try_from(places.div_ceil(args.workers)).unwrap_or(usize::MAX);
        Ok(Self {
            batch_size,
            group_size: args.group_size,
            stream: args.stream,
            max_staleness: args.max_staleness,
            batches: args.batches,
            workers: args.workers,
            concurrency: args.concurrency.map_or(enough, NonZeroUsize::get),
            seed: args.seed,
            lengths_file: args.lengths,
            lengths,
            pace,
        })
    }

    /// The same job with the same seed, with whole batches.
    pub(super) fn with_whole_batches(&self) -> Self {
        Self {
            stream: false,
            ..self.clone()
        }
    }

    pub(super) fn run_settings(&self) -> RunSettings {
        let has_groups = self.group_size > 1;
        RunSettings {
            group_size: has_groups.then_some(self.group_size),
            adopt_groups: has_groups.then_some(true),
            reservation_timeout_ms: u64::try_from(self.reservation_timeout().as_millis()).ok(),
            ..RunSettings::new(self.batch_size, self.max_staleness, LEASE_MS)
        }
    }

    /// The age at which a reservation counts as hung: no response takes as long as that, and the lease of a worker that dies
    /// with it has run out before.
    pub(super) fn reservation_timeout(&self) -> Duration {
        let longest = self.pace.generating(self.lengths.longest());
        let lease = Duration::from_millis(LEASE_MS);
        longest.saturating_add(lease).saturating_add(HUNG_SLACK)
    }

    /// The worker of which a response hangs: not the first, if there is another.
    pub(super) fn straggler(&self) -> String {
        worker_name(self.workers.min(2))
    }

    /// The version from which on it hangs.
    pub(super) fn hangs_at(&self) -> u64 {
        self.batches / 10
    }

    /// The batch from which on a worker is due to be killed.
    pub(super) fn worker_dies_at(&self) -> u64 {
        self.batches * 3 / 10
    }

    /// The batch from which on the trainer is due to be killed: about half-way, and the last one before a checkpoint, so that
    /// there is something to train again.
    pub(super) fn trainer_dies_at(&self) -> u64 {
        let last_checkpoint = self.batches / 2 / CHECKPOINT_EVERY * CHECKPOINT_EVERY;
        (last_checkpoint + CHECKPOINT_EVERY - 1).min(self.batches - 1)
    }

    /// In words, a line each.
    pub(super) fn describe(&self) -> [String; 3] {
        let Self {
            batch_size,
            group_size,
            max_staleness,
            batches,
            workers,
            concurrency,
            seed,
            ..
        } = self;
        let of = match group_size {
            1 => format!("of {batch_size}"),
            _ => format!(
                "of {} of {group_size} responses",
                counted(u64::from(*batch_size), "group")
            ),
        };
        let (lengths, speed) = (self.lengths.describe(), self.pace.speed_in_words());
        [
            format!(
                "{} {of}, max_staleness {max_staleness}; {} with {concurrency} responses at once",
                counted(*batches, "batch"),
                counted(*workers, "worker"),
            ),
            format!("Lengths: {lengths}; seed {seed}"),
            format!("Time: 1 s here is {speed} s of a cluster with 50 tokens/s for each response"),
        ]
    }
}

/// The name of a worker, by its number from 1.
pub(super) fn worker_name(number: u64) -> String {
    format!("rollout-{number}")
}
