//! *Partial rollout*: generation goes on under newer weights.

use super::{
    MemberRefusal, SlotTables, discard, member, occupy, publish, reserve, resume, rewind, take, train, train_each,
};
use crate::protocol::notation::{complete, config, id, of_groups, shorthand, weights, weights_of, written};
use crate::protocol::tables::{FinishedAs, OccupyRefusal, Segmented, WeightsRefusal};
use crate::protocol::{Reason, Version};

/// `B = S = 1`, `η = 2`, V = 2; b and c are reserved at version 0.
fn at_version_two() -> SlotTables {
    let mut t = SlotTables::new(config(1, 1, 3));
    train_each(&mut t, "xy");
    reserve(&mut t, 0, "bc");
    assert_eq!(written(&t), "2: c | 3: b | 4: . | 5: .");
    t
}

fn segment(tables: &mut SlotTables, letter: char, version: u64) -> Vec<String> {
    let segmented = tables.segment(id(letter), None, weights(version));
    shorthand(&segmented.expect("a segment").effects)
}

fn refused(tables: &mut SlotTables, letter: char, version: u64) -> MemberRefusal {
    let before = tables.clone();
    let refusal = tables.segment(id(letter), None, weights(version));
    assert_eq!(*tables, before, "a refusal changes nothing");
    refusal.expect_err("a refusal")
}

#[test]
fn a_trajectory_goes_on_under_newer_weights_and_keeps_its_version_and_its_deadline() {
    let mut t = at_version_two();
    assert_eq!(segment(&mut t, 'b', 1), ["b: under 1"]);
    assert_eq!(segment(&mut t, 'b', 1), Vec::<String>::new(), "the last one again");
    assert_eq!(segment(&mut t, 'b', 2), ["b: under 2"]);
    let entry = t.entry(id('b')).expect("it is known");
    assert_eq!((entry.version, entry.newest), (Version(0), Version(2)));
    assert_eq!(written(&t), "2: c | 3: b | 4: . | 5: .");
}

#[test]
fn versions_of_segments_rise_and_none_is_above_the_latest() {
    let mut t = at_version_two();
    segment(&mut t, 'b', 2);
    let out_of_order = WeightsRefusal::OutOfOrder {
        version: Version(1),
        newest: Version(2),
    };
    assert_eq!(refused(&mut t, 'b', 1), out_of_order.into());
    let not_published = WeightsRefusal::NotPublished {
        version: Version(3),
        policy_version: Version(2),
    };
    assert_eq!(refused(&mut t, 'b', 3), not_published.into());
}

#[test]
fn a_segment_of_what_is_finished_changes_nothing_and_of_what_was_given_up_is_refused() {
    let mut t = at_version_two();
    let nothing = Segmented {
        counted: false,
        effects: Vec::new(),
    };
    occupy(&mut t, 'b');
    assert_eq!(t.segment(id('b'), None, weights(1)), Ok(nothing.clone()));
    take(&mut t);
    assert_eq!(t.segment(id('b'), None, weights(1)), Ok(nothing));
    discard(&mut t, 'c', "failed");
    let given_up = MemberRefusal::Discarded(Reason::from("failed"));
    assert_eq!(refused(&mut t, 'c', 1), given_up);
    assert_eq!(refused(&mut t, 'z', 1), MemberRefusal::Unknown);
}

#[test]
fn an_occupy_may_say_what_went_on_to_the_end() {
    let mut t = at_version_two();
    let finished = t.occupy_continued(id('b'), weights(2)).expect("an occupy");
    assert_eq!(
        shorthand(&finished.effects),
        ["b: under 2", "c: 2.0 moved 3.0", "b: 3.0 occupied 2.0"]
    );
    let again = t.occupy_continued(id('b'), weights(2)).expect("an occupy sent again");
    assert_eq!((again.end, again.effects), (finished.end, Vec::new()));
}

#[test]
fn a_rewind_discards_what_an_abandoned_version_generated_only_a_part_of() {
    let mut t = at_version_two();
    segment(&mut t, 'b', 2);
    segment(&mut t, 'c', 1);
    let resumed = resume(&mut t, rewind(1));
    assert_eq!(
        shorthand(&resumed.effects),
        ["b: 3.0 rewound", "y: 1.0 replaced 1.0", "c: 2.0 replaced 3.0"]
    );
}

/// V = 1 and back to 0; then there is another version 1.
#[test]
fn abandoned_weights_go_on_with_nothing_although_their_number_exists_again() {
    let mut t = SlotTables::new(config(1, 1, 2));
    train_each(&mut t, "x");
    reserve(&mut t, 0, "bc");
    resume(&mut t, rewind(0));
    train(&mut t);
    let abandoned = WeightsRefusal::Abandoned {
        version: Version(1),
        policy_version: Version(1),
    };
    assert_eq!(refused(&mut t, 'b', 1), abandoned.into());
    let anew = t.segment(id('b'), None, weights_of(1, 1)).expect("the weights of now");
    assert_eq!(shorthand(&anew.effects), ["b: under 1"]);

    let finished = t.occupy_continued(id('c'), weights(1)).expect("it is told");
    let reason = Reason::Rewound;
    assert_eq!(finished.end, FinishedAs::Discarded { reason });
    let again = t.occupy_continued(id('c'), weights(1));
    assert_eq!(again, Err(OccupyRefusal::Discarded(Reason::Rewound)));
}

#[test]
fn a_later_rewind_knows_which_lineage_went_on_with_an_entry() {
    let mut t = SlotTables::new(config(1, 1, 2));
    train_each(&mut t, "x");
    reserve(&mut t, 0, "bc");
    resume(&mut t, rewind(0));
    train(&mut t);
    t.segment(id('b'), None, weights_of(1, 1)).expect("the weights of now");
    discard(&mut t, 'b', "lease_expired");
    discard(&mut t, 'c', "lease_expired");
    assert!(occupy(&mut t, 'b').late, "version 1 of lineage 1 is not abandoned");
    discard(&mut t, 'b', "lease_expired");
    resume(&mut t, rewind(0));
    assert_eq!(t.occupy(id('b')), Err(OccupyRefusal::Discarded(Reason::LeaseExpired)));
    assert!(occupy(&mut t, 'c').late);
}

#[test]
fn segments_of_what_may_come_back_late_are_recorded() {
    let mut t = at_version_two();
    discard(&mut t, 'b', "timed_out");
    assert_eq!(segment(&mut t, 'b', 1), ["b: under 1"]);
    let late = t.occupy_continued(id('b'), weights(2)).expect("there is a slot");
    assert!(late.late);
    assert_eq!(
        shorthand(&late.effects),
        ["b: under 2", "b: reserved 2.0", "b: 2.0 occupied 2.0"]
    );
}

#[test]
fn members_have_segments_of_their_own() {
    let mut t = SlotTables::new(of_groups(2, 3, config(1, 1, 2)));
    reserve(&mut t, 0, "xa");
    member(&mut t, 'x', complete(0, 0));
    member(&mut t, 'x', complete(1, 0));
    take(&mut t);
    publish(&mut t, 1);
    assert_eq!(refused(&mut t, 'a', 1), MemberRefusal::NoMemberNamed);
    let mut segment = |member, version| {
        let segmented = t.segment(id('a'), Some(member), weights(version));
        segmented.map(|segmented| (segmented.counted, segmented.effects.len()))
    };
    assert_eq!(segment(2, 1), Ok((true, 1)));
    assert_eq!(segment(0, 0), Ok((true, 0)), "an older version, of another member");
    let no_member = MemberRefusal::NoSuchMember {
        index: 3,
        candidates: 3,
    };
    assert_eq!(segment(3, 1), Err(no_member));
    member(&mut t, 'a', complete(0, 0));
    let reported = t.segment(id('a'), Some(0), weights(1)).expect("it changes nothing");
    assert!(!reported.counted);
}
