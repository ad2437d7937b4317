//! What is told of the job, in sentences.

use std::time::Duration;

use super::training::Replay;
use super::{DemoError, Story};
use crate::commands::demo::compare::{composition, in_words};
use crate::commands::demo::draw;
use crate::commands::demo::ink::Ink;
use crate::commands::demo::record::{BatchRecord, SessionRecord};
use crate::commands::demo::text::{counted, seconds};
use crate::protocol::{Effect, Event, EventType, Version};

/// How wide slot tables are where there is no terminal.
const PLAIN_WIDTH: usize = 110;

impl Story<'_> {
    /// Tells from where a trainer goes on, if it has not just begun.
    pub(super) fn tell_opened(&mut self, session: &SessionRecord) {
        if session.resume_from.is_some() {
            let what = resumed_in_words(session.trainer_version, session.policy_version);
            self.screen.say("trainer", Ink::Yellow, &what);
        }
    }

    pub(super) fn tell_saved(&mut self, version: Version) {
        self.screen.say(
            "trainer",
            Ink::Plain,
            &format!("saves a checkpoint of version {version}"),
        );
    }

    pub(super) fn tell_batch(&mut self, batch: &BatchRecord) {
        let BatchRecord {
            version,
            redelivered,
            replayed,
            pieces,
            waited_ms,
            entries,
            ..
        } = batch;
        if !*redelivered && !*replayed {
            let waited = seconds(Duration::from_millis(*waited_ms));
            let mut what = format!(
                "batch {version}: staleness {}; waited {waited}",
                in_words(&composition(batch))
            );
            if self.plan.stream {
                what = format!("{what}; came in {}", counted(*pieces, "piece"));
            }
            self.screen.say("trainer", Ink::Plain, &what);
            return;
        }
        let entries = counted(entries.len() as u64, "entry");
        let does = if *replayed { "trains" } else { "gets" };
        let (ink, what) = match self.record.was_the_same(batch) {
            Some(true) => (Ink::Green, format!("{does} batch {version} again: the same {entries}")),
            Some(false) => (
                Ink::Red,
                format!("{does} batch {version} again, with other entries than before"),
            ),
            // Of a batch that is not whole yet, its pieces were compared.
            None if self.plan.stream => (Ink::Plain, format!("has all {entries} of batch {version}")),
            None => (Ink::Yellow, format!("gets batch {version}, which was delivered before")),
        };
        self.screen.say("trainer", ink, &what);
    }

    /// Tells of a new version where the picture does not show it.
    pub(super) async fn tell_published(&mut self, version: Version) -> Result<(), DemoError> {
        if self.screen.is_live() {
            return Ok(());
        }
        self.tell_with_tables(Ink::Plain, &format!("publishes version {version}"))
            .await
    }

    /// Tells that the trainer stands again where it died, and that the workers did not wait for it.
    pub(super) async fn tell_caught_up(&mut self, replay: &Replay) -> Result<(), DemoError> {
        let again = counted(replay.to.0 - replay.from.0, "batch");
        let mut what = format!("is back at version {}, having trained {again} again", replay.to);
        // Rollout may have filled every place before, and then it has nothing to do but wait.
        if self.finished_without_trainer > 0 {
            let finished = counted(self.finished_without_trainer, "entry");
            what = format!("{what}; rollout finished {finished} since its death");
        }
        self.tell_with_tables(Ink::Green, &what).await
    }

    /// Tells what the trainer did, and shows the slot tables where they are not drawn all the time.
    async fn tell_with_tables(&mut self, ink: Ink, what: &str) -> Result<(), DemoError> {
        if self.screen.is_live() {
            self.screen.say("trainer", ink, what);
            return Ok(());
        }
        let buffers = self.run.buffers().await?.buffers;
        self.screen.say("trainer", ink, what);
        for line in draw::slot_tables(&buffers, self.plan.batch_size, PLAIN_WIDTH) {
            self.screen.add(&line);
        }
        Ok(())
    }

    pub(super) fn tell_stopped(&mut self, worker: &str, reason: &str, responses: u64) {
        let what = format!(
            "stops generating {} of an entry that was discarded as {reason}",
            counted(responses, "response")
        );
        self.screen.say(worker, Ink::Yellow, &what);
    }

    pub(super) fn tell_refused(&mut self, worker: &str, code: &str) {
        self.screen
            .say(worker, Ink::Yellow, &format!("finished an entry too late: {code}"));
    }

    pub(super) fn tell_saved_late(&mut self, worker: &str) {
        self.screen.say(
            worker,
            Ink::Green,
            "finished an entry late, and there was still a place for it",
        );
    }

    /// Tells what the event log says, as far as no process says it itself, and does what is due at it.
    pub(super) async fn on_event(&mut self, event: &Event) -> Result<(), DemoError> {
        let worker = event.worker.as_deref().unwrap_or("a worker");
        self.seen = event.seq;
        self.finished_without_trainer += occupied(event);
        self.on_fates(event).await?;
        match event.event_type {
            // The moments at which somebody holds more than before, or has finished more of it.
            EventType::Reserve | EventType::Member => self.kill_worker_if_due().await?,
            EventType::Expire => self.restart_worker_if_free(worker).await?,
            _ => {}
        }
        Ok(())
    }
}

fn occupied(event: &Event) -> u64 {
    let effects = event.effects.iter();
    effects
        .filter(|logged| matches!(logged.effect, Effect::Occupied { .. }))
        .count() as u64
}

/// What a trainer does that comes back with a checkpoint.
fn resumed_in_words(checkpoint: Version, latest: Version) -> String {
    let comes = format!("comes back with its checkpoint of version {checkpoint}");
    match latest.0.saturating_sub(checkpoint.0) {
        0 => format!("{comes}, the latest: there is nothing to train again"),
        1 => format!("{comes}: it trains batch {checkpoint} again, as it was; rollout goes on with version {latest}"),
        _ => format!(
            "{comes}: it trains batches {checkpoint} to {} again, as they were; rollout goes on with version {latest}",
            latest.0 - 1
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_that_comes_back_says_what_it_trains_again() {
        let told = |latest| resumed_in_words(Version(8), Version(latest));
        assert_eq!(
            told(12),
            "comes back with its checkpoint of version 8: it trains batches 8 to 11 again, as they were; rollout goes on with version 12"
        );
        assert_eq!(
            told(9),
            "comes back with its checkpoint of version 8: it trains batch 8 again, as it was; rollout goes on with version 9"
        );
        assert_eq!(
            told(8),
            "comes back with its checkpoint of version 8, the latest: there is nothing to train again"
        );
    }
}
