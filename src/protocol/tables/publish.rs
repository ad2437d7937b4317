//! *Publish*: the trainer has made the next version of the batch that it was given.

use super::{Buffer, BufferId, SessionRefusal, SlotTables};
use crate::protocol::{Epoch, Version};

/// What a Publish did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// The version is the policy version now, and one more buffer is open.
    Advanced,
    /// The trainer stands at the version now, which was published before the trainer went back.
    Replayed,
    /// The trainer had passed it. Nothing has changed.
    Unchanged,
}

/// Why a Publish is refused. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// The caller is not the trainer whose session is open.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// A version was skipped.
    #[error("the next version to publish is {expected}")]
    OutOfOrder {
        /// `T + 1`.
        expected: Version,
    },
    /// The batch that trains `T` into the version was not taken yet.
    #[error("batch {batch} was not taken yet")]
    NotTaken {
        /// `T`.
        batch: Version,
    },
    /// The batch that trains `T` into the version was taken, and not delivered to this trainer session.
    #[error("batch {batch} was not delivered to this trainer session")]
    NotDelivered {
        /// `T`.
        batch: Version,
    },
}

impl SlotTables {
    /// `version` is published. Publishing one that the trainer has passed changes nothing and succeeds.
    ///
    /// # Errors
    ///
    /// As [`PublishRefusal`] says.
    pub fn publish(&mut self, version: Version, epoch: Option<Epoch>) -> Result<Publish, PublishRefusal> {
        self.refuse_session(epoch)?;
        let batch = self.trainer_version;
        if version <= batch {
            return Ok(Publish::Unchanged);
        }
        let expected = Version(batch.0 + 1);
        if version != expected {
            return Err(PublishRefusal::OutOfOrder { expected });
        }
        if self.next_buffer == BufferId(batch.0) {
            return Err(PublishRefusal::NotTaken { batch });
        }
        if self.session.delivered != Some(batch) {
            return Err(PublishRefusal::NotDelivered { batch });
        }
        Ok(self.advance())
    }

    /// The trainer goes one version on, and with it the policy version, if they are the same.
    pub(super) fn advance(&mut self) -> Publish {
        let replayed = self.trainer_version < self.policy_version;
        self.trainer_version = Version(self.trainer_version.0 + 1);
        if !replayed {
            self.open_version(self.trainer_version);
        }
        self.note_oldest_kept();
        if replayed { Publish::Replayed } else { Publish::Advanced }
    }

    /// `version` is the policy version, and one more buffer is open.
    pub(super) fn open_version(&mut self, version: Version) {
        self.policy_version = version;
        self.window
            .push_back(Buffer::empty(self.deadline(version), &self.config));
    }
}
