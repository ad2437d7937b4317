//! *Take*, *Publish*, and the forgetting of old batches.

use super::{SlotTables, occupy, publish, reserve, take, try_take};
use crate::protocol::notation::{config, id, ids, letter, tables, weights, written};
use crate::protocol::tables::{BufferState, Delivery, PruneRefusal, Publish, PublishRefusal, Take};
use crate::protocol::{BufferId, Effect, RunConfig, Version};

#[test]
fn a_buffer_that_is_not_ready_says_what_it_waits_for() {
    let mut t = tables(config(2, 2, 0), "0: A .", &[]);
    let pending = Take::NotReady {
        state: BufferState::Pending,
        occupied: 1,
        needed: 2,
        finished: false,
    };
    assert_eq!(try_take(&mut t), pending);

    reserve(&mut t, 0, "b");
    let stuck = Take::NotReady {
        state: BufferState::Stuck,
        occupied: 1,
        needed: 2,
        finished: false,
    };
    assert_eq!(try_take(&mut t), stuck);
}

#[test]
fn taking_again_before_publishing_returns_the_same_batch() {
    let mut t = tables(config(2, 2, 1), "0: A B | 1: C D", &[]);
    let Take::Taken {
        version,
        entries,
        redelivered,
        ..
    } = try_take(&mut t)
    else {
        panic!("buffer 0 is ready");
    };
    let letters: String = entries.iter().map(|entry| letter(entry.id)).collect();
    assert_eq!((version, letters.as_str(), redelivered), (Version(0), "ab", false));
    assert_eq!(t.next_buffer(), BufferId(1));

    let again = try_take(&mut t);
    let same = Take::Taken {
        version,
        entries,
        redelivered: true,
        replayed: false,
        is_final: false,
        delivery: Delivery::Repeated,
        effects: Vec::new(),
    };
    assert_eq!(again, same);
    assert_eq!(written(&t), "1: C D", "ready, not takeable");
}

#[test]
fn a_publish_opens_one_buffer() {
    let mut t = tables(config(1, 1, 1), "0: A | 1: .", &[]);
    take(&mut t);
    assert_eq!(t.publish(Version(1), None), Ok(Publish::Advanced));
    assert_eq!(written(&t), "1: . | 2: .");
    assert_eq!((t.policy_version(), t.next_buffer()), (Version(1), BufferId(1)));
}

#[test]
fn an_older_version_published_again_changes_nothing() {
    let mut t = SlotTables::new(RunConfig {
        initial_version: 5,
        ..config(1, 1, 0)
    });
    for version in [0, 5] {
        assert_eq!(t.publish(Version(version), None), Ok(Publish::Unchanged));
    }
    assert_eq!(written(&t), "5: .");
}

#[test]
fn a_version_is_published_in_its_turn_and_after_its_batch_was_taken() {
    let mut t = tables(config(1, 1, 0), "0: A", &[]);
    let skipped = PublishRefusal::OutOfOrder { expected: Version(1) };
    assert_eq!(t.publish(Version(2), None), Err(skipped));
    let not_taken = PublishRefusal::NotTaken { batch: Version(0) };
    assert_eq!(t.publish(Version(1), None), Err(not_taken));
    take(&mut t);
    publish(&mut t, 1);
}

#[test]
fn a_batch_is_forgotten_only_past_keep_batches_and_never_in_training() {
    let mut t = SlotTables::new(RunConfig {
        keep_batches: 1,
        ..config(1, 1, 0)
    });
    reserve(&mut t, 0, "a");
    occupy(&mut t, 'a');
    take(&mut t);
    assert_eq!(t.prune(id('a')), Err(PruneRefusal::Kept { batch: Version(0) }));

    publish(&mut t, 1);
    reserve(&mut t, 1, "b");
    assert_eq!(t.prune(id('b')), Err(PruneRefusal::NotTaken));
    occupy(&mut t, 'b');
    assert_eq!(t.prune(id('a')), Err(PruneRefusal::Kept { batch: Version(0) }));
    take(&mut t);
    assert_eq!(t.prune(id('a')), Ok(Effect::Pruned { id: id('a') }));
    assert_eq!(t.prune(id('a')), Err(PruneRefusal::Unknown));
    assert_eq!(t.prune(id('b')), Err(PruneRefusal::Kept { batch: Version(1) }));
}

#[test]
fn only_what_may_change_changes_while_a_run_lives() {
    let mut t = SlotTables::new(config(1, 1, 0));
    let limited = RunConfig {
        max_concurrency: Some(0),
        ..config(1, 1, 0)
    };
    assert_eq!(t.set_config(limited.clone()), Ok(()));
    let blocked = t.reserve(weights(0), &ids("a")).expect("a published version");
    assert_eq!(blocked.granted, 0);

    assert!(t.set_config(config(2, 2, 0)).is_err());
    assert_eq!(t.config(), &limited);
}
