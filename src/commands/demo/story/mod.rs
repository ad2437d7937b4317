//! The job from its start to its last published version: who does what, what goes wrong on purpose, and what is shown of it.

mod fates;
mod incidents;
mod narration;
mod training;

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::cast::Cast;
use super::compare::TrainerRecord;
use super::draw::{self, TrainerView, View, WorkerLine};
use super::example::Deviation;
use super::groups::Groups;
use super::ink::Ink;
use super::lengths::LengthsError;
use super::plan::{Plan, RUN, worker_name};
use super::record::Record;
use super::screen::{self, Screen};
use crate::client::{Client, ClientError, Retry, RunClient};
use crate::commands::event_log::LogError;
use crate::commands::processes::{Happened, LocalServerError, Notice, tail};
use crate::protocol::{Event, Version};
use fates::StragglerIncident;
use incidents::{TrainerIncident, WorkerIncident};
use training::Replay;

/// How often the picture is drawn anew.
const FRAME: Duration = Duration::from_millis(100);
/// How long the reader of the event log waits for more of it in one call.
const EVENTS_WAIT: Duration = Duration::from_secs(10);
/// How much of a failed process's log is shown.
const LOG_LINES: usize = 15;

/// Why the job did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error(transparent)]
    Lengths(#[from] LengthsError),
    #[error(transparent)]
    Server(#[from] LocalServerError),
    #[error(transparent)]
    Call(#[from] ClientError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Example(#[from] Deviation),
    #[error("a process could not be started: {0}")]
    Spawn(#[from] io::Error),
    #[error("{name} ended unexpectedly ({status}){log}")]
    Ended { name: String, status: String, log: String },
    #[error("stopped; every process that it started has ended")]
    Interrupted,
}

/// The one who starts the processes, watches them, and tells what happens.
pub(super) struct Story<'a> {
    plan: &'a Plan,
    cast: &'a mut Cast,
    screen: &'a mut Screen,
    run: RunClient,
    view: View,
    record: TrainerRecord,
    /// The groups, as the event log tells of them.
    groups: Groups,
    /// The last event that was told of.
    seen: u64,
    straggler: StragglerIncident,
    worker_incident: WorkerIncident,
    trainer_incident: TrainerIncident,
    /// What is being trained again.
    replay: Option<Replay>,
    /// How many entries the workers have finished since the trainer was killed.
    finished_without_trainer: u64,
    is_over: bool,
}

/// Plays the job, and returns what the trainer recorded of it.
pub(super) async fn play(
    plan: &Plan,
    cast: &mut Cast,
    notices: &mut mpsc::UnboundedReceiver<Notice>,
    screen: &mut Screen,
) -> Result<TrainerRecord, DemoError> {
    let run = Client::new(cast.server().url())?.run(RUN);
    run.put(&plan.run_settings()).await?;
    let (sender, mut events) = mpsc::channel(256);
    let _follower = AbortOnDrop(tokio::spawn(follow(run.clone(), sender)));

    let mut story = Story::new(plan, cast, screen, run);
    story.start_all()?;
    let mut ticks = tokio::time::interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !story.is_over {
        tokio::select! {
            error = story.cast.server_failed() => return Err(error.into()),
            Some(notice) = notices.recv() => story.on_notice(notice).await?,
            Some(event) = events.recv() => story.on_event(&event?).await?,
            _ = ticks.tick() => story.on_tick().await?,
        }
    }
    story.screen.clear();
    Ok(story.record)
}

/// Passes on the event log as it grows.
async fn follow(run: RunClient, events: mpsc::Sender<Result<Event, ClientError>>) {
    let mut after = 0;
    loop {
        let page = match run.events::<Event>(after, EVENTS_WAIT).await {
            Ok(page) => page,
            Err(error) => {
                let _ = events.send(Err(error)).await;
                return;
            }
        };
        for event in page.events {
            after = event.seq;
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
    }
}

/// A task that ends with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<'a> Story<'a> {
    fn new(plan: &'a Plan, cast: &'a mut Cast, screen: &'a mut Screen, run: RunClient) -> Self {
        let names = (1..=plan.workers).map(worker_name);
        let view = View {
            elapsed: Duration::ZERO,
            published: 0,
            batches: plan.batches,
            batch_size: plan.batch_size,
            policy_version: Version(0),
            trainer_version: Version(0),
            taken: None,
            replayed: None,
            buffers: Vec::new(),
            trainer: TrainerView::Starting,
            workers: names
                .map(|name| WorkerLine {
                    name,
                    version: None,
                    reserved: 0,
                    finished: 0,
                    is_alive: true,
                })
                .collect(),
        };
        Self {
            plan,
            cast,
            screen,
            run,
            view,
            record: TrainerRecord::new(plan.max_staleness),
            groups: Groups::default(),
            seen: 0,
            straggler: StragglerIncident::Ahead,
            worker_incident: WorkerIncident::Ahead,
            trainer_incident: TrainerIncident::Ahead,
            replay: None,
            finished_without_trainer: 0,
            is_over: false,
        }
    }

    fn start_all(&mut self) -> Result<(), DemoError> {
        let server = self.cast.server();
        let started = format!("listens on {} (pid {})", server.url(), server.pid());
        self.screen.say("server", Ink::Plain, &started);
        for worker in &self.view.workers {
            let pid = self.cast.start_worker(&worker.name, self.plan)?;
            self.screen
                .say(&worker.name, Ink::Plain, &format!("starts (pid {pid})"));
        }
        let pid = self.cast.start_trainer(self.plan)?;
        self.screen.say("trainer", Ink::Plain, &format!("starts (pid {pid})"));
        Ok(())
    }

    async fn on_notice(&mut self, notice: Notice) -> Result<(), DemoError> {
        let status = match notice.what {
            Happened::Line(line) => match Record::read(&line) {
                Some(record) => return self.on_record(&notice.process, record).await,
                None => return Ok(()),
            },
            Happened::Ended(status) => status,
        };
        if self.cast.is_trainer(notice.pid) && status.success() {
            self.is_over = true;
            return Ok(());
        }
        if self.cast.includes(notice.pid) {
            let log = tail(&self.cast.log_of(&notice.process), LOG_LINES);
            return Err(DemoError::Ended {
                name: notice.process,
                status: status.to_string(),
                log,
            });
        }
        Ok(())
    }

    async fn on_record(&mut self, process: &str, record: Record) -> Result<(), DemoError> {
        match record {
            Record::Opened(session) => self.on_opened(session),
            Record::Waiting { has } => {
                self.view.trainer = TrainerView::Waiting {
                    since: self.screen.elapsed(),
                    has,
                }
            }
            Record::Piece(piece) => self.on_piece(&piece).await?,
            Record::Batch(batch) => self.on_batch(batch).await?,
            Record::Published {
                version,
                policy_version,
            } => self.on_published(version, policy_version).await?,
            Record::Saved { version } => self.tell_saved(version),
            Record::Stopped { reason, responses } => self.tell_stopped(process, &reason, responses),
            Record::Hangs { entry } => self.on_hangs(process, entry),
            Record::Refused { code } => self.tell_refused(process, &code),
            Record::SavedLate => self.tell_saved_late(process),
        }
        Ok(())
    }

    async fn on_tick(&mut self) -> Result<(), DemoError> {
        self.restart_trainer_if_due()?;
        if self.screen.is_live() {
            self.draw().await;
        }
        Ok(())
    }

    /// Draws how things stand. What can't be learned in this moment is shown as it was.
    async fn draw(&mut self) {
        let hasty = self.run.client().clone().with_retry(Retry::never()).run(RUN);
        let (buffers, workers) = tokio::join!(hasty.buffers(), hasty.workers());
        if let Ok(answer) = buffers {
            self.view.buffers = answer.buffers;
        }
        for known in workers.map(|answer| answer.workers).unwrap_or_default() {
            if let Some(line) = self.view.workers.iter_mut().find(|line| line.name == known.worker) {
                line.version = known.version;
                line.reserved = known.reserved;
                line.finished = known.finished;
            }
        }
        self.view.elapsed = self.screen.elapsed();
        let block = draw::block(&self.view, screen::width());
        self.screen.draw(block);
    }
}
