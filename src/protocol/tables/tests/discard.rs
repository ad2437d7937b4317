//! *Discard*, and how the gap is settled.

use super::{SlotTables, discard, occupy, reserve, take};
use crate::protocol::notation::{config, id, shorthand, tables, written};
use crate::protocol::tables::{DiscardRefusal, Discarded, DiscardedFrom};
use crate::protocol::{Reason, Version};

#[test]
fn the_gap_of_a_reservation_goes_to_the_front() {
    let mut t = tables(config(2, 2, 1), "0: . c | 1: b a", &[]);
    let effects = discard(&mut t, 'a', "failed");
    assert_eq!(shorthand(&effects), ["a: 1.1 failed", "c: 0.1 moved 1.1"]);
    assert_eq!(written(&t), "0: . . | 1: b c");
}

#[test]
fn the_hole_of_an_occupied_entry_is_filled_by_the_last_occupied_one_of_its_buffer() {
    let mut t = tables(config(3, 3, 0), "0: A B c", &[]);
    let effects = discard(&mut t, 'a', "filtered");
    assert_eq!(shorthand(&effects), ["a: 0.0 filtered", "b: 0.1 moved 0.0"]);
    assert_eq!(written(&t), "0: B . c");
}

#[test]
fn a_finished_entry_of_the_next_buffer_is_promoted() {
    let mut t = tables(config(2, 2, 1), "1: A B | 2: C d", &[("abcd", 1)]);
    let effects = discard(&mut t, 'a', "filtered");
    assert_eq!(
        shorthand(&effects),
        ["a: 1.0 filtered", "b: 1.1 moved 1.0", "c: 2.0 promoted 1.1"]
    );
    assert_eq!(written(&t), "1: B C | 2: . d");
}

#[test]
fn settling_goes_on_through_the_buffers() {
    let mut t = tables(config(1, 1, 2), "2: A | 3: B | 4: C", &[("abc", 2)]);
    let effects = discard(&mut t, 'a', "filtered");
    assert_eq!(
        shorthand(&effects),
        ["a: 2.0 filtered", "b: 3.0 promoted 2.0", "c: 4.0 promoted 3.0"]
    );
    assert_eq!(written(&t), "2: B | 3: C | 4: .");
}

/// The reservation that holds up the next buffer moves into the gap, and makes room for what is finished.
#[test]
fn a_cascade_into_the_gap_is_followed_by_a_promotion() {
    let mut t = tables(config(2, 2, 1), "1: A b | 2: C d", &[("abcd", 1)]);
    let effects = discard(&mut t, 'd', "failed");
    assert_eq!(
        shorthand(&effects),
        ["d: 2.1 failed", "b: 1.1 moved 2.1", "c: 2.0 promoted 1.1"]
    );
    assert_eq!(written(&t), "1: A C | 2: . b");
}

#[test]
fn nothing_is_promoted_when_nothing_later_is_finished() {
    let mut t = tables(config(2, 2, 1), "1: A B | 2: d c", &[("cd", 1)]);
    discard(&mut t, 'b', "filtered");
    assert_eq!(written(&t), "1: A . | 2: d c");
}

#[test]
fn a_discard_sent_again_changes_nothing_and_keeps_the_first_reason() {
    let mut t = SlotTables::new(config(1, 1, 1));
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "lease_expired");
    let again = t.discard(id('a'), Reason::from("failed"));
    let repeated = Discarded {
        discarded_from: DiscardedFrom::Reserved,
        repeated: true,
        effects: Vec::new(),
    };
    assert_eq!(again, Ok(repeated));
    assert!(occupy(&mut t, 'a').late);
}

#[test]
fn what_is_in_training_and_what_is_unknown_cannot_be_discarded() {
    let mut t = SlotTables::new(config(1, 1, 0));
    reserve(&mut t, 0, "a");
    occupy(&mut t, 'a');
    take(&mut t);
    let taken = t.discard(id('a'), Reason::from("filtered"));
    assert_eq!(taken, Err(DiscardRefusal::Taken { batch: Version(0) }));
    let unknown = t.discard(id('b'), Reason::from("filtered"));
    assert_eq!(unknown, Err(DiscardRefusal::Unknown));
}
