//! What goes wrong on purpose: a worker dies while it holds reservations, and the trainer while it trains.

use std::time::Duration;

use super::fates::StragglerIncident;
use super::{DemoError, Story};
use crate::commands::demo::draw::TrainerView;
use crate::commands::demo::groups::Held;
use crate::commands::demo::ink::Ink;
use crate::commands::demo::text::counted;

/// For how many batches a moment is awaited at which a worker holds much, or has finished some members of a group.
const PATIENCE: u64 = 2;
/// How long the killed trainer stays away.
const TRAINER_ABSENCE: Duration = Duration::from_millis(500);

/// How far the worker's death has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkerIncident {
    /// It is still to happen.
    Ahead,
    /// It was killed, and what it held is not free yet.
    Killed { name: String },
    /// A new process has taken its place.
    Over,
}

/// How far the trainer's death has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainerIncident {
    /// It is still to happen.
    Ahead,
    /// It was killed, and stays away until then, as a time since the demo's start.
    Away { until: Duration },
    /// A new process has taken its place.
    Over,
}

impl Story<'_> {
    /// Kills the worker that holds the most, once it is time for it.
    pub(super) async fn kill_worker_if_due(&mut self) -> Result<(), DemoError> {
        let batches_since = self
            .record
            .last()
            .and_then(|last| last.0.checked_sub(self.plan.worker_dies_at()));
        let (WorkerIncident::Ahead, Some(batches_since)) = (&self.worker_incident, batches_since) else {
            return Ok(());
        };
        // One thing after the other: whoever dies with the response that hangs would take it along.
        if self.straggler != StragglerIncident::Over && batches_since <= PATIENCE {
            return Ok(());
        }
        let names = self.view.workers.iter().map(|line| line.name.clone());
        let Some((held, name)) = names.map(|name| (self.groups.held_by(&name), name)).max() else {
            return Ok(());
        };
        // Half of what it could hold, with something to save, so that its death is felt; but not for ever.
        let (responses, group_size) = (self.plan.concurrency as u64, u64::from(self.plan.group_size));
        let (enough, members) = if batches_since > PATIENCE {
            (1, 1)
        } else {
            ((responses / group_size).div_ceil(2), (responses / 4).max(1))
        };
        let members = if group_size > 1 { members } else { 0 };
        let is_worth_it = |held: Held| held.entries >= enough && held.members >= members;
        if !is_worth_it(held) {
            return Ok(());
        }
        // That was a moment ago. Now it finishes nothing more until it is clear whether it is the right one.
        self.cast.pause_worker(&name).await;
        if !is_worth_it(self.held_now(&name).await?) {
            self.cast.resume_worker(&name).await;
            return Ok(());
        }
        let Some(pid) = self.cast.kill_worker(&name).await else {
            return Ok(());
        };
        self.mark_worker(&name, Life::Over);
        // Asked again: it may have finished some in its last moment.
        let left_behind = self.reserved_by(&name).await?;
        let what = format!(
            "killed (SIGKILL, pid {pid}) holding {}",
            counted(left_behind, if group_size > 1 { "group" } else { "reservation" })
        );
        self.screen.say(&name, Ink::Red, &what);
        self.worker_incident = WorkerIncident::Killed { name: name.clone() };
        self.restart_worker_if_free(&name).await
    }

    /// What a worker holds, with the events that were not told of yet.
    async fn held_now(&self, worker: &str) -> Result<Held, DemoError> {
        let mut groups = self.groups.clone();
        for event in self.run.events(self.seen, Duration::ZERO).await?.events {
            groups.apply(&event);
        }
        Ok(groups.held_by(worker))
    }

    /// Starts a new process under the killed worker's name, once nothing is left of what the old one held.
    pub(super) async fn restart_worker_if_free(&mut self, name: &str) -> Result<(), DemoError> {
        let is_killed = matches!(&self.worker_incident, WorkerIncident::Killed { name: killed } if killed == name);
        // The others are let go first: whoever adopts is to be seen.
        let is_awaited = self.plan.workers > 1 && self.groups.has_orphans_of(name);
        if !is_killed || is_awaited || self.reserved_by(name).await? > 0 {
            return Ok(());
        }
        let pid = self.cast.start_worker(name, self.plan)?;
        self.mark_worker(name, Life::Begun);
        // It may have finished in its last moment all that it had begun to finish: then there was nothing to adopt.
        let has_shown_all = self.plan.group_size == 1 || self.plan.workers == 1 || self.groups.adopted > 0;
        self.worker_incident = if has_shown_all {
            WorkerIncident::Over
        } else {
            WorkerIncident::Ahead
        };
        self.screen
            .say(name, Ink::Green, &format!("starts again (pid {pid}), in a new session"));
        Ok(())
    }

    /// Kills the trainer while it trains, once it is time for it. Called when it has just got a batch.
    pub(super) async fn kill_trainer_if_due(&mut self) -> Result<(), DemoError> {
        // That it has a batch, or a piece of it, was told of the version that its weights have.
        let holding = self.view.trainer_version;
        if self.trainer_incident != TrainerIncident::Ahead || holding.0 < self.plan.trainer_dies_at() {
            return Ok(());
        }
        let Some(pid) = self.cast.kill_trainer().await else {
            return Ok(());
        };
        self.view.trainer = TrainerView::Killed;
        self.finished_without_trainer = 0;
        let what = if self.run.status().await?.policy_version > holding {
            format!("killed (SIGKILL, pid {pid}) just after it published")
        } else {
            let taken = self.record.in_pieces(holding);
            let is_whole = self.record.last() >= Some(holding);
            let what = if is_whole {
                format!("batch {holding} taken, not published")
            } else {
                format!("{taken} of {} entries of batch {holding} taken", self.plan.batch_size)
            };
            format!("killed (SIGKILL, pid {pid}): {what}")
        };
        self.screen.say("trainer", Ink::Red, &what);
        self.trainer_incident = TrainerIncident::Away {
            until: self.screen.elapsed() + TRAINER_ABSENCE,
        };
        Ok(())
    }

    /// Starts a new trainer, once the old one has been away for long enough.
    pub(super) fn restart_trainer_if_due(&mut self) -> Result<(), DemoError> {
        let TrainerIncident::Away { until } = self.trainer_incident else {
            return Ok(());
        };
        if self.screen.elapsed() < until {
            return Ok(());
        }
        let pid = self.cast.start_trainer(self.plan)?;
        self.view.trainer = TrainerView::Starting;
        self.trainer_incident = TrainerIncident::Over;
        self.screen.say(
            "trainer",
            Ink::Green,
            &format!("starts again (pid {pid}), in a new session"),
        );
        Ok(())
    }

    async fn reserved_by(&self, name: &str) -> Result<u64, DemoError> {
        let workers = self.run.workers().await?.workers;
        Ok(workers
            .iter()
            .filter(|worker| worker.worker == name)
            .map(|worker| worker.reserved)
            .sum())
    }

    fn mark_worker(&mut self, name: &str, life: Life) {
        for line in self.view.workers.iter_mut().filter(|line| line.name == name) {
            line.is_alive = life == Life::Begun;
            line.version = None;
        }
    }
}

/// What happened to a worker's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Begun,
    Over,
}
