//! The slot tables of one run (*The slot tables*): the model that the Lua scripts are held to.
//!
//! It is written to be compared with the text of the protocol, one file a paragraph and one array element a slot;
//! nothing in it is fast. An operation costs `O(η · S)` for each place that changes.
//!
//! Every operation answers with its [`Effect`]s in the order in which the changes happen. They are the whole of what
//! it did to the entries: [`SlotTables::replay`] of them on a copy of the tables gives the same tables. The trainer's
//! steps change its own standing too, and have a replay each.

mod adopt;
mod buffer;
mod discard;
mod drain;
mod fates;
mod finish;
mod generated;
mod group;
mod kept;
mod lineage;
mod member;
mod moves;
mod occupy;
mod prompt_queue;
mod prompts;
mod publish;
mod replace;
mod replay;
mod replay_trainer;
mod reserve;
mod resume;
mod segment;
mod session;
mod stream;
mod take;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BufferId, DrainQueue, Effect, Epoch, Lineage, Place, Reason, RunConfig, Slot, TrajectoryId, Version, Weights,
};
use buffer::Buffer;
use lineage::RewindPoints;
use session::Session;

pub use buffer::{BufferState, BufferView, SlotState};
pub use discard::{DiscardRefusal, Discarded};
pub use fates::Wish;
pub use finish::{Finished, FinishedAs};
pub use generated::{Generated, WeightsRefusal};
pub use group::GroupMember;
pub use kept::{CheckpointRefusal, Checkpointed, PruneRefusal};
pub use member::{Member, MemberEnd, MemberOutcome, MemberRefusal};
pub use occupy::{Occupied, OccupyRefusal};
pub use prompt_queue::{HandedOut, Prompt, PromptQueue};
pub use prompts::FeedRefusal;
pub use publish::{Publish, PublishRefusal};
pub use replay::Misfit;
pub use reserve::{BlockedBy, ReserveRefusal, Reserved};
pub use resume::{Behind, Resume, ResumeKind, ResumeRefusal, Resumed};
pub use segment::Segmented;
pub use session::SessionRefusal;
pub use stream::{Piece, Stream, StreamRefusal, StreamRequest};
pub use take::{BatchEntry, Delivery, Take};

/// The slot tables of a run, and the record of every entry that ever had a place in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTables {
    config: RunConfig,
    policy_version: Version,
    /// The open buffers, `H ..= V + η`, front to rear.
    window: VecDeque<Buffer>,
    /// The first buffer not yet wholly taken. The window may be empty (η = 0, trainer busy), so this is kept apart.
    next_buffer: BufferId,
    /// How many entries of buffer `H` are taken, in its front-most slots; fewer than `batch_size`.
    streamed: usize,
    /// Whether the run is being finished.
    draining: Option<DrainQueue>,
    /// `T`, the version that the trainer process stands at.
    trainer_version: Version,
    /// The trainer's session: which, and what was delivered to it.
    session: Session,
    lineage: Lineage,
    /// The lineage that the run began with.
    first_lineage: Lineage,
    /// Where the weights went another way.
    rewinds: RewindPoints,
    /// What is remembered of the taken batches, in slot order. A forced resume leaves numbers out.
    batches: BTreeMap<Version, Vec<BatchEntry>>,
    /// Those that were taken shorter than the others, because the run ended.
    finals: BTreeSet<Version>,
    /// Batches below this one have been let go of, and may be forgotten.
    oldest_kept: Version,
    entries: BTreeMap<TrajectoryId, Entry>,
    /// The prompts, if the ledger hands them out.
    prompts: Option<PromptQueue>,
}

/// What is known of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The policy version it was admitted under, fixed from then on.
    pub version: Version,
    /// The newest version that generated any part of it (*Partial rollout*).
    pub newest: Version,
    /// The run's lineage when that was recorded: a later one may have abandoned the version.
    pub lineage: Lineage,
    /// Whether it was discarded once and saved by a late occupy.
    pub late: bool,
    /// Whether the session that held it is gone, and it waits for another (*Adoption*).
    pub orphan: bool,
    /// Of a group, the members that were reported and count, by index.
    pub members: BTreeMap<u32, GroupMember>,
    /// What has become of it.
    pub state: EntryState,
}

/// What has become of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    /// Admitted, still generating.
    Reserved {
        /// Its slot.
        place: Place,
    },
    /// Finished.
    Occupied {
        /// Its slot.
        place: Place,
    },
    /// Trained, or in training: in a batch, or in a piece of one, and then still in its open buffer.
    Taken {
        /// The batch, and the slot that it had in it.
        place: Place,
    },
    /// Left the tables without being trained.
    Discarded {
        /// Why.
        reason: Reason,
        /// What it was.
        discarded_from: DiscardedFrom,
    },
}

/// What a discarded entry was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscardedFrom {
    /// Still generating.
    Reserved,
    /// Finished.
    Occupied,
}

impl Entry {
    /// The open slot that the entry sits in, while it does and can leave it.
    pub fn place(&self) -> Option<Place> {
        match self.state {
            EntryState::Reserved { place } | EntryState::Occupied { place } => Some(place),
            EntryState::Taken { .. } | EntryState::Discarded { .. } => None,
        }
    }
}

impl SlotTables {
    /// Empty tables, with `V` and `H` at the configuration's `initial_version`.
    ///
    /// The configuration must be within the bounds that its fields state: all slots are laid out here.
    pub fn new(config: RunConfig) -> Self {
        let initial = Version(config.initial_version);
        Self {
            policy_version: initial,
            next_buffer: BufferId(initial.0),
            trainer_version: initial,
            oldest_kept: initial,
            window: empty_window(initial, &config),
            session: Session::default(),
            lineage: Lineage::default(),
            first_lineage: Lineage::default(),
            rewinds: RewindPoints::default(),
            batches: BTreeMap::new(),
            finals: BTreeSet::new(),
            streamed: 0,
            draining: None,
            entries: BTreeMap::new(),
            prompts: PromptQueue::of(&config),
            config,
        }
    }

    /// Empty tables of a run that goes on under the name of a deleted one, from its last trainer session `epoch` and in
    /// the new lineage `lineage`: all earlier weights are abandoned, and the old trainer is fenced.
    pub fn continued(config: RunConfig, epoch: Epoch, lineage: Lineage) -> Self {
        let mut tables = Self::new(config);
        tables.session.epoch = epoch;
        tables.lineage = lineage;
        tables.first_lineage = lineage;
        tables.rewinds.push(lineage, None);
        tables
    }

    /// `V`, the latest published policy version.
    pub fn policy_version(&self) -> Version {
        self.policy_version
    }

    /// `H`, the first buffer not yet wholly taken for training.
    pub fn next_buffer(&self) -> BufferId {
        self.next_buffer
    }

    /// `T`, the version that the trainer process stands at: `V`, or below it during a replay.
    pub fn trainer_version(&self) -> Version {
        self.trainer_version
    }

    /// The trainer session that was opened last, or that a new run goes on from; 0 before the first.
    pub fn epoch(&self) -> Epoch {
        self.session.epoch
    }

    /// The lineage of the weights that are published now.
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// The latest weights: `V`, in the run's lineage.
    pub fn weights(&self) -> Weights {
        Weights {
            version: self.policy_version,
            lineage: self.lineage,
        }
    }

    /// Whether a later rewind or forced resume went to below these weights (*Terms*).
    pub fn is_abandoned(&self, weights: Weights) -> bool {
        self.rewinds.abandon(weights)
    }

    /// The configuration in force.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Changes the parts of the configuration that may change while a run lives: limits of time and number.
    ///
    /// # Errors
    ///
    /// [`ConfigRefusal`] when another part differs; nothing is changed then.
    pub fn set_config(&mut self, config: RunConfig) -> Result<(), ConfigRefusal> {
        let changeable = RunConfig {
            max_concurrency: config.max_concurrency,
            lease_ms: config.lease_ms,
            reservation_timeout_ms: config.reservation_timeout_ms,
            stuck_timeout_ms: config.stuck_timeout_ms,
            stuck_max_reserved: config.stuck_max_reserved,
            keep_batches: config.keep_batches,
            ..self.config.clone()
        };
        if changeable != config {
            return Err(ConfigRefusal);
        }
        self.config = config;
        self.note_oldest_kept();
        Ok(())
    }

    /// The open buffers, `H ..= V + η`, front to rear.
    pub fn buffers(&self) -> Vec<BufferView> {
        self.window.iter().map(Buffer::view).collect()
    }

    /// The record of an entry, or `None` for one that was never admitted or has been pruned.
    pub fn entry(&self, id: TrajectoryId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// The records of all entries, by id.
    pub fn entries(&self) -> impl Iterator<Item = (TrajectoryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// How many entries are reserved.
    pub fn reserved(&self) -> usize {
        self.reservations().count()
    }

    /// The last buffer that an entry of this version may be trained in.
    fn deadline(&self, version: Version) -> BufferId {
        version.deadline(self.config.max_staleness)
    }

    /// The reserved entries with their places, front-most first.
    fn reservations(&self) -> impl Iterator<Item = (Place, TrajectoryId, Version)> {
        self.window.iter().flat_map(Buffer::reservations)
    }

    /// The open buffers that an entry with this deadline may sit in, earliest first.
    fn legal_buffers(&self, deadline: BufferId) -> impl DoubleEndedIterator<Item = &Buffer> {
        self.window.iter().filter(move |b| b.id() <= deadline)
    }

    /// The open buffer of this number.
    fn open_buffer(&self, id: BufferId) -> Option<&Buffer> {
        self.window.get(self.index(id)?)
    }

    /// Where the buffer stands in the window, if it is open.
    fn index(&self, id: BufferId) -> Option<usize> {
        let index = usize::try_from(id.0.checked_sub(self.next_buffer.0)?).ok()?;
        (index < self.window.len()).then_some(index)
    }
}

/// A part of the configuration that never changes was to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only a run's limits of time and number can change")]
pub struct ConfigRefusal;

/// The buffers `V ..= V + η`, empty.
fn empty_window(policy_version: Version, config: &RunConfig) -> VecDeque<Buffer> {
    let last = policy_version.deadline(config.max_staleness).0;
    (policy_version.0..=last)
        .map(|buffer| Buffer::empty(BufferId(buffer), config))
        .collect()
}

/// The slot of this index. Buffers have at most `u32::MAX` slots, because their number is configured as a `u32`.
fn slot(index: usize) -> Slot {
    Slot(u32::try_from(index).unwrap_or(u32::MAX))
}
