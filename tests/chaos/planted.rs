//! The checks must be able to fail: faults planted in a small log and in small diaries are found.

use berth::protocol::{Effect, Epoch, Event, EventType, Lineage, LoggedEffect, Place, TrajectoryId, Version};
use uuid::Uuid;

use crate::checks::of_the_workers;
use crate::diary::{Entry, Line, Opened, Trained, TrainedEntry};
use crate::history::History;
use crate::rehearsal::Config;
use crate::trainer_log;

const CONFIG: Config = Config {
    batch_size: 2,
    slots_per_buffer: 2,
    max_staleness: 1,
    lease_ms: 1_000,
    max_concurrency: None,
};

fn id(number: u128) -> TrajectoryId {
    TrajectoryId(Uuid::from_u128(number))
}

fn event(event_type: EventType, version: u64, effects: &[Effect]) -> Event {
    let mut event = Event::new(0, event_type);
    event.version = Some(Version(version));
    let logged = effects.iter().cloned().map(LoggedEffect::from);
    event.effects = logged.collect();
    event
}

fn reserved(number: u128, buffer: u64, slot: u32) -> Effect {
    Effect::Reserved {
        id: id(number),
        version: Version(0),
        to: Place::new(buffer, slot),
    }
}

fn occupied(number: u128, from: (u64, u32), to: (u64, u32)) -> Effect {
    Effect::Occupied {
        id: id(number),
        from: Place::new(from.0, from.1),
        to: Place::new(to.0, to.1),
    }
}

fn opened(epoch: u64, checkpoint: u64, policy_version: u64, lineage: u64, effects: &[Effect]) -> Event {
    let mut opened = event(EventType::TrainerOpened, 0, effects);
    opened.version = None;
    opened.epoch = Some(Epoch(epoch));
    opened.resumed_from = Some(Version(checkpoint));
    opened.policy_version = Some(Version(policy_version));
    opened.lineage = (lineage > 0).then_some(Lineage(lineage));
    opened
}

/// Two entries are reserved, finished and taken; version 1 is published.
fn log() -> Vec<Event> {
    vec![
        event(EventType::RunCreated, 0, &[]),
        opened(1, 0, 0, 0, &[]),
        event(EventType::Reserve, 0, &[reserved(1, 0, 1), reserved(2, 0, 0)]),
        event(EventType::Occupy, 0, &[occupied(2, (0, 0), (0, 0))]),
        event(EventType::Occupy, 0, &[occupied(1, (0, 1), (0, 1))]),
        event(EventType::Take, 0, &[]),
        event(EventType::Publish, 1, &[]),
    ]
}

/// The same log after a rewind to 0, which re-placed both.
fn rewound() -> Vec<Event> {
    let again = |number, slot| Effect::Replaced {
        id: id(number),
        from: Place::new(0, slot),
        to: Place::new(0, slot),
    };
    let mut log = log();
    log.push(opened(2, 0, 0, 1, &[again(2, 0), again(1, 1)]));
    log
}

fn history(mut log: Vec<Event>) -> History {
    for (seq, event) in (1..).zip(&mut log) {
        event.seq = seq;
    }
    History::of(&log, CONFIG)
}

fn lines(entries: Vec<Entry>) -> Vec<Line> {
    entries.into_iter().map(|entry| Line { at_ms: 0, entry }).collect()
}

fn trained(epoch: u64, ids: [u128; 2]) -> Entry {
    let entries = ids.map(|number| TrainedEntry {
        id: id(number),
        version: 0,
    });
    Entry::Trained(Trained {
        epoch,
        version: 0,
        redelivered: false,
        replayed: false,
        entries: entries.to_vec(),
    })
}

fn session(epoch: u64, trainer_version: u64, policy_version: u64, lineage: u64) -> Entry {
    Entry::Opened(Opened {
        resume_from: None,
        mode: "replay".to_owned(),
        force: false,
        epoch,
        trainer_version,
        policy_version,
        lineage,
    })
}

fn published(version: u64) -> Entry {
    Entry::Published {
        epoch: 1,
        version,
        policy_version: version,
        lineage: 0,
    }
}

#[test]
fn a_log_and_diaries_that_fit_have_no_problems() {
    for log in [log(), rewound()] {
        let history = history(log);
        assert_eq!(history.problems, Vec::<String>::new());
        let worker = lines(vec![
            Entry::Occupied { id: id(1), late: false },
            Entry::Occupied { id: id(2), late: false },
        ]);
        assert_eq!(of_the_workers(&worker, &history), Vec::<String>::new());
        let trainer = lines(vec![session(1, 0, 0, 0), trained(1, [2, 1]), published(1)]);
        assert_eq!(trainer_log::problems(&trainer, &history), Vec::<String>::new());
    }
}

#[test]
fn faults_in_the_log_are_found() {
    let too_small = [&log()[..4], &log()[5..]].concat();
    let mut beyond_the_bound = log();
    beyond_the_bound.insert(3, event(EventType::Reserve, 0, &[reserved(3, 2, 0)]));
    let mut in_one_slot = log();
    in_one_slot.insert(3, event(EventType::Reserve, 0, &[reserved(3, 0, 0)]));
    let mut not_next = log();
    not_next.push(event(EventType::Publish, 3, &[]));
    let mut abandoned_weights = rewound();
    abandoned_weights.extend([event(EventType::Take, 0, &[]), event(EventType::Publish, 1, &[])]);
    let mut current_weights = event(EventType::Reserve, 1, &[]);
    current_weights.lineage = Some(Lineage(1));
    abandoned_weights.push(current_weights);
    assert_eq!(history(abandoned_weights.clone()).problems, Vec::<String>::new());
    abandoned_weights.push(event(EventType::Reserve, 1, &[]));
    for (fault, log) in [
        ("a batch is too small", too_small),
        ("an entry is beyond the bound", beyond_the_bound),
        ("two entries are in one slot", in_one_slot),
        ("a version is left out", not_next),
        ("abandoned weights are admitted", abandoned_weights),
    ] {
        assert_ne!(history(log).problems, Vec::<String>::new(), "{fault}");
    }
}

#[test]
fn what_a_worker_was_told_and_did_not_happen_is_found() {
    let unfinished = [&log()[..4], &[]].concat();
    for (fault, log, told) in [
        (
            "an occupy that is not in the log",
            log(),
            Entry::Occupied { id: id(3), late: false },
        ),
        (
            "an occupy of what is still reserved",
            unfinished,
            Entry::Occupied { id: id(1), late: false },
        ),
        (
            "a discard that was not",
            log(),
            Entry::Discarded {
                id: id(1),
                reason: "failed".to_owned(),
            },
        ),
        (
            "a grant that is not in the log",
            log(),
            Entry::Granted {
                request: String::new(),
                version: 0,
                lineage: 0,
                ids: vec![id(3)],
            },
        ),
    ] {
        let problems = of_the_workers(&lines(vec![told]), &history(log));
        assert_eq!(problems.len(), 1, "{fault}: {problems:?}");
    }
}

#[test]
fn a_trainer_that_was_given_something_else_is_found() {
    for (fault, told) in [
        ("another order", vec![trained(1, [1, 2])]),
        ("another entry", vec![trained(1, [2, 3])]),
        ("another epoch", vec![trained(2, [2, 1])]),
        ("nothing at all", vec![]),
        (
            "back in one lineage",
            vec![trained(1, [2, 1]), published(1), session(2, 0, 0, 0)],
        ),
    ] {
        assert_ne!(
            trainer_log::problems(&lines(told), &history(log())),
            Vec::<String>::new(),
            "{fault}"
        );
    }
}
