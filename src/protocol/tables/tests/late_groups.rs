//! *Late occupy* of groups.

use super::{
    MemberRefusal, SlotTables, discard, member, members, not_counted, publish, refused_member, reserve, resume, rewind,
    take,
};
use crate::protocol::notation::{complete, config, failed, id, of_groups, rewarded, shorthand, written};
use crate::protocol::tables::{EntryState, FinishedAs, OccupyRefusal};
use crate::protocol::{Reason, RunConfig};

/// `B = S = 1`, `η = 1`, groups of 2 out of 4; a was reserved at version 0 and its lease ran out.
fn one_expired(change: impl Fn(RunConfig) -> RunConfig) -> SlotTables {
    let mut t = SlotTables::new(change(of_groups(2, 4, config(1, 1, 1))));
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "lease_expired");
    t
}

#[test]
fn members_of_an_expired_group_are_recorded_and_the_last_brings_it_back() {
    let mut t = one_expired(|config| config);
    let first = member(&mut t, 'a', complete(0, 0));
    assert!(first.counted && !first.late);
    assert_eq!(shorthand(&first.effects), ["a: 0 finished"]);
    assert_eq!(written(&t), "0: . | 1: .");
    let last = member(&mut t, 'a', complete(3, 0));
    assert!(last.late);
    assert_eq!(
        shorthand(&last.effects),
        ["a: 3 finished", "a: reserved 1.0", "a: 1.0 occupied 0.0"]
    );
    assert_eq!(written(&t), "0: A | 1: .");
}

#[test]
fn a_late_group_that_finds_no_slot_is_refused_and_its_last_member_is_not_recorded() {
    let mut t = one_expired(|config| config);
    member(&mut t, 'a', complete(0, 0));
    reserve(&mut t, 0, "bc");
    let expected = MemberRefusal::Discarded(Reason::LeaseExpired);
    assert_eq!(refused_member(&mut t, 'a', complete(1, 0)), expected);
    assert!(member(&mut t, 'a', failed(2)).counted);
    discard(&mut t, 'b', "failed");
    assert!(member(&mut t, 'a', complete(1, 0)).late, "a slot is free again");
    assert_eq!(written(&t), "0: A | 1: c");
}

#[test]
fn a_late_group_in_one_call_is_recorded_wholly_or_not_at_all() {
    let mut t = one_expired(|config| config);
    reserve(&mut t, 0, "bc");
    let before = t.clone();
    let refused = t.occupy_group(id('a'), &[complete(0, 0), complete(1, 0)]);
    assert_eq!(refused, Err(OccupyRefusal::Discarded(Reason::LeaseExpired)));
    assert_eq!(t, before);

    let incomplete = t.occupy_group(id('a'), &[complete(0, 0)]).expect("too few");
    assert_eq!(incomplete.end, FinishedAs::Incomplete { complete: 1 });
    discard(&mut t, 'b', "failed");
    let late = t
        .occupy_group(id('a'), &[complete(1, 0)])
        .expect("a slot is free again");
    assert!(late.late);
    assert_eq!(
        shorthand(&late.effects),
        ["a: 1 finished", "a: reserved 0.0", "a: 0.0 occupied 0.0"]
    );
}

#[test]
fn a_late_group_of_zero_variance_comes_back_and_leaves_at_once() {
    let mut t = one_expired(|config| RunConfig {
        drop_zero_variance: true,
        ..config
    });
    let last = members(&mut t, 'a', &[rewarded(0, 1.0), rewarded(1, 1.0)]);
    assert_eq!(
        shorthand(&last),
        ["a: 1 finished", "a: reserved 1.0", "a: 1.0 zero_variance"]
    );
    assert_eq!(written(&t), "0: . | 1: .");
}

#[test]
fn failures_of_a_late_group_are_recorded_and_nothing_follows() {
    let mut t = one_expired(|config| config);
    members(&mut t, 'a', &[failed(0), failed(1), failed(2), complete(3, 0)]);
    not_counted(&mut t, 'a', complete(0, 0));
    let entry = t.entry(id('a')).expect("it is remembered");
    assert!(matches!(
        &entry.state,
        EntryState::Discarded {
            reason: Reason::LeaseExpired,
            ..
        }
    ));
}

#[test]
fn a_late_group_that_waits_for_its_client_is_brought_back_by_it() {
    let mut t = one_expired(|config| RunConfig {
        auto_occupy: false,
        ..config
    });
    members(&mut t, 'a', &[complete(0, 0), complete(1, 0)]);
    assert_eq!(written(&t), "0: . | 1: .");
    not_counted(&mut t, 'a', complete(2, 0));
    let late = t.occupy_group(id('a'), &[]).expect("there is a slot");
    assert!(late.late);
    assert_eq!(shorthand(&late.effects), ["a: reserved 1.0", "a: 1.0 occupied 0.0"]);
}

/// b was begun under version 0, and its one member went on under version 1, which is abandoned.
#[test]
fn a_group_of_which_abandoned_weights_generated_a_member_cannot_return_late() {
    let mut t = SlotTables::new(of_groups(2, 4, config(1, 1, 2)));
    reserve(&mut t, 0, "abc");
    members(&mut t, 'a', &[complete(0, 0), complete(1, 0)]);
    take(&mut t);
    publish(&mut t, 1);
    member(&mut t, 'b', complete(0, 1));
    member(&mut t, 'c', complete(0, 0));
    discard(&mut t, 'b', "lease_expired");
    discard(&mut t, 'c', "lease_expired");
    resume(&mut t, rewind(0));
    let expected = MemberRefusal::Discarded(Reason::LeaseExpired);
    assert_eq!(refused_member(&mut t, 'b', complete(1, 0)), expected);
    assert!(member(&mut t, 'c', complete(1, 0)).late);
}
