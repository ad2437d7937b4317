//! *Resume* in mode `rewind`: the weights after the checkpoint are abandoned.

use super::{
    ResumeRefusal, SlotTables, discard, forced, kept, occupy, publish, refused, replay, reserve, resume, rewind,
    standing, take, train, train_each,
};
use crate::protocol::notation::{config, id, ids, shorthand, weights, written};
use crate::protocol::tables::{DiscardedFrom, OccupyRefusal, ReserveRefusal, ResumeKind};
use crate::protocol::{Effect, Reason, RunConfig, Version};

fn two_by_two_keeping_one() -> RunConfig {
    RunConfig {
        keep_batches: 1,
        ..config(2, 2, 0)
    }
}

#[test]
fn what_an_abandoned_version_generated_is_rewound_wherever_it_is() {
    let mut t = SlotTables::new(config(1, 1, 2));
    train_each(&mut t, "ab");
    reserve(&mut t, 0, "c");
    reserve(&mut t, 2, "de");
    occupy(&mut t, 'd');
    assert_eq!(written(&t), "2: c | 3: D | 4: e");

    let resumed = resume(&mut t, rewind(0));
    assert_eq!(resumed.kind, ResumeKind::Rewind);
    assert_eq!(
        shorthand(&resumed.effects),
        [
            "b: 1.0 rewound",
            "d: 3.0 rewound",
            "e: 4.0 rewound",
            "a: 0.0 replaced 0.0",
            "c: 2.0 replaced 2.0"
        ]
    );
    assert_eq!(written(&t), "0: A | 1: . | 2: c");
    assert_eq!(standing(&t), [0, 0, 0, 1, 1]);
    assert_eq!(kept(&t), Vec::<u64>::new());
    assert_eq!(t.occupy(id('b')), Err(OccupyRefusal::Discarded(Reason::Rewound)));
    for (letter, was) in [
        ('b', DiscardedFrom::Occupied),
        ('d', DiscardedFrom::Occupied),
        ('e', DiscardedFrom::Reserved),
    ] {
        let again = t.discard(id(letter), Reason::from("failed")).expect("it was discarded");
        assert_eq!((again.discarded_from, again.repeated), (was, true), "{letter}");
    }
}

#[test]
fn the_batches_before_the_checkpoint_stay_and_the_others_are_taken_anew() {
    let mut t = SlotTables::new(config(1, 1, 2));
    reserve(&mut t, 0, "abc");
    for letter in "abc".chars() {
        occupy(&mut t, letter);
    }
    train(&mut t);
    train(&mut t);
    take(&mut t);
    assert_eq!(kept(&t), [0, 1, 2]);

    resume(&mut t, rewind(1));
    assert_eq!(kept(&t), [0]);
    assert_eq!(written(&t), "1: B | 2: C | 3: .");
    assert_eq!(take(&mut t).as_deref(), Some("b"));
    publish(&mut t, 2);
    assert_eq!(take(&mut t).as_deref(), Some("c"));
    assert_eq!(kept(&t), [0, 1, 2]);
}

/// b is of version 1, which exists again when it is published anew: but those are other weights.
#[test]
fn what_abandoned_weights_generated_cannot_return_late() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "a");
    reserve(&mut t, 1, "b");
    reserve(&mut t, 0, "c");
    discard(&mut t, 'b', "lease_expired");
    discard(&mut t, 'c', "abandoned");
    resume(&mut t, rewind(0));
    assert_eq!(written(&t), "0: A | 1: .");

    let refused = Err(OccupyRefusal::Discarded(Reason::LeaseExpired));
    assert_eq!(t.occupy(id('b')), refused);
    train(&mut t);
    assert_eq!(t.occupy(id('b')), refused);
    assert!(occupy(&mut t, 'c').late, "version 0 is as good as before");
    assert_eq!(written(&t), "1: C | 2: .");
}

#[test]
fn abandoned_weights_reserve_nothing_although_their_number_exists_again() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "a");
    resume(&mut t, rewind(0));
    train(&mut t);
    let expected = ReserveRefusal::VersionNotPublished {
        version: Version(1),
        policy_version: Version(1),
    };
    assert_eq!(t.reserve(weights(1), &ids("b")), Err(expected));
    t.reserve(weights(0), &ids("c"))
        .expect("weights from before the rewind");
    assert_eq!(written(&t), "1: c | 2: .");
}

#[test]
fn a_forced_rewind_forgets_what_is_left_of_the_batches_that_were_let_go_of() {
    let mut t = SlotTables::new(two_by_two_keeping_one());
    for (version, letters) in [(0, "ab"), (1, "cd"), (2, "ef")] {
        reserve(&mut t, version, letters);
        for letter in letters.chars() {
            occupy(&mut t, letter);
        }
        train(&mut t);
    }
    t.prune(id('a')).expect("batch 0 is let go of");
    t.prune(id('c')).expect("batch 1 is let go of");

    let pruned = ResumeRefusal::BatchPruned { batch: Version(1) };
    assert_eq!(refused(&mut t, rewind(1)), pruned);
    let effects = resume(&mut t, forced(rewind(1))).effects;
    assert_eq!(shorthand(&effects), ["d: pruned", "e: 2.0 rewound", "f: 2.1 rewound"]);
    assert_eq!(standing(&t), [1, 1, 1, 1, 1]);
    assert_eq!(written(&t), "1: . .");
    assert_eq!(t.entry(id('d')), None);
    assert_eq!(
        t.prune(id('b')),
        Ok(Effect::Pruned { id: id('b') }),
        "batch 0 is as before"
    );
}

#[test]
fn a_forced_rewind_goes_to_below_the_first_version() {
    let mut t = SlotTables::new(RunConfig {
        initial_version: 5,
        ..config(1, 1, 1)
    });
    reserve(&mut t, 5, "a");
    let pruned = ResumeRefusal::BatchPruned { batch: Version(3) };
    assert_eq!(refused(&mut t, rewind(3)), pruned);
    let effects = resume(&mut t, forced(rewind(3))).effects;
    assert_eq!(shorthand(&effects), ["a: 6.0 rewound"]);
    assert_eq!(written(&t), "3: . | 4: .");
    train_each(&mut t, "bc");
    assert_eq!(kept(&t), [3, 4]);
}

#[test]
fn a_forced_rewind_goes_back_past_what_a_forced_resume_left_out() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "ab");
    resume(&mut t, forced(replay(5)));
    train_each(&mut t, "c");
    assert_eq!(kept(&t), [0, 1, 5]);

    let pruned = ResumeRefusal::BatchPruned { batch: Version(2) };
    for needs_all in [rewind(1), replay(1), forced(replay(1))] {
        assert_eq!(refused(&mut t, needs_all), pruned);
    }
    let effects = resume(&mut t, forced(rewind(1))).effects;
    assert_eq!(shorthand(&effects), ["c: 5.0 rewound", "b: 1.0 replaced 1.0"]);
    assert_eq!(written(&t), "1: B | 2: .");
    assert_eq!(kept(&t), [0]);
}

#[test]
fn rewinds_add_up() {
    let mut t = SlotTables::new(config(1, 1, 4));
    train_each(&mut t, "abcd");
    resume(&mut t, rewind(3));
    resume(&mut t, rewind(1));
    assert_eq!(standing(&t), [1, 1, 1, 2, 2]);
    for (version, abandoned) in [(1, false), (2, true)] {
        assert_eq!(t.is_abandoned(weights(version)), abandoned);
    }
}
