//! A rollout worker: it generates the members of each group concurrently, and reports each as it finishes.

use std::sync::Arc;
use std::time::Duration;

use berth::client::{Grant, Heartbeat, MemberReport, Reserve, RunClient};
use berth::protocol::Version;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::job::{CONCURRENCY, GROUP_SIZE};
use crate::simulated;

/// How long its calls wait for news.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Worker {
    run: RunClient,
    name: String,
    session: String,
    /// The version of the weights that it holds.
    version: watch::Sender<Version>,
}

impl Worker {
    pub(crate) fn new(run: RunClient, name: &str) -> Self {
        Self {
            run,
            name: name.to_owned(),
            session: Uuid::new_v4().to_string(),
            version: watch::Sender::new(Version(0)),
        }
    }

    /// Generates this many groups, as many at once as it has room for.
    pub(crate) async fn roll_out(self: Arc<Self>, groups: u64, seed: u64) {
        self.beat(Duration::ZERO).await;
        let beating = Arc::clone(&self);
        let mut heartbeat = JoinSet::new();
        heartbeat.spawn(async move {
            loop {
                beating.beat(WAIT).await;
            }
        });
        tokio::select! {
            () = self.generate_all(groups, seed) => {}
            Some(ended) = heartbeat.join_next() => ended.expect("the heartbeat goes on"),
        }
    }

    async fn generate_all(self: &Arc<Self>, groups: u64, seed: u64) {
        let capacity = Arc::new(Semaphore::new((CONCURRENCY / GROUP_SIZE) as usize));
        let mut random = StdRng::seed_from_u64(seed);
        let mut generating = JoinSet::new();
        let mut left = groups;
        while left > 0 {
            let mut free = free(&capacity, left).await;
            let granted = match self.run.reserve(&self.request(free.len())).await {
                Ok(answer) => answer.granted,
                Err(error) if error.code() == Some("version_too_stale") => {
                    // Newer weights are there, or have not been told of yet.
                    self.beat(Duration::ZERO).await;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            left -= granted.len() as u64;
            for (group, permit) in granted.into_iter().zip(free.drain(..)) {
                let lengths = (0..GROUP_SIZE).map(|_| simulated::length(&mut random)).collect();
                generating.spawn(Arc::clone(self).generate(group, lengths, permit));
            }
        }
        while let Some(ended) = generating.join_next().await {
            ended.expect("a group is generated to its end");
        }
    }

    /// All members of a group at once. Its place in the worker is free when the longest is done.
    async fn generate(self: Arc<Self>, group: Grant, lengths: Vec<u64>, _permit: OwnedSemaphorePermit) {
        let version = *self.version.borrow();
        let mut members = JoinSet::new();
        for (index, tokens) in (0..).zip(lengths) {
            let (worker, group) = (Arc::clone(&self), group.clone());
            members.spawn(async move { worker.generate_member(&group, index, version, tokens).await });
        }
        while let Some(ended) = members.join_next().await {
            ended.expect("a member is generated to its end");
        }
    }

    async fn generate_member(&self, group: &Grant, index: u32, version: Version, tokens: u64) {
        tokio::time::sleep(simulated::generating(tokens)).await;
        let report = MemberReport {
            worker: self.name.clone(),
            session: self.session.clone(),
            version: Some(version),
            failed: false,
            note: None,
            reward: Some(f64::from(index % 2)),
            tokens: Some(tokens),
            payload: Some(format!("proof://{}/{index}", group.id)),
            meta: None,
        };
        let answer = self.run.report_member(group.id, index, &report).await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}"));
        assert!(answer.counted, "member {index} of {group:?}: {answer:?}");
    }

    fn request(&self, count: usize) -> Reserve {
        Reserve {
            worker: self.name.clone(),
            session: self.session.clone(),
            count,
            // What it has said in its heartbeat, also while the call waits.
            version: None,
            prompts: Vec::new(),
            adopt: None,
            wait_ms: 10_000,
            request_id: Uuid::new_v4().to_string(),
        }
    }

    async fn beat(&self, wait: Duration) {
        let version = *self.version.borrow();
        let request = Heartbeat {
            session: self.session.clone(),
            version,
            holding: None,
            acknowledged: Vec::new(),
            wait_ms: wait.as_secs() * 1_000,
        };
        let news = self.run.heartbeat(&self.name, &request).await;
        let news = news.unwrap_or_else(|error| panic!("{error}"));
        assert!(news.cancelled.is_empty(), "cancelled: {:?}", news.cancelled);
        if news.policy_version > version {
            tokio::time::sleep(simulated::loading_weights()).await;
            self.version.send_replace(news.policy_version);
        }
    }
}

/// All the room that is free, at least for one group and at most for `most`.
async fn free(capacity: &Arc<Semaphore>, most: u64) -> Vec<OwnedSemaphorePermit> {
    let first = Arc::clone(capacity).acquire_owned().await.expect("nobody closes it");
    let mut free = vec![first];
    while (free.len() as u64) < most
        && let Ok(permit) = Arc::clone(capacity).try_acquire_owned()
    {
        free.push(permit);
    }
    free
}
