//! The members of groups: reported one by one, and read with their group (protocol, *Groups*).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::finishing::Finish;
use super::names::Caller;
use super::refusing::RefusedEntry;
use super::segments::Segment;
use super::trajectories::{Trajectory, TrajectoryState};
use super::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::tables::BufferState;
use crate::protocol::{BufferId, Lineage, Reason, Slot, TrajectoryId, Version};
use crate::store::{StoreError, script};

/// How many members one read fetches.
const PAGE: usize = 500;
/// What keeps the advantages of a group finite whose rewards hardly differ.
const EPSILON: f64 = 1e-6;

/// A member that finished or failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemberReport {
    /// Which of the group's candidates, from 0.
    pub index: u32,
    /// Whether it failed.
    pub failed: bool,
    /// The version that it was begun under; what the session last said if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// What it leaves.
    #[serde(flatten)]
    pub finish: Finish,
    /// A client's remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The segments that it was generated in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
}

/// What a member's report came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberRecorded {
    /// The state of the group now.
    pub state: TrajectoryState,
    /// Whether the report counts: it is the first of this member, and came before the group was filled.
    pub counted: bool,
    /// Members that are complete.
    pub complete: u32,
    /// Members that failed.
    pub failed: u32,
    /// Complete members that fill the group.
    pub needed: u32,
    /// Why the group was discarded, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The buffer of a group that is occupied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferId>,
    /// Its slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// The state of the buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_state: Option<BufferState>,
    /// Whether the group had been discarded and was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<bool>,
}

#[derive(Serialize)]
struct MemberArgs<'a> {
    #[serde(flatten)]
    caller: Option<&'a Caller>,
    lineage: Option<Lineage>,
    id: TrajectoryId,
    report: &'a MemberReport,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MemberReply {
    Recorded(MemberRecorded),
    Refused(RefusedEntry),
}

/// What is known of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// It said in which segments it is generated.
    Generating,
    /// It finished.
    Complete,
    /// It failed.
    Failed,
}

/// A member as the scripts keep it (`members` in `lua/prelude/run.lua`).
#[derive(Debug, Clone, Deserialize)]
struct MemberRecord {
    index: u32,
    state: MemberState,
    version: Option<Version>,
    #[serde(default)]
    segments: Vec<Segment>,
    reward: Option<f64>,
    tokens: Option<u64>,
    payload: Option<String>,
    meta: Option<String>,
    note: Option<String>,
    worker: Option<String>,
}

/// A member of a group.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Member {
    /// Which of the group's candidates, from 0.
    pub index: u32,
    /// What is known of it.
    pub state: MemberState,
    /// The version that it was begun under.
    pub version: Option<Version>,
    /// The segments that it was generated in, from token 0 on.
    pub segments: Vec<Segment>,
    /// Its reward.
    pub reward: Option<f64>,
    /// Its length, in tokens.
    pub tokens: Option<u64>,
    /// Where its tokens are.
    pub payload: Option<String>,
    /// What the client added.
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
    /// What the client that gave it up remarked.
    pub note: Option<String>,
    /// The worker that reported it, if it said its name.
    pub worker: Option<String>,
    /// Its reward normalised within the group: mean 0, divided by the population standard deviation plus 1e-6. Null while the
    /// group is not finished, and if a reward is missing.
    pub advantage: Option<f64>,
}

impl From<MemberRecord> for Member {
    fn from(record: MemberRecord) -> Self {
        let first = record.version.map(|version| Segment { version, from_token: 0 });
        Self {
            index: record.index,
            state: record.state,
            version: record.version,
            segments: first.into_iter().chain(record.segments).collect(),
            reward: record.reward,
            tokens: record.tokens,
            payload: record.payload,
            // It was valid JSON when it came in, and went through the database as opaque text.
            meta: record.meta.and_then(|text| RawValue::from_string(text).ok()),
            note: record.note,
            worker: record.worker,
            advantage: None,
        }
    }
}

/// Which members of groups to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The complete ones: a batch has no others.
    Complete,
    /// All of whom something is known.
    Known,
}

impl Ledger {
    /// Reports a member that finished or failed. Repeated, it shows how the group stands.
    pub async fn member(
        &self,
        run: &RunName,
        caller: Option<&Caller>,
        lineage: Option<Lineage>,
        id: TrajectoryId,
        report: &MemberReport,
    ) -> Result<Seen<MemberRecorded>, LedgerError> {
        let args = MemberArgs {
            caller,
            lineage,
            id,
            report,
        };
        let seen = self.call::<MemberReply>(&script::MEMBER, run, &args).await?;
        match seen.value {
            MemberReply::Recorded(value) => Ok(Seen { seq: seen.seq, value }),
            MemberReply::Refused(refused) => Err(LedgerError::Refused {
                seq: seen.seq,
                refusal: refused.refusal(newest_named(report)),
            }),
        }
    }

    /// Reads the members of those trajectories that are groups. Returns whether all were found that must be there.
    pub(super) async fn read_members(
        &self,
        run: &RunName,
        trajectories: &mut [Trajectory],
        which: Which,
    ) -> Result<bool, LedgerError> {
        let mut wanted = Vec::new();
        for (position, trajectory) in trajectories.iter_mut().enumerate() {
            let Some(marks) = &trajectory.marks else {
                continue;
            };
            trajectory.members = Some(Vec::new());
            let indexes = (0..).zip(marks.chars());
            let indexes = indexes.filter(|(_, mark)| which == Which::Known || *mark == 'c');
            wanted.extend(indexes.map(|(index, mark): (u32, char)| (position, index, mark)));
        }
        let mut all_found = true;
        for page in wanted.chunks(PAGE) {
            let mut get = redis::cmd("HMGET");
            get.arg(Self::keys(run).part("members"));
            for (position, index, _) in page {
                get.arg(format!("{}:{index}", trajectories[*position].id));
            }
            let found: Vec<Option<Vec<u8>>> = self.parts.store.read(&get).await?;
            for ((position, _, mark), packed) in page.iter().zip(found) {
                let Some(packed) = packed else {
                    all_found &= *mark == '-';
                    continue;
                };
                let record: MemberRecord = rmp_serde::from_slice(&packed).map_err(StoreError::from)?;
                if let Some(members) = &mut trajectories[*position].members {
                    members.push(record.into());
                }
            }
        }
        for trajectory in trajectories {
            let is_finished = matches!(trajectory.state, TrajectoryState::Occupied | TrajectoryState::Taken);
            if let (true, Some(members)) = (is_finished, &mut trajectory.members) {
                normalise(members);
            }
        }
        Ok(all_found)
    }
}

/// The newest version that a report names, if it names any.
pub(super) fn newest_named(report: &MemberReport) -> Option<Version> {
    let in_segments = report.segments.iter().map(|segment| segment.version).max();
    in_segments.max(report.version)
}

/// Gives the complete members of a finished group their advantages.
fn normalise(members: &mut [Member]) {
    let complete = || members.iter().filter(|member| member.state == MemberState::Complete);
    let Some(rewards) = complete().map(|member| member.reward).collect::<Option<Vec<f64>>>() else {
        return;
    };
    let advantages = advantages(&rewards);
    let complete = members
        .iter_mut()
        .filter(|member| member.state == MemberState::Complete);
    for (member, advantage) in complete.zip(advantages) {
        member.advantage = Some(advantage);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a group has at most 1,024 members")]
fn advantages(rewards: &[f64]) -> Vec<f64> {
    let count = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / count;
    let variance = rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / count;
    let scale = variance.sqrt() + EPSILON;
    rewards.iter().map(|reward| (reward - mean) / scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(rewards: &[f64]) -> Vec<String> {
        advantages(rewards)
            .iter()
            .map(|advantage| format!("{advantage:.4}"))
            .collect()
    }

    #[test]
    fn an_advantage_is_the_distance_from_the_mean_in_population_standard_deviations() {
        assert_eq!(
            rounded(&[1.0, 0.0, 0.0, 1.0]),
            ["1.0000", "-1.0000", "-1.0000", "1.0000"]
        );
        assert_eq!(rounded(&[1.0, 2.0, 3.0]), ["-1.2247", "0.0000", "1.2247"]);
    }

    #[test]
    fn equal_rewards_have_no_advantage_over_one_another() {
        assert_eq!(rounded(&[0.5, 0.5]), ["0.0000", "0.0000"]);
    }
}
