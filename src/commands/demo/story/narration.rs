//! What is told of the job, in sentences.

use std::time::Duration;

use super::{DemoError, Story};
use crate::commands::demo::compare::{composition, in_words};
use crate::commands::demo::draw;
use crate::commands::demo::ink::Ink;
use crate::commands::demo::record::BatchRecord;
use crate::commands::demo::text::{counted, grouped, seconds};
use crate::protocol::{Effect, Event, EventType, Version};

/// How wide slot tables are where there is no terminal.
const PLAIN_WIDTH: usize = 110;

impl Story<'_> {
    pub(super) fn tell_batch(&mut self, batch: &BatchRecord) {
        let BatchRecord {
            version,
            redelivered,
            waited_ms,
            entries,
            ..
        } = batch;
        if !*redelivered {
            let waited = seconds(Duration::from_millis(*waited_ms));
            let what = format!(
                "batch {version}: staleness {}; waited {waited}",
                in_words(&composition(batch))
            );
            self.screen.say("trainer", Ink::Plain, &what);
            return;
        }
        let entries = counted(entries.len() as u64, "entry");
        let (ink, what) = match self.record.was_the_same(batch) {
            Some(true) => (Ink::Green, format!("gets batch {version} again: the same {entries}")),
            Some(false) => (
                Ink::Red,
                format!("gets batch {version} again, with other entries than before"),
            ),
            None => (Ink::Yellow, format!("gets batch {version}, which was delivered before")),
        };
        self.screen.say("trainer", ink, &what);
    }

    /// Shows the slot tables, where they are not drawn all the time.
    pub(super) async fn tell_tables(&mut self, published: Version) -> Result<(), DemoError> {
        let buffers = self.run.buffers().await?.buffers;
        self.screen
            .say("trainer", Ink::Plain, &format!("publishes version {published}"));
        for line in draw::slot_tables(&buffers, self.plan.batch_size, PLAIN_WIDTH) {
            self.screen.add(&line);
        }
        Ok(())
    }

    pub(super) fn tell_stopped(&mut self, worker: &str, reason: &str) {
        self.screen.say(
            worker,
            Ink::Yellow,
            &format!("stops a generation that was discarded as {reason}"),
        );
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
        let discarded = discarded(event);
        let worker = event.worker.as_deref().unwrap_or("a worker");
        match event.event_type {
            // The moment at which somebody holds more than before.
            EventType::Reserve => self.kill_worker_if_due().await?,
            EventType::Expire => {
                let what = format!(
                    "lease of {worker} ran out: {} discarded as lease_expired",
                    grouped(discarded)
                );
                self.screen.say("ledger", Ink::Yellow, &what);
                self.restart_worker_if_free(worker).await?;
            }
            EventType::SessionOpened if discarded > 0 => {
                let what = format!(
                    "new session of {worker}: {} discarded as worker_restarted",
                    grouped(discarded)
                );
                self.screen.say("ledger", Ink::Yellow, &what);
            }
            _ => {}
        }
        Ok(())
    }
}

fn discarded(event: &Event) -> u64 {
    event
        .effects
        .iter()
        .filter(|logged| matches!(logged.effect, Effect::Discarded { .. }))
        .count() as u64
}
