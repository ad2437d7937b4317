//! *Resume*: a trainer session is opened, from the checkpoint that the trainer has.

use super::{Effect, SlotTables};
use crate::protocol::{BufferId, Epoch, Lineage, ResumeMode, Version};

/// What a trainer that starts says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resume {
    /// The version that its checkpoint holds; it may be left out before the first publish.
    pub resume_from: Option<Version>,
    /// How it goes on from an older one.
    pub mode: ResumeMode,
    /// Whether it goes on whatever was lost.
    pub force: bool,
    /// What others have seen of a run that lost writes; `None` of one that lost none.
    pub behind: Option<Behind>,
}

/// The highest that anybody has seen of a run whose database lost its newest writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// The trainer session.
    pub epoch: Epoch,
    /// The lineage.
    pub lineage: Lineage,
}

/// A trainer session that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The version of the checkpoint, said or not.
    pub resumed_from: Version,
    /// How the run goes on.
    pub kind: ResumeKind,
    /// The session.
    pub epoch: Epoch,
    /// The run's lineage.
    pub lineage: Lineage,
    /// `V`.
    pub policy_version: Version,
    /// `T`.
    pub trainer_version: Version,
    /// What became of the entries where the tables were laid out anew.
    pub effects: Vec<Effect>,
}

/// How a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResumeKind {
    /// From `V`.
    Continued,
    /// From `V + 1`: the checkpoint was saved, and the version not published.
    Published,
    /// From an older version, with the batches that it was trained by.
    Replay,
    /// From an older version; the weights after it are abandoned.
    Rewind,
    /// From a version that the ledger has not reached.
    Forced,
}

/// Why a Resume is refused. Nothing is changed then: no session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeRefusal {
    /// The trainer must say its version once one was published.
    #[error("only before the first publish may the checkpoint's version be left out")]
    ResumeFromMissing,
    /// A batch after the checkpoint is not kept.
    #[error("batch {batch} is not kept")]
    BatchPruned {
        /// The first such batch.
        batch: Version,
    },
    /// The checkpoint is newer than all that the ledger knows.
    #[error("the ledger has not reached version {version}: the latest is {policy_version}")]
    LedgerBehind {
        /// The checkpoint's version.
        version: Version,
        /// `V`.
        policy_version: Version,
    },
}

impl ResumeKind {
    /// Whether the weights went another way.
    pub(super) fn begins_a_lineage(self) -> bool {
        matches!(self, Self::Rewind | Self::Forced)
    }
}

impl SlotTables {
    /// Opens a trainer session. The same session asking again is for the caller to answer.
    ///
    /// # Errors
    ///
    /// As [`ResumeRefusal`] says.
    pub fn resume(&mut self, resume: &Resume) -> Result<Resumed, ResumeRefusal> {
        let from = self.resumed_from(resume)?;
        let kind = self.kind_of_resume(from, resume.mode);
        self.refuse_resume(from, kind, resume)?;

        let seen_epoch = resume.behind.map_or(self.session.epoch, |seen| seen.epoch);
        let seen_lineage = resume.behind.map_or(self.lineage, |seen| seen.lineage);
        let epoch = Epoch(self.session.epoch.max(seen_epoch).0.saturating_add(1));
        let begins_a_lineage = kind.begins_a_lineage() || resume.behind.is_some();
        let lineage = if begins_a_lineage {
            Lineage(self.lineage.max(seen_lineage).0.saturating_add(1))
        } else {
            self.lineage
        };

        let mut effects = Vec::new();
        match kind {
            ResumeKind::Rewind => self.rewind(from, &mut effects),
            ResumeKind::Forced => self.jump(from, &mut effects),
            ResumeKind::Continued | ResumeKind::Published | ResumeKind::Replay => self.stand_at(from),
        }
        self.open_session(epoch, lineage);
        Ok(Resumed {
            resumed_from: from,
            kind,
            epoch,
            lineage,
            policy_version: self.policy_version,
            trainer_version: self.trainer_version,
            effects,
        })
    }

    /// How a run goes on from a checkpoint of this version, if it does.
    pub(super) fn kind_of_resume(&self, from: Version, mode: ResumeMode) -> ResumeKind {
        let next = Version(self.policy_version.0 + 1);
        if from == self.policy_version {
            ResumeKind::Continued
        } else if from == next && self.next_buffer == BufferId(next.0) {
            ResumeKind::Published
        } else if from > self.policy_version {
            ResumeKind::Forced
        } else if mode == ResumeMode::Replay {
            ResumeKind::Replay
        } else {
            ResumeKind::Rewind
        }
    }

    /// The trainer stands at the version, and what is in flight goes on. A version after `V` is published by it.
    pub(super) fn stand_at(&mut self, version: Version) {
        self.trainer_version = version;
        if version > self.policy_version {
            self.open_version(version);
        }
    }

    /// A trainer session begins, and a lineage, if it is another one.
    pub(super) fn open_session(&mut self, epoch: Epoch, lineage: Lineage) {
        self.session.epoch = epoch;
        self.session.is_open = true;
        self.session.delivered = None;
        if lineage > self.lineage {
            self.rewinds.push(lineage, Some(self.policy_version));
        }
        self.lineage = lineage;
        self.note_oldest_kept();
    }

    fn resumed_from(&self, resume: &Resume) -> Result<Version, ResumeRefusal> {
        let initial = Version(self.config.initial_version);
        let before_first_publish = self.policy_version == initial && self.lineage == self.first_lineage;
        match resume.resume_from {
            Some(version) => Ok(version),
            None if before_first_publish => Ok(initial),
            None => Err(ResumeRefusal::ResumeFromMissing),
        }
    }

    fn refuse_resume(&self, from: Version, kind: ResumeKind, resume: &Resume) -> Result<(), ResumeRefusal> {
        let batches_matter = match kind {
            ResumeKind::Continued | ResumeKind::Published => false,
            ResumeKind::Replay => true,
            ResumeKind::Rewind => !resume.force,
            ResumeKind::Forced if resume.force => false,
            ResumeKind::Forced => {
                return Err(ResumeRefusal::LedgerBehind {
                    version: from,
                    policy_version: self.policy_version,
                });
            }
        };
        if !batches_matter {
            return Ok(());
        }
        match self.first_not_kept(from, self.policy_version) {
            Some(batch) => Err(ResumeRefusal::BatchPruned { batch }),
            None => Ok(()),
        }
    }
}
