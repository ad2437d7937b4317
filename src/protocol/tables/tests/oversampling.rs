//! `S > B`: step 3 of *Occupy*, and the surplus rule.

use super::{SlotTables, discard, occupy, reserve, take, try_take};
use crate::protocol::Reason;
use crate::protocol::notation::{config, id, shorthand, tables, written};
use crate::protocol::tables::{OccupyRefusal, Take};

#[test]
fn what_can_no_longer_be_trained_is_surplus_when_its_last_buffer_becomes_ready() {
    let mut t = SlotTables::new(config(1, 3, 0));
    reserve(&mut t, 0, "abc");
    let effects = occupy(&mut t, 'b').effects;
    assert_eq!(
        shorthand(&effects),
        [
            "c: 0.0 moved 0.1",
            "b: 0.1 occupied 0.0",
            "c: 0.1 surplus",
            "a: 0.2 surplus"
        ]
    );
    assert_eq!(written(&t), "0: B . .");
    assert_eq!(t.occupy(id('a')), Err(OccupyRefusal::Discarded(Reason::Surplus)));
}

/// b could only be trained in buffer 1, which a makes ready; c and d may still go to buffer 2.
#[test]
fn surplus_is_only_what_has_no_other_buffer_left() {
    let mut t = tables(config(1, 2, 1), "1: b a | 2: d c", &[("ab", 0), ("cd", 1)]);
    let effects = occupy(&mut t, 'a').effects;
    assert_eq!(
        shorthand(&effects),
        ["b: 1.0 moved 1.1", "a: 1.1 occupied 1.0", "b: 1.1 surplus"]
    );
    assert_eq!(written(&t), "1: A . | 2: d c");
}

/// Buffer 1 is stuck with x and y of version 0; a of version 1 finishes, with no gap that x could go to.
#[test]
fn the_displaced_reservation_is_surplus_when_the_gap_is_past_its_deadline() {
    let mut t = tables(config(1, 2, 1), "1: y x | 2: B a", &[("xy", 0), ("ab", 1)]);
    let effects = occupy(&mut t, 'a').effects;
    assert_eq!(
        shorthand(&effects),
        ["y: 1.0 surplus", "a: 2.1 occupied 1.0", "x: 1.1 surplus"]
    );
    assert_eq!(written(&t), "1: A . | 2: B .");
}

/// a was reserved in buffer 1, which became ready without it. Finished, it goes to buffer 2, and b takes its slot.
#[test]
fn the_displaced_reservation_takes_the_gap_when_that_is_legal() {
    let mut t = tables(config(1, 2, 1), "1: C a | 2: b d", &[("abcd", 1)]);
    let effects = occupy(&mut t, 'a').effects;
    assert_eq!(
        shorthand(&effects),
        [
            "b: 2.0 moved 1.1",
            "a: 1.1 occupied 2.0",
            "b: 1.1 surplus",
            "d: 2.1 surplus"
        ]
    );
    assert_eq!(written(&t), "1: C . | 2: A .");
}

#[test]
fn a_finished_entry_in_a_ready_buffer_s_gap_goes_to_a_later_empty_slot() {
    let mut t = tables(config(2, 3, 1), "1: C D a | 2: . . b", &[("abcd", 1)]);
    occupy(&mut t, 'a');
    assert_eq!(written(&t), "1: C D . | 2: A . b");
}

#[test]
fn a_discard_that_promotes_an_entry_can_make_others_surplus() {
    let mut t = tables(config(2, 3, 1), "1: A x y | 2: B z c", &[("axy", 0), ("bcz", 1)]);
    let effects = discard(&mut t, 'x', "failed");
    assert_eq!(
        shorthand(&effects),
        ["x: 1.1 failed", "b: 2.0 promoted 1.1", "y: 1.2 surplus"]
    );
    assert_eq!(written(&t), "1: A B . | 2: . z c");
}

#[test]
fn a_ready_buffer_with_spare_slots_is_made_whole_by_a_promotion() {
    let mut t = tables(config(1, 2, 1), "1: A . | 2: B .", &[("ab", 1)]);
    let effects = discard(&mut t, 'a', "filtered");
    assert_eq!(shorthand(&effects), ["a: 1.0 filtered", "b: 2.0 promoted 1.0"]);
    assert_eq!(written(&t), "1: B . | 2: . .");
}

#[test]
fn what_is_still_reserved_in_a_taken_buffer_is_surplus() {
    let mut t = tables(config(1, 2, 1), "1: A b | 2: d c", &[("abcd", 1)]);
    let Take::Taken { effects, .. } = try_take(&mut t) else {
        panic!("buffer 1 is ready");
    };
    assert_eq!(shorthand(&effects), ["b: 1.1 surplus"]);
    assert_eq!(written(&t), "2: d c");
    assert_eq!(take(&mut t).as_deref(), Some("a"), "redelivered");
}
