//! A good log, written by the model.

use crate::protocol::notation::{id, ids};
use crate::protocol::tables::{SlotTables, Take};
use crate::protocol::{Effect, Event, EventType, LoggedEffect, Reason, RunConfig, TrajectoryId, Version};

/// A run that writes its log.
pub(super) struct Journal {
    tables: SlotTables,
    pub(super) events: Vec<Event>,
}

impl Journal {
    pub(super) fn new(config: RunConfig) -> Self {
        let mut journal = Self {
            tables: SlotTables::new(config.clone()),
            events: Vec::new(),
        };
        journal.event(EventType::RunCreated, &[]).config = Some(config);
        journal
    }

    pub(super) fn reserve(&mut self, version: u64, letters: &str) {
        let reserved = self.tables.reserve(Version(version), &ids(letters)).expect("a reserve");
        assert_eq!(reserved.blocked_by, None);
        let event = self.event(EventType::Reserve, &reserved.effects);
        event.version = Some(Version(version));
        event.ids = ids(letters);
    }

    pub(super) fn occupy(&mut self, letters: &str) {
        for letter in letters.chars() {
            let occupied = self.tables.occupy(id(letter)).expect("an occupy");
            let event = self.event(EventType::Occupy, &occupied.effects);
            event.ids = vec![id(letter)];
            event.late = occupied.late;
        }
    }

    /// Discards the entries in one event of this kind.
    pub(super) fn discard(&mut self, event_type: EventType, letters: &str, reason: &str) {
        let reason = Reason::from(reason);
        let mut effects = Vec::new();
        for letter in letters.chars() {
            let discarded = self.tables.discard(id(letter), reason.clone()).expect("a discard");
            effects.extend(discarded.effects);
        }
        let event = self.event(event_type, &effects);
        event.ids = ids(letters);
        event.reason = Some(reason);
    }

    pub(super) fn take(&mut self) {
        let Take::Taken {
            version,
            effects,
            redelivered: false,
            ..
        } = self.tables.take()
        else {
            panic!("the next buffer is not ready");
        };
        self.event(EventType::Take, &effects).version = Some(version);
    }

    pub(super) fn publish(&mut self, version: u64) {
        self.tables.publish(Version(version)).expect("a publish");
        self.event(EventType::Publish, &[]).version = Some(Version(version));
    }

    pub(super) fn prune(&mut self, version: u64, letters: &str) {
        let prune = |id: TrajectoryId| self.tables.prune(id).expect("a batch that is not kept");
        let effects: Vec<Effect> = ids(letters).into_iter().map(prune).collect();
        self.event(EventType::Prune, &effects).version = Some(Version(version));
    }

    pub(super) fn change(&mut self, config: RunConfig) {
        self.tables.set_config(config.clone()).expect("a change");
        self.event(EventType::RunChanged, &[]).config = Some(config);
    }

    /// Logs a step with these effects, right or wrong; the journal's own tables do not follow it.
    pub(super) fn event(&mut self, event_type: EventType, effects: &[Effect]) -> &mut Event {
        let logged = |effect: &Effect| LoggedEffect {
            effect: effect.clone(),
            prompt: None,
            payload: None,
        };
        let event = Event {
            effects: effects.iter().map(logged).collect(),
            ..Event::new(self.events.len() as u64 + 1, event_type)
        };
        self.events.push(event);
        self.events.last_mut().expect("it was just logged")
    }

    /// The last event, to be spoilt.
    pub(super) fn last(&mut self) -> &mut Event {
        self.events.last_mut().expect("an event")
    }
}
