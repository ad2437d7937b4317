//! How a worker generates a group: its candidates one after another, each reported when it is done.

use berth::protocol::TrajectoryId;
use serde_json::json;

use super::{GENERATING, STRAGGLING, Work, Worker};
use crate::caller::Answer;
use crate::diary::{Entry, Member, payload};
use crate::rehearsal::GROUP_CANDIDATES;

/// Once in so many candidates, one fails, is reported once more, or the rest is left to itself, as if a grant were forgotten.
const FAILURES: u64 = 6;
const REPETITIONS: u64 = 15;
const FORGOTTEN: u64 = 40;
/// A group that nothing is to be done for any more, and refusals after which nothing can be.
const PASSING: [&str; 5] = [
    "trajectory_discarded",
    "superseded",
    "unknown_trajectory",
    "version_not_published",
    "version_too_stale",
];

impl Worker {
    /// Generates what the group still lacks, and stops when it hears that the group is filled or gone.
    pub(super) async fn generate_group(&self, work: &Work) {
        for index in 0..u32::try_from(GROUP_CANDIDATES).expect("a small number") {
            if work.reported.contains(&index) {
                continue;
            }
            let is_cancelled = self.cancelled.borrow().contains(&work.id);
            // One that was cancelled may be reported late nevertheless.
            if is_cancelled && !self.chance.once_in(2) || self.chance.once_in(FORGOTTEN) {
                break;
            }
            if !self.generate_member(work.id, index).await {
                break;
            }
        }
        self.cancelled.borrow_mut().remove(&work.id);
        if self.chance.once_in(30) {
            self.discard(work.id, self.chance.one_of(&["failed", "filtered"])).await;
        }
        self.holding.borrow_mut().remove(&work.id);
    }

    /// Whether the group needs more.
    async fn generate_member(&self, id: TrajectoryId, index: u32) -> bool {
        // It is begun under the weights that are loaded now, whatever comes meanwhile.
        let weights = *self.weights.borrow();
        self.chance
            .pause(if self.chance.once_in(25) {
                STRAGGLING
            } else {
                GENERATING
            })
            .await;
        let failed = self.chance.once_in(FAILURES);
        let mut report = self.me(json!({ "failed": failed }));
        if !failed {
            report["reward"] = self.chance.between(0..=3).into();
            report["tokens"] = self.chance.between(1..=200).into();
            report["payload"] = payload(id, Some(index)).into();
        }
        if let Some(weights) = weights {
            report["version"] = weights.version.into();
            report["lineage"] = weights.lineage.into();
        }
        let call = format!("trajectories/{id}/members/{index}");
        let answer = match self.caller.post(&call, &report).await {
            Answer::Done(answer) => answer,
            Answer::Refused { code, body } => {
                self.refused("member", Some(id), &code, body, &PASSING);
                return false;
            }
        };
        self.diary.write(Entry::Member(Member {
            id,
            index,
            failed,
            counted: answer["counted"] == true,
        }));
        if answer["state"] == "occupied" {
            let late = answer["late"] == true;
            self.diary.write(Entry::Occupied { id, late });
        }
        if self.chance.once_in(REPETITIONS) {
            self.caller.change_server();
            match self.caller.post(&call, &report).await {
                Answer::Done(again) => self.diary.write(Entry::Repeated {
                    call: "member".to_owned(),
                    alike: again["counted"] == false,
                }),
                Answer::Refused { code, body } => self.refused("member", Some(id), &code, body, &PASSING),
            }
        }
        answer["state"] == "reserved"
    }
}
