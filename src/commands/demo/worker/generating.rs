//! One task for each response that is being generated.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::Rollout;
use crate::client::{Cancelled, ClientError, Finish, Grant, MemberReport};
use crate::commands::demo::record::Record;
use crate::protocol::{TrajectoryId, Version};

/// A response to be generated.
struct Response {
    entry: TrajectoryId,
    /// Which member of a group it is; 0 for a single trajectory.
    index: u32,
    /// What it is called.
    name: String,
    /// The version of the weights that generate it.
    version: Version,
    tokens: u64,
    reward: f64,
    /// Whether it never ends.
    hangs: bool,
}

impl Rollout {
    /// Starts to generate what was granted: all members of a new group at once, of an adopted one those that are missing.
    /// The permits are capacity, one for each member; those that are not needed are given back at once.
    pub(super) fn generate(
        self: &Arc<Self>,
        grant: &Grant,
        permits: Vec<OwnedSemaphorePermit>,
        random: &mut StdRng,
        hangs: bool,
    ) {
        let done = [&grant.members_done, &grant.members_failed];
        let is_done = |index: u32| {
            done.iter()
                .any(|list| list.as_ref().is_some_and(|list| list.contains(&index)))
        };
        let missing: Vec<u32> = (0..self.group_size).filter(|index| !is_done(*index)).collect();
        let hanging = missing.last().copied().filter(|_| hangs);
        if hanging.is_some() {
            Record::Hangs { entry: grant.id }.write();
        }
        let name = grant.prompt.clone().unwrap_or_else(|| grant.id.to_string());
        let responses: Vec<Response> = missing
            .into_iter()
            .map(|index| Response {
                entry: grant.id,
                index,
                name: format!("{name}/{index}"),
                version: *self.version.borrow(),
                tokens: self.lengths.draw(random),
                reward: if random.random_bool(0.5) { 1.0 } else { 0.0 },
                hangs: hanging == Some(index),
            })
            .collect();
        self.holdings.add(grant.id, || {
            let started = responses.into_iter().zip(permits);
            let tasks = started.map(|(response, permit)| (response.index, self.start(response, permit)));
            tasks.collect::<BTreeMap<_, _>>()
        });
    }

    fn start(self: &Arc<Self>, response: Response, permit: OwnedSemaphorePermit) -> AbortHandle {
        let rollout = Arc::clone(self);
        let generation = async move {
            if response.hangs {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(rollout.pace.generating(response.tokens)).await;
            let finished = rollout.finish(&response).await;
            rollout.holdings.remove(response.entry, response.index);
            if let Err(error) = finished {
                // The process is about to end if nobody receives it.
                let _ = rollout.failures.send(error);
            }
            drop(permit);
        };
        tokio::spawn(generation).abort_handle()
    }

    async fn finish(&self, response: &Response) -> Result<(), ClientError> {
        let was_late = if self.group_size == 1 {
            let answer = self.run.occupy(response.entry, &self.occupy_request(response)).await;
            answer.map(|answer| answer.late)
        } else {
            let report = self.member_report(response);
            let answer = self.run.report_member(response.entry, response.index, &report).await;
            answer.map(|answer| answer.late)
        };
        match was_late {
            Ok(true) => Record::SavedLate.write(),
            Ok(false) => {}
            Err(ClientError::Refused { code, .. }) if code == "trajectory_discarded" || code == "superseded" => {
                Record::Refused { code }.write();
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn occupy_request(&self, response: &Response) -> Finish {
        Finish {
            worker: self.worker.clone(),
            session: self.session.clone(),
            reward: Some(response.reward),
            tokens: Some(response.tokens),
            payload: Some(payload(response)),
            meta: Some(self.meta(response)),
        }
    }

    fn member_report(&self, response: &Response) -> MemberReport {
        MemberReport {
            worker: self.worker.clone(),
            session: self.session.clone(),
            version: Some(response.version),
            failed: false,
            note: None,
            reward: Some(response.reward),
            tokens: Some(response.tokens),
            payload: Some(payload(response)),
            meta: Some(self.meta(response)),
        }
    }

    fn meta(&self, response: &Response) -> Value {
        let is_cut = self.lengths.is_cut(response.tokens);
        json!({ "finish": if is_cut { "length" } else { "stop" } })
    }

    /// Stops what was cancelled, if it is still being generated.
    pub(super) fn stop(&self, cancelled: &Cancelled) {
        let responses = self.holdings.stop(cancelled);
        if responses > 0 {
            Record::Stopped {
                reason: cancelled.reason.clone(),
                responses,
            }
            .write();
        }
    }
}

/// Where the response would lie.
fn payload(response: &Response) -> String {
    format!("demo://rollouts/{}", response.name)
}
