//! The heartbeat: it keeps the lease, learns of new weights and of what should no longer be generated.

use std::time::Duration;

use super::Rollout;
use crate::client::{ClientError, Heartbeat};
use crate::protocol::TrajectoryId;

/// How long a heartbeat waits for news: well within the lease, which the server renews at both ends.
const WAIT: Duration = Duration::from_secs(1);

impl Rollout {
    /// One heartbeat after the other, until one fails.
    pub(super) async fn keep_beating(&self) -> Result<(), ClientError> {
        let mut acknowledged = Vec::new();
        loop {
            acknowledged = self.beat_acknowledging(acknowledged, WAIT).await?;
        }
    }

    /// One heartbeat with nothing to acknowledge.
    pub(super) async fn beat(&self, wait: Duration) -> Result<(), ClientError> {
        self.beat_acknowledging(Vec::new(), wait).await.map(|_| ())
    }

    /// One heartbeat. Returns what the next one acknowledges: generation of it has stopped.
    async fn beat_acknowledging(
        &self,
        acknowledged: Vec<TrajectoryId>,
        wait: Duration,
    ) -> Result<Vec<TrajectoryId>, ClientError> {
        let version = *self.version.borrow();
        let request = Heartbeat {
            session: self.session.clone(),
            version,
            holding: Some(self.holdings.ids()),
            acknowledged,
            wait_ms: wait.as_secs() * 1_000,
        };
        let news = self.run.heartbeat(&self.worker, &request).await?;
        for cancelled in &news.cancelled {
            self.stop(cancelled);
        }
        if news.policy_version > version {
            tokio::time::sleep(self.pace.loading_weights()).await;
            self.version.send_replace(news.policy_version);
        }
        Ok(news.cancelled.into_iter().map(|cancelled| cancelled.id).collect())
    }
}
