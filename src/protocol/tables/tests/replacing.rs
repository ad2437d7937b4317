//! *Re-place*: entries of batches and buffers are laid out anew.

use super::{SlotTables, forced, occupy, publish, replay, reserve, resume, rewind, take, train};
use crate::protocol::notation::{config, shorthand, tables, written};

/// Greedy "earliest" places would leave d homeless.
#[test]
fn the_example_of_the_protocol() {
    let mut t = SlotTables::new(config(1, 1, 2));
    reserve(&mut t, 0, "abd");
    occupy(&mut t, 'a');
    train(&mut t);
    occupy(&mut t, 'b');
    reserve(&mut t, 1, "c");
    train(&mut t);
    occupy(&mut t, 'c');
    assert_eq!(written(&t), "2: d | 3: C | 4: .");

    let effects = resume(&mut t, rewind(1)).effects;
    assert_eq!(
        shorthand(&effects),
        ["b: 1.0 replaced 1.0", "d: 2.0 replaced 2.0", "c: 3.0 replaced 3.0"]
    );
    assert_eq!(written(&t), "1: B | 2: d | 3: C");
}

/// b was reserved in front of what the batch gave back.
#[test]
fn what_was_finished_is_finished_and_what_was_reserved_is_behind_it() {
    let mut t = SlotTables::new(config(2, 2, 1));
    reserve(&mut t, 0, "abcd");
    for letter in "abc".chars() {
        occupy(&mut t, letter);
    }
    take(&mut t);
    publish(&mut t, 1);
    assert_eq!(written(&t), "1: C d | 2: . .");

    let effects = resume(&mut t, rewind(0)).effects;
    assert_eq!(
        shorthand(&effects),
        [
            "a: 0.0 replaced 0.0",
            "b: 0.1 replaced 0.1",
            "c: 1.0 replaced 1.0",
            "d: 1.1 replaced 1.1"
        ]
    );
    assert_eq!(written(&t), "0: A B | 1: C d");
}

/// The entry of the older version comes first, although that of the newer one was in front of it.
#[test]
fn the_finished_ones_occupy_nearest_deadline_first() {
    let mut t = tables(config(1, 1, 2), "2: D | 3: C | 4: .", &[("d", 2), ("c", 1)]);
    let effects = resume(&mut t, forced(replay(3))).effects;
    assert_eq!(shorthand(&effects), ["c: 3.0 replaced 3.0", "d: 2.0 replaced 4.0"]);
    assert_eq!(written(&t), "3: C | 4: D | 5: .");
}

/// Both buffers would be ready again, so that nothing admitted with them has a batch to go to.
#[test]
fn with_oversampling_a_buffer_gets_no_more_finished_ones_than_its_batch_takes() {
    let mut t = SlotTables::new(config(1, 2, 1));
    reserve(&mut t, 0, "abcd");
    occupy(&mut t, 'a');
    occupy(&mut t, 'b');
    train(&mut t);
    reserve(&mut t, 1, "ef");
    assert_eq!(written(&t), "1: B . | 2: f e");

    let effects = resume(&mut t, rewind(0)).effects;
    assert_eq!(
        shorthand(&effects),
        [
            "f: 2.0 rewound",
            "e: 2.1 rewound",
            "a: 0.0 replaced 0.0",
            "b: 1.0 replaced 1.0"
        ]
    );
    assert_eq!(written(&t), "0: A . | 1: B .");
}

/// The surplus of laying out comes after what was too stale, and tells the place that it had before.
#[test]
fn with_oversampling_what_can_no_longer_be_trained_is_surplus_in_the_end() {
    let mut t = tables(config(1, 2, 1), "1: y x | 2: C d", &[("xy", 0), ("cd", 1)]);
    let effects = resume(&mut t, forced(replay(2))).effects;
    assert_eq!(
        shorthand(&effects),
        [
            "y: 1.0 too_stale",
            "x: 1.1 too_stale",
            "d: 2.1 surplus",
            "c: 2.0 replaced 2.0"
        ]
    );
    assert_eq!(written(&t), "2: C . | 3: . .");
}
