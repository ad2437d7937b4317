//! Segments: the generation of a trajectory, or of a member of a group, goes on under a newer version (protocol, *Partial
//! rollout*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names::Caller;
use super::refusing::RefusedEntry;
use super::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::{Lineage, TrajectoryId, Version};
use crate::store::script;

/// A part of a trajectory that one version generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Segment {
    /// The policy version of the weights.
    pub version: Version,
    /// The first token that they generated.
    pub from_token: u64,
}

/// A segment that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewSegment {
    /// The entry.
    pub id: TrajectoryId,
    /// Which of a group's candidates.
    pub member: Option<u32>,
    /// The segment.
    pub segment: Segment,
    /// The lineage of the weights; the current one if left out, but for a session that has seen it rise.
    pub lineage: Option<Lineage>,
}

/// All segments that are known of a trajectory or member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Segments {
    /// From token 0 on.
    pub segments: Vec<Segment>,
}

#[derive(Serialize)]
struct SegmentArgs<'a> {
    #[serde(flatten)]
    caller: Option<&'a Caller>,
    lineage: Option<Lineage>,
    id: TrajectoryId,
    member: Option<u32>,
    segment: Segment,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SegmentReply {
    Recorded(Segments),
    Refused(RefusedEntry),
}

impl Ledger {
    /// Records that generation goes on under another version. Repeated, and once it is over, it shows what is known.
    pub async fn segment(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        new: NewSegment,
    ) -> Result<Seen<Segments>, LedgerError> {
        let args = SegmentArgs {
            caller,
            lineage: new.lineage,
            id: new.id,
            member: new.member,
            segment: new.segment,
        };
        let seen = self.call::<SegmentReply>(&script::SEGMENT, run, &args).await?;
        match seen.value {
            SegmentReply::Recorded(value) => Ok(Seen { seq: seen.seq, value }),
            SegmentReply::Refused(refused) => Err(LedgerError::Refused {
                seq: seen.seq,
                refusal: refused.refusal(Some(new.segment.version)),
            }),
        }
    }
}
