//! What becomes of groups whose worker died, and of the response that hangs.

use super::{DemoError, Story};
use crate::commands::demo::groups::Fate;
use crate::commands::demo::ink::Ink;
use crate::commands::demo::text::{counted, grouped, seconds};
use crate::protocol::{Effect, Event, EventType, Reason, TrajectoryId};

/// How far the matter of the hanging response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StragglerIncident {
    /// It is still to happen.
    Ahead,
    /// Its entry holds a place, and nobody will finish it.
    Hangs { entry: TrajectoryId },
    /// Its place is free again.
    Over,
}

impl Story<'_> {
    pub(super) fn on_hangs(&mut self, worker: &str, entry: TrajectoryId) {
        self.straggler = StragglerIncident::Hangs { entry };
        let what = if self.plan.group_size == 1 {
            "one of its responses hangs; its heartbeat goes on"
        } else {
            "one response of a group hangs; its heartbeat goes on"
        };
        self.screen.say(worker, Ink::Red, what);
    }

    /// Whatever freed its place, the response that hangs is in nobody's way any more.
    fn look_for_straggler(&mut self, event: &Event) {
        let StragglerIncident::Hangs { entry } = self.straggler else {
            return;
        };
        let is_free = |effect: &Effect| {
            matches!(effect, Effect::Discarded { .. } | Effect::Occupied { .. }) && effect.id() == entry
        };
        if event.effects.iter().any(|logged| is_free(&logged.effect)) {
            self.straggler = StragglerIncident::Over;
        }
    }

    /// Tells what happened to groups of dead workers, and takes note of what happened to the others.
    pub(super) async fn on_fates(&mut self, event: &Event) -> Result<(), DemoError> {
        let fates = self.groups.apply(event);
        self.look_for_straggler(event);
        match (event.event_type, &event.reason) {
            (EventType::Expire, Some(reason @ (Reason::TimedOut | Reason::StuckTimeout))) => {
                self.tell_given_up(event, reason);
            }
            (EventType::Expire | EventType::SessionOpened, _) => self.tell_lost(event, &fates),
            _ => {}
        }
        for fate in &fates {
            match fate {
                Fate::Orphaned { .. } => {}
                Fate::Adopted { from, by, members } => {
                    let missing = u64::from(self.plan.group_size).saturating_sub(*members);
                    let what = format!(
                        "adopts a group of {from}: {} finished, {} to go",
                        counted(*members, "member"),
                        grouped(missing)
                    );
                    self.screen.say(by, Ink::Green, &what);
                    self.restart_worker_if_free(from).await?;
                }
                Fate::Finished { from, by, members, of } => {
                    let what = format!("has finished the group: {of} members, {members} of them from {from}");
                    self.screen.say(by, Ink::Green, &what);
                }
            }
        }
        Ok(())
    }

    /// Tells what a session that ended left behind.
    fn tell_lost(&mut self, event: &Event, fates: &[Fate]) {
        let mut discarded = event.effects.iter().filter_map(|logged| match &logged.effect {
            Effect::Discarded {
                reason: reason @ (Reason::LeaseExpired | Reason::WorkerRestarted),
                ..
            } => Some(reason),
            _ => None,
        });
        let count = discarded.clone().count() as u64;
        let orphans: Vec<u64> = fates
            .iter()
            .filter_map(|fate| match fate {
                Fate::Orphaned { members } => Some(*members),
                _ => None,
            })
            .collect();
        if count == 0 && orphans.is_empty() {
            return;
        }
        let worker = event.worker.as_deref().unwrap_or("a worker");
        let reason = discarded.next().unwrap_or(&Reason::LeaseExpired);
        let because = match reason {
            Reason::WorkerRestarted => format!("new session of {worker}"),
            _ => format!("lease of {worker} ran out"),
        };
        let mut parts = Vec::new();
        if !orphans.is_empty() {
            parts.push(format!(
                "{} with {} kept, to be adopted",
                counted(orphans.len() as u64, "group"),
                counted(orphans.iter().sum(), "finished member")
            ));
        }
        if count > 0 {
            parts.push(format!("{} discarded as {reason}", grouped(count)));
        }
        let what = format!("{because}: {}", parts.join("; "));
        self.screen.say("ledger", Ink::Yellow, &what);
    }

    /// Tells of reservations that were given up for their age, or because the trainer waited for them.
    fn tell_given_up(&mut self, event: &Event, reason: &Reason) {
        let count = |is_meant: fn(&Effect) -> bool| {
            let effects = event.effects.iter();
            effects.filter(|logged| is_meant(&logged.effect)).count() as u64
        };
        let discarded = count(|effect| matches!(effect, Effect::Discarded { .. }));
        let forward = count(|effect| matches!(effect, Effect::Promoted { .. }));
        let too_long = match reason {
            Reason::TimedOut => format!("reserved for {}", seconds(self.plan.reservation_timeout())),
            _ => "waited for by the trainer for too long".to_owned(),
        };
        let mut what = format!("{} {too_long}: discarded as {reason}", counted(discarded, "entry"));
        if forward > 0 {
            what = format!("{what}; {} moved forward", counted(forward, "finished entry"));
        }
        self.screen.say("ledger", Ink::Yellow, &what);
    }
}
