//! A run of the model that checks itself after every step.

use std::collections::{BTreeMap, BTreeSet};

use berth::protocol::invariants::{self, Demand};
use berth::protocol::tables::{EntryState, OccupyRefusal, SlotTables, Take};
use berth::protocol::{BufferId, Effect, Event, EventType, Reason, RunConfig, TrajectoryId, Version};
use proptest::sample::Index;
use uuid::Uuid;

use crate::log::Log;

/// One step. Where it is about an entry, the index picks one of those that the step is possible for.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Reserve { lag: u64, count: usize },
    Occupy(Index),
    LateOccupy(Index),
    DiscardReserved(Index, &'static str),
    DiscardOccupied(Index),
    Take,
    Publish,
    Limit(Option<u64>),
}

/// A run, beside tables that are rebuilt from its effects alone, and its log.
pub(crate) struct Run {
    log: Log,
    tables: SlotTables,
    rebuilt: SlotTables,
    admitted: u128,
    /// The finished entries that nobody discarded.
    finished: BTreeSet<TrajectoryId>,
    batches: BTreeMap<TrajectoryId, Version>,
}

impl Run {
    pub(crate) fn new(config: RunConfig) -> Self {
        Self {
            log: Log::of(config.clone()),
            tables: SlotTables::new(config.clone()),
            rebuilt: SlotTables::new(config),
            admitted: 0,
            finished: BTreeSet::new(),
            batches: BTreeMap::new(),
        }
    }

    fn oversamples(&self) -> bool {
        self.tables.config().slots_per_buffer > self.tables.config().batch_size
    }

    pub(crate) fn log(self) -> Vec<Event> {
        self.log.events
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Reserve { lag, count } => self.reserve(*lag, *count),
            Step::Occupy(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Reserved { .. })) {
                    self.occupy(id);
                }
            }
            Step::LateOccupy(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Discarded { .. })) {
                    self.late_occupy(id);
                }
            }
            Step::DiscardReserved(index, reason) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Reserved { .. })) {
                    self.discard(id, reason);
                }
            }
            Step::DiscardOccupied(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Occupied { .. })) {
                    self.discard(id, "filtered");
                }
            }
            Step::Take => self.take(),
            Step::Publish => self.publish(),
            Step::Limit(limit) => self.limit(*limit),
        }
        self.check();
    }

    fn pick(&self, index: Index, wanted: fn(&EntryState) -> bool) -> Option<TrajectoryId> {
        let candidates: Vec<TrajectoryId> = self
            .tables
            .entries()
            .filter(|(_, entry)| wanted(&entry.state))
            .map(|(id, _)| id)
            .collect();
        (!candidates.is_empty()).then(|| *index.get(&candidates))
    }

    fn reserve(&mut self, lag: u64, count: usize) {
        let version = Version(self.tables.policy_version().0.saturating_sub(lag));
        let first = self.admitted;
        let ids: Vec<TrajectoryId> = (0..count as u128)
            .map(|n| TrajectoryId(Uuid::from_u128(first + n)))
            .collect();
        self.admitted += count as u128;

        let before = self.tables.clone();
        match self.tables.reserve(version, &ids) {
            Ok(reserved) => {
                assert_eq!(reserved.granted, reserved.effects.len());
                assert_eq!(reserved.blocked_by.is_none(), reserved.granted == count);
                let limit = self.tables.config().max_concurrency.unwrap_or(u64::MAX);
                let generating = self.tables.reserved() as u64;
                assert!(reserved.granted == 0 || generating <= limit, "over the limit");
                if reserved.granted > 0 {
                    let event = self.log.event(EventType::Reserve, &reserved.effects);
                    event.version = Some(version);
                    event.ids = ids;
                }
                self.follow(&reserved.effects);
            }
            Err(_) => assert_eq!(self.tables, before, "a refusal changes nothing"),
        }
    }

    fn occupy(&mut self, id: TrajectoryId) {
        let demand = Demand::beside(&self.tables, id);
        let version = self.version(id);
        let occupied = self.tables.occupy(id).expect("a finished entry is never turned away");
        assert!(!occupied.late && !occupied.repeated);
        self.occupied(id, occupied.place.buffer, version, &demand, &occupied.effects);
    }

    fn late_occupy(&mut self, id: TrajectoryId) {
        let demand = Demand::beside(&self.tables, id);
        let version = self.version(id);
        let before = self.tables.clone();
        match self.tables.occupy(id) {
            Ok(occupied) => {
                assert!(occupied.late && !occupied.repeated);
                self.occupied(id, occupied.place.buffer, version, &demand, &occupied.effects);
            }
            Err(OccupyRefusal::Discarded(_)) => {
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
            Err(refusal) => panic!("{id} is known and was discarded: {refusal}"),
        }
    }

    fn occupied(&mut self, id: TrajectoryId, buffer: BufferId, version: Version, demand: &Demand, effects: &[Effect]) {
        self.finished.insert(id);
        let event = self.log.event(EventType::Occupy, effects);
        event.ids = vec![id];
        event.late = matches!(effects[0], Effect::Reserved { .. });
        if !self.oversamples() {
            assert_eq!(demand.check(id, version, buffer), None);
            let moves = effects.iter().filter(|e| matches!(e, Effect::Moved { .. })).count() as u64;
            assert!(
                moves <= self.tables.config().max_staleness + 1,
                "{moves} moves in a cascade"
            );
        }
        self.follow(effects);

        let before = self.tables.clone();
        let again = self.tables.occupy(id).expect("an occupy sent again succeeds");
        assert!(again.repeated && again.effects.is_empty() && again.place.buffer == buffer);
        assert_eq!(self.tables, before, "an occupy sent again changes nothing");
    }

    fn discard(&mut self, id: TrajectoryId, reason: &str) {
        self.finished.remove(&id);
        let discarded = self
            .tables
            .discard(id, Reason::from(reason))
            .expect("it is in the tables");
        let event = self.log.event(EventType::Discard, &discarded.effects);
        event.ids = vec![id];
        event.reason = Some(Reason::from(reason));
        self.follow(&discarded.effects);
    }

    fn take(&mut self) {
        let before = self.tables.clone();
        match self.tables.take() {
            Take::NotReady { occupied, needed, .. } => {
                assert!(occupied < needed);
                assert_eq!(self.tables, before);
            }
            Take::Taken {
                redelivered: true,
                version,
                entries,
                effects,
            } => {
                assert!(effects.is_empty());
                assert_eq!(self.tables, before);
                assert!(
                    entries
                        .iter()
                        .all(|entry| self.batches.get(&entry.id) == Some(&version))
                );
            }
            Take::Taken {
                version,
                entries,
                effects,
                ..
            } => {
                let config = self.tables.config().clone();
                assert_eq!(entries.len(), config.batch_size as usize);
                for entry in entries {
                    let buffer = BufferId(version.0);
                    assert_eq!(invariants::bound(&config, entry.id, entry.version, buffer), None);
                    assert_eq!(self.batches.insert(entry.id, version), None, "in two batches");
                    assert!(self.finished.contains(&entry.id));
                }
                self.log.event(EventType::Take, &effects).version = Some(version);
                self.follow(&effects);
                self.rebuilt.replay_take().expect("the trainer was idle");
            }
        }
    }

    fn publish(&mut self) {
        let next = Version(self.tables.policy_version().0 + 1);
        let taken = self.tables.next_buffer() == BufferId(next.0);
        assert_eq!(self.tables.publish(next).is_ok(), taken);
        assert_eq!(self.rebuilt.publish(next).is_ok(), taken);
        if taken {
            self.log.event(EventType::Publish, &[]).version = Some(next);
        }
    }

    fn limit(&mut self, max_concurrency: Option<u64>) {
        let config = RunConfig {
            max_concurrency,
            ..self.tables.config().clone()
        };
        self.log.event(EventType::RunChanged, &[]).config = Some(config.clone());
        self.tables.set_config(config.clone()).expect("the limit may change");
        self.rebuilt.set_config(config).expect("the limit may change");
    }

    fn follow(&mut self, effects: &[Effect]) {
        let surplus = |effect: &Effect| {
            matches!(
                effect,
                Effect::Discarded {
                    reason: Reason::Surplus,
                    ..
                }
            )
        };
        assert!(
            self.oversamples() || !effects.iter().any(surplus),
            "surplus without oversampling"
        );
        self.rebuilt
            .replay(effects)
            .expect("effects that the tables can follow");
    }

    fn version(&self, id: TrajectoryId) -> Version {
        self.tables.entry(id).expect("it was admitted").version
    }

    fn check(&self) {
        assert_eq!(invariants::check(&self.tables), []);
        assert_eq!(self.rebuilt, self.tables, "the effects are not all that changed");
        for id in &self.finished {
            let state = &self.tables.entry(*id).expect("it is remembered").state;
            let kept = matches!(state, EntryState::Occupied { .. } | EntryState::Taken { .. });
            assert!(kept, "{id} had finished and is {state:?}");
        }
    }
}
