//! The run's event log: one event for every step that changed anything, with its effects in order (*Sequence*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Epoch, Lineage, LoggedEffect, Reason, RunConfig, TrajectoryId, Version};

/// What kind of step an event records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// The run was created, with the event's `config`.
    RunCreated,
    /// A part of the configuration was changed: `config` holds all of it.
    RunChanged,
    /// A worker process was met for the first time; what its predecessor held is discarded, in as many steps as needed.
    SessionOpened,
    /// Entries were admitted.
    Reserve,
    /// An entry finished: a trajectory, or a group, with such of its members as its client reported with it.
    Occupy,
    /// A member of a group finished or failed; the group may be occupied or discarded by it.
    Member,
    /// The generation of an entry or member goes on under a newer version.
    Segment,
    /// A client gave up a reserved entry or filtered an occupied one.
    Discard,
    /// Some of what a session held was discarded, or lost its owner: its lease ran out, or, by the event's `reason`, another
    /// limit was passed.
    Expire,
    /// The caller's session became the holder of a reservation.
    Claim,
    /// A session said a version, acknowledged cancellations, or did not list what it was granted.
    Heartbeat,
    /// Buffer `version` was wholly taken for training.
    Take,
    /// Some more entries of buffer `version` were taken: a piece of its batch.
    Stream,
    /// Batch `version`, which was taken before, was delivered to this trainer session: again, or to be replayed.
    Deliver,
    /// `version` was published.
    Publish,
    /// A trainer session was opened, resuming from a checkpoint.
    TrainerOpened,
    /// The trainer has a durable checkpoint of `version`: the batches below it are let go of.
    Checkpoint,
    /// Entries of batch `version`, which is no longer kept, were forgotten.
    Prune,
    /// Prompts were fed.
    Feed,
    /// The run is to be finished, or is not any more.
    Drain,
}

/// What becomes of the queued prompts of a run that is being finished (*Drain*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainQueue {
    /// They are handed out.
    #[default]
    Finish,
    /// They stay queued.
    Keep,
}

/// A prompt as it was fed, as far as the order of the queue needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FedPrompt {
    /// The client's name for it.
    pub id: String,
    /// How many tokens its trajectory is expected to have, if the client said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_tokens: Option<u64>,
}

/// How a trainer goes on whose checkpoint is older than the latest version (*Resume*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeMode {
    /// It trains the kept batches again; everything else goes on.
    #[default]
    Replay,
    /// The weights after the checkpoint are abandoned.
    Rewind,
}

/// One step of a run. The events of a run, from the first, are enough to rebuild its tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "marks that each say one thing of a step, absent where they do not hold"
)]
pub struct Event {
    /// The run's sequence number after this step; the next event's is one more.
    pub seq: u64,
    /// When, in Unix milliseconds of the database's clock.
    pub at_ms: u64,
    /// A random word: two histories that reached the same `seq` differ in it.
    pub mark: String,
    /// What kind of step.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The worker that the step is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Why, where the step discarded the entries in `ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// A client's remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The version that the step is about: of the weights that `reserve` or `heartbeat` named, of the batch that was
    /// taken, delivered or pruned, the one that was published, or the one that a checkpoint holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The lineage of the weights that `reserve` named; the run's after `trainer_opened`; that a new run goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Lineage>,
    /// The trainer session that `trainer_opened` opened, or that a new run goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The trainer that opened a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer: Option<String>,
    /// The version of the checkpoint that the trainer resumed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<Version>,
    /// How it wished to go on from an older checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ResumeMode>,
    /// Whether it wished to go on whatever was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// `V` after `trainer_opened`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<Version>,
    /// Whether `trainer_opened` ended that the run was behind: the database had lost writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// The `seq` before this step, where it rose by more than one: the numbers between were of writes that were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_from: Option<u64>,
    /// Whether a batch was delivered to be trained again after a resume from an older checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// Whether an `occupy` saved an entry that had been discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// How many entries of its batch were taken before a `stream` or `deliver` of a piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many entries a `stream` took, or a `take` of fewer than `batch_size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Whether the batch is the run's last: complete, whatever it holds (*Drain*).
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Whether the prompt of a `discard` is to be tried again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requeue: bool,
    /// Whether `drain` began to finish the run, or ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
    /// What a `drain` that begins does with the queued prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<DrainQueue>,
    /// How many prompts were fed in all, after `feed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fed: Option<u64>,
    /// The prompts that were fed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<FedPrompt>,
    /// The configuration, of `run_created` and `run_changed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<RunConfig>,
    /// The cancellations that a `heartbeat` acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<TrajectoryId>,
    /// The entries that the step was asked to treat, in the order in which it did. Those that moved or were discarded in
    /// consequence stand in `effects` only.
    #[serde(default)]
    pub ids: Vec<TrajectoryId>,
    /// Every change of a place, in order.
    #[serde(default)]
    pub effects: Vec<LoggedEffect>,
}

impl Event {
    /// An event of this kind, with nothing that only some kinds have.
    pub fn new(seq: u64, event_type: EventType) -> Self {
        Self {
            seq,
            at_ms: 0,
            mark: String::new(),
            event_type,
            worker: None,
            session: None,
            reason: None,
            note: None,
            version: None,
            lineage: None,
            epoch: None,
            trainer: None,
            resumed_from: None,
            mode: None,
            force: false,
            policy_version: None,
            behind: false,
            raised_from: None,
            replayed: false,
            late: false,
            offset: None,
            entries: None,
            is_final: false,
            requeue: false,
            drain: None,
            queue: None,
            fed: None,
            prompts: Vec::new(),
            config: None,
            acknowledged: Vec::new(),
            ids: Vec::new(),
            effects: Vec::new(),
        }
    }
}
