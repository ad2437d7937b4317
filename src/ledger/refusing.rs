//! How the scripts say why a call on one entry, or one item of a call on many, was refused.

use serde::Deserialize;

use super::Refusal;
use crate::protocol::{Reason, Version};

/// A refusal, with what the script says beside the word.
#[derive(Deserialize)]
pub(super) struct RefusedEntry {
    #[serde(alias = "outcome")]
    code: Word,
    reason: Option<Reason>,
    policy_version: Option<Version>,
    #[serde(default)]
    candidates: u32,
    #[serde(default)]
    complete: u32,
    #[serde(default)]
    needed: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    UnknownTrajectory,
    TrajectoryDiscarded,
    Superseded,
    GroupIncomplete,
    NoGroups,
    MemberMissing,
    NoSuchMember,
    VersionUnknown,
    VersionNotPublished,
    VersionTooStale,
    SegmentOutOfOrder,
}

impl RefusedEntry {
    /// The refusal of a call that named `version`, if it named one.
    pub(super) fn refusal(self, version: Option<Version>) -> Refusal {
        // The scripts say beside each word what belongs to it.
        let policy_version = self.policy_version.unwrap_or(Version(0));
        match self.code {
            Word::UnknownTrajectory => Refusal::UnknownTrajectory,
            Word::TrajectoryDiscarded => Refusal::TrajectoryDiscarded {
                reason: self.reason.unwrap_or(Reason::Abandoned),
            },
            Word::Superseded => Refusal::Superseded,
            Word::GroupIncomplete => Refusal::GroupIncomplete {
                complete: self.complete,
                needed: self.needed,
            },
            Word::NoGroups => Refusal::NoGroups,
            Word::MemberMissing => Refusal::MemberMissing,
            Word::NoSuchMember => Refusal::NoSuchMember {
                candidates: self.candidates,
            },
            Word::VersionUnknown => Refusal::VersionUnknown,
            Word::VersionNotPublished => Refusal::VersionNotPublished {
                version,
                policy_version,
            },
            Word::VersionTooStale => Refusal::VersionTooStale { policy_version },
            Word::SegmentOutOfOrder => Refusal::SegmentOutOfOrder,
        }
    }
}
