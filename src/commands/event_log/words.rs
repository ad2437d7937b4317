//! An event in words, for a person: a line of what happened, and a line for each effect.

use std::fmt::Display;

use crate::protocol::{DrainQueue, Event, EventType, ResumeMode};

/// How many effects of an event are told.
const MOST_EFFECTS: usize = 8;

/// What happened, then the first effects of it, as in `12  reserve  version 0  worker rollout-1`. When is not told.
pub(in crate::commands) fn in_words(event: &Event) -> Vec<String> {
    let mut lines = vec![headline(event)];
    let told = event.effects.iter().take(MOST_EFFECTS);
    lines.extend(told.map(|logged| match &logged.prompt {
        Some(prompt) => format!("{}, for prompt {prompt}", logged.effect),
        None => logged.effect.to_string(),
    }));
    if event.effects.len() > MOST_EFFECTS {
        lines.push(format!("and {} more", event.effects.len() - MOST_EFFECTS));
    }
    lines
}

fn headline(event: &Event) -> String {
    let mut words = vec![event.seq.to_string(), word(event.event_type)];
    let mut add = |what: &str, value: Option<&dyn Display>| {
        if let Some(value) = value {
            words.push(format!("{what} {value}"));
        }
    };
    add("version", event.version.as_ref().map(|version| version as &dyn Display));
    add("from entry", event.offset.as_ref().map(|offset| offset as &dyn Display));
    add("entries", event.entries.as_ref().map(|entries| entries as &dyn Display));
    add("worker", event.worker.as_ref().map(|worker| worker as &dyn Display));
    add("trainer", event.trainer.as_ref().map(|trainer| trainer as &dyn Display));
    add(
        "resumed from",
        event.resumed_from.as_ref().map(|version| version as &dyn Display),
    );
    add("as", event.reason.as_ref().map(|reason| reason as &dyn Display));
    add(
        "prompts",
        event
            .fed
            .map(|_| event.prompts.len())
            .as_ref()
            .map(|count| count as &dyn Display),
    );
    add("fed in all", event.fed.as_ref().map(|fed| fed as &dyn Display));
    add("note", event.note.as_ref().map(|note| note as &dyn Display));
    for (holds, mark) in [
        (event.mode == Some(ResumeMode::Rewind), "rewind"),
        (event.force, "forced"),
        (event.behind, "after lost writes"),
        (event.replayed, "replayed"),
        (event.late, "late"),
        (event.is_final, "final"),
        (event.requeue, "its prompt is to be tried again"),
        (event.drain == Some(true), "begins"),
        (event.drain == Some(false), "is called off"),
        (event.queue == Some(DrainQueue::Keep), "the queue is kept"),
    ] {
        if holds {
            words.push(mark.to_owned());
        }
    }
    words.join("  ")
}

/// The word that the log has for the kind of step.
fn word(event_type: EventType) -> String {
    let word = serde_json::to_value(event_type).ok();
    word.and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_default()
}
