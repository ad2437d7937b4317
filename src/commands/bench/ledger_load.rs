//! Clients that reserve and occupy, and a trainer that takes and publishes as batches fill.
//!
//! What is measured is what the calls cost, not how long the protocol makes a worker wait. So every client says the latest
//! version, the trainer publishes as soon as it has a batch, and a reserve that the bound blocks is counted and not measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::BenchError;
use super::figures::Samples;
use super::redis_side::ScriptTimes;
use crate::client::{Client, ClientError, Finish, Reserve, RunClient, RunSettings};
use crate::protocol::{TrajectoryId, Version};

/// The lease of the sessions. A session that waits for its next round is silent for no more than a few rounds.
const LEASE_MS: u64 = 600_000;
/// How long the trainer waits in one call.
const WAIT: Duration = Duration::from_secs(1);

/// A run with one batch size and one bound, and what was measured on it.
#[derive(Debug)]
pub(super) struct LedgerLoad {
    pub(super) batch_size: u32,
    pub(super) max_staleness: u64,
    pub(super) measured: Measured,
    /// How long the scripts took inside Redis, if it could be asked.
    pub(super) script_times: Vec<ScriptTimes>,
    name: String,
    /// The calls that are not measured.
    run: RunClient,
    /// The latest version that the trainer published.
    version: watch::Sender<Version>,
    /// The token of all sessions of this run.
    session: String,
}

/// What clients measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) reserve: Samples,
    pub(super) occupy: Samples,
    /// Reserves that found no legal place, because the bound or a full window was in the way.
    pub(super) blocked: u64,
    /// Reserves under a version that was too stale when they arrived.
    pub(super) too_stale: u64,
    /// Batches that were taken and published.
    pub(super) batches: u64,
}

impl Measured {
    fn join(&mut self, other: Self) {
        self.reserve.join(other.reserve);
        self.occupy.join(other.occupy);
        self.blocked += other.blocked;
        self.too_stale += other.too_stale;
        self.batches += other.batches;
    }

    /// Forgets all, after the warming-up.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl LedgerLoad {
    /// Creates the run.
    pub(super) async fn create(client: &Client, batch_size: u32, max_staleness: u64) -> Result<Self, ClientError> {
        let tag = Uuid::new_v4().simple().to_string();
        let name = format!("bench-{}-b{batch_size}-s{max_staleness}", &tag[..8]);
        let run = client.run(&name);
        run.put(&RunSettings::new(batch_size, max_staleness, LEASE_MS)).await?;
        Ok(Self {
            batch_size,
            max_staleness,
            measured: Measured::default(),
            script_times: Vec::new(),
            name,
            run,
            version: watch::Sender::new(Version(0)),
            session: tag,
        })
    }

    /// Removes the run.
    pub(super) async fn delete(&self) -> Result<(), ClientError> {
        self.run.delete().await
    }

    /// The same as [`slice`](Self::slice), and nothing is kept of it.
    pub(super) async fn slice_unmeasured(&mut self, clients: &[Client], slice: Duration) -> Result<(), BenchError> {
        let kept = std::mem::take(&mut self.measured);
        let outcome = self.slice(clients, slice).await;
        self.measured = kept;
        outcome
    }

    /// Has every client reserve and occupy until `slice` is over.
    pub(super) async fn slice(&mut self, clients: &[Client], slice: Duration) -> Result<(), BenchError> {
        let started_at = Instant::now();
        let mut tasks = JoinSet::new();
        for (number, client) in clients.iter().enumerate() {
            let worker = Worker {
                run: client.run(&self.name),
                name: format!("bench-{number}"),
                session: self.session.clone(),
                version: self.version.subscribe(),
            };
            tasks.spawn(worker.work_until(started_at + slice));
        }
        let mut trainer = JoinSet::new();
        let batches = Arc::new(AtomicU64::new(0));
        trainer.spawn(train(self.run.clone(), self.version.clone(), Arc::clone(&batches)));
        loop {
            tokio::select! {
                Some(failed) = trainer.join_next() => failed??,
                measured = tasks.join_next() => match measured {
                    Some(measured) => self.measured.join(measured??),
                    None => break,
                },
            }
        }
        let took = started_at.elapsed();
        self.measured.reserve.measured_for(took);
        self.measured.occupy.measured_for(took);
        // The trainer is dropped in the middle of a call. What it took meanwhile is redelivered in the next slice.
        self.measured.batches += batches.load(Ordering::Relaxed);
        Ok(())
    }
}

/// Takes and publishes until it is dropped; returns only an error.
async fn train(run: RunClient, version: watch::Sender<Version>, batches: Arc<AtomicU64>) -> Result<(), ClientError> {
    loop {
        let Some(batch) = run.next_batch(None, WAIT).await?.batch else {
            continue;
        };
        let next = Version(batch.version.0 + 1);
        let published = run.publish(None, next, &format!("bench://{next}")).await?;
        version.send_replace(published.policy_version);
        batches.fetch_add(1, Ordering::Relaxed);
    }
}

/// One client.
struct Worker {
    run: RunClient,
    name: String,
    session: String,
    version: watch::Receiver<Version>,
}

impl Worker {
    async fn work_until(mut self, end: Instant) -> Result<Measured, ClientError> {
        let mut measured = Measured::default();
        while Instant::now() < end {
            // Whoever is still blocked at the end leaves nothing behind.
            let Some(id) = self.reserve(end, &mut measured).await? else {
                break;
            };
            let called_at = Instant::now();
            self.run.occupy(id, &self.finish()).await?;
            measured.occupy.add(called_at.elapsed());
        }
        Ok(measured)
    }

    /// Reserves a place. A call that finds none is made again when a version is published, until `end`.
    async fn reserve(&mut self, end: Instant, measured: &mut Measured) -> Result<Option<TrajectoryId>, ClientError> {
        loop {
            let request = self.request();
            let called_at = Instant::now();
            let outcome = self.run.reserve(&request).await;
            let latency = called_at.elapsed();
            match outcome {
                Ok(answer) => match answer.granted.first() {
                    Some(grant) => {
                        measured.reserve.add(latency);
                        return Ok(Some(grant.id));
                    }
                    None => measured.blocked += 1,
                },
                Err(error) if error.code() == Some("version_too_stale") => measured.too_stale += 1,
                Err(error) => return Err(error),
            }
            // Nothing but a new version opens a buffer to what this client would generate.
            if tokio::time::timeout_at(end.into(), self.version.changed())
                .await
                .is_err()
            {
                return Ok(None);
            }
        }
    }

    fn request(&mut self) -> Reserve {
        Reserve {
            worker: self.name.clone(),
            session: self.session.clone(),
            count: 1,
            version: Some(*self.version.borrow_and_update()),
            prompts: Vec::new(),
            adopt: None,
            wait_ms: 0,
            request_id: Uuid::new_v4().to_string(),
        }
    }

    fn finish(&self) -> Finish {
        Finish {
            worker: self.name.clone(),
            session: self.session.clone(),
            reward: Some(1.0),
            tokens: Some(5_120),
            payload: Some("file:///dev/shm/bench.npz".to_owned()),
            meta: None,
        }
    }
}
