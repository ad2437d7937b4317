//! Each kind of wrong step, planted into a good log.

use super::{Journal, audit, found, four_reserved, in_letters, two_batches};
use crate::protocol::notation::{config, id, ids};
use crate::protocol::{Effect, EventType, LoggedEffect, Place, Reason, Version};

fn logged(effect: Effect) -> LoggedEffect {
    LoggedEffect::from(effect)
}

#[test]
fn a_broken_bound_is_told_where_it_begins_and_only_once() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "a");
    journal.occupy("a");
    journal.take();
    journal.publish(1);
    journal.reserve(1, "b");
    journal.last().version = Some(Version(0));
    for logged in &mut journal.last().effects {
        let Effect::Reserved { version, .. } = &mut logged.effect else {
            panic!("a reserve only reserves");
        };
        *version = Version(0);
    }
    journal.event(EventType::Claim, &[]);
    assert_eq!(
        found(&journal),
        [
            "event 6: effect 0 is \"b reserved slot 0 of buffer 2 under version 0\", \
             and should be \"b reserved slot 0 of buffer 1 under version 0\"",
            "event 6: bound: b of version 0 is in buffer 2",
        ]
    );
}

#[test]
fn a_version_from_the_future() {
    let mut journal = four_reserved();
    let event = journal.event(EventType::Reserve, &[]);
    event.version = Some(Version(7));
    event.ids = ids("e");
    assert_eq!(
        found(&journal),
        ["event 3: a reserve that is to be refused: version 7 is not published, or was abandoned: the latest is 0"]
    );
}

#[test]
fn more_entries_than_there_is_room_for() {
    let mut journal = Journal::new(config(1, 2, 0));
    journal.reserve(0, "ab");
    journal.occupy("a");
    journal.last().effects.truncate(2);
    let effect = Effect::Occupied {
        id: id('b'),
        from: Place::new(0, 1),
        to: Place::new(0, 1),
    };
    journal.event(EventType::Occupy, &[effect]).ids = ids("b");
    let found = found(&journal);
    assert_eq!(
        found[0],
        "event 3: effect 2 is none, and should be \"b was discarded from slot 1 of buffer 0 as surplus\""
    );
    assert_eq!(
        found[1],
        "event 3: surplus: b is reserved in slot 1 of buffer 0 although every buffer up to its deadline is ready"
    );
    assert!(found.contains(&"event 4: capacity: buffer 0 holds 2 finished entries of at most 1".to_owned()));
}

#[test]
fn an_entry_that_occupied_a_wrong_place() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "ab");
    journal.occupy("a");
    let stays = Effect::Occupied {
        id: id('a'),
        from: Place::new(1, 0),
        to: Place::new(1, 0),
    };
    journal.last().effects = vec![logged(stays)];
    assert_eq!(
        found(&journal),
        [
            "event 3: effect 0 is \"a left slot 0 of buffer 1 and occupied slot 0 of buffer 1\", \
             and should be \"b moved from slot 0 of buffer 0 to slot 0 of buffer 1\"",
            "event 3: earliest: a occupied buffer 1 although buffer 0 leaves every other reservation a place",
        ]
    );
}

#[test]
fn a_reservation_left_in_front_of_an_empty_slot() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "ab");
    journal.discard(EventType::Discard, "a", "failed");
    journal.last().effects.truncate(1);
    assert_eq!(
        found(&journal),
        [
            "event 3: effect 1 is none, and should be \"b moved from slot 0 of buffer 0 to slot 0 of buffer 1\"",
            "event 3: packed: b is reserved in slot 0 of buffer 0 although slot 0 of buffer 1 is empty and legal for it",
        ]
    );
}

#[test]
fn a_batch_that_was_not_complete() {
    let mut journal = four_reserved();
    journal.occupy("a");
    journal.event(EventType::Take, &[]).version = Some(Version(0));
    let auditor = audit(&journal.events);
    assert_eq!(in_letters(&auditor), ["event 4: batch 0 has 1 entries, not 2"]);
    assert_eq!(auditor.report().batches[0].entries, 1);
}

#[test]
fn a_batch_taken_again_or_before_the_version_before_it() {
    let mut journal = two_batches(1);
    journal.event(EventType::Take, &[]).version = Some(Version(1));
    assert_eq!(
        found(&journal),
        ["event 8: batch 1 was taken out of turn: the trainer stands at 1, the policy version is 1, the next buffer 2"]
    );
    journal.event(EventType::Take, &[]).version = Some(Version(2));
    assert_eq!(
        found(&journal)[1..],
        [
            "event 9: batch 2 was taken out of turn: the trainer stands at 1, the policy version is 1, the next buffer 2",
            "event 9: cannot go on: the trainer is busy with the batch before",
        ]
    );
}

#[test]
fn an_entry_in_two_batches() {
    let mut journal = two_batches(1);
    journal.publish(2);
    let place = Place::new(2, 0);
    let reserved = Effect::Reserved {
        id: id('a'),
        version: Version(2),
        to: place,
    };
    let event = journal.event(EventType::Reserve, &[reserved]);
    event.version = Some(Version(2));
    event.ids = ids("a");
    let occupied = Effect::Occupied {
        id: id('a'),
        from: place,
        to: place,
    };
    journal.event(EventType::Occupy, &[occupied]).ids = ids("a");
    journal.event(EventType::Take, &[]).version = Some(Version(2));
    let found = found(&journal);
    assert_eq!(
        found[0],
        "event 9: a reserve that is to be refused: a was admitted before"
    );
    assert_eq!(
        found.last().expect("a finding"),
        "event 11: once: a is in batch 0 and in batch 2"
    );
}

#[test]
fn versions_that_do_not_rise_by_one() {
    let mut journal = two_batches(1);
    journal.event(EventType::Publish, &[]).version = Some(Version(3));
    assert_eq!(
        found(&journal),
        [
            "event 8: a publish of version 3 that is to be refused: the next version to publish is 2",
            "event 8: cannot go on: version 3 cannot come next",
        ]
    );
}

#[test]
fn a_version_published_before_its_batch_was_taken() {
    let mut journal = four_reserved();
    journal.event(EventType::Publish, &[]).version = Some(Version(1));
    assert_eq!(
        found(&journal)[0],
        "event 3: a publish of version 1 that is to be refused: batch 0 was not taken yet"
    );
}

#[test]
fn an_occupy_of_what_was_discarded_for_good() {
    let mut journal = four_reserved();
    journal.discard(EventType::Discard, "a", "failed");
    let event = journal.event(EventType::Occupy, &[]);
    event.ids = ids("a");
    assert_eq!(
        found(&journal),
        ["event 4: an occupy that is to be refused: a: the entry was discarded: failed"]
    );
}

#[test]
fn a_wrong_late_mark() {
    let mut journal = four_reserved();
    journal.occupy("a");
    journal.last().late = true;
    assert_eq!(
        found(&journal),
        ["event 3: the step is marked late: true, and should be the contrary"]
    );
}

#[test]
fn a_discard_of_what_is_in_training() {
    let mut journal = two_batches(1);
    let event = journal.event(EventType::Discard, &[]);
    event.ids = ids("b");
    event.reason = Some(Reason::from("filtered"));
    assert_eq!(
        found(&journal),
        ["event 8: a discard that is to be refused: b: the entry was taken with batch 1"]
    );
}

#[test]
fn a_discard_that_lost_its_effects() {
    let mut journal = Journal::new(config(1, 1, 0));
    journal.reserve(0, "a");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.last().effects.clear();
    assert_eq!(
        found(&journal),
        ["event 3: effect 0 is none, and should be \"a was discarded from slot 0 of buffer 0 as lease_expired\""]
    );
}

#[test]
fn a_prune_of_what_is_kept_or_was_elsewhere() {
    let mut journal = two_batches(2);
    let pruned = |letter: char| Effect::Pruned { id: id(letter) };
    journal.event(EventType::Prune, &[pruned('a')]).version = Some(Version(0));
    journal.event(EventType::Prune, &[pruned('b')]).version = Some(Version(0));
    assert_eq!(
        found(&journal),
        [
            "event 8: a prune that is to be refused: a: batch 0 is kept",
            "event 9: b was pruned with batch 0, in which it was not",
            "event 9: kept: the trainer may still need batch 1, which is not kept",
        ]
    );
}
