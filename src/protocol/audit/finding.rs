//! What an audit can find.

use std::fmt;

use crate::protocol::invariants::Violation;
use crate::protocol::tables::{
    CheckpointRefusal, ConfigRefusal, DiscardRefusal, FeedRefusal, MemberRefusal, Misfit, OccupyRefusal, PruneRefusal,
    PublishRefusal, ReserveRefusal, ResumeRefusal, SessionRefusal,
};
use crate::protocol::{BufferId, Effect, TrajectoryId, Version};

/// Something wrong with a run, and the event that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The event's sequence number.
    pub seq: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.seq, self.fault)
    }
}

/// A piece of a batch, as an event tells it or as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceTold {
    /// The batch.
    pub version: Version,
    /// How many of its entries were taken before.
    pub offset: usize,
    /// How many were taken then.
    pub entries: usize,
    /// Whether it ended a batch that is shorter than the others.
    pub is_final: bool,
}

/// What is wrong at an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Events are missing, doubled or out of order.
    #[error("sequence: the next event is {expected}")]
    Sequence {
        /// The sequence number that should have come.
        expected: u64,
    },
    /// The event says that `seq` rose by more than one, and it may not, or rose from another number.
    #[error("sequence: seq is said to have been raised from {said}")]
    RaisedFrom {
        /// What the event says that it was before.
        said: u64,
    },
    /// The log does not begin with `run_created`. Nothing of it can be followed.
    #[error("cannot go on: a log begins with run_created")]
    NotCreated,
    /// The run was created with a configuration that is out of bounds. Nothing of the log can be followed.
    #[error("cannot go on: the configuration is out of bounds")]
    Config,
    /// `run_created` came again.
    #[error("the run was created before")]
    CreatedAgain,
    /// The event lacks something that its kind needs.
    #[error("the event has no {0}")]
    Missing(&'static str),
    /// A part of the configuration changed that never does.
    #[error(transparent)]
    Reconfigured(#[from] ConfigRefusal),
    /// An invariant does not hold after the event.
    #[error(transparent)]
    Invariant(#[from] Violation),
    /// An effect is not the one that the protocol has here.
    #[error("effect {position} is {}, and should be {}", or_none(.logged.as_deref()), or_none(.expected.as_deref()))]
    Effect {
        /// Which of the event's effects, from 0.
        position: usize,
        /// What the log says.
        logged: Option<Box<Effect>>,
        /// What the model does.
        expected: Option<Box<Effect>>,
    },
    /// Entries were admitted that the protocol refuses.
    #[error("a reserve that is to be refused: {0}")]
    Reserve(#[from] ReserveRefusal),
    /// An entry was occupied that could not be.
    #[error("an occupy that is to be refused: {id}: {refusal}")]
    Occupy {
        /// The entry.
        id: TrajectoryId,
        /// Why it is refused.
        refusal: OccupyRefusal,
    },
    /// A step is marked late and brought nothing back, or did and is not marked.
    #[error("the step is marked late: {marked}, and should be the contrary")]
    Late {
        /// The event's mark.
        marked: bool,
    },
    /// An entry was discarded that could not be.
    #[error("a discard that is to be refused: {id}: {refusal}")]
    Discard {
        /// The entry.
        id: TrajectoryId,
        /// Why it is refused.
        refusal: DiscardRefusal,
    },
    /// A member, or a segment, was recorded that could not be.
    #[error("a report that is to be refused: {id}: {refusal}")]
    Member {
        /// The entry.
        id: TrajectoryId,
        /// Why it is refused.
        refusal: MemberRefusal,
    },
    /// A member, or a segment, was recorded that changes nothing: it was reported before, or its group was filled.
    #[error("what was reported of {id} does not count, and is no step")]
    NotCounted {
        /// The entry.
        id: TrajectoryId,
    },
    /// A group was adopted that has an owner, or is newer than the worker's weights.
    #[error("{id} was adopted, and is no group that this reserve may adopt")]
    Adopted {
        /// The group.
        id: TrajectoryId,
    },
    /// A group was occupied before it was filled.
    #[error("{id} was occupied with {complete} complete members, not {group_size}")]
    GroupIncomplete {
        /// The group.
        id: TrajectoryId,
        /// How many are complete.
        complete: usize,
        /// `G`.
        group_size: u32,
    },
    /// Prompts were fed that could not be.
    #[error("a feed that is to be refused: {0}")]
    Feed(#[from] FeedRefusal),
    /// Another number of prompts is said to have been fed than there is, or none in a step of its own.
    #[error("{logged} prompts are said to have been fed in all, and should be {expected}")]
    Fed {
        /// What the log says.
        logged: u64,
        /// What the model has.
        expected: u64,
    },
    /// A batch was taken out of turn: again, or before the version before it was published.
    #[error(
        "batch {version} was taken out of turn: the trainer stands at {trainer_version}, the policy version is \
         {policy_version}, the next buffer {next_buffer}"
    )]
    OutOfTurn {
        /// The batch.
        version: Version,
        /// `T`.
        trainer_version: Version,
        /// `V`.
        policy_version: Version,
        /// `H`.
        next_buffer: BufferId,
    },
    /// A batch has not exactly `batch_size` entries.
    #[error("batch {version} has {entries} entries, not {batch_size}")]
    Incomplete {
        /// The batch.
        version: Version,
        /// How many entries it has.
        entries: usize,
        /// `B`.
        batch_size: usize,
    },
    /// A batch is marked as the run's last, shorter one and is not, or is and not marked.
    #[error("the batch is marked final: {marked}, and should be the contrary")]
    Final {
        /// The event's mark.
        marked: bool,
    },
    /// A piece of a batch is not the one that follows on what was taken.
    #[error("the piece is {logged}, and should be {}", .expected.map_or_else(|| "none".to_owned(), |piece| piece.to_string()))]
    Piece {
        /// What the log says.
        logged: PieceTold,
        /// What the model takes then, if anything.
        expected: Option<PieceTold>,
    },
    /// A drain began or ended that had done so before.
    #[error("the drain changed nothing")]
    DrainRepeated,
    /// Entries were discarded as what a run left over that was not at its end, or others than these.
    #[error("these entries are not what a drained run has left over")]
    NotDrained,
    /// What a drained run left over was taken, and was to be discarded.
    #[error("batch {version} was taken, and what the run has left over is to be discarded")]
    TakenNotDrained {
        /// The batch.
        version: Version,
    },
    /// *Once*: an entry is in two batches.
    #[error("once: {id} is in batch {first} and in batch {second}")]
    InTwoBatches {
        /// The entry.
        id: TrajectoryId,
        /// The one batch.
        first: Version,
        /// The other.
        second: Version,
    },
    /// The trainer did something that its session forbids.
    #[error("a call of the trainer that is to be refused: {0}")]
    Session(#[from] SessionRefusal),
    /// A batch was delivered again that is not to be.
    #[error("batch {version} was delivered, and should have been {}", .expected.map_or_else(|| "none".to_owned(), |v| v.to_string()))]
    Delivered {
        /// The batch.
        version: Version,
        /// The one that this session has not had yet, if there is one.
        expected: Option<Version>,
    },
    /// A delivery is marked as one of a replay and is not, or is and not marked.
    #[error("the delivery is marked replayed: {marked}, and should be the contrary")]
    Replayed {
        /// The event's mark.
        marked: bool,
    },
    /// A batch that is delivered again is not what was taken.
    #[error("batch {version} is not what was taken: {taken} entries then, {delivered} now")]
    NotAsTaken {
        /// The batch.
        version: Version,
        /// How many entries were taken.
        taken: usize,
        /// How many there are now. As many as then are other ones, or in another order.
        delivered: usize,
    },
    /// A trainer session was opened that could not be.
    #[error("a resume from version {version} that is to be refused: {refusal}")]
    Resume {
        /// The checkpoint's version.
        version: Version,
        /// Why it is refused.
        refusal: ResumeRefusal,
    },
    /// A number of a trainer session is not the one that the protocol has.
    #[error("the trainer session has the {what} {logged}, and should have {expected}")]
    Resumed {
        /// Which number.
        what: &'static str,
        /// What the log says.
        logged: u64,
        /// What the model has.
        expected: u64,
    },
    /// A checkpoint was noted that could not be.
    #[error("a checkpoint of version {version} that is to be refused: {refusal}")]
    Checkpoint {
        /// The checkpoint's version.
        version: Version,
        /// Why it is refused.
        refusal: CheckpointRefusal,
    },
    /// A checkpoint was noted that changed nothing.
    #[error("the checkpoint of version {version} changed nothing")]
    CheckpointRepeated {
        /// The checkpoint's version.
        version: Version,
    },
    /// A version was published that could not be.
    #[error("a publish of version {version} that is to be refused: {refusal}")]
    Publish {
        /// The version.
        version: Version,
        /// Why it is refused.
        refusal: PublishRefusal,
    },
    /// An entry was forgotten that is to be remembered.
    #[error("a prune that is to be refused: {id}: {refusal}")]
    Prune {
        /// The entry.
        id: TrajectoryId,
        /// Why it is refused.
        refusal: PruneRefusal,
    },
    /// An entry was forgotten with a batch that it was not in.
    #[error("{id} was pruned with batch {version}, in which it was not")]
    PrunedElsewhere {
        /// The entry.
        id: TrajectoryId,
        /// The batch that the event names.
        version: Version,
    },
    /// What is logged cannot have happened to any tables. Nothing after it can be followed.
    #[error("cannot go on: {0}")]
    CannotGoOn(#[from] Misfit),
}

fn or_none(effect: Option<&Effect>) -> String {
    effect.map_or_else(|| "none".to_owned(), |effect| format!("\"{effect}\""))
}
