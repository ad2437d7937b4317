//! The event log is bounded by count: the oldest events are archived, where a directory is given, and then trimmed.
//!
//! Nothing that the protocol needs lives only in the log. This is a task beside the sweeper and no part of it: a slow disk must
//! not keep leases from running out. The sweeps tell how long each log is, so a log that is short costs nothing here.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{self, MissedTickBehavior};

use super::archive::{Archive, ArchiveError, CHUNK, Lost, chunk_of};
use super::events::ShownEvent;
use super::{Ledger, LedgerError, RunName};
use crate::protocol::Event;
use crate::store::{StoreError, script};

/// How often logs are looked at.
const TICK: Duration = Duration::from_millis(500);
/// The most chunks in a row for one run, before the others get their turn.
const CHUNKS_IN_A_ROW: usize = 20;
/// How long a run is left alone whose log could not be archived.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// How long a run is left alone that other servers trim.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);
/// The most events that one read fetches.
const READ: usize = 500;

/// How many events a log keeps, and where the others go.
#[derive(Debug, Clone)]
pub struct Retention {
    /// How many events stay in the database at least. It may be up to 1,000 more, and what comes until they are trimmed.
    pub keep: u64,
    /// Where older ones are written before they are trimmed.
    pub archive: Option<Archive>,
}

#[derive(Serialize)]
struct TrimArgs {
    keep: u64,
    archiving: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<u64>,
}

#[derive(Deserialize)]
struct Trimmed {
    length: u64,
    archived: bool,
}

#[derive(Debug, thiserror::Error)]
enum TrimError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// The oldest events of a log, up to the end of their chunk.
struct OldestChunk {
    first: u64,
    last: u64,
    events: Vec<Event>,
}

struct Trimmer {
    ledger: Ledger,
    retention: Retention,
    stop: watch::Receiver<bool>,
    /// The runs that are noted to be archived.
    noted: HashSet<RunName>,
    /// The runs that are left alone, and until when.
    paused: HashMap<RunName, Instant>,
    /// Whether it was told that other servers archive.
    said_that_others_archive: bool,
    /// Whether it was told that archiving fails, and it has not succeeded since.
    is_failing: bool,
}

impl Ledger {
    /// Keeps the log of every run that is swept as short as `retention` says, until `stop` becomes true.
    pub async fn keep_trimming(self, retention: Retention, stop: watch::Receiver<bool>) {
        let trimmer = Trimmer {
            ledger: self,
            retention,
            stop,
            noted: HashSet::new(),
            paused: HashMap::new(),
            said_that_others_archive: false,
            is_failing: false,
        };
        trimmer.run().await;
    }

    async fn trim(&self, run: &RunName, args: &TrimArgs) -> Result<Trimmed, LedgerError> {
        Ok(self.call(&script::TRIM, run, args).await?.value)
    }

    /// `None` for an empty log, and when others trimmed it meanwhile.
    async fn oldest_chunk(&self, run: &RunName, with_events: bool) -> Result<Option<OldestChunk>, LedgerError> {
        let Some(oldest) = self.oldest_event(run).await? else {
            return Ok(None);
        };
        let first = chunk_of(oldest.seq);
        let last = first + CHUNK - 1;
        let mut events = Vec::new();
        if with_events {
            let mut after = 0;
            loop {
                let page = self.read_events(run, after, Some(last), READ).await?;
                let is_at_end = page.len() < READ;
                after = page.last().map_or(after, |event| event.seq);
                events.extend(page);
                if is_at_end {
                    break;
                }
            }
            // A log loses its oldest events first. So what was read is whole if the oldest is still there; otherwise it must
            // not replace the chunk that somebody has written.
            let still = self.oldest_event(run).await?;
            if still.is_none_or(|still| still != oldest) {
                return Ok(None);
            }
        }
        Ok(Some(OldestChunk { first, last, events }))
    }
}

impl Trimmer {
    async fn run(mut self) {
        let mut tick = time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if self.retention.archive.is_some() {
                self.note_new_runs().await;
            }
            let now = Instant::now();
            self.paused.retain(|_, until| *until > now);
            for run in self.ledger.parts.attention.with_long_logs(self.retention.keep + CHUNK) {
                if *self.stop.borrow() {
                    return;
                }
                if !self.paused.contains_key(&run) {
                    self.treat(run).await;
                }
            }
        }
    }

    /// Notes in each run that its events are archived before they go, so that a server that does not archive leaves them.
    async fn note_new_runs(&mut self) {
        let runs = self.ledger.parts.attention.runs();
        self.noted.retain(|run| runs.contains(run));
        for run in runs {
            if self.noted.contains(&run) || *self.stop.borrow() {
                continue;
            }
            match self.ledger.trim(&run, &self.args(None)).await {
                Ok(_) => {
                    self.noted.insert(run);
                }
                // The run is gone, or the database is, which others tell.
                Err(error) => tracing::debug!(%run, %error, "that a run is archived could not be noted"),
            }
        }
    }

    async fn treat(&mut self, run: RunName) {
        let pause = match self.shorten(&run).await {
            Ok(pause) => pause,
            Err(TrimError::Archive(error)) => {
                // Said once and not at each attempt.
                if !self.is_failing {
                    self.is_failing = true;
                    tracing::warn!(%run, %error, "events cannot be archived: nothing is trimmed until they can");
                }
                Some(AFTER_A_FAILURE)
            }
            Err(TrimError::Ledger(error)) => {
                tracing::debug!(%run, %error, "a log could not be trimmed");
                Some(AFTER_A_FAILURE)
            }
        };
        if let Some(pause) = pause {
            self.paused.insert(run, Instant::now() + pause);
        }
    }

    /// Archives and trims one chunk after the other. Returns for how long to leave the run alone.
    async fn shorten(&mut self, run: &RunName) -> Result<Option<Duration>, TrimError> {
        let archives = self.retention.archive.is_some();
        for _ in 0..CHUNKS_IN_A_ROW {
            if *self.stop.borrow() {
                return Ok(None);
            }
            let Some(chunk) = self.ledger.oldest_chunk(run, archives).await? else {
                return Ok(None);
            };
            let through = chunk.last;
            if let Some(archive) = self.retention.archive.clone() {
                write(archive, run.clone(), chunk).await?;
                if self.is_failing {
                    self.is_failing = false;
                    tracing::info!("events are archived again");
                }
            }
            let trimmed = self.ledger.trim(run, &self.args(Some(through))).await?;
            self.ledger.parts.attention.log_has(run, trimmed.length);
            if trimmed.archived && !archives {
                if !self.said_that_others_archive {
                    self.said_that_others_archive = true;
                    tracing::info!(%run, "other servers archive events before they are trimmed: this one, without --archive-dir, trims none");
                }
                return Ok(Some(LEFT_TO_OTHERS));
            }
            if trimmed.length < self.retention.keep + CHUNK {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn args(&self, through: Option<u64>) -> TrimArgs {
        TrimArgs {
            keep: self.retention.keep,
            archiving: self.retention.archive.is_some(),
            through,
        }
    }
}

/// Writes a chunk, on a thread that may wait for the disk.
async fn write(archive: Archive, run: RunName, chunk: OldestChunk) -> Result<(), TrimError> {
    let task = tokio::task::spawn_blocking(move || {
        let mut lines = Vec::new();
        for event in chunk.events {
            let lost = event.raised_from.map(|after| Lost {
                after,
                before: event.seq,
            });
            if let Some(lost) = lost {
                archive.set_aside(&run, lost)?;
            }
            serde_json::to_writer(&mut lines, &ShownEvent::from(event))
                .map_err(|error| StoreError::Broken(error.to_string()))
                .map_err(LedgerError::from)?;
            lines.push(b'\n');
        }
        archive.write(&run, chunk.first, &lines)?;
        Ok(())
    });
    task.await
        .unwrap_or_else(|error| Err(LedgerError::from(StoreError::Broken(error.to_string())).into()))
}
