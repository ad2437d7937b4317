//! *Occupy* and *Late occupy*.

use super::{SlotTables, discard, occupy, publish, reserve, take};
use crate::protocol::notation::{config, id, shorthand, tables, written};
use crate::protocol::tables::{Occupied, OccupyRefusal};
use crate::protocol::{Place, Reason, RunConfig};

#[test]
fn the_cascade_goes_before_the_entry_that_it_makes_room_for() {
    let mut t = tables(config(4, 4, 1), "0: . . f e | 1: d c b a", &[]);
    let occupied = occupy(&mut t, 'a');
    assert_eq!(
        shorthand(&occupied.effects),
        ["f: 0.2 moved 1.3", "a: 1.3 occupied 0.0"]
    );
    assert_eq!(occupied.place, Place::new(0, 0));
    assert_eq!(written(&t), "0: A . . e | 1: d c b f");
}

#[test]
fn within_a_buffer_the_front_most_reservation_fills_the_gap() {
    let mut t = tables(config(3, 3, 0), "0: c b a", &[]);
    occupy(&mut t, 'a');
    assert_eq!(written(&t), "0: A b c");
}

#[test]
fn an_occupy_sent_again_shows_the_current_place_and_changes_nothing() {
    let mut t = SlotTables::new(config(1, 1, 1));
    reserve(&mut t, 0, "a");
    let first = occupy(&mut t, 'a');
    let again = occupy(&mut t, 'a');
    let repeated = Occupied {
        repeated: true,
        effects: Vec::new(),
        ..first
    };
    assert_eq!(again, repeated);

    take(&mut t);
    assert_eq!(occupy(&mut t, 'a'), repeated);
}

#[test]
fn an_unknown_entry_cannot_be_occupied() {
    let mut t = SlotTables::new(config(1, 1, 1));
    assert_eq!(t.occupy(id('a')), Err(OccupyRefusal::Unknown));
}

#[test]
fn a_late_occupy_takes_what_reserve_could_give_and_the_earliest_place() {
    let mut t = SlotTables::new(config(2, 2, 1));
    reserve(&mut t, 0, "abc");
    discard(&mut t, 'a', "lease_expired");
    assert_eq!(written(&t), "0: . . | 1: b c");

    let late = occupy(&mut t, 'a');
    assert!(late.late);
    assert_eq!(shorthand(&late.effects), ["a: reserved 0.1", "a: 0.1 occupied 0.0"]);
    assert_eq!(written(&t), "0: A . | 1: b c");
    assert!(occupy(&mut t, 'a').late, "still said when sent again");
}

#[test]
fn a_late_occupy_needs_no_leave_of_the_concurrency_limit() {
    let mut t = SlotTables::new(RunConfig {
        max_concurrency: Some(1),
        ..config(2, 2, 0)
    });
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "abandoned");
    reserve(&mut t, 0, "b");
    occupy(&mut t, 'a');
    assert_eq!(written(&t), "0: A b");
}

#[test]
fn a_late_occupy_without_a_slot_is_refused_with_the_original_reason() {
    let mut t = SlotTables::new(config(1, 1, 0));
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "lease_expired");
    reserve(&mut t, 0, "b");
    assert_eq!(t.occupy(id('a')), Err(OccupyRefusal::Discarded(Reason::LeaseExpired)));

    occupy(&mut t, 'b');
    take(&mut t);
    publish(&mut t, 1);
    assert_eq!(
        t.occupy(id('a')),
        Err(OccupyRefusal::Discarded(Reason::LeaseExpired)),
        "past its deadline"
    );
    assert_eq!(written(&t), "1: .");
}

#[test]
fn what_was_given_up_on_purpose_cannot_return_late() {
    for reason in ["failed", "worker_restarted", "surplus"] {
        let mut t = SlotTables::new(config(1, 1, 0));
        reserve(&mut t, 0, "a");
        discard(&mut t, 'a', reason);
        assert_eq!(t.occupy(id('a')), Err(OccupyRefusal::Discarded(Reason::from(reason))));
        assert_eq!(written(&t), "0: .");
    }
}
