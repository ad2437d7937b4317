//! Good logs pass, and each kind of fault planted into one is found.

mod adoption_faults;
mod broken_logs;
mod faults;
mod group_faults;
mod groups;
mod journal;
mod pieces;
mod prompts;
mod trainer;

use super::{Auditor, BatchReport, Finding, Report};
use crate::protocol::notation::{config, id};
use crate::protocol::{Event, EventType, RunConfig, Version};
use journal::Journal;

fn audit(events: &[Event]) -> Auditor {
    let mut auditor = Auditor::new();
    for event in events {
        auditor.apply(event);
    }
    auditor
}

/// What is found, as it is told.
fn told(auditor: &Auditor) -> Vec<String> {
    auditor.violations().iter().map(Finding::to_string).collect()
}

/// `B = S = 2`, `η = 1`; a to d reserved: buffer 0 is `d c`, buffer 1 `b a`.
fn four_reserved() -> Journal {
    let mut journal = Journal::new(config(2, 2, 1));
    journal.reserve(0, "abcd");
    journal
}

/// Two batches of one entry each, a and b; the second is in training.
fn two_batches(keep_batches: u64) -> Journal {
    let mut journal = Journal::new(RunConfig {
        keep_batches,
        ..config(1, 1, 1)
    });
    journal.reserve(0, "ab");
    journal.occupy("ab");
    journal.take();
    journal.publish(1);
    journal.take();
    journal
}

/// What is told of a log, with ids as the letters that they stand for.
fn found(journal: &Journal) -> Vec<String> {
    in_letters(&audit(&journal.events))
}

fn in_letters(auditor: &Auditor) -> Vec<String> {
    let mut told = told(auditor);
    for letter in "abcdefxyz".chars() {
        for text in &mut told {
            *text = text.replace(&id(letter).to_string(), &letter.to_string());
        }
    }
    told
}

#[test]
fn a_good_run_is_reported_without_a_finding() {
    let mut journal = Journal::new(RunConfig {
        keep_batches: 1,
        ..config(2, 2, 1)
    });
    journal.event(EventType::SessionOpened, &[]);
    journal.reserve(0, "abcd");
    journal.event(EventType::Heartbeat, &[]).version = Some(Version(0));
    journal.occupy("ab");
    journal.discard(EventType::Expire, "cd", "lease_expired");
    journal.occupy("c");
    journal.take();
    journal.publish(1);
    journal.publish(0);
    journal.change(RunConfig {
        keep_batches: 1,
        max_concurrency: Some(2),
        ..config(2, 2, 1)
    });
    journal.reserve(1, "ef");
    journal.event(EventType::Claim, &[]);
    journal.occupy("e");
    journal.discard(EventType::Discard, "e", "filtered");
    journal.occupy("f");
    journal.take();
    journal.prune(0, "ab");

    let auditor = audit(&journal.events);
    assert_eq!(told(&auditor), Vec::<String>::new());
    let expected = Report {
        events: 19,
        reserved: 6,
        occupied: 5,
        late: 1,
        discarded: [("filtered".to_owned(), 1), ("lease_expired".to_owned(), 2)].into(),
        takes: 2,
        batches: vec![
            BatchReport {
                version: Version(0),
                entries: 2,
                staleness: [(0, 2)].into(),
            },
            BatchReport {
                version: Version(1),
                entries: 2,
                staleness: [(0, 1), (1, 1)].into(),
            },
        ],
        ..Report::default()
    };
    assert_eq!(auditor.report(), &expected);
}

#[test]
fn a_good_run_with_oversampling_is_reported_without_a_finding() {
    let mut journal = Journal::new(config(1, 2, 1));
    journal.reserve(0, "abcd");
    journal.occupy("ad");
    journal.take();
    journal.publish(1);
    journal.take();
    journal.publish(2);
    journal.reserve(2, "efg");

    let auditor = audit(&journal.events);
    assert_eq!(told(&auditor), Vec::<String>::new());
    assert_eq!(auditor.report().discarded, [("surplus".to_owned(), 2)].into());
    assert_eq!(auditor.report().batches.len(), 2);
}

#[test]
fn several_entries_may_be_occupied_in_one_event() {
    let mut journal = Journal::new(config(2, 2, 1));
    journal.reserve(0, "abcd");
    journal.occupy("abc");
    let mut events = journal.events;
    let last = events.split_off(3);
    for event in last {
        events[2].ids.extend(event.ids);
        events[2].effects.extend(event.effects);
    }
    assert_eq!(told(&audit(&events)), Vec::<String>::new());
}

#[test]
fn a_run_under_the_name_of_a_deleted_one_goes_on_from_its_seq() {
    let mut journal = Journal::new(config(2, 2, 1));
    journal.reserve(0, "a");
    for event in &mut journal.events {
        event.seq += 70;
    }
    assert_eq!(told(&audit(&journal.events)), Vec::<String>::new());
}
