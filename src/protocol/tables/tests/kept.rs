//! The kept batches: *Checkpoint*, `keep_batches`, and the numbers that never were batches.

use super::{SlotTables, forced, kept, publish, replay, resume, take, train_each};
use crate::protocol::notation::{config, id};
use crate::protocol::tables::{BatchEntry, CheckpointRefusal, Checkpointed, PruneRefusal};
use crate::protocol::{Effect, RunConfig, Version};

fn checkpoint(t: &mut SlotTables, version: u64) -> Result<Checkpointed, CheckpointRefusal> {
    t.checkpoint(Version(version), Some(t.epoch()))
}

#[test]
fn a_checkpoint_lets_go_of_the_batches_below_it() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "abc");
    assert_eq!(kept(&t), [0, 1, 2]);
    assert_eq!(t.prune(id('a')), Err(PruneRefusal::Kept { batch: Version(0) }));

    for changed in [true, false] {
        let expected = Checkpointed {
            oldest_kept: Some(Version(2)),
            changed,
        };
        assert_eq!(checkpoint(&mut t, 2), Ok(expected));
    }
    assert_eq!(kept(&t), [2]);
    assert_eq!(t.prune(id('a')), Ok(Effect::Pruned { id: id('a') }));

    let none_kept = Checkpointed {
        oldest_kept: None,
        changed: true,
    };
    assert_eq!(checkpoint(&mut t, 3), Ok(none_kept));
}

#[test]
fn there_is_no_checkpoint_above_the_trainer_s_version() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "abc");
    resume(&mut t, replay(1));
    let expected = CheckpointRefusal::VersionNotPublished {
        version: Version(2),
        trainer_version: Version(1),
    };
    assert_eq!(checkpoint(&mut t, 2), Err(expected));
}

#[test]
fn what_a_replay_still_needs_is_kept_whatever_keep_batches_says() {
    let keeping = |keep_batches| RunConfig {
        keep_batches,
        ..config(1, 1, 1)
    };
    let mut t = SlotTables::new(keeping(2));
    train_each(&mut t, "abc");
    assert_eq!(kept(&t), [1, 2]);
    resume(&mut t, replay(1));
    t.set_config(keeping(1)).expect("a change");
    assert_eq!(kept(&t), [1, 2]);

    take(&mut t);
    publish(&mut t, 2);
    assert_eq!(kept(&t), [2]);
}

#[test]
fn the_numbers_that_a_forced_resume_left_out_are_not_kept_batches() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "ab");
    resume(&mut t, forced(replay(5)));
    train_each(&mut t, "c");
    assert_eq!(kept(&t), [0, 1, 5]);
    let expected = Checkpointed {
        oldest_kept: Some(Version(5)),
        changed: true,
    };
    assert_eq!(checkpoint(&mut t, 3), Ok(expected));
}

#[test]
fn keep_batches_counts_numbers() {
    let mut t = SlotTables::new(RunConfig {
        keep_batches: 3,
        ..config(1, 1, 1)
    });
    train_each(&mut t, "ab");
    resume(&mut t, forced(replay(4)));
    assert_eq!(kept(&t), [1]);
}

#[test]
fn a_kept_batch_is_what_was_taken() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "ab");
    let entry = BatchEntry {
        id: id('b'),
        version: Version(1),
    };
    assert_eq!(t.batch(Version(1)), [entry]);
    assert_eq!(t.batch(Version(2)), []);
}
