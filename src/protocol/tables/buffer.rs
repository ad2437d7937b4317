//! One buffer: its slots, and what the protocol asks about them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::slot;
use crate::protocol::{BufferId, Place, RunConfig, Slot, TrajectoryId, Version};

/// What one slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    Empty,
    /// An entry that was admitted and is still generating.
    Reserved {
        /// The entry.
        id: TrajectoryId,
        /// The policy version it was admitted under.
        version: Version,
    },
    /// A finished entry.
    Occupied {
        /// The entry.
        id: TrajectoryId,
        /// The policy version it was admitted under.
        version: Version,
    },
}

/// Whether a buffer can be trained, and if not, what it waits for (*Terms*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferState {
    /// It holds `batch_size` finished entries.
    Ready,
    /// Not ready, and it has an empty slot.
    Pending,
    /// Not ready, and it has none: it waits for a reserved entry to finish.
    Stuck,
}

/// An open buffer as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferView {
    /// Which one.
    pub buffer: BufferId,
    /// Whether it can be trained.
    pub state: BufferState,
    /// All of its slots, front to rear.
    pub slots: Vec<SlotState>,
}

/// An open buffer: `S` slots, of which `B` must be occupied before it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buffer {
    id: BufferId,
    batch_size: usize,
    slots: Vec<SlotState>,
}

impl Buffer {
    pub(super) fn empty(id: BufferId, config: &RunConfig) -> Self {
        Self {
            id,
            batch_size: config.batch_size as usize,
            slots: vec![SlotState::Empty; config.slots_per_buffer as usize],
        }
    }

    pub(super) fn id(&self) -> BufferId {
        self.id
    }

    pub(super) fn view(&self) -> BufferView {
        BufferView {
            buffer: self.id,
            state: self.state(),
            slots: self.slots.clone(),
        }
    }

    pub(super) fn state(&self) -> BufferState {
        if self.occupied().count() >= self.batch_size {
            BufferState::Ready
        } else if self.front_most_empty().is_some() {
            BufferState::Pending
        } else {
            BufferState::Stuck
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state() == BufferState::Ready
    }

    /// Not ready, and in possession of an empty slot: what Reserve, Occupy and settling look for.
    pub(super) fn is_pending(&self) -> bool {
        self.state() == BufferState::Pending
    }

    /// What the slot holds; `None` for a slot past the end.
    pub(super) fn get(&self, slot: Slot) -> Option<SlotState> {
        self.slots.get(slot.0 as usize).copied()
    }

    /// Writes a slot and returns what it held. The slot must exist.
    pub(super) fn replace(&mut self, slot: Slot, content: SlotState) -> SlotState {
        std::mem::replace(&mut self.slots[slot.0 as usize], content)
    }

    pub(super) fn front_most_empty(&self) -> Option<Place> {
        let index = self.slots.iter().position(SlotState::is_empty)?;
        Some(self.place(index))
    }

    pub(super) fn rear_most_empty(&self) -> Option<Place> {
        let index = self.slots.iter().rposition(SlotState::is_empty)?;
        Some(self.place(index))
    }

    /// The reserved entries with their places, front-most first.
    pub(super) fn reservations(&self) -> impl Iterator<Item = (Place, TrajectoryId, Version)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, content)| match *content {
                SlotState::Reserved { id, version } => Some((self.place(index), id, version)),
                _ => None,
            })
    }

    /// The finished entries with their places, front-most first.
    pub(super) fn occupied(&self) -> impl DoubleEndedIterator<Item = (Place, TrajectoryId, Version)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, content)| match *content {
                SlotState::Occupied { id, version } => Some((self.place(index), id, version)),
                _ => None,
            })
    }

    fn place(&self, index: usize) -> Place {
        Place {
            buffer: self.id,
            slot: slot(index),
        }
    }
}

impl SlotState {
    /// Whether the slot holds nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Whether the slot holds an entry that is still generating.
    pub fn is_reserved(&self) -> bool {
        matches!(self, Self::Reserved { .. })
    }

    /// Whether the slot holds a finished entry.
    pub fn is_occupied(&self) -> bool {
        matches!(self, Self::Occupied { .. })
    }

    /// The entry in the slot, with its version.
    pub fn entry(&self) -> Option<(TrajectoryId, Version)> {
        match *self {
            Self::Empty => None,
            Self::Reserved { id, version } | Self::Occupied { id, version } => Some((id, version)),
        }
    }
}

impl BufferView {
    /// How many slots are occupied.
    pub fn occupied(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_occupied()).count()
    }

    /// How many slots are empty.
    pub fn empty(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_empty()).count()
    }

    /// How many slots are reserved.
    pub fn reserved(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_reserved()).count()
    }
}
