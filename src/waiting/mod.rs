//! Calls that wait until they can be answered (api, *Waiting*).
//!
//! A waiting call subscribes, looks, sleeps until it is woken or its time is over, and looks again. It costs nothing while
//! nothing happens, holds its session's lease, and ends with what it would have been told anyway when the server stops.

mod admission;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ledger::events::EventPage;
use crate::ledger::names::Caller;
use crate::ledger::sessions::{Heartbeat, HeartbeatRequest};
use crate::ledger::training::{LatestVersion, NextBatch, PieceRequest, TakeRequest};
use crate::ledger::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::{Lineage, TrajectoryId, Version};
use crate::store::keys::{RunKeys, Topic};
use crate::store::wakes::Subscription;
use admission::AdmissionQueues;

/// How often a trainer that waits is told to the run: one that has not called for a minute does not wait any more, and it
/// calls no more often by itself than its waits are long.
const TRAINER_CALLS_EVERY: Duration = Duration::from_secs(20);

/// The waiting forms of the ledger's calls, on this server.
#[derive(Clone)]
pub struct Waiting {
    ledger: Ledger,
    stop: watch::Receiver<bool>,
    queues: AdmissionQueues,
}

/// What one look found.
enum Look<T> {
    /// The answer.
    Answer(T),
    /// What to answer if nothing better comes in time.
    NotYet(T),
}

impl<T> Look<T> {
    fn when(is_answer: bool, value: T) -> Self {
        if is_answer {
            Self::Answer(value)
        } else {
            Self::NotYet(value)
        }
    }
}

impl Waiting {
    /// Waits on a ledger until `stop` becomes true.
    pub fn new(ledger: Ledger, stop: watch::Receiver<bool>) -> Self {
        Self {
            ledger,
            stop,
            queues: AdmissionQueues::default(),
        }
    }

    /// The same waits, on another ledger's view of the same database.
    #[must_use]
    pub fn with(&self, ledger: Ledger) -> Self {
        Self { ledger, ..self.clone() }
    }

    /// [`Ledger::take`], or [`Ledger::stream`] for a piece, waiting up to `wait` for the batch, or until the run is finished.
    pub async fn next_batch(
        &self,
        run: &RunName,
        batch: TakeRequest,
        piece: Option<PieceRequest>,
        wait: Duration,
    ) -> Result<Seen<NextBatch>, LedgerError> {
        let deadline = Instant::now() + wait;
        let is_answer = |next: &NextBatch| match next {
            NextBatch::Taken(_) => true,
            NextBatch::NotReady(none) => none.finished,
        };
        let look = || async move {
            let seen = match piece {
                Some(piece) => self.ledger.stream(run, batch, piece).await?,
                None => self.ledger.take(run, batch).await?,
            };
            Ok(Look::when(is_answer(&seen.value), seen))
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_last = left <= TRAINER_CALLS_EVERY;
            let seen = self
                .until(run, &[(Topic::Batch, None)], left.min(TRAINER_CALLS_EVERY), look)
                .await?;
            if is_last || is_answer(&seen.value) || *self.stop.borrow() {
                return Ok(seen);
            }
        }
    }

    /// [`Ledger::heartbeat`], waiting up to `wait` for something that the worker does not know yet.
    pub async fn heartbeat(
        &self,
        run: &RunName,
        request: &HeartbeatRequest,
        wait: Duration,
    ) -> Result<Seen<Heartbeat>, LedgerError> {
        let first = self.ledger.heartbeat(run, request).await?;
        let known = request.version.or(first.value.known_version);
        let lineage = request.lineage.unwrap_or(first.value.lineage);
        let is_news = |beat: &Heartbeat| {
            !beat.cancelled.is_empty()
                || known.is_some_and(|known| beat.policy_version > known)
                || beat.lineage != lineage
                || beat.finished
        };
        if wait.is_zero() || is_news(&first.value) {
            return Ok(first);
        }
        let _attendance = self
            .ledger
            .attend(run, &request.caller, first.value.lease_expires_in_ms);
        // What the worker said was taken down the first time: said again later, it might be out of date.
        let again = HeartbeatRequest {
            caller: request.caller.clone(),
            version: None,
            lineage: None,
            holding: None,
            acknowledged: Vec::new(),
        };
        let (again, is_news) = (&again, &is_news);
        let topics = [(Topic::Cancelled, Some(&request.caller)), (Topic::Version, None)];
        self.until(run, &topics, wait, || async move {
            let seen = self.ledger.heartbeat(run, again).await?;
            Ok(Look::when(is_news(&seen.value), seen))
        })
        .await
    }

    /// [`Ledger::latest_version`], waiting up to `wait` for one that is newer than `after`, or of another lineage than the
    /// caller's, or until the run is finished.
    pub async fn latest_version(
        &self,
        run: &RunName,
        after: Option<Version>,
        lineage: Option<Lineage>,
        wait: Duration,
    ) -> Result<Seen<LatestVersion>, LedgerError> {
        self.until(run, &[(Topic::Version, None)], wait, || async move {
            let seen = self.ledger.latest_version(run).await?;
            let latest = &seen.value;
            let is_news = latest.finished
                || after.is_none_or(|after| latest.policy_version > after)
                || lineage.is_some_and(|lineage| latest.lineage != lineage);
            Ok(Look::when(is_news, seen))
        })
        .await
    }

    /// [`Ledger::events`], waiting up to `wait` for at least one.
    pub async fn events(
        &self,
        run: &RunName,
        after: u64,
        limit: usize,
        trajectory: Option<TrajectoryId>,
        wait: Duration,
    ) -> Result<Seen<EventPage>, LedgerError> {
        self.until(run, &[(Topic::Events, None)], wait, || async move {
            let seen = self.ledger.events(run, after, limit, trajectory).await?;
            Ok(Look::when(
                !seen.value.events.is_empty() || seen.value.next.is_some(),
                seen,
            ))
        })
        .await
    }

    /// A subscription to the run's events, and whether the server stops: for streams.
    pub async fn subscribe_events(&self, run: &RunName) -> (Subscription, watch::Receiver<bool>) {
        let keys = RunKeys::new(run.as_str());
        (
            self.ledger.wakes().subscribe(&keys, Topic::Events, None).await,
            self.stop.clone(),
        )
    }

    /// Looks, and looks again whenever one of the topics (for the caller's worker, or at all) wakes it, until there is an answer
    /// or `wait` is over.
    async fn until<T, F: Future<Output = Result<Look<T>, LedgerError>> + Send>(
        &self,
        run: &RunName,
        topics: &[(Topic, Option<&Caller>)],
        wait: Duration,
        look: impl Fn() -> F + Sync,
    ) -> Result<T, LedgerError> {
        let deadline = Instant::now() + wait;
        match look().await? {
            Look::Answer(answer) => return Ok(answer),
            Look::NotYet(last) if wait.is_zero() => return Ok(last),
            Look::NotYet(_) => {}
        }
        let keys = RunKeys::new(run.as_str());
        let mut subscriptions = Vec::with_capacity(topics.len());
        for (topic, caller) in topics {
            let name = caller.map(|caller| caller.worker.as_str());
            subscriptions.push(self.ledger.wakes().subscribe(&keys, *topic, name).await);
        }
        let mut stop = self.stop.clone();
        loop {
            // Something may have happened between the look before and the subscription, or after the last wake.
            let last = match look().await? {
                Look::Answer(answer) => return Ok(answer),
                Look::NotYet(last) => last,
            };
            tokio::select! {
                () = any_woken(&mut subscriptions) => {}
                () = tokio::time::sleep_until(deadline) => break,
                _ = stop.wait_for(|stop| *stop) => return Ok(last),
            }
        }
        match look().await? {
            Look::Answer(answer) | Look::NotYet(answer) => Ok(answer),
        }
    }
}

async fn any_woken(subscriptions: &mut [Subscription]) {
    let all = subscriptions
        .iter_mut()
        .map(|subscription| Box::pin(subscription.woken()));
    futures_util::future::select_all(all).await;
}
