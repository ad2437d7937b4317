//! Each kind of wrong step with groups that lost their owner, planted into a good log.

use super::groups::{adopting, two_groups};
use super::{Journal, found};
use crate::protocol::notation::{complete, config, id, ids, of_groups};
use crate::protocol::{Effect, EventType, Place, Reason, Version};

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
