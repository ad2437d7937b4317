//! Groups that their client occupies: in one call, or after its post-processing (`auto_occupy: false`).

use super::{SlotTables, member, members, not_counted, occupy, publish, reserve, resume, rewind, take};
use crate::protocol::notation::{
    complete, config, failed, id, of_groups, rewarded, shorthand, weights, weights_of, written,
};
use crate::protocol::tables::{
    Finished, FinishedAs, Generated, Member, MemberEnd, MemberRefusal, OccupyRefusal, WeightsRefusal,
};
use crate::protocol::{Place, Reason, RunConfig, Version};

/// `B = S = 1`, `η = 1`, groups of 2 out of 4; a and b are reserved at version 0.
fn two_groups() -> SlotTables {
    let mut t = SlotTables::new(of_groups(2, 4, config(1, 1, 1)));
    reserve(&mut t, 0, "ab");
    t
}

/// Groups that wait for their client.
fn two_waiting(drop_zero_variance: bool) -> SlotTables {
    let mut t = SlotTables::new(RunConfig {
        auto_occupy: false,
        drop_zero_variance,
        ..of_groups(2, 4, config(1, 1, 1))
    });
    reserve(&mut t, 0, "ab");
    t
}

fn occupy_group(tables: &mut SlotTables, letter: char, members: &[Member]) -> Finished {
    tables
        .occupy_group(id(letter), members)
        .expect("a group that may be occupied")
}

fn refused(tables: &mut SlotTables, letter: char, members: &[Member]) -> OccupyRefusal {
    let before = tables.clone();
    let refusal = tables.occupy_group(id(letter), members).expect_err("a refusal");
    assert_eq!(*tables, before, "a refusal changes nothing");
    refusal
}

#[test]
fn a_group_may_be_finished_in_one_call() {
    let mut t = two_groups();
    let finished = occupy_group(
        &mut t,
        'a',
        &[complete(0, 0), failed(1), complete(2, 0), complete(3, 0)],
    );
    assert_eq!(
        shorthand(&finished.effects),
        [
            "a: 0 finished",
            "a: 1 failed",
            "a: 2 finished",
            "b: 0.0 moved 1.0",
            "a: 1.0 occupied 0.0"
        ]
    );
    let place = Place::new(0, 0);
    assert_eq!(finished.end, FinishedAs::Occupied { place });
    assert_eq!(written(&t), "0: A | 1: b");

    let again = occupy_group(&mut t, 'a', &[complete(0, 0)]);
    assert_eq!((again.end, again.effects.len()), (FinishedAs::Occupied { place }, 0));
}

#[test]
fn the_members_of_the_call_add_to_those_reported_before() {
    let mut t = two_groups();
    member(&mut t, 'a', complete(2, 0));
    let finished = occupy_group(&mut t, 'a', &[complete(2, 0), complete(2, 0), complete(0, 0)]);
    assert_eq!(shorthand(&finished.effects)[0], "a: 0 finished");
    assert_eq!(written(&t), "0: A | 1: b");
}

#[test]
fn too_few_members_are_recorded_and_do_not_occupy_the_group() {
    let mut t = two_groups();
    let finished = occupy_group(&mut t, 'a', &[complete(3, 0), failed(1)]);
    assert_eq!(shorthand(&finished.effects), ["a: 3 finished", "a: 1 failed"]);
    assert_eq!(finished.end, FinishedAs::Incomplete { complete: 1 });
    assert_eq!(written(&t), "0: b | 1: a");
    not_counted(&mut t, 'a', complete(3, 0));

    let again = occupy_group(&mut t, 'a', &[]);
    assert_eq!(again.end, FinishedAs::Incomplete { complete: 1 });
    assert_eq!(again.effects, []);
}

#[test]
fn a_call_with_too_many_failures_loses_the_group() {
    let mut t = two_groups();
    let finished = occupy_group(&mut t, 'a', &[failed(0), failed(1), failed(2), complete(3, 0)]);
    assert_eq!(
        shorthand(&finished.effects),
        [
            "a: 0 failed",
            "a: 1 failed",
            "a: 2 failed",
            "a: 1.0 group_failed",
            "b: 0.0 moved 1.0"
        ]
    );
    let expected = FinishedAs::Discarded {
        reason: Reason::GroupFailed,
    };
    assert_eq!(finished.end, expected);
    assert_eq!(
        occupy_group(&mut t, 'a', &[]).end,
        expected,
        "and says so when it is sent again"
    );
}

#[test]
fn one_member_that_is_refused_refuses_all() {
    let mut t = two_groups();
    let not_published = WeightsRefusal::NotPublished {
        version: Version(3),
        policy_version: Version(0),
    };
    let refusal = refused(&mut t, 'a', &[complete(0, 0), complete(1, 3)]);
    assert_eq!(refusal, MemberRefusal::from(not_published).into());
    let no_candidate = MemberRefusal::NoSuchMember {
        index: 4,
        candidates: 4,
    };
    let refusal = refused(&mut t, 'a', &[complete(0, 0), complete(4, 0)]);
    assert_eq!(refusal, no_candidate.into());
    occupy_group(&mut t, 'a', &[complete(0, 0), complete(2, 0), complete(1, 3)]);
    assert_eq!(written(&t), "0: A | 1: b", "what does not count is not looked at");
}

#[test]
fn a_filled_group_waits_for_its_client_if_the_run_is_so_configured() {
    let mut t = two_waiting(false);
    let last = members(&mut t, 'a', &[complete(0, 0), complete(1, 0)]);
    assert_eq!(shorthand(&last), ["a: 1 finished"]);
    assert_eq!(written(&t), "0: b | 1: a");
    assert_eq!(t.generating(), 4, "a filled group generates nothing more");
    not_counted(&mut t, 'a', complete(2, 0));

    let finished = occupy_group(&mut t, 'a', &[]);
    assert_eq!(
        shorthand(&finished.effects),
        ["b: 0.0 moved 1.0", "a: 1.0 occupied 0.0"]
    );
}

#[test]
fn the_clients_occupy_discards_a_filled_group_of_zero_variance() {
    let mut t = two_waiting(true);
    members(&mut t, 'a', &[rewarded(0, 1.0), rewarded(1, 1.0)]);
    assert_eq!(written(&t), "0: b | 1: a");
    let finished = occupy_group(&mut t, 'a', &[]);
    assert_eq!(
        shorthand(&finished.effects),
        ["a: 1.0 zero_variance", "b: 0.0 moved 1.0"]
    );
    let expected = FinishedAs::Discarded {
        reason: Reason::ZeroVariance,
    };
    assert_eq!(finished.end, expected);
    assert_eq!(occupy_group(&mut t, 'a', &[]).end, expected);
    not_counted(&mut t, 'a', rewarded(2, 0.0));
}

/// V = 1 and back to 0: version 1 exists again, of other weights.
#[test]
fn an_occupy_that_names_abandoned_weights_discards_its_group() {
    let mut t = SlotTables::new(of_groups(1, 2, config(1, 1, 1)));
    reserve(&mut t, 0, "xa");
    member(&mut t, 'x', complete(0, 0));
    take(&mut t);
    publish(&mut t, 1);
    resume(&mut t, rewind(0));
    let abandoned = Member {
        index: 0,
        end: MemberEnd::Complete {
            generated: Generated {
                newest: Version(1),
                ..Generated::by(weights(0))
            },
            reward: None,
        },
    };
    let refusal = t.member(id('a'), &abandoned).expect_err("a refusal");
    let expected = WeightsRefusal::Abandoned {
        version: Version(1),
        policy_version: Version(0),
    };
    assert_eq!(refusal, expected.into());

    assert_eq!(written(&t), "0: X | 1: a");
    let finished = occupy_group(&mut t, 'a', &[abandoned]);
    assert_eq!(shorthand(&finished.effects), ["a: 1.0 rewound"]);
    let reason = Reason::Rewound;
    assert_eq!(finished.end, FinishedAs::Discarded { reason: reason.clone() });
    assert_eq!(refused(&mut t, 'a', &[abandoned]), OccupyRefusal::Discarded(reason));
}

#[test]
fn a_trajectory_and_a_group_are_not_occupied_alike() {
    let mut groups = two_groups();
    assert_eq!(groups.occupy(id('a')), Err(OccupyRefusal::Group));
    assert_eq!(
        groups.occupy_continued(id('a'), weights_of(0, 0)),
        Err(OccupyRefusal::Group)
    );
    let mut single = SlotTables::new(config(1, 1, 0));
    reserve(&mut single, 0, "a");
    occupy(&mut single, 'a');
    assert!(single.occupy_group(id('a'), &[complete(0, 0)]).is_err());
}
