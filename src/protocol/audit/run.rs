//! One run, followed event by event: what was logged beside what should have been.

use super::batches::Batches;
use super::{Fault, Report};
use crate::protocol::invariants::{self, Violation};
use crate::protocol::tables::{SlotTables, Wish};
use crate::protocol::{Effect, Event, EventType, Reason, Version, Weights};

#[derive(Debug)]
pub(super) struct Run {
    /// As the logged effects have it.
    pub(super) logged: SlotTables,
    /// As the model has it: the same, between two events.
    pub(super) model: SlotTables,
    pub(super) batches: Batches,
    /// The violations that stand and have been told.
    pub(super) standing: Vec<Violation>,
}

impl Run {
    /// A run that begins with these tables.
    pub(super) fn new(tables: SlotTables) -> Self {
        Self {
            model: tables.clone(),
            logged: tables,
            batches: Batches::default(),
            standing: Vec::new(),
        }
    }

    /// Follows one event.
    ///
    /// # Errors
    ///
    /// The fault for which nothing after this event can be followed.
    pub(super) fn follow(&mut self, event: &Event, report: &mut Report, faults: &mut Vec<Fault>) -> Result<(), Fault> {
        let effects: Vec<Effect> = event.effects.iter().map(|e| e.effect.clone()).collect();
        let as_expected = match self.expected(event) {
            Ok(expected) => same(&effects, &expected, faults),
            Err(fault) => {
                faults.push(fault);
                false
            }
        };
        self.happen(event, &effects, report, faults)?;
        report.count(event);
        self.check_invariants(faults);
        if !as_expected {
            self.model = self.logged.clone();
        }
        Ok(())
    }

    /// The effects that the protocol has for the event, or what is wrong with the event itself.
    fn expected(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        match event.event_type {
            EventType::RunCreated => Err(Fault::CreatedAgain),
            EventType::RunChanged => {
                let config = event.config.clone().ok_or(Fault::Missing("config"))?;
                self.model.set_config(config)?;
                Ok(Vec::new())
            }
            EventType::Reserve => {
                let weights = Weights {
                    version: version(event)?,
                    lineage: event.lineage.unwrap_or_default(),
                };
                self.expected_of_reserve(event, weights)
            }
            EventType::Claim => Ok(event.ids.iter().flat_map(|id| self.model.claim(*id)).collect()),
            EventType::Member => self.expected_of_member(event),
            EventType::Segment => self.expected_of_segment(event),
            EventType::Occupy => self.expected_of_occupy(event),
            EventType::Discard if event.reason == Some(Reason::Drained) => self.expected_of_drained(event),
            EventType::SessionOpened | EventType::Discard | EventType::Expire | EventType::Heartbeat => {
                self.expected_of_discards(event)
            }
            EventType::Feed => self.expected_of_feed(event),
            EventType::Take => self.expected_of_take(event),
            EventType::Stream => self.expected_of_stream(event),
            EventType::Drain => self.expected_of_drain(event),
            EventType::Deliver => self.expected_of_deliver(event),
            EventType::Publish => self.expected_of_publish(version(event)?),
            EventType::TrainerOpened => self.expected_of_resume(event),
            EventType::Checkpoint => self.expected_of_checkpoint(version(event)?),
            EventType::Prune => self.expected_of_prune(event),
        }
    }

    fn expected_of_occupy(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let mut effects = Vec::new();
        for &id in &event.ids {
            effects.extend(self.finish(event, id)?);
        }
        check_late(event, &effects)?;
        Ok(effects)
    }

    /// A heartbeat names no reason when it discarded nothing; its `ids` are then those it acknowledged.
    fn expected_of_discards(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let nothing_discarded =
            event.ids.is_empty() || (event.event_type == EventType::Heartbeat && event.reason.is_none());
        if nothing_discarded {
            return Ok(Vec::new());
        }
        let reason = event.reason.as_ref().ok_or(Fault::Missing("reason"))?;
        let wish = if event.requeue { Wish::Requeue } else { Wish::ByReason };
        let mut effects = Vec::new();
        for &id in &event.ids {
            let discarded = if reason.is_of_the_holder() {
                self.model.lose(id, reason.clone())
            } else {
                self.model.discard_with(id, reason.clone(), wish)
            };
            match discarded {
                Ok(discarded) => effects.extend(discarded.effects),
                Err(refusal) => return Err(Fault::Discard { id, refusal }),
            }
        }
        Ok(effects)
    }

    /// A page that adds nothing is no step.
    fn expected_of_feed(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let fed = event.fed.ok_or(Fault::Missing("fed"))?;
        let expected = self.model.feed(None, &event.prompts)?;
        if fed != expected || event.prompts.is_empty() {
            return Err(Fault::Fed { logged: fed, expected });
        }
        Ok(Vec::new())
    }

    /// Which of a batch's entries one step forgets is the ledger's choice, so the expected effects are the logged ones.
    fn expected_of_prune(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let version = version(event)?;
        let mut effects = Vec::new();
        for id in event.effects.iter().map(|logged| logged.effect.id()) {
            if self.batches.of(id) != Some(version) {
                return Err(Fault::PrunedElsewhere { id, version });
            }
            match self.model.prune(id) {
                Ok(effect) => effects.push(effect),
                Err(refusal) => return Err(Fault::Prune { id, refusal }),
            }
        }
        Ok(effects)
    }

    fn check_invariants(&mut self, faults: &mut Vec<Fault>) {
        let violations = invariants::check(&self.logged);
        let untold = violations.iter().filter(|violation| !self.standing.contains(violation));
        faults.extend(untold.cloned().map(Fault::from));
        self.standing = violations;
    }
}

pub(super) fn version(event: &Event) -> Result<Version, Fault> {
    event.version.ok_or(Fault::Missing("version"))
}

/// Whether an event is marked late that brought an entry back, and no other is.
pub(super) fn check_late(event: &Event, expected: &[Effect]) -> Result<(), Fault> {
    let late = expected.iter().any(|effect| matches!(effect, Effect::Reserved { .. }));
    if late == event.late {
        return Ok(());
    }
    Err(Fault::Late { marked: event.late })
}

/// Whether the logged effects are the expected ones; the first that is not is told.
fn same(logged: &[Effect], expected: &[Effect], faults: &mut Vec<Fault>) -> bool {
    let longest = logged.len().max(expected.len());
    let differs = (0..longest).find(|position| logged.get(*position) != expected.get(*position));
    if let Some(position) = differs {
        faults.push(Fault::Effect {
            position,
            logged: logged.get(position).cloned().map(Box::new),
            expected: expected.get(position).cloned().map(Box::new),
        });
    }
    differs.is_none()
}
