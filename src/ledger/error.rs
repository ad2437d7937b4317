//! Why a call was not done.

use thiserror::Error;

use super::Seen;
use crate::protocol::{BufferId, Reason, Version};
use crate::store::{StoreError, migrations};

/// A call that was not done.
#[derive(Debug, Clone, Error)]
pub enum LedgerError {
    /// The protocol refuses it, as the run stands at `seq`.
    #[error("{refusal}")]
    Refused {
        /// The run's sequence number, if the name is or was a run's.
        seq: Option<u64>,
        /// Why.
        refusal: Refusal,
    },
    /// The database gave no usable answer. Whether the call was done may be unknown; repeating it is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run's keys were written by a newer program.
    #[error(
        "the run's keys have layout {found}, and this server knows layouts up to {}",
        migrations::CURRENT
    )]
    NewerLayout {
        /// The layout that they have.
        found: u32,
    },
}

/// Why the protocol refuses a call. Each has its code in `api.md`, *Codes*.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No such run.
    #[error("there is no run of this name")]
    UnknownRun,
    /// The run exists with another configuration.
    #[error("the run exists with another {}", fields.join(", "))]
    RunExists {
        /// The fields that differ.
        fields: Vec<&'static str>,
    },
    /// A newer session of the worker has opened since.
    #[error("a newer session has opened: this one is over")]
    Fenced,
    /// The database has lost writes that were acknowledged, or the caller knows of such.
    #[error(
        "the run is behind what its servers, or the caller, have seen of it: the database lost writes; a trainer session that opens goes on from what there is"
    )]
    LedgerBehind,
    /// The database does not know the version that the trainer resumes from.
    #[error(
        "the checkpoint is of a version above {policy_version}, the latest that the database knows: it lost writes, and `force` goes on without them"
    )]
    CheckpointAhead {
        /// The latest published version.
        policy_version: Version,
    },
    /// A trainer must say which version its checkpoint holds.
    #[error("versions were published: say which one the checkpoint holds")]
    ResumeFromMissing,
    /// The session never said which weights it holds.
    #[error("the session has not said which policy version its weights are")]
    VersionUnknown,
    /// The version is above the latest published one, or its weights were abandoned by a rewind or a forced resume.
    #[error("{}", version_not_published(*version, *policy_version))]
    VersionNotPublished {
        /// The version that was named; `None` for what a session said before the lineage rose.
        version: Option<Version>,
        /// The latest published one.
        policy_version: Version,
    },
    /// The weights are too old to be of use.
    #[error("the weights are too old; the latest version is {policy_version}")]
    VersionTooStale {
        /// The latest published version.
        policy_version: Version,
    },
    /// The request id was used for another request.
    #[error("the request_id was used for another request")]
    RequestIdReused,
    /// No such entry, or one that is forgotten.
    #[error("there is no trajectory of this id")]
    UnknownTrajectory,
    /// The entry was discarded.
    #[error("the trajectory was discarded: {reason}")]
    TrajectoryDiscarded {
        /// Why it was.
        reason: Reason,
    },
    /// Fewer members are complete than make the group.
    #[error("{complete} members are complete, and {needed} are needed; those that were sent are recorded")]
    GroupIncomplete {
        /// Members that are complete.
        complete: u32,
        /// Members that make a group.
        needed: u32,
    },
    /// The versions and tokens of segments rise.
    #[error("a segment begins later, and under a newer version, than the one before it")]
    SegmentOutOfOrder,
    /// The run has no groups.
    #[error("the trajectories of this run are no groups, and have no members")]
    NoGroups,
    /// The run has groups, and segments are those of a member.
    #[error("the run has groups: name the member whose segments these are")]
    MemberMissing,
    /// A group has fewer candidates.
    #[error("a group has {candidates} candidates, from 0 on")]
    NoSuchMember {
        /// How many it has.
        candidates: u32,
    },
    /// No group could ever be admitted.
    #[error("a group of {candidates} candidates would never be admitted")]
    TooFewForAGroup {
        /// How many it has.
        candidates: u32,
    },
    /// The entry was discarded, and its prompt was handed out again, has failed or was dropped.
    #[error("the trajectory was discarded, and its prompt was handed out again, has failed or was dropped")]
    Superseded,
    /// Prompts between what was fed and the page are missing.
    #[error("{fed} prompts were fed: a page may not begin after that")]
    FeedGap {
        /// How many were fed.
        fed: u64,
    },
    /// The ledger does not hand out the prompts of this run.
    #[error("the run has no prompt queue")]
    NoPromptQueue,
    /// The ledger hands out the prompts of this run.
    #[error("the run has a prompt queue, which hands out the prompts")]
    PromptsGiven,
    /// The run is being finished.
    #[error("the run is being finished: no prompt can be fed")]
    Draining,
    /// The entry is in a batch.
    #[error("the trajectory was taken for training")]
    TrajectoryTaken,
    /// Another batch is the next one.
    #[error("the next batch is {expected}")]
    OtherBatch {
        /// The next batch.
        expected: BufferId,
    },
    /// The trainer says that it has more of the batch than was taken.
    #[error("only {taken} entries of the batch are taken")]
    BeyondTaken {
        /// How many entries of it are taken.
        taken: usize,
    },
    /// Another version is to be published next.
    #[error("{}", publish_out_of_order(*expected, *taken, *delivered))]
    PublishOutOfOrder {
        /// The version to be published next.
        expected: Version,
        /// Whether its batch was taken.
        taken: bool,
        /// Whether the trainer's session was given all of it.
        delivered: bool,
    },
    /// No such batch yet.
    #[error("batch {version} was not taken yet")]
    UnknownBatch {
        /// The batch that was asked for.
        version: BufferId,
    },
    /// Events that the call asked for are no longer in the log.
    #[error("{}", events_pruned(*first, *archived))]
    EventsPruned {
        /// The `seq` of the first event that is kept.
        first: u64,
        /// Whether some server archives events before they are trimmed.
        archived: bool,
    },
    /// The batch is no longer kept.
    #[error("batch {version} is no longer kept")]
    BatchPruned {
        /// The batch that was asked for.
        version: BufferId,
    },
}

fn version_not_published(version: Option<Version>, policy_version: Version) -> String {
    match version {
        Some(version) if version > policy_version => {
            format!("version {version} is not published; the latest is {policy_version}")
        }
        Some(version) => format!(
            "the weights of version {version} are of a lineage that was abandoned, or the session has not named the new one; \
             the latest version is {policy_version}"
        ),
        None => format!(
            "the lineage has risen since the session said its version: it must say it again; the latest is {policy_version}"
        ),
    }
}

fn publish_out_of_order(expected: Version, taken: bool, delivered: bool) -> String {
    let batch = expected.0.saturating_sub(1);
    let condition = match (taken, delivered) {
        (false, _) => format!(", once batch {batch} was taken"),
        (true, false) => format!(", once batch {batch} was delivered in this trainer session"),
        (true, true) => String::new(),
    };
    format!("the next version to be published is {expected}{condition}")
}

fn events_pruned(first: u64, archived: bool) -> String {
    let where_they_are = if archived {
        "those before it are in the --archive-dir of the servers"
    } else {
        "those before it were trimmed, and no server archives them"
    };
    let last_missed = first.saturating_sub(1);
    format!("event {first} is the first that is kept: {where_they_are}; after={last_missed} reads on from there")
}

/// Refuses the call that was answered `seen`, as the run stands there.
pub(super) fn refused<T>(seen: &Seen<T>, refusal: Refusal) -> LedgerError {
    LedgerError::Refused { seq: seen.seq, refusal }
}
