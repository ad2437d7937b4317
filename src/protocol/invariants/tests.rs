//! Each invariant, broken.

use super::{Demand, Violation, check, check_buffers};
use crate::protocol::notation::{config, id, tables};
use crate::protocol::tables::{BufferState, Resume, SlotState, SlotTables};
use crate::protocol::{BufferId, Effect, Epoch, Lineage, Place, ResumeMode, Version};

/// The only thing wrong with `B = S = 2`, `η = 1` tables that stand as written.
fn violation(written: &str, versions: &[(&str, u64)]) -> Violation {
    only(check(&tables(config(2, 2, 1), written, versions)))
}

fn only(mut violations: Vec<Violation>) -> Violation {
    let violation = violations.pop().expect("something is wrong");
    assert_eq!(violations, [], "beside {violation}");
    violation
}

#[test]
fn nothing_is_wrong_with_good_tables() {
    for (written, versions) in [
        ("0: A . | 1: d c", vec![]),
        ("1: A b | 2: C d", vec![("cd", 1)]),
        ("1: A B", vec![]),
        ("1: . b | 2: d c", vec![("cd", 1)]),
    ] {
        assert_eq!(check(&tables(config(2, 2, 1), written, &versions)), [], "{written}");
    }
}

#[test]
fn bound_an_entry_past_its_deadline() {
    let expected = Violation::Bound {
        id: id('a'),
        version: Version(0),
        buffer: BufferId(2),
    };
    assert_eq!(violation("1: . b | 2: c a", &[("c", 1)]), expected);
    assert_eq!(
        expected.to_string(),
        "bound: 00000000-0000-0000-0000-000000000061 of version 0 is in buffer 2"
    );
}

#[test]
fn bound_an_entry_newer_than_its_buffer() {
    let violations = check(&tables(config(2, 2, 1), "1: . . | 2: . c", &[("c", 3)]));
    assert_eq!(
        violations,
        [
            Violation::Bound {
                id: id('c'),
                version: Version(3),
                buffer: BufferId(2)
            },
            Violation::NotPublished {
                id: id('c'),
                version: Version(3)
            },
        ]
    );
}

#[test]
fn capacity_more_finished_than_the_batch_takes() {
    let expected = Violation::Capacity {
        buffer: BufferId(0),
        occupied: 3,
        batch_size: 2,
    };
    assert_eq!(only(check(&tables(config(2, 3, 0), "0: A B C", &[]))), expected);
}

#[test]
fn order_of_the_slots_in_a_buffer() {
    let expected = Violation::Order { buffer: BufferId(1) };
    assert_eq!(violation("1: a B | 2: C d", &[("cd", 1)]), expected);
}

#[test]
fn packed_a_reservation_before_an_empty_slot_that_is_legal_for_it() {
    let expected = Violation::ReservedTooEarly {
        id: id('a'),
        place: Place::new(0, 1),
        free: Place::new(1, 0),
    };
    assert_eq!(violation("0: . a | 1: . b", &[]), expected);
}

#[test]
fn packed_a_finished_entry_that_an_earlier_buffer_needs() {
    let expected = Violation::OccupiedTooLate {
        id: id('b'),
        place: Place::new(1, 0),
        free: BufferId(0),
    };
    assert_eq!(violation("0: A . | 1: B c", &[]), expected);
}

#[test]
fn surplus_that_was_kept() {
    let expected = Violation::SurplusKept {
        id: id('b'),
        place: Place::new(0, 1),
    };
    assert_eq!(only(check(&tables(config(1, 2, 0), "0: A b", &[]))), expected);
}

#[test]
fn what_is_said_of_buffers_and_does_not_fit_them() {
    let good = SlotTables::new(config(2, 2, 1));
    let wrong = |change: fn(&mut Vec<crate::protocol::tables::BufferView>)| {
        let mut buffers = good.buffers();
        change(&mut buffers);
        only(check_buffers(good.config(), Version(0), BufferId(0), &buffers))
    };

    let window = Violation::Window {
        policy_version: Version(0),
        next_buffer: BufferId(0),
    };
    assert_eq!(wrong(|buffers| drop(buffers.pop())), window);

    let state = Violation::State {
        buffer: BufferId(0),
        said: BufferState::Stuck,
        state: BufferState::Pending,
    };
    assert_eq!(wrong(|buffers| buffers[0].state = BufferState::Stuck), state);

    let slots = Violation::Slots {
        buffer: BufferId(1),
        slots: 1,
        slots_per_buffer: 2,
    };
    assert_eq!(wrong(|buffers| buffers[1].slots.truncate(1)), slots);

    let twice = Violation::Twice {
        id: id('a'),
        first: Place::new(1, 0),
        second: Place::new(1, 1),
    };
    let doubled = wrong(|buffers| {
        let slot = SlotState::Reserved {
            id: id('a'),
            version: Version(0),
        };
        buffers[1].slots.fill(slot);
        buffers[1].state = BufferState::Stuck;
    });
    assert_eq!(doubled, twice);
}

/// *One move is not always enough*: x may occupy buffer 1, because z and w still fit behind it.
#[test]
fn earliest_is_found_by_counting() {
    let before = tables(config(1, 1, 2), "1: z | 2: w | 3: x", &[("xw", 1)]);
    let demand = Demand::beside(&before, id('x'));
    let check = |buffer| demand.check(id('x'), Version(1), BufferId(buffer));
    assert_eq!(check(1), None);
    let late = Violation::NotEarliest {
        id: id('x'),
        buffer: BufferId(2),
        earlier: BufferId(1),
    };
    assert_eq!(check(2), Some(late));
}

/// b may be trained in buffer 1 only.
#[test]
fn an_occupy_leaves_the_others_a_place() {
    let before = tables(config(1, 1, 1), "1: b | 2: a", &[("a", 1)]);
    let demand = Demand::beside(&before, id('a'));
    let check = |buffer| demand.check(id('a'), Version(1), BufferId(buffer));
    let homeless = Violation::LeavesNoPlace {
        id: id('a'),
        buffer: BufferId(1),
    };
    assert_eq!(check(1), Some(homeless));
    assert_eq!(check(2), None);
}

/// V = 1, and b is of version 1; back to version 0, which only a broken log leaves b in the tables of.
#[test]
fn rewind_that_kept_an_entry_of_abandoned_weights() {
    let mut t = tables(config(1, 1, 1), "1: b | 2: .", &[("b", 1)]);
    let rewind = Resume {
        resume_from: Some(Version(0)),
        mode: ResumeMode::Rewind,
        ..Resume::default()
    };
    let to = Place::new(1, 0);
    let kept = Effect::Replaced {
        id: id('b'),
        from: to,
        to,
    };
    t.replay_resume(&rewind, Epoch(1), Lineage(1), &[kept])
        .expect("there is room for it");
    let expected = [
        Violation::NotPublished {
            id: id('b'),
            version: Version(1),
        },
        Violation::Abandoned {
            id: id('b'),
            version: Version(1),
            lineage: Lineage(0),
        },
    ];
    assert_eq!(check(&t), expected);
}

#[test]
fn kept_batches_that_the_trainer_still_needs() {
    let mut t = tables(config(1, 1, 0), "0: A", &[]);
    t.replay_take().expect("the trainer is idle");
    assert_eq!(check(&t), []);
    t.replay(&[Effect::Pruned { id: id('a') }]).expect("an entry less");
    assert_eq!(check(&t), [Violation::NotKept { batch: Version(0) }]);
}
