//! The sweeper: it lets each run's clock go on and does what is due (protocol, *Leases* and *The run's clock*).
//!
//! Any number of servers sweep at once; each step is whole, finds its own work, and does it in one script. A run whose sessions
//! hold leases is swept every [`TICK`]; one where nothing can expire, every [`IDLE_TICK`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{self, MissedTickBehavior};

use super::names::Caller;
use super::{Ledger, LedgerError, Refusal, RunName};
use crate::store::script;

/// How often a run with leases is swept. `advance_clock` in `lua/prelude/run.lua` counts on it being well below half a second.
const TICK: Duration = Duration::from_millis(200);
/// How often a run without leases is swept, and the list of runs is read.
const IDLE_TICK: Duration = Duration::from_secs(5);
/// The most sessions whose leases one script renews.
const RENEWALS: usize = 100;
/// The most steps in a row for one run, before the others get their turn.
const STEPS_IN_A_ROW: usize = 50;
/// How many names of runs one read fetches.
const PAGE: usize = 500;

#[derive(Serialize)]
struct SweepArgs<'a> {
    waiting: &'a [Caller],
}

/// What a sweep left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Swept {
    /// Whether there is more to do at once.
    pub more: bool,
    /// How many sessions have a lease that may still run out.
    pub leases: u64,
    /// How many entries are reserved, with a lease or without one.
    pub reserved: u64,
    /// How many events the log holds.
    pub events: u64,
}

/// What this server knows of the runs it sweeps.
#[derive(Default)]
pub(super) struct Attention {
    runs: Mutex<HashMap<RunName, Watched>>,
}

struct Watched {
    due: Instant,
    /// How many events the log held when it was last swept or trimmed.
    events: u64,
    waiting: HashMap<Caller, Attending>,
}

impl From<Instant> for Watched {
    fn from(due: Instant) -> Self {
        Self {
            due,
            events: 0,
            waiting: HashMap::new(),
        }
    }
}

struct Attending {
    calls: usize,
    lease: Duration,
    renewed: Instant,
}

/// Holds a session's lease for as long as one of its calls waits on this server.
pub struct Attendance {
    attention: Arc<Attention>,
    run: RunName,
    caller: Caller,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut runs = self.attention.lock();
        let Some(watched) = runs.get_mut(&self.run) else { return };
        if let Some(attending) = watched.waiting.get_mut(&self.caller) {
            attending.calls -= 1;
            if attending.calls == 0 {
                watched.waiting.remove(&self.caller);
            }
        }
    }
}

impl Attention {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunName, Watched>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sweeps the run within a tick from now: somebody may have got a lease.
    pub(super) fn call(&self, run: &RunName) {
        let due = Instant::now() + TICK;
        let mut runs = self.lock();
        match runs.get_mut(run) {
            Some(watched) => watched.due = watched.due.min(due),
            None => {
                runs.insert(run.clone(), Watched::from(due));
            }
        }
    }

    fn due(&self) -> Vec<RunName> {
        let now = Instant::now();
        self.lock()
            .iter()
            .filter(|(_, watched)| watched.due <= now)
            .map(|(run, _)| run.clone())
            .collect()
    }

    /// Some of the sessions whose lease is to be renewed, because a third of it has passed while they wait.
    fn renewals(&self, run: &RunName) -> Vec<Caller> {
        let now = Instant::now();
        let mut runs = self.lock();
        let Some(watched) = runs.get_mut(run) else {
            return Vec::new();
        };
        let mut callers = Vec::new();
        for (caller, attending) in &mut watched.waiting {
            if callers.len() < RENEWALS && now - attending.renewed >= attending.lease / 3 {
                attending.renewed = now;
                callers.push(caller.clone());
            }
        }
        callers
    }

    fn again_in(&self, run: &RunName, pause: Duration) {
        if let Some(watched) = self.lock().get_mut(run) {
            watched.due = Instant::now() + pause;
        }
    }

    /// The runs whose log is at least so long.
    pub(super) fn with_long_logs(&self, least: u64) -> Vec<RunName> {
        let runs = self.lock();
        let long = runs.iter().filter(|(_, watched)| watched.events >= least);
        long.map(|(run, _)| run.clone()).collect()
    }

    /// All runs that are swept.
    pub(super) fn runs(&self) -> Vec<RunName> {
        self.lock().keys().cloned().collect()
    }

    /// The run's log is so long.
    pub(super) fn log_has(&self, run: &RunName, events: u64) {
        if let Some(watched) = self.lock().get_mut(run) {
            watched.events = events;
        }
    }

    fn forget(&self, run: &RunName) {
        self.lock().remove(run);
    }
}

impl Ledger {
    /// Keeps the caller's lease from running out until the attendance is dropped.
    pub fn attend(&self, run: &RunName, caller: &Caller, lease_ms: u64) -> Attendance {
        self.parts.attention.call(run);
        if let Some(watched) = self.parts.attention.lock().get_mut(run) {
            let now = Instant::now();
            let attending = watched.waiting.entry(caller.clone()).or_insert(Attending {
                calls: 0,
                lease: Duration::from_millis(lease_ms),
                renewed: now,
            });
            attending.calls += 1;
            attending.renewed = now;
        }
        Attendance {
            attention: Arc::clone(&self.parts.attention),
            run: run.clone(),
            caller: caller.clone(),
        }
    }

    /// Does one step of what is due in a run, after renewing the leases of `waiting` (at most 100).
    pub async fn sweep(&self, run: &RunName, waiting: &[Caller]) -> Result<Swept, LedgerError> {
        let args = SweepArgs { waiting };
        // Nobody is told of a sweep, and one that is lost is done again: it waits for no replica.
        Ok(self.unacknowledged_call(&script::SWEEP, run, &args).await?.value)
    }

    /// Sweeps all runs until `stop` becomes true.
    pub async fn keep_sweeping(self, mut stop: watch::Receiver<bool>) {
        let mut tick = time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listed: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if listed.is_none_or(|listed| listed.elapsed() >= IDLE_TICK) {
                match self.find_runs().await {
                    Ok(()) => listed = Some(Instant::now()),
                    Err(error) => tracing::debug!(%error, "the list of runs could not be read"),
                }
            }
            for run in self.parts.attention.due() {
                let pause = self.sweep_run(&run).await;
                self.parts.attention.again_in(&run, pause);
            }
        }
    }

    async fn find_runs(&self) -> Result<(), LedgerError> {
        let mut after: Option<RunName> = None;
        loop {
            let names = self.run_names(after.as_ref().map(RunName::as_str), PAGE).await?;
            for run in &names {
                let due = Instant::now();
                self.parts
                    .attention
                    .lock()
                    .entry(run.clone())
                    .or_insert_with(|| Watched::from(due));
            }
            if names.len() < PAGE {
                return Ok(());
            }
            after = names.last().cloned();
        }
    }

    /// Does what is due in a run and returns when to look again.
    async fn sweep_run(&self, run: &RunName) -> Duration {
        for _ in 0..STEPS_IN_A_ROW {
            let waiting = self.parts.attention.renewals(run);
            match self.sweep(run, &waiting).await {
                Ok(swept) => {
                    self.parts.attention.log_has(run, swept.events);
                    if !swept.more && waiting.len() < RENEWALS {
                        let may_expire = swept.leases > 0 || swept.reserved > 0;
                        return if may_expire { TICK } else { IDLE_TICK };
                    }
                }
                Err(LedgerError::Refused {
                    refusal: Refusal::UnknownRun,
                    ..
                }) => {
                    self.parts.attention.forget(run);
                    return IDLE_TICK;
                }
                Err(error) => {
                    // An outage is told by the connection; a broken run must not hide behind it.
                    tracing::warn!(%run, %error, "a run could not be swept");
                    return TICK;
                }
            }
        }
        Duration::ZERO
    }
}
