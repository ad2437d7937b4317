//! The keys of a run. They share one hash tag, so that they live in one slot of a cluster.

/// The parts of a run, in the order in which every script gets them as `KEYS` (`lua/prelude/run.lua` says what each holds).
pub const PARTS: [&str; 21] = [
    "run",
    "entries",
    "reserved",
    "occupied",
    "sessions",
    "workers",
    "leases",
    "held",
    "cancelled",
    "requests",
    "forget",
    "batches",
    "versions",
    "events",
    "members",
    "orphans",
    "ages",
    "prompts",
    "queue",
    "fates",
    "figures",
];

/// The sorted set of the names of all runs, in the order of the names.
pub const RUNS: &str = "berth:runs";

/// A topic that calls wait for; the scripts name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A place may have become free.
    Admission,
    /// The next batch can be taken.
    Batch,
    /// A version was published.
    Version,
    /// A worker was told to stop something; the message names the workers.
    Cancelled,
    /// An event was appended.
    Events,
}

impl Topic {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Batch => "batch",
            Self::Version => "version",
            Self::Cancelled => "cancelled",
            Self::Events => "events",
        }
    }
}

/// The names of a run's keys.
#[derive(Debug, Clone)]
pub struct RunKeys {
    run: String,
}

impl RunKeys {
    /// The keys of the run of this name, which must not contain braces.
    pub fn new(run: &str) -> Self {
        Self { run: run.to_owned() }
    }

    /// The run's name.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The key that holds one of [`PARTS`].
    pub fn part(&self, part: &str) -> String {
        format!("berth:{{{}}}:{part}", self.run)
    }

    /// All keys, in the order of [`PARTS`].
    pub fn all(&self) -> impl Iterator<Item = String> + '_ {
        PARTS.iter().map(|part| self.part(part))
    }

    /// The pub/sub channel of a topic.
    pub fn channel(&self, topic: Topic) -> String {
        self.part(&format!("wake:{}", topic.as_str()))
    }
}
