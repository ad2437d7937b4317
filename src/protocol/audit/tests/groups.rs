//! Good logs of groups, segments and adoption.

use super::{Journal, audit, told};
use crate::protocol::notation::{complete, config, failed, id, ids, of_groups, weights, weights_of};
use crate::protocol::tables::{FinishedAs, Member, Resume};
use crate::protocol::{Effect, EventType, Lineage, Reason, ResumeMode, RunConfig, Version};

impl Journal {
    /// Members of one group, each in an event of its own.
    pub(super) fn members(&mut self, letter: char, members: &[Member]) {
        for member in members {
            let outcome = self.tables.member(id(letter), member).expect("a member");
            assert!(outcome.counted);
            let event = self.event(EventType::Member, &outcome.effects);
            event.ids = vec![id(letter)];
            event.late = outcome.late;
        }
    }

    /// The group with these members, finished by its client.
    pub(super) fn occupy_group(&mut self, letter: char, members: &[Member]) {
        let finished = self.tables.occupy_group(id(letter), members).expect("an occupy");
        let event_type = match finished.end {
            FinishedAs::Incomplete { .. } => EventType::Member,
            _ => EventType::Occupy,
        };
        let event = self.event(event_type, &finished.effects);
        event.ids = vec![id(letter)];
        event.late = finished.late;
    }

    pub(super) fn occupy_continued(&mut self, letter: char, version: u64) {
        let finished = self.tables.occupy_continued(id(letter), weights(version));
        let finished = finished.expect("an occupy");
        let event = self.event(EventType::Occupy, &finished.effects);
        event.ids = vec![id(letter)];
        event.late = finished.late;
    }

    pub(super) fn segment(&mut self, letter: char, version: u64) {
        let segmented = self.tables.go_on_under(id(letter), weights(version));
        let segmented = segmented.expect("a segment");
        let event = self.event(EventType::Segment, &segmented.effects);
        event.ids = vec![id(letter)];
        event.version = Some(Version(version));
    }

    pub(super) fn lose(&mut self, event_type: EventType, letters: &str, reason: &str) {
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
    pub(super) fn adopt(&mut self, version: u64, adopted: &str, new: &str) {
        let all = ids(&format!("{adopted}{new}"));
        let reserved = self.tables.reserve_adopting(weights(version), &all).expect("a reserve");
        assert_eq!((reserved.adopted, reserved.granted), (adopted.len(), all.len()));
        let event = self.event(EventType::Reserve, &reserved.effects);
        event.version = Some(Version(version));
        event.ids = all;
    }

    pub(super) fn claim(&mut self, letter: char) {
        let effects = self.tables.claim(id(letter));
        self.event(EventType::Claim, &effects).ids = vec![id(letter)];
    }

    /// Puts another effect in the place of one of the last event's.
    pub(super) fn spoil(&mut self, at: usize, effect: Effect) {
        self.last().effects[at].effect = effect;
    }
}

pub(super) fn adopting(config: RunConfig) -> RunConfig {
    RunConfig {
        adopt_groups: true,
        ..config
    }
}

/// `B = S = 1`, `η = 1`, groups of 2 out of 4 that are adopted; a and b are reserved at version 0.
pub(super) fn two_groups() -> Journal {
    let mut journal = Journal::new(adopting(of_groups(2, 4, config(1, 1, 1))));
    journal.reserve(0, "ab");
    journal
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

/// The trainer went back to version 0, and version 1 is another one since. A member of the old version 0 was seen to go on
/// under the new version 1, and its worker names the old lineage at its end.
#[test]
fn a_member_may_name_an_older_lineage_than_that_of_its_segments() {
    let mut journal = Journal::new(of_groups(2, 2, config(1, 1, 2)));
    journal.reserve(0, "abc");
    journal.members('a', &[complete(0, 0), complete(1, 0)]);
    journal.take();
    journal.publish(1);
    journal.resume(Resume {
        resume_from: Some(Version(0)),
        mode: ResumeMode::Rewind,
        ..Resume::default()
    });
    journal.take();
    journal.publish(1);
    journal
        .tables
        .go_on_under(id('b'), weights_of(1, 1))
        .expect("a segment");
    let continued = Effect::Continued {
        id: id('b'),
        version: Version(1),
    };
    let event = journal.event(EventType::Segment, &[continued]);
    event.ids = ids("b");
    event.version = Some(Version(1));
    let finished = Effect::Member {
        id: id('b'),
        index: 0,
        failed: false,
        version: Some(Version(0)),
        newest: Some(Version(1)),
        reward: None,
    };
    let event = journal.event(EventType::Member, &[finished]);
    event.ids = ids("b");
    event.lineage = Some(Lineage(0));
    assert_eq!(told(&audit(&journal.events)), Vec::<String>::new());
}
