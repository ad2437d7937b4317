//! *A worked example*, row by row.

use super::{SlotTables, occupy, publish, reserve, take, try_reserve};
use crate::protocol::RunConfig;
use crate::protocol::notation::{config, written};
use crate::protocol::tables::BlockedBy;

#[test]
fn the_worked_example_row_by_row() {
    let mut t = SlotTables::new(RunConfig {
        max_concurrency: Some(6),
        ..config(4, 4, 1)
    });

    reserve(&mut t, 0, "abcdef");
    assert_eq!(written(&t), "0: . . f e | 1: d c b a");

    occupy(&mut t, 'a');
    reserve(&mut t, 0, "g");
    assert_eq!(written(&t), "0: A . g e | 1: d c b f");

    occupy(&mut t, 'd');
    reserve(&mut t, 0, "h");
    assert_eq!(written(&t), "0: A D h e | 1: g c b f");

    occupy(&mut t, 'c');
    let blocked = try_reserve(&mut t, 0, "i");
    assert_eq!(blocked.blocked_by, Some(BlockedBy::Staleness));
    assert_eq!(written(&t), "0: A D C e | 1: g h b f");

    occupy(&mut t, 'e');
    assert_eq!(written(&t), "0: A D C E | 1: g h b f");
    assert_eq!(take(&mut t).as_deref(), Some("adce"));
    assert_eq!(written(&t), "1: g h b f");

    occupy(&mut t, 'f');
    occupy(&mut t, 'g');
    let blocked = try_reserve(&mut t, 0, "i");
    assert_eq!(blocked.blocked_by, Some(BlockedBy::Staleness));
    assert_eq!(written(&t), "1: F G b h");

    publish(&mut t, 1);
    reserve(&mut t, 1, "ijkl");
    assert_eq!(written(&t), "1: F G b h | 2: l k j i");

    occupy(&mut t, 'j');
    assert_eq!(written(&t), "1: F G b h | 2: J k l i");

    occupy(&mut t, 'h');
    assert_eq!(written(&t), "1: F G H b | 2: J k l i");

    occupy(&mut t, 'k');
    assert_eq!(written(&t), "1: F G H b | 2: J K l i");

    occupy(&mut t, 'b');
    assert_eq!(written(&t), "1: F G H B | 2: J K l i");
    assert_eq!(take(&mut t).as_deref(), Some("fghb"));
    assert_eq!(written(&t), "2: J K l i");

    occupy(&mut t, 'l');
    occupy(&mut t, 'i');
    assert_eq!(written(&t), "2: J K L I");
    assert_eq!(take(&mut t).as_deref(), Some("fghb"), "version 1 still trains");

    publish(&mut t, 2);
    assert_eq!(take(&mut t).as_deref(), Some("jkli"));
    assert_eq!(written(&t), "3: . . . .");
}

/// *One move is not always enough*: after a single one x would sit in buffer 2, and the trainer wait for z.
#[test]
fn one_move_is_not_always_enough() {
    let mut t = SlotTables::new(RunConfig {
        initial_version: 0,
        ..config(1, 1, 2)
    });
    reserve(&mut t, 0, "a");
    occupy(&mut t, 'a');
    take(&mut t);
    publish(&mut t, 1);
    reserve(&mut t, 1, "xw");
    reserve(&mut t, 0, "z");
    assert_eq!(written(&t), "1: z | 2: w | 3: x");

    occupy(&mut t, 'x');
    assert_eq!(written(&t), "1: X | 2: z | 3: w");
    assert_eq!(take(&mut t).as_deref(), Some("x"));
}
