//! One task for each response that is being generated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::Rollout;
use crate::client::{Cancelled, ClientError, Finish, Grant};
use crate::commands::demo::record::Record;
use crate::protocol::TrajectoryId;

/// What the process is generating: each entry with the handle that stops it.
#[derive(Default)]
pub(super) struct Holdings {
    generating: Mutex<HashMap<TrajectoryId, AbortHandle>>,
}

impl Holdings {
    /// Every entry, in no particular order.
    pub(super) fn ids(&self) -> Vec<TrajectoryId> {
        self.locked(|generating| generating.keys().copied().collect())
    }

    /// Lists the entry whose task `start` spawns. The lock is held meanwhile: a task that ends at once is not taken off the
    /// list before it is on it.
    fn add(&self, id: TrajectoryId, start: impl FnOnce() -> AbortHandle) {
        self.locked(|generating| generating.insert(id, start()));
    }

    fn remove(&self, id: TrajectoryId) -> Option<AbortHandle> {
        self.locked(|generating| generating.remove(&id))
    }

    fn locked<T>(&self, use_it: impl FnOnce(&mut HashMap<TrajectoryId, AbortHandle>) -> T) -> T {
        use_it(&mut self.generating.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rollout {
    /// Starts to generate what was granted. The permit is capacity, given back at the end.
    pub(super) fn generate(self: &Arc<Self>, grant: Grant, permit: OwnedSemaphorePermit, random: &mut StdRng) {
        let tokens = self.lengths.draw(random);
        let reward = if random.random_bool(0.5) { 1.0 } else { 0.0 };
        let rollout = Arc::clone(self);
        let id = grant.id;
        let generation = async move {
            tokio::time::sleep(rollout.pace.generating(tokens)).await;
            let finished = rollout.finish(&grant, tokens, reward).await;
            rollout.holdings.remove(id);
            if let Err(error) = finished {
                // The process is about to end if nobody receives it.
                let _ = rollout.failures.send(error);
            }
            drop(permit);
        };
        self.holdings.add(id, || tokio::spawn(generation).abort_handle());
    }

    async fn finish(&self, grant: &Grant, tokens: u64, reward: f64) -> Result<(), ClientError> {
        let name = grant.prompt.clone().unwrap_or_else(|| grant.id.to_string());
        let finish = if self.lengths.is_cut(tokens) { "length" } else { "stop" };
        let request = Finish {
            worker: self.worker.clone(),
            session: self.session.clone(),
            reward: Some(reward),
            tokens: Some(tokens),
            payload: Some(format!("demo://rollouts/{name}")),
            meta: Some(json!({ "finish": finish })),
        };
        match self.run.occupy(grant.id, &request).await {
            Ok(answer) if answer.late => Record::SavedLate.write(),
            Ok(_) => {}
            Err(ClientError::Refused { code, .. }) if code == "trajectory_discarded" || code == "superseded" => {
                Record::Refused { code }.write();
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Stops what was cancelled, if it is still being generated.
    pub(super) fn stop(&self, cancelled: &Cancelled) {
        if let Some(generation) = self.holdings.remove(cancelled.id) {
            generation.abort();
            Record::Stopped {
                reason: cancelled.reason.clone(),
            }
            .write();
        }
    }
}
