//! Reserve calls that wait: served in the order of their arrival, by one task for each run that somebody waits on.
//!
//! One task, because a thousand workers that all try again whenever a place becomes free would cost a thousand scripts for one
//! grant, and the luckiest would win. A pass over the queue stops asking for those of whom a refusal to an earlier one already
//! tells the answer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::Waiting;
use crate::ledger::reserving::{Reservation, ReserveRequest};
use crate::ledger::sweeping::Attendance;
use crate::ledger::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::tables::BlockedBy;
use crate::protocol::{TrajectoryId, Version};
use crate::store::StoreError;
use crate::store::keys::{RunKeys, Topic};

type Answer = Result<Seen<Reservation>, LedgerError>;

/// The queues of this server, by run.
#[derive(Clone, Default)]
pub(super) struct AdmissionQueues {
    arrivals: Arc<Mutex<HashMap<RunName, mpsc::UnboundedSender<Waiter>>>>,
}

/// One call that waits for a place.
struct Waiter {
    /// The ledger as the client may see it.
    ledger: Ledger,
    request: ReserveRequest,
    deadline: Instant,
    reply: oneshot::Sender<Answer>,
    /// What it was told last; `None` until it was tried for the first time.
    last: Option<Seen<Reservation>>,
    /// Holds the session's lease once the call waits. It is the call's own, and ends with it: a client that hangs up lets go.
    attendance: Weak<OnceLock<Attendance>>,
}

impl Waiter {
    /// Takes down that nothing was granted; from now on the session's lease is held.
    fn told(&mut self, ledger: &Ledger, run: &RunName, seen: Seen<Reservation>) {
        let lease_ms = seen.value.lease_expires_in_ms;
        if let Some(attendance) = self.attendance.upgrade() {
            attendance.get_or_init(|| ledger.attend(run, &self.request.caller, lease_ms));
        }
        self.last = Some(seen);
    }
}

/// What a pass over the queue has found out: who need not be asked for.
#[derive(Default)]
struct Blocked {
    all: bool,
    up_to: Option<Version>,
}

impl Blocked {
    /// What blocked a call blocks the later ones, too, unless there are groups to be adopted, which nothing blocks.
    fn learn(&mut self, told: &Reservation, version: Option<Version>) {
        if told.orphans > 0 {
            return;
        }
        match told.blocked_by {
            Some(BlockedBy::Draining | BlockedBy::Concurrency | BlockedBy::Prompts) => self.all = true,
            Some(BlockedBy::Staleness) => self.up_to = self.up_to.max(version),
            None => {}
        }
    }

    /// Older weights may go to fewer buffers than newer ones.
    fn covers(&self, version: Option<Version>) -> bool {
        self.all || version.is_some_and(|version| self.up_to.is_some_and(|up_to| version <= up_to))
    }
}

impl Waiting {
    /// [`Ledger::reserve`], waiting up to `wait` until at least one entry is granted, or the run is finished.
    ///
    /// A client that hangs up while it waits is granted nothing; what was granted to one that hung up without a request id is
    /// discarded as `abandoned`.
    pub async fn reserve(&self, run: &RunName, request: ReserveRequest, wait: Duration) -> Answer {
        let (reply, answer) = oneshot::channel();
        let attendance = Arc::new(OnceLock::new());
        let waiter = Waiter {
            ledger: self.ledger.clone(),
            request,
            deadline: Instant::now() + wait,
            reply,
            last: None,
            attendance: Arc::downgrade(&attendance),
        };
        if !wait.is_zero() && self.queues.lock().contains_key(run) {
            self.enqueue(run, waiter);
        } else {
            // A task of its own: a client that hangs up must not leave it open whether something was granted.
            tokio::spawn(self.clone().try_first(run.clone(), waiter, wait));
        }
        answer.await.unwrap_or_else(|_| {
            let gone = "the task that serves waiting reserve calls ended".to_owned();
            Err(StoreError::Broken(gone).into())
        })
    }

    /// Where nobody waits, a call need not go through the queue; it joins it if it finds no place.
    async fn try_first(self, run: RunName, mut waiter: Waiter, wait: Duration) {
        let (ids, answer) = attempt(&self.ledger, &run, &waiter.request).await;
        match answer {
            Ok(seen) if !is_answer(&seen.value) && !wait.is_zero() => {
                waiter.told(&self.ledger, &run, seen);
                self.enqueue(&run, waiter);
            }
            answer => reply(&self.ledger, &run, waiter, ids, answer).await,
        }
    }

    fn enqueue(&self, run: &RunName, waiter: Waiter) {
        let mut arrivals = self.queues.lock();
        let waiter = match arrivals.get(run) {
            Some(queue) => match queue.send(waiter) {
                Ok(()) => return,
                Err(mpsc::error::SendError(waiter)) => waiter,
            },
            None => waiter,
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send(waiter);
        arrivals.insert(run.clone(), sender);
        let queue = Queue {
            ledger: self.ledger.clone(),
            run: run.clone(),
            arrivals: receiver,
            waiting: VecDeque::new(),
            stop: self.stop.clone(),
        };
        tokio::spawn(queue.serve(self.queues.clone()));
    }
}

impl AdmissionQueues {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunName, mpsc::UnboundedSender<Waiter>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call that waits need wait no more.
fn is_answer(reservation: &Reservation) -> bool {
    !reservation.granted.is_empty() || reservation.finished
}

async fn attempt(ledger: &Ledger, run: &RunName, request: &ReserveRequest) -> (Vec<TrajectoryId>, Answer) {
    let ids: Vec<_> = (0..request.count).map(|_| TrajectoryId::generate()).collect();
    let answer = ledger.reserve(run, request, &ids).await;
    (ids, answer)
}

/// Hands the answer to the call, and takes back what was granted to nobody: if the call is gone, or if it will be told of an
/// error after some step had granted something, and cannot ask again by its request id.
async fn reply(ledger: &Ledger, run: &RunName, waiter: Waiter, mut ids: Vec<TrajectoryId>, answer: Answer) {
    if let Ok(seen) = &answer {
        // Adopted groups have ids of their own.
        ids = seen.value.granted.iter().map(|grant| grant.id).collect();
    }
    let has_request_id = waiter.request.request_id.is_some();
    let is_unclear = matches!(answer, Err(LedgerError::Store(_)));
    let is_gone = waiter.reply.send(answer).is_err();
    if has_request_id || !(is_gone || is_unclear) {
        return;
    }
    for id in ids {
        match ledger.abandon(run, id, &waiter.request.caller).await {
            Ok(true) => tracing::info!(%run, %id, "a grant that reached nobody was taken back"),
            Ok(false) => tracing::debug!(%run, %id, "was never granted, or is somebody else's by now"),
            // The others would only wait for the end of the outage, too: left to the worker's `holding` and its lease.
            Err(LedgerError::Store(error)) => {
                tracing::debug!(%run, %id, %error, "grants were not taken back");
                return;
            }
            Err(error) => tracing::debug!(%run, %id, %error, "a grant was not taken back"),
        }
    }
}

struct Queue {
    ledger: Ledger,
    run: RunName,
    arrivals: mpsc::UnboundedReceiver<Waiter>,
    waiting: VecDeque<Waiter>,
    stop: watch::Receiver<bool>,
}

impl Queue {
    /// Serves the queue until nobody waits.
    async fn serve(mut self, queues: AdmissionQueues) {
        let keys = RunKeys::new(self.run.as_str());
        let mut subscription = self.ledger.wakes().subscribe(&keys, Topic::Admission, None).await;
        let mut stop = self.stop.clone();
        loop {
            self.receive();
            self.pass().await;
            self.end_overdue();
            if self.waiting.is_empty() && self.leave(&queues) {
                return;
            }
            let next_deadline = self.waiting.iter().map(|waiter| waiter.deadline).min();
            tokio::select! {
                () = subscription.woken() => {}
                arrival = self.arrivals.recv() => self.waiting.extend(arrival),
                () = sleep_until(next_deadline) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        // Whoever came last is tried once: there must be something to answer.
        self.arrivals.close();
        self.receive();
        self.pass().await;
        self.waiting.drain(..).for_each(end);
    }

    fn receive(&mut self) {
        while let Ok(waiter) = self.arrivals.try_recv() {
            self.waiting.push_back(waiter);
        }
    }

    /// Ends the task if nobody came meanwhile. Arrivals are sent under the same lock.
    fn leave(&mut self, queues: &AdmissionQueues) -> bool {
        let mut arrivals = queues.lock();
        if !self.arrivals.is_empty() {
            return false;
        }
        arrivals.remove(&self.run);
        true
    }

    /// Tries for everybody in the order of their arrival, except those of whom the pass knows already that it would be in vain.
    /// In an outage all are told of it, or each would find out by a time-out of its own, one after another.
    async fn pass(&mut self) {
        let mut blocked = Blocked::default();
        let mut outage: Option<StoreError> = None;
        for mut waiter in std::mem::take(&mut self.waiting) {
            if waiter.reply.is_closed() {
                continue;
            }
            if let Some(error) = &outage {
                let _ = waiter.reply.send(Err(error.clone().into()));
                continue;
            }
            // The first try also opens the session, renews its lease, and finds out what the call would be refused for.
            if waiter.last.is_some() && blocked.covers(waiter.request.version) && waiter.deadline > Instant::now() {
                self.waiting.push_back(waiter);
                continue;
            }
            let (ids, answer) = attempt(&waiter.ledger, &self.run, &waiter.request).await;
            match answer {
                Ok(seen) if !is_answer(&seen.value) => {
                    blocked.learn(&seen.value, waiter.request.version);
                    waiter.told(&self.ledger, &self.run, seen);
                    self.waiting.push_back(waiter);
                }
                answer => {
                    if let Err(LedgerError::Store(error)) = &answer
                        && error.is_outage()
                    {
                        outage = Some(error.clone());
                    }
                    reply(&self.ledger, &self.run, waiter, ids, answer).await;
                }
            }
        }
    }

    fn end_overdue(&mut self) {
        let now = Instant::now();
        for waiter in std::mem::take(&mut self.waiting) {
            if waiter.deadline <= now {
                end(waiter);
            } else {
                self.waiting.push_back(waiter);
            }
        }
    }
}

/// Tells a call what blocks it.
fn end(waiter: Waiter) {
    if let Some(last) = waiter.last {
        let _ = waiter.reply.send(Ok(last));
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
