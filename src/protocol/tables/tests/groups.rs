//! *Groups*: members finish and fail one by one.

use super::{
    MemberRefusal, SlotTables, discard, member, members, not_counted, publish, refused_member, reserve, take,
    try_reserve,
};
use crate::protocol::notation::{complete, config, failed, id, of_groups, rewarded, shorthand, weights, written};
use crate::protocol::tables::{BlockedBy, EntryState, Generated, Member, MemberEnd, WeightsRefusal};
use crate::protocol::{Place, Reason, RunConfig, Version};

/// `B = S = 2`, `η = 1`, groups of 2 out of 4; a to d are reserved at version 0.
fn four_groups() -> SlotTables {
    let mut t = SlotTables::new(of_groups(2, 4, config(2, 2, 1)));
    reserve(&mut t, 0, "abcd");
    t
}

#[test]
fn a_group_is_occupied_with_the_last_member_that_it_needs() {
    let mut t = four_groups();
    let first = member(&mut t, 'a', complete(2, 0));
    assert_eq!(shorthand(&first.effects), ["a: 2 finished"]);
    assert_eq!((first.complete, first.failed), (1, 0));
    let place = Place::new(1, 1);
    assert_eq!(first.state, EntryState::Reserved { place });
    assert_eq!(written(&t), "0: d c | 1: b a");

    let last = member(&mut t, 'a', complete(0, 0));
    assert_eq!(
        shorthand(&last.effects),
        ["a: 0 finished", "d: 0.0 moved 1.1", "a: 1.1 occupied 0.0"]
    );
    assert_eq!(
        last.state,
        EntryState::Occupied {
            place: Place::new(0, 0)
        }
    );
    assert_eq!(written(&t), "0: A c | 1: b d");
}

#[test]
fn a_member_reported_twice_counts_once_whatever_it_says() {
    let mut t = four_groups();
    member(&mut t, 'a', complete(1, 0));
    not_counted(&mut t, 'a', complete(1, 0));
    not_counted(&mut t, 'a', failed(1));
    not_counted(&mut t, 'a', complete(1, 7));
    member(&mut t, 'a', failed(2));
    not_counted(&mut t, 'a', complete(2, 0));
}

#[test]
fn a_member_after_the_group_was_filled_changes_nothing() {
    let mut t = SlotTables::new(of_groups(2, 4, config(1, 1, 0)));
    reserve(&mut t, 0, "a");
    members(&mut t, 'a', &[complete(0, 0), complete(1, 0)]);
    assert_eq!(written(&t), "0: A");
    not_counted(&mut t, 'a', complete(2, 0));
    not_counted(&mut t, 'a', failed(3));
    take(&mut t);
    not_counted(&mut t, 'a', complete(2, 0));
}

#[test]
fn candidates_may_fail_while_the_group_can_still_be_filled() {
    let mut t = four_groups();
    members(&mut t, 'a', &[failed(0), failed(1)]);
    assert_eq!(written(&t), written(&four_groups()));
    let last = members(&mut t, 'a', &[complete(2, 0), complete(3, 0)]);
    assert_eq!(shorthand(&last)[0], "a: 3 finished");
    assert!(matches!(
        t.entry(id('a')).expect("it is known").state,
        EntryState::Occupied { .. }
    ));
}

/// The group of 8 out of 12 of which 2 fail and 2 are surplus.
#[test]
fn eight_of_twelve_with_two_that_fail_and_two_that_are_surplus() {
    let mut t = SlotTables::new(of_groups(8, 12, config(1, 1, 0)));
    reserve(&mut t, 0, "a");
    assert_eq!(t.generating(), 12);
    members(&mut t, 'a', &[failed(4), failed(9)]);
    let finished: Vec<Member> = [0, 1, 2, 3, 5, 6, 7, 8].map(|index| complete(index, 0)).into();
    members(&mut t, 'a', &finished[..7]);
    assert_eq!(t.generating(), 3);
    members(&mut t, 'a', &finished[7..]);
    assert_eq!(written(&t), "0: A");
    assert_eq!(t.generating(), 0);
    not_counted(&mut t, 'a', complete(10, 0));
    not_counted(&mut t, 'a', complete(11, 0));
}

#[test]
fn a_group_of_which_too_many_failed_is_discarded_and_its_place_reopens() {
    let mut t = SlotTables::new(of_groups(2, 3, config(1, 1, 1)));
    reserve(&mut t, 0, "ab");
    assert_eq!(written(&t), "0: b | 1: a");
    member(&mut t, 'a', failed(0));
    let last = member(&mut t, 'a', failed(2));
    assert!(last.counted);
    assert_eq!(
        shorthand(&last.effects),
        ["a: 2 failed", "a: 1.0 group_failed", "b: 0.0 moved 1.0"]
    );
    assert_eq!(written(&t), "0: . | 1: b");
    not_counted(&mut t, 'a', complete(1, 0));
}

#[test]
fn a_member_of_weights_older_than_its_group_is_refused_and_another_may_still_fill_it() {
    let mut t = SlotTables::new(of_groups(1, 2, config(1, 1, 1)));
    reserve(&mut t, 0, "a");
    member(&mut t, 'a', complete(0, 0));
    take(&mut t);
    publish(&mut t, 1);
    reserve(&mut t, 1, "b");
    let stale = WeightsRefusal::TooStale {
        version: Version(0),
        group: Version(1),
    };
    assert_eq!(refused_member(&mut t, 'b', complete(0, 0)), stale.into());
    member(&mut t, 'b', complete(1, 1));
    assert_eq!(written(&t), "1: B | 2: .");
}

#[test]
fn a_member_of_a_version_that_is_not_published_is_refused() {
    let mut t = four_groups();
    let expected = WeightsRefusal::NotPublished {
        version: Version(1),
        policy_version: Version(0),
    };
    assert_eq!(refused_member(&mut t, 'a', complete(0, 1)), expected.into());
}

#[test]
fn a_member_with_segments_has_their_first_version() {
    let mut t = SlotTables::new(of_groups(1, 2, config(1, 1, 1)));
    reserve(&mut t, 0, "ab");
    member(&mut t, 'a', complete(0, 0));
    take(&mut t);
    publish(&mut t, 1);
    let from_0_to_1 = Generated {
        newest: Version(1),
        ..Generated::by(weights(0))
    };
    let partly_newer = Member {
        index: 1,
        end: MemberEnd::Complete {
            generated: from_0_to_1,
            reward: None,
        },
    };
    member(&mut t, 'b', partly_newer);
    let entry = t.entry(id('b')).expect("it is known");
    assert_eq!((entry.version, entry.newest), (Version(0), Version(1)));
}

#[test]
fn an_index_past_the_candidates_is_refused_and_a_single_trajectory_has_no_members() {
    let expected = |candidates, index| MemberRefusal::NoSuchMember { index, candidates };
    assert_eq!(refused_member(&mut four_groups(), 'a', complete(4, 0)), expected(4, 4));
    let mut single = SlotTables::new(config(1, 1, 0));
    reserve(&mut single, 0, "a");
    assert_eq!(refused_member(&mut single, 'a', complete(0, 0)), expected(1, 0));
    assert_eq!(
        refused_member(&mut four_groups(), 'x', complete(4, 0)),
        MemberRefusal::Unknown
    );
}

#[test]
fn a_member_of_a_group_that_was_given_up_is_refused() {
    for reason in ["failed", "worker_restarted", "surplus"] {
        let mut t = four_groups();
        discard(&mut t, 'a', reason);
        let expected = MemberRefusal::Discarded(Reason::from(reason));
        assert_eq!(refused_member(&mut t, 'a', complete(0, 0)), expected);
    }
}

fn dropping_zero_variance() -> SlotTables {
    let mut t = SlotTables::new(RunConfig {
        drop_zero_variance: true,
        ..of_groups(2, 2, config(1, 1, 1))
    });
    reserve(&mut t, 0, "ab");
    t
}

#[test]
fn a_group_whose_rewards_are_all_equal_is_discarded_instead_of_occupied_if_the_run_drops_such() {
    let mut t = dropping_zero_variance();
    let last = members(&mut t, 'a', &[rewarded(0, 0.5), rewarded(1, 0.5)]);
    assert_eq!(
        shorthand(&last),
        ["a: 1 finished", "a: 1.0 zero_variance", "b: 0.0 moved 1.0"]
    );
    assert_eq!(written(&t), "0: . | 1: b");
    not_counted(&mut t, 'a', rewarded(0, 1.0));
    for different in [
        [rewarded(0, 0.5), rewarded(1, 1.0)],
        [rewarded(0, 0.5), complete(1, 0)],
        [complete(0, 0), complete(1, 0)],
    ] {
        let mut t = dropping_zero_variance();
        members(&mut t, 'a', &different);
        assert_eq!(written(&t), "0: A | 1: b", "a missing reward equals nothing");
    }
}

#[test]
fn rewards_may_all_be_equal_where_nobody_asked() {
    let mut t = SlotTables::new(of_groups(2, 2, config(1, 1, 0)));
    reserve(&mut t, 0, "a");
    members(&mut t, 'a', &[rewarded(0, 0.5), rewarded(1, 0.5)]);
    assert_eq!(written(&t), "0: A");
}

#[test]
fn a_group_is_admitted_when_all_its_candidates_fit_under_the_limit() {
    let mut t = SlotTables::new(RunConfig {
        max_concurrency: Some(9),
        ..of_groups(2, 4, config(4, 4, 0))
    });
    let reserved = try_reserve(&mut t, 0, "abc");
    assert_eq!(
        (reserved.granted, reserved.blocked_by),
        (2, Some(BlockedBy::Concurrency))
    );
    assert_eq!(t.generating(), 8);
    member(&mut t, 'a', failed(0));
    member(&mut t, 'b', complete(0, 0));
    assert_eq!(t.generating(), 6);
    assert_eq!(try_reserve(&mut t, 0, "c").granted, 0);
    member(&mut t, 'b', complete(3, 0));
    assert_eq!(t.generating(), 3, "an occupied group generates nothing more");
    reserve(&mut t, 0, "c");
    discard(&mut t, 'a', "timed_out");
    assert_eq!(t.generating(), 4);
}

#[test]
fn members_finish_a_batch_of_groups_with_oversampling() {
    let mut t = SlotTables::new(of_groups(1, 2, config(1, 3, 0)));
    reserve(&mut t, 0, "abc");
    let last = members(&mut t, 'b', &[complete(1, 0)]);
    assert_eq!(
        shorthand(&last),
        [
            "b: 1 finished",
            "c: 0.0 moved 0.1",
            "b: 0.1 occupied 0.0",
            "c: 0.1 surplus",
            "a: 0.2 surplus"
        ]
    );
    assert_eq!(
        refused_member(&mut t, 'a', complete(0, 0)),
        MemberRefusal::Discarded(Reason::Surplus)
    );
}
