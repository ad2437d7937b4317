//! *Reserve*.

use super::{SlotTables, discard, occupy, publish, reserve, take, try_reserve};
use crate::protocol::notation::{config, id, ids, shorthand, tables, weights, weights_of, written};
use crate::protocol::tables::{BlockedBy, ReserveRefusal};
use crate::protocol::{BufferId, Epoch, Lineage, RunConfig, Version};

#[test]
fn an_entry_gets_the_rear_most_empty_slot_of_the_latest_legal_buffer() {
    let mut t = SlotTables::new(config(2, 2, 1));
    let effects = reserve(&mut t, 0, "abc");
    assert_eq!(
        shorthand(&effects),
        ["a: reserved 1.1", "b: reserved 1.0", "c: reserved 0.1"]
    );
    assert_eq!(written(&t), "0: . c | 1: b a");
}

#[test]
fn lagging_weights_get_no_place_past_their_deadline() {
    let mut t = tables(config(2, 2, 1), "1: . . | 2: . .", &[]);
    reserve(&mut t, 0, "a");
    assert_eq!(written(&t), "1: . a | 2: . .");
}

#[test]
fn a_reserve_grants_what_there_is_and_says_what_blocks_the_rest() {
    let mut t = SlotTables::new(config(2, 2, 0));
    let reserved = try_reserve(&mut t, 0, "abc");
    assert_eq!(reserved.granted, 2);
    assert_eq!(reserved.blocked_by, Some(BlockedBy::Staleness));
    assert_eq!(written(&t), "0: b a");
}

#[test]
fn concurrency_blocks_before_staleness_and_counts_what_is_generating() {
    let mut t = SlotTables::new(RunConfig {
        max_concurrency: Some(2),
        ..config(2, 2, 0)
    });
    let reserved = try_reserve(&mut t, 0, "abc");
    assert_eq!(
        (reserved.granted, reserved.blocked_by),
        (2, Some(BlockedBy::Concurrency))
    );

    occupy(&mut t, 'a');
    let reserved = try_reserve(&mut t, 0, "c");
    assert_eq!((reserved.granted, reserved.blocked_by), (0, Some(BlockedBy::Staleness)));
}

#[test]
fn a_ready_buffer_admits_nothing_into_its_spare_slots() {
    let mut t = tables(config(1, 2, 0), "0: A .", &[]);
    let reserved = try_reserve(&mut t, 0, "b");
    assert_eq!(reserved.blocked_by, Some(BlockedBy::Staleness));
}

#[test]
fn a_version_that_is_not_published_is_refused() {
    let mut t = SlotTables::new(config(1, 1, 1));
    let refusal = t.reserve(weights(1), &ids("a")).unwrap_err();
    let expected = ReserveRefusal::VersionNotPublished {
        version: Version(1),
        policy_version: Version(0),
    };
    assert_eq!(refusal, expected);
    assert_eq!(t.entry(id('a')), None);
}

#[test]
fn weights_that_can_reach_no_buffer_to_come_are_refused_when_newer_ones_exist() {
    let mut t = tables(config(1, 1, 1), "2: . | 3: .", &[]);
    let refusal = t.reserve(weights(0), &ids("a")).unwrap_err();
    let expected = ReserveRefusal::VersionTooStale {
        version: Version(0),
        deadline: BufferId(1),
        next_buffer: BufferId(2),
    };
    assert_eq!(refusal, expected);
}

#[test]
fn with_no_staleness_the_newest_weights_wait_for_the_publish() {
    let mut t = SlotTables::new(config(1, 1, 0));
    reserve(&mut t, 0, "a");
    occupy(&mut t, 'a');
    assert_eq!(take(&mut t).as_deref(), Some("a"));
    assert_eq!(written(&t), "");
    let reserved = try_reserve(&mut t, 0, "b");
    assert_eq!(reserved.blocked_by, Some(BlockedBy::Staleness));

    publish(&mut t, 1);
    reserve(&mut t, 1, "b");
    assert_eq!(written(&t), "1: b");
    assert!(matches!(
        t.reserve(weights(0), &ids("c")),
        Err(ReserveRefusal::VersionTooStale { .. })
    ));
}

#[test]
fn an_id_is_given_once() {
    let mut t = SlotTables::new(config(2, 2, 0));
    let twice = t.reserve(weights(0), &ids("aa"));
    assert_eq!(twice, Err(ReserveRefusal::IdReused { id: id('a') }));
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "failed");
    let again = t.reserve(weights(0), &ids("ba"));
    assert_eq!(again, Err(ReserveRefusal::IdReused { id: id('a') }));
    assert_eq!(written(&t), "0: . .");
}

#[test]
fn weights_of_a_lineage_that_the_run_has_not_reached_are_refused_before_all_else() {
    let mut t = SlotTables::new(config(1, 1, 1));
    let refusal = t.reserve(weights_of(7, 1), &ids("a"));
    let expected = ReserveRefusal::LineageUnknown {
        named: Lineage(1),
        lineage: Lineage(0),
    };
    assert_eq!(refusal, Err(expected));
}

#[test]
fn a_run_that_goes_on_from_a_deleted_one_takes_none_of_its_weights() {
    let mut t = SlotTables::continued(config(1, 1, 1), Epoch(4), Lineage(2));
    let expected = ReserveRefusal::VersionNotPublished {
        version: Version(0),
        policy_version: Version(0),
    };
    for lineage in [0, 1] {
        assert_eq!(t.reserve(weights_of(0, lineage), &ids("a")), Err(expected));
    }
    t.reserve(weights_of(0, 2), &ids("a")).expect("its own weights");
    assert_eq!(written(&t), "0: . | 1: a");
}
