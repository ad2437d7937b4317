//! The log that a run of the model would write, and what can happen to a log.

use berth::protocol::{
    Attempt, BufferId, Effect, Epoch, Event, EventType, FedPrompt, FeedPosition, Lineage, LoggedEffect, Place,
    PromptState, Reason, ResumeMode, RunConfig, Slot, TrajectoryId, Version,
};
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
}

impl Log {
    /// Of a run that goes on from a deleted one's epoch and lineage, if any are given.
    pub(crate) fn of(config: RunConfig, from: Option<(Epoch, Lineage)>) -> Self {
        let mut log = Self { events: Vec::new() };
        let event = log.event(EventType::RunCreated, &[]);
        event.config = Some(config);
        (event.epoch, event.lineage) = from.unzip();
        log
    }

    pub(crate) fn seq(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq)
    }

    pub(crate) fn event(&mut self, event_type: EventType, effects: &[Effect]) -> &mut Event {
        let seq = self.seq() + 1;
        self.events.push(event(seq, event_type, effects));
        self.events.last_mut().expect("it was just logged")
    }
}

fn event(seq: u64, event_type: EventType, effects: &[Effect]) -> Event {
    let logged = |effect: &Effect| LoggedEffect::from(effect.clone());
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
    /// A trainer session says another policy version.
    PolicyVersion(Index),
    /// A trainer session has the epoch of none.
    EpochLost(Index),
    /// A trainer session says that it began another lineage, or none.
    LineageChanged(Index),
    /// A trainer session does not say where `seq` rose from.
    RiseUnsaid(Index),
    /// A delivery in a replay is not marked, or another one is.
    ReplayedFlipped(Index),
    /// A delivery or a checkpoint is of a version that the trainer has not reached.
    FromTheFuture(Index),
    /// A piece is taken from further back, or further on, than where the one before ended.
    PieceShifted(Index, bool),
    /// A piece has more entries than a batch.
    PieceLonger(Index),
    /// A batch is marked as the last one and is not, or is and not marked.
    FinalFlipped(Index),
    /// A drain does not say whether it begins or ends.
    DrainUnsaid(Index),
    /// A reserve names a lineage that the run has not reached.
    LineageFromTheFuture(Index),
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
        index().prop_map(Damage::PolicyVersion),
        index().prop_map(Damage::EpochLost),
        index().prop_map(Damage::LineageChanged),
        index().prop_map(Damage::RiseUnsaid),
        index().prop_map(Damage::ReplayedFlipped),
        index().prop_map(Damage::FromTheFuture),
        index().prop_map(Damage::LineageFromTheFuture),
        (index(), any::<bool>()).prop_map(|(at, on)| Damage::PieceShifted(at, on)),
        index().prop_map(Damage::PieceLonger),
        index().prop_map(Damage::FinalFlipped),
        index().prop_map(Damage::DrainUnsaid),
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
            // How much of a batch one step forgets is the ledger's choice: a log that tells of less is as good.
            let mut effects = effects(events);
            // Nor does it show that fewer members, or no segments, were reported with an occupy.
            effects.retain(|(event, effect)| {
                let event = &events[*event];
                event.event_type != EventType::Prune && !is_optional(event, &event.effects[*effect].effect)
            });
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
        Damage::PolicyVersion(index) => {
            return spoil(events, *index, &[EventType::TrainerOpened], |event| {
                event.policy_version = event.policy_version.map(|version| Version(version.0 + 1));
                true
            });
        }
        Damage::EpochLost(index) => {
            return spoil(events, *index, &[EventType::TrainerOpened], |event| {
                event.epoch = Some(Epoch(0));
                true
            });
        }
        Damage::LineageChanged(index) => {
            return spoil(events, *index, &[EventType::TrainerOpened], |event| {
                let began = event.lineage.is_some();
                event.lineage = (!began).then_some(Lineage(1));
                true
            });
        }
        Damage::RiseUnsaid(index) => {
            return spoil(events, *index, &[EventType::TrainerOpened], |event| {
                let rose = event.raised_from.take();
                rose.is_some_and(|before| before + 1 < event.seq)
            });
        }
        Damage::ReplayedFlipped(index) => {
            return spoil(events, *index, &[EventType::Deliver], |event| {
                event.replayed = !event.replayed;
                true
            });
        }
        Damage::FromTheFuture(index) => {
            let types = [EventType::Deliver, EventType::Checkpoint];
            return spoil(events, *index, &types, |event| {
                event.version = event.version.map(|version| Version(version.0 + 1_000_000));
                true
            });
        }
        Damage::LineageFromTheFuture(index) => {
            return spoil(events, *index, &[EventType::Reserve], |event| {
                event.lineage = Some(Lineage(1_000_000));
                true
            });
        }
        of_pieces @ (Damage::PieceShifted(..)
        | Damage::PieceLonger(_)
        | Damage::FinalFlipped(_)
        | Damage::DrainUnsaid(_)) => {
            return spoil_pieces(events, of_pieces);
        }
        Damage::Intruding(index, event) => {
            let at = index.index(events.len() + 1);
            events.insert(at, (**event).clone());
        }
    }
    true
}

/// Spoils what is told of pieces of a batch, or of a run's end; `false` if nothing was.
fn spoil_pieces(events: &mut [Event], damage: &Damage) -> bool {
    match damage {
        Damage::PieceShifted(index, on) => {
            let change = if *on {
                |event: &mut Event| {
                    event.offset = event.offset.map(|offset| offset + 1);
                    true
                }
            } else {
                |event: &mut Event| {
                    event.offset = event.offset.map(|offset| offset.saturating_sub(1));
                    event.entries > Some(0) && event.offset > Some(0)
                }
            };
            spoil(events, *index, &[EventType::Stream], change)
        }
        Damage::PieceLonger(index) => spoil(events, *index, &[EventType::Stream], |event| {
            event.entries = event.entries.map(|entries| entries + 1_000);
            true
        }),
        Damage::FinalFlipped(index) => spoil(events, *index, &[EventType::Stream, EventType::Take], |event| {
            event.is_final = !event.is_final;
            true
        }),
        Damage::DrainUnsaid(index) => spoil(events, *index, &[EventType::Drain], |event| {
            event.drain = None;
            true
        }),
        _ => false,
    }
}

/// Spoils one of the events of these kinds; `false` if there is none, or `change` spoilt nothing.
fn spoil(events: &mut [Event], index: Index, types: &[EventType], change: fn(&mut Event) -> bool) -> bool {
    let mut of_these: Vec<&mut Event> = events
        .iter_mut()
        .filter(|event| types.contains(&event.event_type))
        .collect();
    if of_these.is_empty() {
        return false;
    }
    let at = index.index(of_these.len());
    change(of_these[at])
}

/// Whether the event would be as good without this effect, which a client reported.
fn is_optional(event: &Event, effect: &Effect) -> bool {
    let is_member = |effect: &Effect| matches!(effect, Effect::Member { .. });
    let members = event.effects.iter().filter(|logged| is_member(&logged.effect)).count();
    match effect {
        Effect::Member { .. } => members > 1,
        Effect::Continued { .. } => event.event_type == EventType::Occupy,
        _ => false,
    }
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
        EventType::Member,
        EventType::Segment,
        EventType::Discard,
        EventType::Expire,
        EventType::Claim,
        EventType::Heartbeat,
        EventType::Take,
        EventType::Publish,
        EventType::Prune,
        EventType::Deliver,
        EventType::TrainerOpened,
        EventType::Checkpoint,
        EventType::Feed,
        EventType::Stream,
        EventType::Drain,
    ]);
    let reason = prop::option::of(Just(Reason::LeaseExpired));
    let version = prop::option::of(number().prop_map(Version));
    let effects = prop::collection::vec(effect(), 0..5);
    let piece = (prop::option::of(number()), prop::option::of(number()));
    let ids = prop::collection::vec(id(), 0..5);
    let step = (event_type, reason, version, any::<bool>(), ids, effects);
    let prompt = FedPrompt {
        id: "q".to_owned(),
        expected_tokens: None,
    };
    let fed = (
        prop::option::weighted(0.8, number()),
        prop::collection::vec(Just(prompt), 0..3),
    );
    (step, piece, fed, session()).prop_map(
        |((event_type, reason, version, mark, ids, effects), piece, (fed, prompts), session)| Event {
            fed,
            prompts,
            reason,
            version,
            late: mark,
            replayed: mark,
            requeue: mark,
            is_final: mark,
            drain: Some(mark),
            offset: piece.0,
            entries: piece.1,
            ids,
            seq: 0,
            event_type,
            effects: event(0, event_type, &effects).effects,
            ..session
        },
    )
}

/// What a made-up trainer session says.
fn session() -> impl Strategy<Value = Event> {
    let mode = prop::option::of(prop::sample::select(vec![ResumeMode::Replay, ResumeMode::Rewind]));
    let maybe = || prop::option::weighted(0.8, number());
    let marks = any::<(bool, bool)>();
    (maybe(), maybe(), maybe(), maybe(), maybe(), mode, marks).prop_map(
        |(resumed_from, policy_version, epoch, lineage, raised_from, mode, (force, behind))| Event {
            resumed_from: resumed_from.map(Version),
            policy_version: policy_version.map(Version),
            epoch: epoch.map(Epoch),
            lineage: lineage.map(Lineage),
            raised_from,
            mode,
            force,
            behind,
            ..Event::new(0, EventType::TrainerOpened)
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    let states = vec![
        PromptState::Queued,
        PromptState::InFlight,
        PromptState::Trained,
        PromptState::Failed,
    ];
    let prompt = (number(), prop::sample::select(states), 0..5_u32);
    let of_place = (0..12, id(), number().prop_map(Version), place(), place());
    (of_place, prompt, 0..4_u32).prop_map(|((kind, id, version, from, to), (position, state, attempt), index)| {
        match kind {
            0 => Effect::Reserved { id, version, to },
            1 => Effect::Moved { id, from, to },
            2 => Effect::Occupied { id, from, to },
            3 => Effect::Promoted { id, from, to },
            4 => Effect::Discarded {
                id,
                reason: Reason::Surplus,
                from,
            },
            5 => Effect::Replaced { id, from, to },
            6 => Effect::Prompt {
                id,
                position: FeedPosition(position),
                state,
                attempt: Attempt(attempt),
            },
            7 => Effect::Member {
                id,
                index,
                failed: index == 0,
                version: Some(version),
                newest: None,
                reward: None,
            },
            8 => Effect::Continued { id, version },
            9 => Effect::Orphaned { id },
            10 => Effect::Adopted { id },
            _ => Effect::Pruned { id },
        }
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
