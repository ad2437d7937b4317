//! The event log as a reader has it who has nothing else.

use std::collections::BTreeMap;

use berth::protocol::audit::Auditor;
use berth::protocol::{Effect, Event, EventType, Place, TrajectoryId};
use serde_json::Value;

use crate::support::{Run, wait_for};

/// All events of a run, read in pages of seven.
pub(crate) async fn events(run: &Run) -> Vec<Event> {
    let mut events = Vec::new();
    let mut after = Some(0);
    while let Some(seq) = after {
        let page = run.get(&format!("events?after={seq}&limit=7")).await.ok();
        let read: Vec<Event> = serde_json::from_value(page["events"].clone()).expect("events");
        events.extend(read);
        after = page["next"].as_u64();
    }
    events
}

/// Holds the log of a run against the protocol, and the tables that it tells of against those that the server shows.
pub(crate) async fn is_sound(run: &Run) {
    let (events, status) = is_lawful(run).await;
    // Which entries are taken in pieces is told by their number alone.
    assert_eq!(drawn(&events, &status), run.tables().await.replace('*', ""));
}

/// Holds the log of a run against the protocol, and nothing else: also of one with entries that have no prompt to be drawn by.
pub(crate) async fn is_lawful(run: &Run) -> (Vec<Event>, Value) {
    // The server may forget old batches meanwhile.
    let (events, status) = wait_for("the whole log was read", async || {
        let events = events(run).await;
        let status = run.get("").await.ok();
        let last = events.last().expect("an event").seq;
        (status["seq"] == last).then_some((events, status))
    })
    .await;
    let mut auditor = Auditor::new();
    for event in &events {
        auditor.apply(event);
    }
    assert_eq!(auditor.violations(), []);
    is_without_gaps(&events);
    (events, status)
}

/// A run that was created again goes on from the numbers of the old one; what ends that a run is behind passes over those of
/// the writes that were lost, and says so.
fn is_without_gaps(events: &[Event]) {
    assert_eq!(events[0].event_type, EventType::RunCreated);
    for pair in events.windows(2) {
        let (before, event) = (pair[0].seq, &pair[1]);
        match event.raised_from {
            Some(said) => assert!(said == before && event.seq > before, "{event:?}"),
            None => assert_eq!(event.seq, before + 1),
        }
    }
}

/// The tables after these events, by nothing but their effects, in the drawing of `Run::tables`.
fn drawn(events: &[Event], status: &Value) -> String {
    // Of each entry: where it is, and how it is drawn. One that finishes leaves its slot before others move into it, so that
    // entries and not slots are followed; those of a batch keep their place, from which a rewind may bring them back.
    let mut entries: BTreeMap<TrajectoryId, (Place, String)> = BTreeMap::new();
    for event in events {
        for logged in &event.effects {
            let id = logged.effect.id();
            let is_gone = matches!(logged.effect, Effect::Discarded { .. } | Effect::Pruned { .. });
            if logged.effect.to().is_none() && !is_gone {
                continue;
            }
            let drawn = entries.remove(&id).map(|(_, drawn)| drawn);
            let Some(to) = logged.effect.to() else { continue };
            let drawn = match logged.effect {
                Effect::Occupied { .. } => drawn.map(|drawn| drawn.to_uppercase()),
                _ => drawn.or(logged.prompt.clone()),
            };
            entries.insert(id, (to, drawn.expect("an entry that was reserved for a prompt")));
        }
    }
    let slots: BTreeMap<Place, String> = entries.into_values().collect();
    let number = |field: &Value| field.as_u64().expect("a number");
    let first = number(&status["next_buffer"]);
    let last = number(&status["policy_version"]) + number(&status["config"]["max_staleness"]);
    let size = u32::try_from(number(&status["config"]["slots_per_buffer"])).expect("a small number");
    let draw_slot = |place: Place| slots.get(&place).map_or(".", String::as_str);
    let draw = |buffer: u64| {
        let slots: Vec<_> = (0..size).map(|slot| draw_slot(Place::new(buffer, slot))).collect();
        slots.join(" ")
    };
    (first..=last).map(draw).collect::<Vec<_>>().join(" | ")
}
