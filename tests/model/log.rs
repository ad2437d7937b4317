//! The log that a run of the model would write, and what can happen to a log.

use berth::protocol::{
    BufferId, Effect, Event, EventType, LoggedEffect, Place, Reason, RunConfig, Slot, TrajectoryId, Version,
};
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
}

impl Log {
    pub(crate) fn of(config: RunConfig) -> Self {
        let mut log = Self { events: Vec::new() };
        log.event(EventType::RunCreated, &[]).config = Some(config);
        log
    }

    pub(crate) fn event(&mut self, event_type: EventType, effects: &[Effect]) -> &mut Event {
        let seq = self.events.len() as u64 + 1;
        self.events.push(event(seq, event_type, effects));
        self.events.last_mut().expect("it was just logged")
    }
}

fn event(seq: u64, event_type: EventType, effects: &[Effect]) -> Event {
    let logged = |effect: &Effect| LoggedEffect {
        effect: effect.clone(),
        prompt: None,
        payload: None,
    };
    Event {
        effects: effects.iter().map(logged).collect(),
        ..Event::new(seq, event_type)
    }
}

/// Something that happens to a log, and that an audit must find.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    /// An event that is not the last is lost.
    Lost(Index),
    /// An event comes twice.
    Doubled(Index),
    /// An event and the one after it come in the wrong order.
    Swapped(Index),
    /// An effect is lost.
    EffectLost(Index),
    /// An effect tells another effect of the same log.
    EffectReplaced(Index, Index),
    /// An event that nobody wrote comes in between.
    Intruding(Index, Box<Event>),
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    prop_oneof![
        index().prop_map(Damage::Lost),
        index().prop_map(Damage::Doubled),
        index().prop_map(Damage::Swapped),
        index().prop_map(Damage::EffectLost),
        (index(), index()).prop_map(|(one, other)| Damage::EffectReplaced(one, other)),
        (index(), intruder()).prop_map(|(at, event)| Damage::Intruding(at, Box::new(event))),
    ]
}

/// Damages the log; `false` if there was nothing to be damaged.
pub(crate) fn suffer(events: &mut Vec<Event>, damage: &Damage) -> bool {
    match damage {
        Damage::Lost(index) => {
            let before_last = events.len() - 1;
            if before_last == 0 {
                return false;
            }
            events.remove(index.index(before_last));
        }
        Damage::Doubled(index) => {
            let at = index.index(events.len());
            events.insert(at, events[at].clone());
        }
        Damage::Swapped(index) => {
            if events.len() == 1 {
                return false;
            }
            let at = index.index(events.len() - 1);
            events.swap(at, at + 1);
        }
        Damage::EffectLost(index) => {
            let effects = effects(events);
            if effects.is_empty() {
                return false;
            }
            let (event, effect) = effects[index.index(effects.len())];
            events[event].effects.remove(effect);
        }
        Damage::EffectReplaced(one, other) => {
            let effects = effects(events);
            if effects.is_empty() {
                return false;
            }
            let (to_event, to) = effects[one.index(effects.len())];
            let (from_event, from) = effects[other.index(effects.len())];
            let replacement = events[from_event].effects[from].clone();
            if events[to_event].effects[to] == replacement {
                return false;
            }
            events[to_event].effects[to] = replacement;
        }
        Damage::Intruding(index, event) => {
            let at = index.index(events.len() + 1);
            events.insert(at, (**event).clone());
        }
    }
    true
}

/// Where the effects of the log stand: of which event, and which of its own.
fn effects(events: &[Event]) -> Vec<(usize, usize)> {
    let of_event = |(event, logged): (usize, &Event)| (0..logged.effects.len()).map(move |effect| (event, effect));
    events.iter().enumerate().flat_map(of_event).collect()
}

/// An event that was made up, with numbers that make sense and numbers that make none.
fn intruder() -> impl Strategy<Value = Event> {
    let event_type = prop::sample::select(vec![
        EventType::RunCreated,
        EventType::RunChanged,
        EventType::SessionOpened,
        EventType::Reserve,
        EventType::Occupy,
        EventType::Discard,
        EventType::Expire,
        EventType::Claim,
        EventType::Heartbeat,
        EventType::Take,
        EventType::Publish,
        EventType::Prune,
    ]);
    let reason = prop::option::of(Just(Reason::LeaseExpired));
    let version = prop::option::of(number().prop_map(Version));
    let effects = prop::collection::vec(effect(), 0..5);
    let ids = prop::collection::vec(id(), 0..5);
    (event_type, reason, version, any::<bool>(), ids, effects).prop_map(
        |(event_type, reason, version, late, ids, effects)| Event {
            reason,
            version,
            late,
            ids,
            ..event(0, event_type, &effects)
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    (0..6, id(), number().prop_map(Version), place(), place()).prop_map(|(kind, id, version, from, to)| match kind {
        0 => Effect::Reserved { id, version, to },
        1 => Effect::Moved { id, from, to },
        2 => Effect::Occupied { id, from, to },
        3 => Effect::Promoted { id, from, to },
        4 => Effect::Discarded {
            id,
            reason: Reason::Surplus,
            from,
        },
        _ => Effect::Pruned { id },
    })
}

fn id() -> impl Strategy<Value = TrajectoryId> {
    (0..100_u128).prop_map(|n| TrajectoryId(Uuid::from_u128(n)))
}

fn place() -> impl Strategy<Value = Place> {
    (number(), prop_oneof![9 => 0..5_u32, 1 => any::<u32>()]).prop_map(|(buffer, slot)| Place {
        buffer: BufferId(buffer),
        slot: Slot(slot),
    })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..20_u64, 1 => any::<u64>()]
}
