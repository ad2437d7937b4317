//! *Resume* from a version that the ledger has not reached.

use super::{
    ResumeRefusal, SlotTables, forced, kept, occupy, refused, replay, reserve, resume, standing, take, train_each,
};
use crate::protocol::notation::{config, id, ids, shorthand, weights, written};
use crate::protocol::tables::{EntryState, ResumeKind};
use crate::protocol::{Place, Version};

/// Both a and b may be trained in buffer 1 at the latest, and a has finished.
#[test]
fn what_no_batch_to_come_may_have_is_lost() {
    let mut t = SlotTables::new(config(1, 1, 1));
    reserve(&mut t, 0, "ab");
    occupy(&mut t, 'a');
    assert_eq!(written(&t), "0: A | 1: b");

    let behind = ResumeRefusal::LedgerBehind {
        version: Version(1),
        policy_version: Version(0),
    };
    assert_eq!(refused(&mut t, replay(1)), behind, "batch 0 was not taken");
    let resumed = resume(&mut t, forced(replay(1)));
    assert_eq!(resumed.kind, ResumeKind::Forced);
    assert_eq!(shorthand(&resumed.effects), ["b: 1.0 too_stale", "a: 0.0 replaced 1.0"]);
    assert_eq!(written(&t), "1: A | 2: .");
    assert_eq!(standing(&t), [1, 1, 1, 1, 1]);
}

#[test]
fn what_was_taken_stays_taken_and_the_numbers_between_never_were_batches() {
    let mut t = SlotTables::new(config(1, 1, 3));
    train_each(&mut t, "ab");
    reserve(&mut t, 2, "cd");
    occupy(&mut t, 'c');
    take(&mut t);
    assert_eq!(written(&t), "3: . | 4: . | 5: d");

    let effects = resume(&mut t, forced(replay(5))).effects;
    assert_eq!(shorthand(&effects), ["d: 5.0 replaced 5.0"]);
    assert_eq!(written(&t), "5: d | 6: . | 7: . | 8: .");
    assert_eq!(kept(&t), [0, 1, 2]);
    let taken = EntryState::Taken {
        place: Place::new(2, 0),
    };
    assert_eq!(t.entry(id('c')).map(|entry| &entry.state), Some(&taken));
}

#[test]
fn weights_from_before_the_jump_are_as_good_as_they_are_fresh() {
    let mut t = SlotTables::new(config(1, 1, 2));
    train_each(&mut t, "a");
    resume(&mut t, forced(replay(3)));
    assert!(t.reserve(weights(0), &ids("b")).is_err(), "too stale");
    t.reserve(weights(1), &ids("b")).expect("weights that batch 3 may have");
    assert_eq!(written(&t), "3: b | 4: . | 5: .");
}
