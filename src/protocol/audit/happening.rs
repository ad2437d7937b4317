//! The logged tables, moved by what the events say, right or wrong.

use super::run::Run;
use super::trainer::LoggedResume;
use super::{BatchReport, Fault, Report};
use crate::protocol::invariants::{self, Demand};
use crate::protocol::tables::{BatchEntry, Misfit, ResumeKind};
use crate::protocol::{BufferId, Effect, Event, EventType, Version};

impl Run {
    /// Moves the logged tables by what the event says.
    pub(super) fn happen(
        &mut self,
        event: &Event,
        effects: &[Effect],
        report: &mut Report,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Misfit> {
        match event.event_type {
            EventType::Occupy | EventType::Member => return self.occupied(effects, faults),
            EventType::TrainerOpened => return self.resumed(event, effects, report),
            EventType::Feed => self.logged.replay_feed(&event.prompts)?,
            _ => self.logged.replay(effects)?,
        }
        match (event.event_type, event.version, &event.config) {
            (EventType::Take, Some(version), _) => self.taken(version, event.is_final, report, faults)?,
            (EventType::Stream, ..) => self.streamed(event, report, faults)?,
            (EventType::Drain, ..) => {
                let drain = event.drain.unwrap_or_default();
                self.logged.drain(drain.then(|| event.queue.unwrap_or_default()));
            }
            (EventType::Deliver, Some(version), _) => self.delivered(version, report, faults),
            (EventType::Publish, Some(version), _) => self.logged.replay_publish(version)?,
            (EventType::Checkpoint, Some(version), _) => self.logged.replay_checkpoint(version),
            (EventType::RunChanged, _, Some(config)) => {
                // A refusal was told when the model refused it.
                let _ = self.logged.set_config(config.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// Without oversampling each entry of the event must have got the *earliest* place there was. Its effects end with
    /// its `occupied`.
    fn occupied(&mut self, effects: &[Effect], faults: &mut Vec<Fault>) -> Result<(), Misfit> {
        let config = self.logged.config();
        let oversamples = config.slots_per_buffer > config.batch_size;
        for steps in effects.split_inclusive(|e| matches!(e, Effect::Occupied { .. })) {
            let Some(Effect::Occupied { id, to, .. }) = steps.last().filter(|_| !oversamples) else {
                self.logged.replay(steps)?;
                continue;
            };
            let demand = Demand::beside(&self.logged, *id);
            self.logged.replay(steps)?;
            let entry = self.logged.entry(*id);
            let violation = entry.and_then(|e| demand.check(*id, e.version, to.buffer));
            faults.extend(violation.map(Fault::from));
        }
        Ok(())
    }

    /// A trainer session was opened, if the event says enough of it; if not, that was told.
    fn resumed(&mut self, event: &Event, effects: &[Effect], report: &mut Report) -> Result<(), Misfit> {
        let Ok(logged) = LoggedResume::of(event) else {
            return self.logged.replay(effects);
        };
        let from = logged.resume.resume_from.unwrap_or(self.logged.policy_version());
        let oldest_kept = self.oldest_kept();
        let kind = self
            .logged
            .replay_resume(&logged.resume, logged.epoch, logged.lineage, effects)?;
        if kind == ResumeKind::Rewind {
            self.batches.keep_from(oldest_kept);
            self.batches.rewind(from);
        }
        report.resumes.count(kind, event.behind);
        Ok(())
    }

    /// Buffer `version` is a batch now, if it is the next one; if not, that was told, and nothing has happened.
    fn taken(
        &mut self,
        version: Version,
        is_final: bool,
        report: &mut Report,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Misfit> {
        if self.logged.next_buffer() != BufferId(version.0) {
            return Ok(());
        }
        let entries = self.logged.replay_take()?;
        self.check_batch(version, &entries, is_final, faults);
        report.takes += 1;
        report.batches.push(BatchReport::of(version, &entries));
        Ok(())
    }

    /// Batch `version` was delivered again, if it is the one that could be; if not, that was told.
    fn delivered(&mut self, version: Version, report: &mut Report, faults: &mut Vec<Fault>) {
        if self.logged.deliverable() == Some(version) {
            faults.extend(self.batches.check_delivered(version, self.logged.batch(version)));
        }
        if version < self.logged.policy_version() {
            report.replayed += 1;
        } else {
            report.redelivered += 1;
        }
        self.logged.replay_deliver(version);
    }

    /// A batch has exactly `B` entries, unless it is the run's last one, all within the bound, and none that is in another
    /// batch.
    pub(super) fn check_batch(
        &mut self,
        version: Version,
        entries: &[BatchEntry],
        is_final: bool,
        faults: &mut Vec<Fault>,
    ) {
        let config = self.logged.config();
        let batch_size = config.batch_size as usize;
        let incomplete = Fault::Incomplete {
            version,
            entries: entries.len(),
            batch_size,
        };
        if entries.len() != batch_size && !is_final && !faults.contains(&incomplete) {
            faults.push(incomplete);
        }
        for entry in entries {
            let bound = invariants::bound(config, entry.id, entry.version, BufferId(version.0));
            let untold = bound.filter(|violation| !self.standing.contains(violation));
            faults.extend(untold.map(Fault::from));
        }
        let oldest_kept = self.oldest_kept();
        faults.extend(self.batches.take(version, entries, oldest_kept));
    }

    /// The first number of which a batch may be kept.
    fn oldest_kept(&self) -> Version {
        let none_kept = Version(self.logged.next_buffer().0);
        self.logged.kept_batches().next().unwrap_or(none_kept)
    }
}
