//! One run, followed event by event: what was logged beside what should have been.

use std::collections::BTreeMap;

use super::{BatchReport, Fault, Report};
use crate::protocol::invariants::{self, Demand, Violation};
use crate::protocol::tables::{BatchEntry, Misfit, SlotTables, Take};
use crate::protocol::{BufferId, Effect, Event, EventType, RunConfig, TrajectoryId, Version};

#[derive(Debug)]
pub(super) struct Run {
    /// As the logged effects have it.
    logged: SlotTables,
    /// As the model has it: the same, between two events.
    model: SlotTables,
    /// The batch that each entry was trained in. Not forgotten when the batch is.
    batches: BTreeMap<TrajectoryId, Version>,
    /// The violations that stand and have been told.
    standing: Vec<Violation>,
}

impl Run {
    pub(super) fn new(config: RunConfig) -> Self {
        let logged = SlotTables::new(config);
        Self {
            model: logged.clone(),
            logged,
            batches: BTreeMap::new(),
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
            EventType::Reserve => Ok(self.model.reserve(version(event)?, &event.ids)?.effects),
            EventType::Occupy => self.expected_of_occupy(event),
            EventType::SessionOpened | EventType::Discard | EventType::Expire | EventType::Heartbeat => {
                self.expected_of_discards(event)
            }
            EventType::Claim | EventType::Deliver | EventType::TrainerOpened | EventType::Checkpoint => Ok(Vec::new()),
            EventType::Take => self.expected_of_take(version(event)?),
            EventType::Publish => {
                let version = version(event)?;
                match self.model.publish(version) {
                    Ok(_) => Ok(Vec::new()),
                    Err(refusal) => Err(Fault::Publish { version, refusal }),
                }
            }
            EventType::Prune => self.expected_of_prune(event),
        }
    }

    fn expected_of_occupy(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let mut effects = Vec::new();
        let mut late = false;
        for &id in &event.ids {
            match self.model.occupy(id) {
                Ok(occupied) => {
                    late |= occupied.late && !occupied.repeated;
                    effects.extend(occupied.effects);
                }
                Err(refusal) => return Err(Fault::Occupy { id, refusal }),
            }
        }
        if late != event.late {
            return Err(Fault::Late { marked: event.late });
        }
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
        let mut effects = Vec::new();
        for &id in &event.ids {
            match self.model.discard(id, reason.clone()) {
                Ok(discarded) => effects.extend(discarded.effects),
                Err(refusal) => return Err(Fault::Discard { id, refusal }),
            }
        }
        Ok(effects)
    }

    fn expected_of_take(&mut self, version: Version) -> Result<Vec<Effect>, Fault> {
        let policy_version = self.model.policy_version();
        let next_buffer = self.model.next_buffer();
        if BufferId(version.0) != next_buffer || version != policy_version {
            return Err(Fault::OutOfTurn {
                version,
                policy_version,
                next_buffer,
            });
        }
        match self.model.take() {
            Take::Taken { effects, .. } => Ok(effects),
            Take::NotReady { occupied, needed, .. } => Err(Fault::Incomplete {
                version,
                entries: occupied,
                batch_size: needed,
            }),
        }
    }

    /// Which of a batch's entries one step forgets is the ledger's choice, so the expected effects are the logged ones.
    fn expected_of_prune(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let version = version(event)?;
        let mut effects = Vec::new();
        for id in event.effects.iter().map(|logged| logged.effect.id()) {
            if self.batches.get(&id) != Some(&version) {
                return Err(Fault::PrunedElsewhere { id, version });
            }
            match self.model.prune(id) {
                Ok(effect) => effects.push(effect),
                Err(refusal) => return Err(Fault::Prune { id, refusal }),
            }
        }
        Ok(effects)
    }

    /// Moves the logged tables by what the event says, right or wrong.
    fn happen(
        &mut self,
        event: &Event,
        effects: &[Effect],
        report: &mut Report,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Misfit> {
        if event.event_type == EventType::Occupy {
            return self.occupied(effects, faults);
        }
        self.logged.replay(effects)?;
        match (event.event_type, event.version, &event.config) {
            (EventType::Take, Some(version), _) => self.taken(version, report, faults),
            (EventType::Publish, Some(version), _) => self.published(version),
            (EventType::RunChanged, _, Some(config)) => {
                // A refusal was told when the model refused it.
                let _ = self.logged.set_config(config.clone());
                Ok(())
            }
            _ => Ok(()),
        }
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

    /// Buffer `version` is a batch now, if it is the next one; if not, that was told, and nothing has happened.
    fn taken(&mut self, version: Version, report: &mut Report, faults: &mut Vec<Fault>) -> Result<(), Misfit> {
        if self.logged.next_buffer() != BufferId(version.0) {
            return Ok(());
        }
        let entries = self.logged.replay_take()?;
        self.check_batch(version, &entries, faults);
        report.batches.push(BatchReport::of(version, &entries));
        Ok(())
    }

    fn published(&mut self, version: Version) -> Result<(), Misfit> {
        match self.logged.publish(version) {
            Ok(_) => Ok(()),
            Err(_) => Err(Misfit::NotNext { version }),
        }
    }

    /// A batch has exactly `B` entries, all within the bound, and none that is in another batch.
    fn check_batch(&mut self, version: Version, entries: &[BatchEntry], faults: &mut Vec<Fault>) {
        let config = self.logged.config();
        let batch_size = config.batch_size as usize;
        let incomplete = Fault::Incomplete {
            version,
            entries: entries.len(),
            batch_size,
        };
        if entries.len() != batch_size && !faults.contains(&incomplete) {
            faults.push(incomplete);
        }
        for entry in entries {
            let id = entry.id;
            let bound = invariants::bound(config, id, entry.version, BufferId(version.0));
            let untold = bound.filter(|violation| !self.standing.contains(violation));
            faults.extend(untold.map(Fault::from));
            if let Some(first) = self.batches.insert(id, version) {
                faults.push(Fault::InTwoBatches {
                    id,
                    first,
                    second: version,
                });
            }
        }
    }

    fn check_invariants(&mut self, faults: &mut Vec<Fault>) {
        let violations = invariants::check(&self.logged);
        let untold = violations.iter().filter(|violation| !self.standing.contains(violation));
        faults.extend(untold.cloned().map(Fault::from));
        self.standing = violations;
    }
}

fn version(event: &Event) -> Result<Version, Fault> {
    event.version.ok_or(Fault::Missing("version"))
}

/// Whether the logged effects are the expected ones; the first that is not is told.
fn same(logged: &[Effect], expected: &[Effect], faults: &mut Vec<Fault>) -> bool {
    let longest = logged.len().max(expected.len());
    let differs = (0..longest).find(|position| logged.get(*position) != expected.get(*position));
    if let Some(position) = differs {
        faults.push(Fault::Effect {
            position,
            logged: logged.get(position).cloned(),
            expected: expected.get(position).cloned(),
        });
    }
    differs.is_none()
}
