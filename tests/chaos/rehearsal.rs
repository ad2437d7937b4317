//! One run of the test: its seed, how long it lasts, what the ledger's run is like, and where the diaries lie.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use berth::protocol::DrainQueue;
use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::chance::Chance;

const SECONDS: u64 = 60;
/// Members that fill a group, and those that are begun.
pub(crate) const GROUP_SIZE: usize = 2;
pub(crate) const GROUP_CANDIDATES: u64 = 3;

/// What is fixed before the first process starts. Dropped in a panic, it says how to repeat the run.
pub(crate) struct Rehearsal {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) config: Config,
    /// Of the diaries, the checkpoint file and the event log. It is left there when the test fails.
    directory: PathBuf,
}

/// What kind of run is played: it follows from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Single trajectories, whose prompts are the clients' affair.
    Singles,
    /// Single trajectories with prompts from the queue.
    Queue,
    /// Groups with prompts from the queue.
    Groups,
}

impl Kind {
    fn of(seed: u64) -> Self {
        [Self::Singles, Self::Queue, Self::Groups][usize::try_from(seed % 3).expect("a small number")]
    }

    pub(crate) fn has_queue(self) -> bool {
        self != Self::Singles
    }
}

/// The configuration of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) kind: Kind,
    pub(crate) batch_size: usize,
    pub(crate) slots_per_buffer: usize,
    pub(crate) max_staleness: u64,
    pub(crate) lease_ms: u64,
    pub(crate) max_concurrency: Option<u64>,
    /// Whether what is expected to take longest is handed out first.
    pub(crate) longest_first: bool,
    pub(crate) drop_zero_variance: bool,
    pub(crate) reservation_timeout_ms: Option<u64>,
    pub(crate) stuck_timeout_ms: Option<u64>,
    /// What becomes of the queued prompts when the run is drained.
    pub(crate) queue_in_the_end: DrainQueue,
}

impl Rehearsal {
    /// Says the seed, first of all.
    pub(crate) fn from_environment() -> Self {
        let seed = number("BERTH_CHAOS_SEED").unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
        let length = Duration::from_secs(number("BERTH_CHAOS_SECONDS").unwrap_or(SECONDS));
        let config = Config::drawn(Kind::of(seed), &Chance::new(seed));
        println!(
            "chaos: seed {seed}, {:?}, {} s, {config:?}",
            config.kind,
            length.as_secs()
        );
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
        // Of an earlier run of the seed, which failed.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory for the diaries");
        Self {
            seed,
            length,
            config,
            directory,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Nothing of it is needed any more.
    pub(crate) fn passed(self) {
        if env::var_os("BERTH_CHAOS_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self {
                seed,
                length,
                directory,
                ..
            } = self;
            println!(
                "\nchaos: seed {seed} FAILED. The diaries and the event log are in {}. To repeat it:\n\
                 BERTH_CHAOS_SEED={seed} BERTH_CHAOS_SECONDS={} make chaos",
                directory.display(),
                length.as_secs()
            );
        }
    }
}

impl Config {
    fn drawn(kind: Kind, chance: &Chance) -> Self {
        let batch_size = chance.between(3..=10);
        let candidates = if kind == Kind::Groups { GROUP_CANDIDATES } else { 1 };
        Self {
            kind,
            batch_size: usize::try_from(batch_size).expect("a small number"),
            slots_per_buffer: usize::try_from(batch_size + chance.between(0..=1) * chance.between(0..=3))
                .expect("a small number"),
            max_staleness: chance.between(1..=8),
            lease_ms: chance.between(1_000..=1_400),
            max_concurrency: chance.once_in(2).then(|| chance.between(6..=12) * candidates),
            longest_first: kind.has_queue() && chance.once_in(2),
            drop_zero_variance: kind == Kind::Groups && chance.once_in(2),
            reservation_timeout_ms: chance.once_in(2).then(|| chance.between(500..=1_200)),
            stuck_timeout_ms: chance.once_in(2).then(|| chance.between(300..=900)),
            queue_in_the_end: chance.one_of(&[DrainQueue::Finish, DrainQueue::Keep]),
        }
    }

    /// Whether all that was fed is tried.
    pub(crate) fn hands_out_all(self) -> bool {
        self.kind.has_queue() && self.queue_in_the_end == DrainQueue::Finish
    }

    pub(crate) fn as_json(self) -> Value {
        let mut config = json!({
            "batch_size": self.batch_size,
            "slots_per_buffer": self.slots_per_buffer,
            "max_staleness": self.max_staleness,
            "lease_ms": self.lease_ms,
            "max_concurrency": self.max_concurrency,
            "reservation_timeout_ms": self.reservation_timeout_ms,
            "stuck_timeout_ms": self.stuck_timeout_ms,
            "prompt_queue": self.kind.has_queue(),
        });
        if self.longest_first {
            config["order"] = "longest_first".into();
        }
        if self.kind == Kind::Groups {
            // That they are adopted follows from the queue.
            config["group_size"] = GROUP_SIZE.into();
            config["group_candidates"] = GROUP_CANDIDATES.into();
            config["drop_zero_variance"] = self.drop_zero_variance.into();
        }
        config
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is `{text}`, not a number")))
}
