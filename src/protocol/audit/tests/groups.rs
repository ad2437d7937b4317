//! Groups, segments and adoption: good logs, and each kind of wrong step planted into one.

use super::{Journal, audit, found, told};
use crate::protocol::notation::{complete, config, failed, id, ids, of_groups, rewarded, weights};
use crate::protocol::tables::{FinishedAs, Member, Resume};
use crate::protocol::{Effect, EventType, LoggedEffect, Place, Reason, ResumeMode, RunConfig, Version};

impl Journal {
    /// Members of one group, each in an event of its own.
    fn members(&mut self, letter: char, members: &[Member]) {
        for member in members {
            let outcome = self.tables.member(id(letter), member).expect("a member");
            assert!(outcome.counted);
            let event = self.event(EventType::Member, &outcome.effects);
            event.ids = vec![id(letter)];
            event.late = outcome.late;
        }
    }

    /// The group with these members, finished by its client.
    fn occupy_group(&mut self, letter: char, members: &[Member]) {
        let finished = self.tables.occupy_group(id(letter), members).expect("an occupy");
        let event_type = match finished.end {
            FinishedAs::Incomplete { .. } => EventType::Member,
            _ => EventType::Occupy,
        };
        let event = self.event(event_type, &finished.effects);
        event.ids = vec![id(letter)];
        event.late = finished.late;
    }

    fn occupy_continued(&mut self, letter: char, version: u64) {
        let finished = self.tables.occupy_continued(id(letter), weights(version));
        let finished = finished.expect("an occupy");
        let event = self.event(EventType::Occupy, &finished.effects);
        event.ids = vec![id(letter)];
        event.late = finished.late;
    }

    fn segment(&mut self, letter: char, version: u64) {
        let segmented = self.tables.go_on_under(id(letter), weights(version));
        let segmented = segmented.expect("a segment");
        let event = self.event(EventType::Segment, &segmented.effects);
        event.ids = vec![id(letter)];
        event.version = Some(Version(version));
    }

    fn lose(&mut self, event_type: EventType, letters: &str, reason: &str) {
        let reason = Reason::from(reason);
        let mut effects = Vec::new();
        for letter in letters.chars() {
            let lost = self.tables.lose(id(letter), reason.clone()).expect("it is held");
            effects.extend(lost.effects);
        }
        let event = self.event(event_type, &effects);
        event.ids = ids(letters);
        event.reason = Some(reason);
    }

    /// `adopted` are adopted, and `new` admitted.
    fn adopt(&mut self, version: u64, adopted: &str, new: &str) {
        let all = ids(&format!("{adopted}{new}"));
        let reserved = self.tables.reserve_adopting(weights(version), &all).expect("a reserve");
        assert_eq!((reserved.adopted, reserved.granted), (adopted.len(), all.len()));
        let event = self.event(EventType::Reserve, &reserved.effects);
        event.version = Some(Version(version));
        event.ids = all;
    }

    fn claim(&mut self, letter: char) {
        let effects = self.tables.claim(id(letter));
        self.event(EventType::Claim, &effects).ids = vec![id(letter)];
    }

    /// Puts another effect in the place of one of the last event's.
    fn spoil(&mut self, at: usize, effect: Effect) {
        self.last().effects[at].effect = effect;
    }
}

fn adopting(config: RunConfig) -> RunConfig {
    RunConfig {
        adopt_groups: true,
        ..config
    }
}

/// `B = S = 1`, `η = 1`, groups of 2 out of 4 that are adopted; a and b are reserved at version 0.
fn two_groups() -> Journal {
    let mut journal = Journal::new(adopting(of_groups(2, 4, config(1, 1, 1))));
    journal.reserve(0, "ab");
    journal
}

fn logged(effect: Effect) -> LoggedEffect {
    LoggedEffect {
        effect,
        prompt: None,
        payload: None,
    }
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
fn a_good_run_of_groups_is_reported_without_a_finding() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0), failed(1), complete(2, 0)]);
    journal.segment('b', 0);
    journal.take();
    journal.occupy_group('b', &[complete(3, 0)]);
    journal.lose(EventType::Expire, "b", "lease_expired");
    journal.publish(1);
    journal.segment('b', 1);
    journal.adopt(1, "b", "c");
    journal.members('c', &[failed(0), failed(1), failed(2)]);
    journal.occupy_group('b', &[complete(1, 1), complete(0, 0)]);
    journal.reserve(1, "d");
    journal.members('d', &[complete(0, 1)]);
    journal.lose(EventType::SessionOpened, "d", "worker_restarted");
    journal.claim('d');
    journal.claim('d');
    journal.lose(EventType::Heartbeat, "d", "abandoned");
    journal.adopt(1, "d", "");
    journal.discard(EventType::Expire, "d", "timed_out");
    journal.members('d', &[complete(1, 1)]);
    journal.take();

    let auditor = audit(&journal.events);
    assert_eq!(told(&auditor), Vec::<String>::new());
    let report = auditor.report();
    assert_eq!((report.members, report.orphaned, report.adopted), (10, 3, 3));
    assert_eq!((report.reserved, report.occupied, report.late), (4, 3, 1));
    let discarded = [("group_failed".to_owned(), 1), ("timed_out".to_owned(), 1)];
    assert_eq!(report.discarded, discarded.into());
}

#[test]
fn a_good_run_with_partial_rollout_is_reported_without_a_finding() {
    let mut journal = Journal::new(config(1, 1, 1));
    journal.reserve(0, "ab");
    journal.occupy("a");
    journal.take();
    journal.publish(1);
    journal.segment('b', 1);
    journal.discard(EventType::Expire, "b", "lease_expired");
    journal.occupy_continued('b', 1);
    journal.resume(Resume {
        resume_from: Some(Version(0)),
        mode: ResumeMode::Rewind,
        ..Resume::default()
    });
    assert_eq!(told(&audit(&journal.events)), Vec::<String>::new());
    let last = &journal.events.last().expect("an event").effects[0].effect;
    assert!(
        matches!(
            last,
            Effect::Discarded {
                reason: Reason::Rewound,
                ..
            }
        ),
        "{last}"
    );
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
fn a_group_with_complete_members_that_was_discarded_with_its_session() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    journal.discard(EventType::Expire, "a", "lease_expired");
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 0 is \"a was discarded from slot 0 of buffer 1 as lease_expired\", \
             and should be \"a was left without an owner\""
        ]
    );
}

#[test]
fn an_orphaned_group_without_members() {
    let mut journal = two_groups();
    let event = journal.event(EventType::Expire, &[Effect::Orphaned { id: id('a') }]);
    event.ids = ids("a");
    event.reason = Some(Reason::LeaseExpired);
    assert_eq!(
        found(&journal),
        [
            "event 3: effect 0 is \"a was left without an owner\", \
             and should be \"a was discarded from slot 0 of buffer 1 as lease_expired\"",
            "event 3: adoption: a has no owner and cannot be adopted",
        ]
    );
}

#[test]
fn an_orphan_where_groups_are_not_adopted() {
    let mut journal = Journal::new(of_groups(2, 4, config(1, 1, 0)));
    journal.reserve(0, "a");
    journal.members('a', &[complete(0, 0)]);
    let event = journal.event(EventType::Expire, &[Effect::Orphaned { id: id('a') }]);
    event.ids = ids("a");
    event.reason = Some(Reason::LeaseExpired);
    assert_eq!(
        found(&journal)[1],
        "event 4: adoption: a has no owner and cannot be adopted"
    );
}

#[test]
fn an_adoption_of_a_group_that_is_not_the_front_most() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    journal.members('b', &[complete(0, 0)]);
    journal.lose(EventType::Expire, "ba", "lease_expired");
    let event = journal.event(EventType::Reserve, &[Effect::Adopted { id: id('a') }]);
    event.ids = ids("a");
    event.version = Some(Version(0));
    assert_eq!(
        found(&journal),
        ["event 6: effect 0 is \"a was adopted\", and should be \"b was adopted\""]
    );
}

#[test]
fn an_adoption_of_a_group_newer_than_the_workers_weights() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0), complete(1, 0)]);
    journal.take();
    journal.publish(1);
    journal.reserve(1, "c");
    journal.members('c', &[complete(0, 1)]);
    journal.lose(EventType::Expire, "c", "lease_expired");
    let event = journal.event(EventType::Reserve, &[Effect::Adopted { id: id('c') }]);
    event.ids = ids("c");
    event.version = Some(Version(0));
    assert_eq!(
        found(&journal),
        ["event 10: c was adopted, and is no group that this reserve may adopt"]
    );
}

#[test]
fn an_adoption_of_a_group_that_has_an_owner() {
    let mut journal = two_groups();
    journal.members('a', &[complete(0, 0)]);
    journal.event(EventType::Claim, &[Effect::Adopted { id: id('a') }]).ids = ids("a");
    assert_eq!(
        found(&journal),
        ["event 4: effect 0 is \"a was adopted\", and should be none"]
    );
}

#[test]
fn a_reserve_that_adopts_and_passes_a_group_over() {
    let mut journal = Journal::new(adopting(of_groups(2, 4, config(3, 3, 0))));
    journal.reserve(0, "ab");
    journal.members('a', &[complete(0, 0)]);
    journal.members('b', &[complete(0, 0)]);
    journal.lose(EventType::Expire, "ba", "lease_expired");
    let adopted = Effect::Adopted { id: id('b') };
    let reserved = Effect::Reserved {
        id: id('c'),
        version: Version(0),
        to: Place::new(0, 0),
    };
    let event = journal.event(EventType::Reserve, &[adopted, reserved]);
    event.ids = ids("bc");
    event.version = Some(Version(0));
    assert_eq!(
        found(&journal),
        ["event 6: effect 1 is \"c reserved slot 0 of buffer 0 under version 0\", and should be \"a was adopted\""]
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
