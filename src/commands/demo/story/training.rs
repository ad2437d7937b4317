//! What the trainer does, and what it does again after it was killed.

use super::{DemoError, Story};
use crate::client::{BufferTable, SlotView};
use crate::commands::demo::draw::TrainerView;
use crate::commands::demo::ink::Ink;
use crate::commands::demo::record::{BatchRecord, PieceRecord, SessionRecord};
use crate::commands::demo::text::counted;
use crate::protocol::{BufferId, Version};

/// Batches that are trained again, since the trainer resumed from an older version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replay {
    /// The version of its checkpoint.
    pub(super) from: Version,
    /// The latest version at that moment, at which the replay ends.
    pub(super) to: Version,
}

impl Story<'_> {
    pub(super) fn on_opened(&mut self, session: SessionRecord) {
        let SessionRecord {
            trainer_version,
            policy_version,
            ..
        } = session;
        self.view.trainer_version = trainer_version;
        self.reached(policy_version);
        self.replay = (trainer_version < policy_version).then_some(Replay {
            from: trainer_version,
            to: policy_version,
        });
        self.tell_opened(&session);
        self.record.opened(&session);
    }

    pub(super) async fn on_piece(&mut self, piece: &PieceRecord) -> Result<(), DemoError> {
        self.view.trainer = TrainerView::Training {
            tokens: piece.tokens,
            replayed: piece.replayed,
        };
        let is_again = piece.redelivered && !self.record.has(piece.version);
        let is_same = self.record.add_piece(piece);
        if is_again {
            let entries = counted(piece.entries.len() as u64, "entry");
            let (ink, those) = if is_same {
                (Ink::Green, "the same")
            } else {
                (Ink::Red, "not the same")
            };
            let what = format!(
                "gets the first pieces of batch {} again: {those} {entries}",
                piece.version
            );
            self.screen.say("trainer", ink, &what);
        }
        if piece.complete {
            Ok(())
        } else {
            self.kill_trainer_if_due().await
        }
    }

    pub(super) async fn on_batch(&mut self, batch: BatchRecord) -> Result<(), DemoError> {
        if batch.replayed {
            self.view.replayed = Some(as_table(&batch, "replayed"));
        } else {
            self.view.taken = Some(as_table(&batch, "taken"));
        }
        self.view.trainer = TrainerView::Training {
            tokens: batch.tokens,
            replayed: batch.replayed,
        };
        self.tell_batch(&batch);
        self.record.add(batch);
        self.kill_trainer_if_due().await
    }

    pub(super) async fn on_published(&mut self, version: Version, policy_version: Version) -> Result<(), DemoError> {
        self.view.trainer_version = version;
        self.view.replayed = None;
        self.reached(policy_version);
        self.record.published(version, policy_version);
        let Some(replay) = self.replay else {
            return self.tell_published(version).await;
        };
        if version >= replay.to {
            self.replay = None;
            self.tell_caught_up(&replay).await?;
        }
        Ok(())
    }

    /// `version` is the latest. A batch that was in training for it is done.
    fn reached(&mut self, version: Version) {
        self.view.policy_version = version;
        self.view.published = version.0;
        let is_done = |taken: &BufferTable| taken.version < BufferId(version.0);
        if self.view.taken.as_ref().is_some_and(is_done) {
            self.view.taken = None;
        }
    }
}

/// A batch as the buffer it was.
fn as_table(batch: &BatchRecord, state: &str) -> BufferTable {
    let slots = batch.entries.iter().map(|entry| SlotView::Occupied {
        staleness: entry.staleness,
        prompt: None,
    });
    BufferTable {
        version: BufferId(batch.version.0),
        state: state.to_owned(),
        slots: slots.collect(),
    }
}
