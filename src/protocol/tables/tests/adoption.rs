//! *Adoption*: a group with complete members outlives the session that held it.

use super::{Reserved, SlotTables, discard, member, members, reserve, resume, rewind, train};
use crate::protocol::notation::{complete, config, failed, id, ids, of_groups, shorthand, weights, written};
use crate::protocol::tables::{BlockedBy, Discarded, ReserveRefusal};
use crate::protocol::{BufferId, Effect, Reason, RunConfig, Version};

fn adopting(config: RunConfig) -> SlotTables {
    SlotTables::new(RunConfig {
        adopt_groups: true,
        ..config
    })
}

/// `B = S = 2`, `η = 1`, groups of 2 out of 3; a to d are reserved at version 0, and each but d has a complete member.
fn four_groups() -> SlotTables {
    let mut t = adopting(of_groups(2, 3, config(2, 2, 1)));
    reserve(&mut t, 0, "abcd");
    for letter in "abc".chars() {
        member(&mut t, letter, complete(0, 0));
    }
    t
}

fn lose(tables: &mut SlotTables, letter: char, reason: Reason) -> Discarded {
    tables.lose(id(letter), reason).expect("it is in the tables")
}

fn orphan(tables: &mut SlotTables, letters: &str) {
    for letter in letters.chars() {
        let lost = lose(tables, letter, Reason::LeaseExpired);
        assert_eq!(lost.effects, [Effect::Orphaned { id: id(letter) }]);
    }
}

fn reserve_adopting(tables: &mut SlotTables, version: u64, letters: &str) -> Reserved {
    let reserved = tables.reserve_adopting(weights(version), &ids(letters));
    reserved.expect("a version that may reserve")
}

#[test]
fn a_group_with_complete_members_keeps_its_slot_when_its_session_ends() {
    for reason in [Reason::LeaseExpired, Reason::WorkerRestarted, Reason::Abandoned] {
        let mut t = four_groups();
        let lost = lose(&mut t, 'a', reason.clone());
        assert_eq!(shorthand(&lost.effects), ["a: orphaned"]);
        assert_eq!(written(&t), "0: d c | 1: b a");
        assert!(lose(&mut t, 'a', reason).repeated, "nobody can lose it twice");
    }
}

#[test]
fn a_finished_group_stays_whatever_becomes_of_who_held_it() {
    for reason in [Reason::LeaseExpired, Reason::WorkerRestarted, Reason::Abandoned] {
        let mut t = four_groups();
        member(&mut t, 'a', complete(1, 0));
        let lost = lose(&mut t, 'a', reason);
        assert_eq!((lost.repeated, lost.effects), (true, vec![]));
        assert_eq!(written(&t), "0: A c | 1: b d");
    }
}

#[test]
fn a_group_without_complete_members_is_discarded_when_its_session_ends() {
    let mut t = four_groups();
    member(&mut t, 'd', failed(1));
    let lost = lose(&mut t, 'd', Reason::LeaseExpired);
    assert_eq!(shorthand(&lost.effects), ["d: 0.0 lease_expired"]);
}

#[test]
fn without_adopt_groups_it_is_discarded_like_any_other_and_the_last_member_is_its_late_occupy() {
    let mut t = SlotTables::new(of_groups(2, 3, config(1, 1, 0)));
    reserve(&mut t, 0, "a");
    member(&mut t, 'a', complete(0, 0));
    let lost = lose(&mut t, 'a', Reason::LeaseExpired);
    assert_eq!(shorthand(&lost.effects), ["a: 0.0 lease_expired"]);
    assert!(member(&mut t, 'a', complete(2, 0)).late);
    assert_eq!(written(&t), "0: A");
}

#[test]
fn a_reserve_that_adopts_gets_the_front_most_group_first_and_then_new_ones() {
    let mut t = four_groups();
    orphan(&mut t, "abc");
    let reserved = reserve_adopting(&mut t, 0, "x");
    assert_eq!(shorthand(&reserved.effects), ["c: adopted"]);
    assert_eq!((reserved.granted, reserved.adopted, reserved.blocked_by), (1, 1, None));

    discard(&mut t, 'd', "failed");
    let reserved = reserve_adopting(&mut t, 0, "xyz");
    assert_eq!(
        shorthand(&reserved.effects),
        ["b: adopted", "a: adopted", "z: reserved 0.0"]
    );
    assert_eq!((reserved.granted, reserved.adopted), (3, 2));
    assert_eq!(t.orphans().count(), 0);
}

#[test]
fn a_reserve_that_does_not_adopt_leaves_the_groups_to_others() {
    let mut t = four_groups();
    orphan(&mut t, "a");
    discard(&mut t, 'd', "failed");
    reserve(&mut t, 0, "x");
    assert_eq!(t.orphans().collect::<Vec<_>>(), [(id('a'), Version(0))]);
}

/// All slots are taken, and more is being generated than the limit allows.
#[test]
fn adoption_comes_before_all_that_blocks_an_admission() {
    let mut t = four_groups();
    orphan(&mut t, "ab");
    let limited = RunConfig {
        max_concurrency: Some(3),
        ..t.config().clone()
    };
    t.set_config(limited).expect("a limit may change");
    assert_eq!(
        t.generating(),
        9,
        "an orphan's unfinished candidates count all the while"
    );
    let reserved = reserve_adopting(&mut t, 0, "xyz");
    assert_eq!(shorthand(&reserved.effects), ["b: adopted", "a: adopted"]);
    assert_eq!(reserved.blocked_by, Some(BlockedBy::Concurrency));
    assert_eq!(t.generating(), 9);
}

/// a is of version 0 and b of version 1. One whose weights are older than a group's may not go on with it.
#[test]
fn a_group_is_adopted_by_weights_no_older_than_its_version() {
    let mut t = adopting(of_groups(2, 3, config(1, 1, 2)));
    reserve(&mut t, 0, "xa");
    members(&mut t, 'x', &[complete(0, 0), complete(1, 0)]);
    train(&mut t);
    reserve(&mut t, 1, "b");
    assert_eq!(written(&t), "1: . | 2: a | 3: b");
    member(&mut t, 'b', complete(0, 1));
    member(&mut t, 'a', complete(0, 0));
    orphan(&mut t, "ab");
    let old = reserve_adopting(&mut t, 0, "yz");
    assert_eq!(shorthand(&old.effects), ["a: adopted", "z: reserved 1.0"]);
    let newer = reserve_adopting(&mut t, 1, "q");
    assert_eq!(shorthand(&newer.effects), ["b: adopted"]);
}

#[test]
fn weights_that_may_not_reserve_adopt_nothing() {
    let mut t = adopting(of_groups(2, 3, config(1, 1, 0)));
    reserve(&mut t, 0, "x");
    members(&mut t, 'x', &[complete(0, 0), complete(1, 0)]);
    train(&mut t);
    reserve(&mut t, 1, "a");
    member(&mut t, 'a', complete(0, 1));
    orphan(&mut t, "a");
    let too_stale = ReserveRefusal::VersionTooStale {
        version: Version(0),
        deadline: BufferId(0),
        next_buffer: BufferId(1),
    };
    assert_eq!(t.reserve_adopting(weights(0), &ids("y")), Err(too_stale));
    let not_published = ReserveRefusal::VersionNotPublished {
        version: Version(2),
        policy_version: Version(1),
    };
    assert_eq!(t.reserve_adopting(weights(2), &ids("y")), Err(not_published));
    assert_eq!(t.orphans().count(), 1);
}

#[test]
fn of_two_reports_of_a_member_the_first_counts_and_the_former_holder_may_finish_the_group() {
    let mut t = four_groups();
    orphan(&mut t, "a");
    let last = member(&mut t, 'a', complete(1, 0));
    assert_eq!(
        shorthand(&last.effects),
        ["a: 1 finished", "d: 0.0 moved 1.1", "a: 1.1 occupied 0.0"]
    );
    assert_eq!(t.orphans().count(), 0, "what is finished needs no owner");
}

/// The group of 8 out of 12 whose worker is killed after 5 members: another finishes it with 3 more.
#[test]
fn a_dead_worker_costs_the_samples_that_it_had_not_finished() {
    let mut t = adopting(of_groups(8, 12, config(1, 1, 0)));
    reserve(&mut t, 0, "a");
    let first_five: Vec<_> = (0..5).map(|index| complete(index, 0)).collect();
    members(&mut t, 'a', &first_five);
    orphan(&mut t, "a");
    assert_eq!(shorthand(&reserve_adopting(&mut t, 0, "x").effects), ["a: adopted"]);
    members(&mut t, 'a', &[complete(7, 0), complete(10, 0), complete(11, 0)]);
    assert_eq!(written(&t), "0: A");
}

#[test]
fn an_orphan_is_discarded_moved_and_rewound_like_any_other() {
    let mut t = four_groups();
    orphan(&mut t, "bc");
    discard(&mut t, 'a', "failed");
    assert_eq!(written(&t), "0: . c | 1: b d");
    assert_eq!(t.orphans().count(), 2);
    assert_eq!(shorthand(&discard(&mut t, 'b', "timed_out"))[0], "b: 1.0 timed_out");
    assert_eq!(t.orphans().map(|(id, _)| id).collect::<Vec<_>>(), ids("c"));

    let mut t = adopting(of_groups(2, 3, config(1, 1, 1)));
    reserve(&mut t, 0, "xa");
    members(&mut t, 'x', &[complete(0, 0), complete(1, 0)]);
    train(&mut t);
    member(&mut t, 'a', complete(0, 0));
    orphan(&mut t, "a");
    resume(&mut t, rewind(0));
    assert_eq!(written(&t), "0: X | 1: a");
    assert_eq!(t.orphans().count(), 1, "a rewind finds it no owner");
}

#[test]
fn a_claim_gives_a_group_an_owner_and_changes_nothing_of_one_that_has_one() {
    let mut t = four_groups();
    assert_eq!(t.claim(id('a')), []);
    orphan(&mut t, "a");
    assert_eq!(t.claim(id('a')), [Effect::Adopted { id: id('a') }]);
    assert_eq!(t.orphans().count(), 0);
}
