//! Each kind of wrong step with members and segments, planted into a good log.

use super::groups::two_groups;
use super::{Journal, found};
use crate::protocol::notation::{complete, config, failed, id, ids, of_groups, rewarded};
use crate::protocol::tables::Resume;
use crate::protocol::{Effect, EventType, LoggedEffect, Place, ResumeMode, RunConfig, Version};

fn logged(effect: Effect) -> LoggedEffect {
    LoggedEffect::from(effect)
}

fn finished(letter: char, index: u32, version: u64) -> Effect {
    Effect::Member {
        id: id(letter),
        index,
        failed: false,
        version: Some(Version(version)),
        newest: None,
        reward: None,
    }
}

#[test]
fn a_member_counted_twice() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    journal.event(EventType::Member, &[finished('a', 0, 0)]).ids = ids("a");
    assert_eq!(
        found(&journal),
        ["event 4: what was reported of a does not count, and is no step"]
    );
}

#[test]
fn a_member_counted_after_its_group_was_filled() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0), complete(1, 0)]);
    journal.event(EventType::Member, &[finished('a', 2, 0)]).ids = ids("a");
    assert_eq!(
        found(&journal),
        [
            "event 5: what was reported of a does not count, and is no step",
            "event 5: group: a is finished with 3 complete members, not 2",
        ]
    );
}

#[test]
fn a_member_that_is_no_candidate() {
    let mut journal = two_groups();
    journal.event(EventType::Member, &[finished('a', 4, 0)]).ids = ids("a");
    assert_eq!(
        found(&journal),
        [
            "event 3: a report that is to be refused: a: there is no member 4: a group has 4 candidates",
            "event 3: group: a has a member 4 of 4 candidates",
        ]
    );
}

#[test]
fn a_group_occupied_with_too_few_members() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    let (from, to) = (Place::new(1, 0), Place::new(0, 0));
    let moved = Effect::Moved {
        id: id('b'),
        from: to,
        to: from,
    };
    let occupied = Effect::Occupied { id: id('a'), from, to };
    journal.event(EventType::Occupy, &[moved, occupied]).ids = ids("a");
    assert_eq!(
        found(&journal),
        [
            "event 4: a was occupied with 1 complete members, not 2",
            "event 4: group: a is finished with 1 complete members, not 2",
        ]
    );
}

#[test]
fn a_group_that_was_filled_and_not_occupied() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0), complete(1, 0)]);
    journal.last().effects.truncate(1);
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is none, and should be \"b moved from slot 0 of buffer 0 to slot 0 of buffer 1\"",
            "event 4: group: a is reserved with 2 complete members of 2",
        ]
    );
}

#[test]
fn a_group_that_cannot_be_filled_and_was_kept() {
    let mut journal = two_groups();
    journal.members('a', &[failed(0), failed(1), failed(2)]);
    journal.last().effects.truncate(1);
    assert_eq!(
        found(&journal),
        [
            "event 5: effect 1 is none, and should be \"a was discarded from slot 0 of buffer 1 as group_failed\"",
            "event 5: group: a is reserved although 3 of its members failed",
        ]
    );
}

#[test]
fn a_zero_variance_group_that_was_occupied() {
    let mut journal = Journal::new(RunConfig {
        drop_zero_variance: true,
        ..of_groups(2, 2, config(1, 1, 0))
    });
    journal.reserve(0, "a");
    journal.members('a', &[rewarded(0, 0.5), rewarded(1, 0.5)]);
    let place = Place::new(0, 0);
    let occupied = Effect::Occupied {
        id: id('a'),
        from: place,
        to: place,
    };
    journal.spoil(1, occupied);
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is \"a left slot 0 of buffer 0 and occupied slot 0 of buffer 0\", \
             and should be \"a was discarded from slot 0 of buffer 0 as zero_variance\"",
            "event 4: group: a is finished although its rewards are all equal",
        ]
    );
}

#[test]
fn a_member_of_a_version_below_its_group() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0), complete(1, 0)]);
    journal.take();
    journal.publish(1);
    journal.reserve(1, "c");
    journal.event(EventType::Member, &[finished('c', 0, 0)]).ids = ids("c");
    assert_eq!(
        found(&journal),
        [
            "event 8: a report that is to be refused: c: version 0 is too stale: the group is of version 1",
            "event 8: group: member 0 of c is of version 0 to 0; the group is of 1, the latest is 1",
        ]
    );
}

#[test]
fn a_member_or_a_segment_of_a_version_that_is_not_published() {
    let mut journal = two_groups();
    journal.event(EventType::Member, &[finished('a', 0, 3)]).ids = ids("a");
    assert_eq!(
        found(&journal),
        [
            "event 3: a report that is to be refused: a: version 3 is not published: the latest is 0",
            "event 3: group: member 0 of a is of version 3 to 3; the group is of 0, the latest is 0",
            "event 3: partial rollout: the newest version of a is said to be 3, and is at least 3",
        ]
    );

    let mut journal = two_groups();
    let continued = Effect::Continued {
        id: id('a'),
        version: Version(2),
    };
    let event = journal.event(EventType::Segment, &[continued]);
    event.ids = ids("a");
    event.version = Some(Version(2));
    assert_eq!(
        found(&journal),
        [
            "event 3: a report that is to be refused: a: version 2 is not published: the latest is 0",
            "event 3: partial rollout: the newest version of a is said to be 2, and is at least 0",
        ]
    );
}

#[test]
fn a_segment_that_was_not_recorded() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "ab");
    journal.occupy("a");
    journal.take();
    journal.publish(1);
    journal.segment('b', 1);
    journal.last().effects.clear();
    assert_eq!(
        found(&journal),
        ["event 6: effect 0 is none, and should be \"b went on under version 1\""]
    );
}

/// b was continued under version 1, to which the trainer did not come back.
#[test]
fn a_rewind_that_kept_what_abandoned_weights_went_on_with() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "ab");
    journal.occupy("a");
    journal.take();
    journal.publish(1);
    journal.segment('b', 1);
    journal.resume(Resume {
        resume_from: Some(Version(0)),
        mode: ResumeMode::Rewind,
        ..Resume::default()
    });
    let place = Place::new(1, 0);
    let kept = Effect::Replaced {
        id: id('b'),
        from: place,
        to: place,
    };
    journal.last().effects[0] = logged(kept);
    let found = found(&journal);
    assert_eq!(
        found.last().expect("a finding"),
        "event 7: rewind: b of version 1, generated in lineage 0, is of abandoned weights"
    );
}

#[test]
fn events_of_groups_without_what_their_kind_needs() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    journal.last().ids.clear();
    journal.members('a', &[failed(1)]);
    journal.last().effects.clear();
    journal.segment('b', 0);
    journal.last().version = None;
    journal.event(EventType::Member, &[finished('b', 0, 0)]).ids = ids("b");
    if let Effect::Member { version, .. } = &mut journal.last().effects[0].effect {
        *version = None;
    }
    assert_eq!(
        found(&journal),
        [
            "event 3: the event has no id",
            "event 4: the event has no member",
            "event 5: the event has no version",
            "event 6: the event has no version",
        ]
    );
}

#[test]
fn a_member_that_saved_its_group_and_does_not_say_so() {
    let mut journal = Journal::new(of_groups(1, 2, config(1, 1, 0)));
    journal.reserve(0, "a");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.members('a', &[complete(0, 0)]);
    assert!(journal.last().late);
    journal.last().late = false;
    assert_eq!(
        found(&journal),
        ["event 4: the step is marked late: false, and should be the contrary"]
    );
}

#[test]
fn members_of_a_group_that_nobody_knows_end_the_audit() {
    let mut journal = two_groups();
    journal.event(EventType::Member, &[finished('x', 0, 0)]).ids = ids("x");
    assert_eq!(
        found(&journal),
        [
            "event 3: a report that is to be refused: x: no such entry",
            "event 3: cannot go on: x is not in the tables",
        ]
    );
}
