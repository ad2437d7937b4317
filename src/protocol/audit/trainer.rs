//! What the protocol has for the trainer's events.

use super::Fault;
use super::run::{Run, version};
use crate::protocol::tables::{Behind, Delivery, Resume, Take};
use crate::protocol::{BufferId, Effect, Epoch, Event, Lineage, Version};

impl Run {
    pub(super) fn expected_of_take(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let version = version(event)?;
        self.refuse_out_of_turn(version)?;
        match self.model.take(Some(self.trainer()))? {
            Take::Taken { is_final, .. } if is_final != event.is_final => Err(Fault::Final { marked: event.is_final }),
            Take::Taken { effects, .. } => Ok(effects),
            Take::NotReady { occupied, needed, .. } => Err(Fault::Incomplete {
                version,
                entries: occupied,
                batch_size: needed,
            }),
            Take::Drained { .. } => Err(Fault::TakenNotDrained { version }),
        }
    }

    /// Entries are taken, or a batch in pieces, of buffer `H` alone, and only by a trainer that waits for it.
    pub(super) fn refuse_out_of_turn(&self, version: Version) -> Result<(), Fault> {
        let policy_version = self.model.policy_version();
        let trainer_version = self.model.trainer_version();
        let next_buffer = self.model.next_buffer();
        if BufferId(version.0) != next_buffer || version != policy_version || version != trainer_version {
            return Err(Fault::OutOfTurn {
                version,
                trainer_version,
                policy_version,
                next_buffer,
            });
        }
        Ok(())
    }

    /// Only the first delivery to a session is a step.
    pub(super) fn expected_of_deliver(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let version = version(event)?;
        let expected = self.model.deliverable();
        let again = self.model.delivered() == expected;
        if expected != Some(version) || again {
            let expected = expected.filter(|_| !again);
            return Err(Fault::Delivered { version, expected });
        }
        match self.model.take(Some(self.trainer()))? {
            Take::Taken {
                replayed,
                delivery: Delivery::Delivered,
                ..
            } if replayed == event.replayed => Ok(Vec::new()),
            Take::Taken {
                delivery: Delivery::Delivered,
                ..
            } => Err(Fault::Replayed { marked: event.replayed }),
            _ => Err(Fault::Delivered {
                version,
                expected: None,
            }),
        }
    }

    pub(super) fn expected_of_publish(&mut self, version: Version) -> Result<Vec<Effect>, Fault> {
        match self.model.publish(version, Some(self.trainer())) {
            Ok(_) => Ok(Vec::new()),
            Err(refusal) => Err(Fault::Publish { version, refusal }),
        }
    }

    /// Only a checkpoint that lets go of something is a step.
    pub(super) fn expected_of_checkpoint(&mut self, version: Version) -> Result<Vec<Effect>, Fault> {
        match self.model.checkpoint(version, Some(self.trainer())) {
            Ok(checkpointed) if checkpointed.changed => Ok(Vec::new()),
            Ok(_) => Err(Fault::CheckpointRepeated { version }),
            Err(refusal) => Err(Fault::Checkpoint { version, refusal }),
        }
    }

    pub(super) fn expected_of_resume(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let logged = LoggedResume::of(event)?;
        let version = event.resumed_from.ok_or(Fault::Missing("resumed_from"))?;
        let policy_version = event.policy_version.ok_or(Fault::Missing("policy_version"))?;
        let resumed = self
            .model
            .resume(&logged.resume)
            .map_err(|refusal| Fault::Resume { version, refusal })?;
        for (what, logged, expected) in [
            ("epoch", logged.epoch.0, resumed.epoch.0),
            ("lineage", logged.lineage.0, resumed.lineage.0),
            ("policy_version", policy_version.0, resumed.policy_version.0),
        ] {
            if logged != expected {
                return Err(Fault::Resumed { what, logged, expected });
            }
        }
        Ok(resumed.effects)
    }

    /// A call that had an effect was one of the last session.
    pub(super) fn trainer(&self) -> Epoch {
        self.model.epoch()
    }
}

/// What `trainer_opened` says of the session.
pub(super) struct LoggedResume {
    pub(super) resume: Resume,
    pub(super) epoch: Epoch,
    pub(super) lineage: Lineage,
}

impl LoggedResume {
    /// What others had seen of a run that was behind is not logged: both numbers rose by one above it.
    pub(super) fn of(event: &Event) -> Result<Self, Fault> {
        let resumed_from = event.resumed_from.ok_or(Fault::Missing("resumed_from"))?;
        let epoch = event.epoch.ok_or(Fault::Missing("epoch"))?;
        let lineage = event.lineage.unwrap_or_default();
        let seen = Behind {
            epoch: Epoch(epoch.0.saturating_sub(1)),
            lineage: Lineage(lineage.0.saturating_sub(1)),
        };
        Ok(Self {
            resume: Resume {
                resume_from: Some(resumed_from),
                mode: event.mode.unwrap_or_default(),
                force: event.force,
                behind: event.behind.then_some(seen),
            },
            epoch,
            lineage,
        })
    }
}
