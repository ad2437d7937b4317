//! What can be wrong, so that a person can read it.

use crate::protocol::tables::BufferState;
use crate::protocol::{Attempt, BufferId, FeedPosition, Lineage, Place, TrajectoryId, Version};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The wrong buffers are open.
    #[error(
        "window: the open buffers do not run from buffer {next_buffer} to the last that version {policy_version} allows"
    )]
    Window {
        /// `V`.
        policy_version: Version,
        /// `H`.
        next_buffer: BufferId,
    },
    /// *Bound*: the staleness of an entry is not within `0 ..= η`.
    #[error("bound: {id} of version {version} is in buffer {buffer}")]
    Bound {
        /// The entry.
        id: TrajectoryId,
        /// The version it was admitted under.
        version: Version,
        /// The buffer, or batch, that it is in.
        buffer: BufferId,
    },
    /// An entry was admitted under a version that does not exist yet.
    #[error("bound: {id} is of version {version}, which is not published")]
    NotPublished {
        /// The entry.
        id: TrajectoryId,
        /// The version it was admitted under.
        version: Version,
    },
    /// An entry is in the tables whose weights a later rewind or forced resume abandoned.
    #[error("rewind: {id} of version {version}, admitted in lineage {lineage}, is of abandoned weights")]
    Abandoned {
        /// The entry.
        id: TrajectoryId,
        /// The version it was admitted under.
        version: Version,
        /// The run's lineage then.
        lineage: Lineage,
    },
    /// The trainer stands at a version that does not exist yet.
    #[error("trainer: it stands at version {trainer_version}, and the latest is {policy_version}")]
    TrainerAhead {
        /// `T`.
        trainer_version: Version,
        /// `V`.
        policy_version: Version,
    },
    /// A batch that the trainer is still to be given is not kept.
    #[error("kept: the trainer may still need batch {batch}, which is not kept")]
    NotKept {
        /// The first such batch.
        batch: Version,
    },
    /// An entry has no prompt, or one that another entry has, too.
    #[error("prompts: {id} has no prompt of its own")]
    WithoutPrompt {
        /// The entry.
        id: TrajectoryId,
    },
    /// A prompt is in no state: the entry that it was handed out with is gone.
    #[error("prompts: the prompt that was fed as {position} is with an entry that is gone")]
    PromptLost {
        /// Where it was fed.
        position: FeedPosition,
    },
    /// A prompt was tried more often than it may be.
    #[error("prompts: the prompt that was fed as {position} is at attempt {attempt} of at most {most}")]
    Attempts {
        /// Where it was fed.
        position: FeedPosition,
        /// Which attempt this is, or will be.
        attempt: Attempt,
        /// `max_attempts`.
        most: Attempt,
    },
    /// The prompts of all states are not those that were fed.
    #[error("prompts: {fed} were fed, and {counted} are in some state")]
    PromptCounts {
        /// How many were fed.
        fed: u64,
        /// How many there are.
        counted: u64,
    },
    /// *Capacity*: a buffer has not the slots that it should have.
    #[error("capacity: buffer {buffer} has {slots} slots, not {slots_per_buffer}")]
    Slots {
        /// The buffer.
        buffer: BufferId,
        /// Its slots.
        slots: usize,
        /// `S`.
        slots_per_buffer: usize,
    },
    /// *Capacity*: more entries are finished than fit into the batch.
    #[error("capacity: buffer {buffer} holds {occupied} finished entries of at most {batch_size}")]
    Capacity {
        /// The buffer.
        buffer: BufferId,
        /// How many of its slots are occupied.
        occupied: usize,
        /// `B`.
        batch_size: usize,
    },
    /// A buffer's state is not what its slots say.
    #[error("state: buffer {buffer} is said to be {said:?} and is {state:?}")]
    State {
        /// The buffer.
        buffer: BufferId,
        /// The state that it is said to have.
        said: BufferState,
        /// The state that it has by its slots.
        state: BufferState,
    },
    /// A buffer's slots are not occupied ones, then empty ones, then reserved ones.
    #[error("order: the slots of buffer {buffer} are not occupied, then empty, then reserved")]
    Order {
        /// The buffer.
        buffer: BufferId,
    },
    /// *Once*: an entry sits in two slots.
    #[error("once: {id} is in {first} and in {second}")]
    Twice {
        /// The entry.
        id: TrajectoryId,
        /// The one slot.
        first: Place,
        /// The other.
        second: Place,
    },
    /// *A place for everyone*: an entry does not sit where its record says, or has no record.
    #[error("a place for everyone: the record of {id} and the slots disagree")]
    Misplaced {
        /// The entry.
        id: TrajectoryId,
    },
    /// *Stream*: more was taken of the next buffer than a piece of a batch to come.
    #[error("stream: {streamed} entries of buffer {next_buffer} cannot be taken, and the batch not")]
    Streamed {
        /// `H`.
        next_buffer: BufferId,
        /// How many are said to be taken.
        streamed: usize,
    },
    /// *Packed*: a reserved entry could legally sit in a later empty slot.
    #[error("packed: {id} is reserved in {place} although {free} is empty and legal for it")]
    ReservedTooEarly {
        /// The entry.
        id: TrajectoryId,
        /// Its place.
        place: Place,
        /// The later place.
        free: Place,
    },
    /// *Packed*: an occupied entry could sit in an earlier buffer that is not ready and has an empty slot.
    #[error("packed: {id} is finished in {place} although buffer {free} needs it and has a slot")]
    OccupiedTooLate {
        /// The entry.
        id: TrajectoryId,
        /// Its place.
        place: Place,
        /// The earlier buffer.
        free: BufferId,
    },
    /// *The surplus rule*: a reservation is kept that no batch can take any more.
    #[error("surplus: {id} is reserved in {place} although every buffer up to its deadline is ready")]
    SurplusKept {
        /// The entry.
        id: TrajectoryId,
        /// Its place.
        place: Place,
    },
    /// *Earliest*: an entry could have occupied an earlier buffer.
    #[error("earliest: {id} occupied buffer {buffer} although buffer {earlier} leaves every other reservation a place")]
    NotEarliest {
        /// The entry.
        id: TrajectoryId,
        /// The buffer that it occupied.
        buffer: BufferId,
        /// The earliest that it could have occupied.
        earlier: BufferId,
    },
    /// *Earliest*: an entry occupied a place that some reservation cannot do without.
    #[error("earliest: {id} occupied buffer {buffer}, which leaves some reservation no legal place")]
    LeavesNoPlace {
        /// The entry.
        id: TrajectoryId,
        /// The buffer that it occupied.
        buffer: BufferId,
    },
}
