//! A whole job under one bound: two workers, a trainer, and the audit of what they did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth::client::{Client, RunClient};
use berth::protocol::audit::Auditor;
use serde_json::json;
use tokio::task::JoinSet;

use crate::figures::Figures;
use crate::support::{Ledger, Run};
use crate::trainer;
use crate::worker::Worker;

/// Groups in a batch.
pub(crate) const GROUPS_PER_BATCH: u64 = 16;
/// Members of a group.
pub(crate) const GROUP_SIZE: u32 = 8;
/// How many trajectories one worker generates at once.
pub(crate) const CONCURRENCY: u32 = 40;
/// The workers.
const WORKERS: [&str; 2] = ["rollout-1", "rollout-2"];

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) max_staleness: u64,
    pub(crate) batches: u64,
}

impl Job {
    /// Does it on a run of its own, to the last batch.
    pub(crate) async fn run(self, ledger: &Ledger) -> Figures {
        let config = json!({
            "batch_size": GROUPS_PER_BATCH,
            "max_staleness": self.max_staleness,
            "group_size": GROUP_SIZE,
        });
        let run = ledger.run(config).await;
        let client = Client::new(ledger.server.url()).expect("an address").run(run.name());
        let began = Instant::now();
        let mut workers = JoinSet::new();
        for (number, name) in (0..).zip(WORKERS) {
            // As many groups as the batches need: when the last batch is trained, nothing is left over.
            let share = self.batches * GROUPS_PER_BATCH / WORKERS.len() as u64;
            let worker = Arc::new(Worker::new(client.clone(), name));
            workers.spawn(worker.roll_out(share, self.max_staleness * 10 + number));
        }
        let training = trainer::train(&client, self);
        let (batches, waited) = tokio::select! {
            trained = training => trained,
            Some(Err(failed)) = workers.join_next() => std::panic::resume_unwind(failed.into_panic()),
        };
        let took = began.elapsed();
        while let Some(ended) = workers.join_next().await {
            ended.expect("a worker that has done its share ends");
        }
        let audited = audit(&client).await;
        Figures {
            job: self,
            batches,
            status: status(&run).await,
            violations: audited.violations().iter().map(ToString::to_string).collect(),
            report: audited.report().clone(),
            took,
            waited,
        }
    }
}

/// The run's event log, replayed through the model.
async fn audit(run: &RunClient) -> Auditor {
    let mut auditor = Auditor::new();
    let mut next = Some(0);
    while let Some(after) = next {
        let page = run.events(after, Duration::ZERO).await.expect("a page of events");
        page.events.iter().for_each(|event| auditor.apply(event));
        next = page.next;
    }
    auditor
}

async fn status(run: &Run) -> serde_json::Value {
    run.get("").await.ok()
}
