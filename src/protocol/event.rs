//! The run's event log: one event for every step that changed anything, with its effects in order (*Sequence*).

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Attempt, Epoch, FeedPosition, Lineage, Place, PromptState, Reason, Reward, RunConfig, TrajectoryId, Version,
};

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

/// One change of one entry's place, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// The entry was admitted under `version` into an empty slot.
    Reserved {
        /// The entry.
        id: TrajectoryId,
        /// The policy version it was admitted under.
        version: Version,
        /// The slot it got.
        to: Place,
    },
    /// The entry changed its slot and nothing else: a reserved one in a cascade, or an occupied one within its buffer.
    Moved {
        /// The entry.
        id: TrajectoryId,
        /// The slot it left.
        from: Place,
        /// The slot it got.
        to: Place,
    },
    /// The entry finished.
    Occupied {
        /// The entry.
        id: TrajectoryId,
        /// The reserved slot it left.
        from: Place,
        /// The slot it occupies.
        to: Place,
    },
    /// An occupied entry moved forward into a buffer that is to be trained earlier.
    Promoted {
        /// The entry.
        id: TrajectoryId,
        /// The slot it left.
        from: Place,
        /// The slot it occupies now.
        to: Place,
    },
    /// The entry left the tables without being trained.
    Discarded {
        /// The entry.
        id: TrajectoryId,
        /// Why.
        reason: Reason,
        /// The slot it left.
        from: Place,
    },
    /// The entry's record was forgotten with its batch.
    Pruned {
        /// The entry.
        id: TrajectoryId,
    },
    /// The tables were laid out anew, and this is where the entry is now, as finished as it was (*Re-place*).
    Replaced {
        /// The entry.
        id: TrajectoryId,
        /// The slot, of a buffer or a batch, that it had before the step.
        from: Place,
        /// The slot it has after it.
        to: Place,
    },
    /// A member of a group finished or failed, and counts.
    Member {
        /// The group.
        id: TrajectoryId,
        /// Which of its candidates, from 0.
        index: u32,
        /// Whether it failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
        /// The version that it was begun under; a failed one may have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<Version>,
        /// The newest version that generated a part of it, where that is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Version>,
        /// Its reward, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reward: Option<Reward>,
    },
    /// A part of the entry was generated by a version newer than all before (*Partial rollout*).
    Continued {
        /// The entry.
        id: TrajectoryId,
        /// The version.
        version: Version,
    },
    /// The group's holder is gone, and it keeps its slot and its members without an owner (*Adoption*).
    Orphaned {
        /// The group.
        id: TrajectoryId,
    },
    /// The group has an owner again: the session that reserved.
    Adopted {
        /// The group.
        id: TrajectoryId,
    },
    /// The prompt of the entry changed its state, otherwise than by what the entry's own state says (*The prompt queue*):
    /// it was handed out with it, or taken from the queue by its late occupy, or the entry was discarded.
    Prompt {
        /// The entry.
        id: TrajectoryId,
        /// Where it was fed.
        position: FeedPosition,
        /// Its state.
        state: PromptState,
        /// Which attempt at it this is, or will be.
        attempt: Attempt,
    },
}

impl Effect {
    /// The entry that this effect is about.
    pub fn id(&self) -> TrajectoryId {
        match self {
            Self::Reserved { id, .. }
            | Self::Moved { id, .. }
            | Self::Occupied { id, .. }
            | Self::Promoted { id, .. }
            | Self::Discarded { id, .. }
            | Self::Replaced { id, .. }
            | Self::Member { id, .. }
            | Self::Continued { id, .. }
            | Self::Orphaned { id }
            | Self::Adopted { id }
            | Self::Prompt { id, .. }
            | Self::Pruned { id } => *id,
        }
    }

    /// The place that the entry left, if it had one.
    pub fn from(&self) -> Option<Place> {
        match self {
            Self::Moved { from, .. }
            | Self::Occupied { from, .. }
            | Self::Promoted { from, .. }
            | Self::Replaced { from, .. }
            | Self::Discarded { from, .. } => Some(*from),
            Self::Reserved { .. }
            | Self::Member { .. }
            | Self::Continued { .. }
            | Self::Orphaned { .. }
            | Self::Adopted { .. }
            | Self::Prompt { .. }
            | Self::Pruned { .. } => None,
        }
    }

    /// The place that the entry got, if it got one.
    pub fn to(&self) -> Option<Place> {
        match self {
            Self::Reserved { to, .. }
            | Self::Moved { to, .. }
            | Self::Occupied { to, .. }
            | Self::Promoted { to, .. }
            | Self::Replaced { to, .. } => Some(*to),
            Self::Discarded { .. }
            | Self::Member { .. }
            | Self::Continued { .. }
            | Self::Orphaned { .. }
            | Self::Adopted { .. }
            | Self::Prompt { .. }
            | Self::Pruned { .. } => None,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { id, version, to } => {
                write!(f, "{id} reserved {to} under version {version}")
            }
            Self::Moved { id, from, to } => write!(f, "{id} moved from {from} to {to}"),
            Self::Occupied { id, from, to } => write!(f, "{id} left {from} and occupied {to}"),
            Self::Promoted { id, from, to } => write!(f, "{id} was promoted from {from} to {to}"),
            Self::Discarded { id, reason, from } => {
                write!(f, "{id} was discarded from {from} as {reason}")
            }
            Self::Pruned { id } => write!(f, "{id} was pruned"),
            Self::Replaced { id, from, to } => write!(f, "{id} was placed anew, from {from} to {to}"),
            Self::Member { id, index, failed, .. } => {
                write!(
                    f,
                    "member {index} of {id} {}",
                    if *failed { "failed" } else { "finished" }
                )
            }
            Self::Continued { id, version } => write!(f, "{id} went on under version {version}"),
            Self::Orphaned { id } => write!(f, "{id} was left without an owner"),
            Self::Adopted { id } => write!(f, "{id} was adopted"),
            Self::Prompt {
                id,
                position,
                state,
                attempt,
            } => write!(
                f,
                "the prompt of {id}, fed as {position}, is {state}, attempt {attempt}"
            ),
        }
    }
}

/// An effect as the log keeps it: with what a reader of the log needs beside the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedEffect {
    /// The change itself.
    #[serde(flatten)]
    pub effect: Effect,
    /// The prompt of a reserved entry, if its client named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The payload reference of a discarded or pruned entry: nobody will read it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Those of the members of such a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub payloads: Vec<String>,
}

impl From<Effect> for LoggedEffect {
    /// The change alone.
    fn from(effect: Effect) -> Self {
        Self {
            effect,
            prompt: None,
            payload: None,
            payloads: Vec::new(),
        }
    }
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
