//! *Resume*: what is opened, what is refused, and whom a session fences.

use super::{
    Behind, Delivery, Resume, ResumeRefusal, SlotTables, behind, delivery, forced, occupy, refused, replay, reserve,
    resume, rewind, standing, take, train, train_each,
};
use crate::protocol::notation::{config, weights_of, written};
use crate::protocol::tables::{CheckpointRefusal, PublishRefusal, ResumeKind, Resumed, SessionRefusal, Take};
use crate::protocol::{Epoch, Lineage, RunConfig, Version};

/// One entry, taken and in training.
fn in_training() -> SlotTables {
    let mut t = SlotTables::new(config(1, 1, 1));
    reserve(&mut t, 0, "a");
    occupy(&mut t, 'a');
    take(&mut t);
    t
}

#[test]
fn the_version_may_be_left_out_before_the_first_publish() {
    let mut t = SlotTables::new(RunConfig {
        initial_version: 5,
        ..config(1, 1, 0)
    });
    let expected = Resumed {
        resumed_from: Version(5),
        kind: ResumeKind::Continued,
        epoch: Epoch(1),
        lineage: Lineage(0),
        policy_version: Version(5),
        trainer_version: Version(5),
        effects: Vec::new(),
    };
    assert_eq!(resume(&mut t, Resume::default()), expected);
    train_each(&mut t, "a");
    let missing = ResumeRefusal::ResumeFromMissing;
    assert_eq!(refused(&mut t, Resume::default()), missing);
    resume(&mut t, rewind(5));
    assert_eq!(
        refused(&mut t, Resume::default()),
        missing,
        "version 5 was published past"
    );
}

#[test]
fn from_the_latest_version_the_batch_in_training_is_delivered_again() {
    let mut t = in_training();
    assert_eq!(resume(&mut t, replay(0)).kind, ResumeKind::Continued);
    let not_delivered = PublishRefusal::NotDelivered { batch: Version(0) };
    assert_eq!(t.publish(Version(1), Some(Epoch(1))), Err(not_delivered));

    assert_eq!(delivery(&mut t), ("a".to_owned(), Delivery::Delivered));
    assert_eq!(delivery(&mut t), ("a".to_owned(), Delivery::Repeated));
    train(&mut t);
    assert_eq!(standing(&t), [1, 1, 1, 1, 0]);
}

#[test]
fn from_the_next_version_it_is_published() {
    let mut t = in_training();
    assert_eq!(resume(&mut t, replay(1)).kind, ResumeKind::Published);
    assert_eq!(standing(&t), [1, 1, 1, 1, 0]);
    assert_eq!(written(&t), "1: . | 2: .");
}

#[test]
fn a_version_that_the_ledger_has_not_reached_is_refused() {
    let mut t = in_training();
    let refusal = ResumeRefusal::LedgerBehind {
        version: Version(2),
        policy_version: Version(0),
    };
    for not_forced in [replay(2), rewind(2), behind(3, 1, replay(2))] {
        assert_eq!(refused(&mut t, not_forced), refusal);
    }
}

#[test]
fn a_version_before_the_first_is_like_any_whose_batches_are_gone() {
    let mut t = SlotTables::new(RunConfig {
        initial_version: 5,
        ..config(1, 1, 0)
    });
    let pruned = ResumeRefusal::BatchPruned { batch: Version(4) };
    for needs_all in [replay(4), rewind(4), forced(replay(4))] {
        assert_eq!(refused(&mut t, needs_all), pruned);
    }
}

#[test]
fn only_the_session_that_was_opened_last_may_do_anything() {
    let mut t = in_training();
    resume(&mut t, replay(0));
    resume(&mut t, replay(0));
    let fenced = SessionRefusal::Fenced { epoch: Epoch(2) };
    let behind = SessionRefusal::LedgerBehind { epoch: Epoch(2) };
    for (epoch, refusal) in [
        (None, fenced),
        (Some(Epoch(0)), fenced),
        (Some(Epoch(1)), fenced),
        (Some(Epoch(3)), behind),
    ] {
        assert_eq!(t.take(epoch), Err(refusal));
        assert_eq!(t.publish(Version(0), epoch), Err(PublishRefusal::Session(refusal)));
        assert_eq!(
            t.checkpoint(Version(9), epoch),
            Err(CheckpointRefusal::Session(refusal))
        );
    }
}

#[test]
fn before_the_first_session_a_call_needs_none() {
    let mut t = SlotTables::new(config(1, 1, 1));
    for epoch in [None, Some(Epoch(0))] {
        assert!(matches!(t.take(epoch), Ok(Take::NotReady { .. })));
    }
    let behind = SessionRefusal::LedgerBehind { epoch: Epoch(0) };
    assert_eq!(t.take(Some(Epoch(1))), Err(behind));
}

#[test]
fn the_trainer_of_a_deleted_run_is_fenced_in_the_one_that_goes_on_from_it() {
    let mut t = SlotTables::continued(config(1, 1, 1), Epoch(4), Lineage(2));
    let fenced = SessionRefusal::Fenced { epoch: Epoch(4) };
    for epoch in [None, Some(Epoch(4))] {
        assert_eq!(t.take(epoch), Err(fenced));
    }
    resume(&mut t, Resume::default());
    assert_eq!(standing(&t), [0, 0, 0, 5, 2]);
    train_each(&mut t, "a");
}

#[test]
fn a_resume_that_ends_that_the_run_is_behind_rises_above_all_that_was_seen() {
    let mut t = in_training();
    let resumed = resume(&mut t, behind(7, 2, replay(0)));
    assert_eq!((resumed.epoch, resumed.lineage), (Epoch(8), Lineage(3)));
    assert!(
        t.is_abandoned(weights_of(1, 2)),
        "published in the history that is lost"
    );
    assert!(!t.is_abandoned(weights_of(0, 2)));
    assert!(!t.is_abandoned(weights_of(1, 3)));
}

#[test]
fn a_rewind_that_ends_it_raises_the_lineage_once() {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "a");
    let seen_less = Behind {
        epoch: Epoch(0),
        lineage: Lineage(0),
    };
    let resumed = resume(
        &mut t,
        Resume {
            behind: Some(seen_less),
            ..rewind(0)
        },
    );
    assert_eq!((resumed.epoch, resumed.lineage), (Epoch(1), Lineage(1)));
}

#[test]
fn a_published_version_that_ends_it_is_the_last_good_one() {
    let mut t = in_training();
    resume(&mut t, behind(1, 0, replay(1)));
    assert_eq!(standing(&t), [1, 1, 1, 2, 1]);
    assert!(!t.is_abandoned(weights_of(1, 0)));
    assert!(t.is_abandoned(weights_of(2, 0)));
}
