//! Logs that are broken as logs: events missing or doubled, and effects that nothing can follow.

use super::{Journal, audit, found, four_reserved, in_letters};
use crate::protocol::notation::{config, id, ids};
use crate::protocol::{Effect, EventType, Place, RunConfig, Version};

#[test]
fn a_missing_event() {
    let mut journal = four_reserved();
    journal.event(EventType::Claim, &[]);
    journal.occupy("a");
    journal.events.remove(2);
    assert_eq!(found(&journal), ["event 4: sequence: the next event is 3"]);
}

#[test]
fn an_event_that_came_twice() {
    let mut journal = four_reserved();
    let again = journal.last().clone();
    journal.events.push(again);
    let found = found(&journal);
    assert_eq!(found[0], "event 2: sequence: the next event is 3");
    assert_eq!(
        found[1],
        "event 2: a reserve that is to be refused: a was admitted before"
    );
}

#[test]
fn a_log_without_its_beginning() {
    let mut journal = four_reserved();
    journal.occupy("a");
    journal.events.remove(0);
    let auditor = audit(&journal.events);
    assert_eq!(
        in_letters(&auditor),
        ["event 2: cannot go on: a log begins with run_created"]
    );
    assert_eq!(auditor.report().events, 2);
}

#[test]
fn a_configuration_that_no_run_can_have() {
    for broken in [
        RunConfig {
            batch_size: 0,
            ..config(1, 1, 1)
        },
        RunConfig {
            batch_size: u32::MAX,
            ..config(1, 1, 1)
        },
        RunConfig {
            slots_per_buffer: 1,
            ..config(2, 2, 1)
        },
        RunConfig {
            slots_per_buffer: 69,
            ..config(2, 2, 1)
        },
        RunConfig {
            max_staleness: u64::MAX,
            ..config(1, 1, 1)
        },
        RunConfig {
            initial_version: u64::MAX,
            ..config(1, 1, 1)
        },
    ] {
        let mut journal = Journal::new(config(1, 1, 1));
        journal.last().config = Some(broken);
        assert_eq!(
            found(&journal),
            ["event 1: cannot go on: the configuration is out of bounds"]
        );
    }
}

#[test]
fn a_run_created_twice() {
    let mut journal = four_reserved();
    journal.event(EventType::RunCreated, &[]).config = Some(config(2, 2, 1));
    journal.occupy("a");
    assert_eq!(found(&journal), ["event 3: the run was created before"]);
}

#[test]
fn a_fixed_part_of_the_configuration_that_changed() {
    let mut journal = four_reserved();
    journal.event(EventType::RunChanged, &[]).config = Some(config(2, 2, 2));
    journal.occupy("a");
    assert_eq!(
        found(&journal),
        ["event 3: only a run's limits of time and number can change"]
    );
}

#[test]
fn an_event_without_what_its_kind_needs() {
    let mut journal = four_reserved();
    journal.last().version = None;
    journal.discard(EventType::Discard, "a", "failed");
    journal.last().reason = None;
    journal.occupy("b");
    assert_eq!(
        found(&journal),
        ["event 2: the event has no version", "event 3: the event has no reason"]
    );
}

#[test]
fn two_entries_in_one_slot_end_the_audit() {
    let mut journal = four_reserved();
    let effect = Effect::Occupied {
        id: id('a'),
        from: Place::new(1, 1),
        to: Place::new(0, 0),
    };
    journal.event(EventType::Occupy, &[effect]).ids = ids("a");
    journal.event(EventType::Take, &[]).version = Some(Version(0));
    let auditor = audit(&journal.events);
    assert_eq!(
        in_letters(&auditor).last().expect("a finding"),
        "event 3: cannot go on: a and d are both said to be in slot 0 of buffer 0"
    );
    assert_eq!(auditor.report().events, 4);
}

#[test]
fn places_that_do_not_exist_end_the_audit() {
    for place in [Place::new(2, 0), Place::new(0, 2), Place::new(u64::MAX, u32::MAX)] {
        let mut journal = four_reserved();
        let effect = Effect::Reserved {
            id: id('e'),
            version: Version(0),
            to: place,
        };
        journal.event(EventType::Reserve, &[effect]);
        let expected = format!("event 3: cannot go on: there is no {place}, where e is said to be");
        assert_eq!(found(&journal).last(), Some(&expected));
    }
}
