//! *Resume* in mode `replay`: kept batches are trained again, and everything else goes on.

use super::{
    Delivery, SlotTables, delivery, occupy, publish, replay, reserve, resume, standing, take, train_each, try_take,
};
use crate::protocol::notation::{config, written};
use crate::protocol::tables::{Publish, PublishRefusal, ResumeKind, Take};
use crate::protocol::{Epoch, Version};

/// Batches a, b and c trained, and d finished.
fn three_trained() -> SlotTables {
    let mut t = SlotTables::new(config(1, 1, 1));
    train_each(&mut t, "abc");
    reserve(&mut t, 3, "d");
    occupy(&mut t, 'd');
    t
}

#[test]
fn the_batches_from_the_checkpoint_on_are_delivered_as_they_were() {
    let mut t = three_trained();
    let resumed = resume(&mut t, replay(1));
    assert_eq!((resumed.kind, resumed.effects.len()), (ResumeKind::Replay, 0));
    assert_eq!(standing(&t), [3, 1, 3, 1, 0]);

    for (letter, next) in [("b", 2), ("c", 3)] {
        assert_eq!(delivery(&mut t), (letter.to_owned(), Delivery::Delivered));
        publish(&mut t, next);
    }
    assert_eq!(delivery(&mut t), ("d".to_owned(), Delivery::Taken));
    publish(&mut t, 4);
    assert_eq!(standing(&t), [4, 4, 4, 1, 0]);
}

#[test]
fn a_delivery_says_that_it_is_of_a_replay_and_whether_this_session_had_it() {
    let mut t = three_trained();
    resume(&mut t, replay(2));
    let flags = |taken: Take| match taken {
        Take::Taken {
            redelivered, replayed, ..
        } => (redelivered, replayed),
        Take::NotReady { .. } | Take::Drained { .. } => panic!("batch 2 is kept"),
    };
    assert_eq!(flags(try_take(&mut t)), (false, true));
    assert_eq!(flags(try_take(&mut t)), (true, true));
}

#[test]
fn a_replayed_version_is_published_in_its_turn_and_after_its_batch_was_delivered() {
    let mut t = three_trained();
    resume(&mut t, replay(1));
    let epoch = Some(Epoch(1));
    let out_of_order = PublishRefusal::OutOfOrder { expected: Version(2) };
    assert_eq!(t.publish(Version(3), epoch), Err(out_of_order));
    assert_eq!(t.publish(Version(1), epoch), Ok(Publish::Unchanged));
    let not_delivered = PublishRefusal::NotDelivered { batch: Version(1) };
    assert_eq!(t.publish(Version(2), epoch), Err(not_delivered));
    take(&mut t);
    assert_eq!(t.publish(Version(2), epoch), Ok(Publish::Replayed));
    assert_eq!(standing(&t), [3, 2, 3, 1, 0]);
}

#[test]
fn meanwhile_rollout_goes_on() {
    let mut t = three_trained();
    resume(&mut t, replay(1));
    reserve(&mut t, 3, "e");
    occupy(&mut t, 'e');
    assert_eq!(written(&t), "3: D | 4: E");
    assert_eq!(take(&mut t).as_deref(), Some("b"));
}

#[test]
fn a_replay_that_is_interrupted_begins_again_where_the_next_session_says() {
    let mut t = three_trained();
    resume(&mut t, replay(1));
    take(&mut t);
    publish(&mut t, 2);
    take(&mut t);

    resume(&mut t, replay(1));
    assert_eq!(delivery(&mut t), ("b".to_owned(), Delivery::Delivered));
    resume(&mut t, replay(2));
    assert_eq!(delivery(&mut t), ("c".to_owned(), Delivery::Delivered));
    resume(&mut t, replay(3));
    assert_eq!(delivery(&mut t), ("d".to_owned(), Delivery::Taken));
    assert_eq!(standing(&t), [3, 3, 4, 4, 0]);
}

#[test]
fn a_replay_ends_with_the_batch_that_was_in_training() {
    let mut t = three_trained();
    take(&mut t);
    resume(&mut t, replay(2));
    take(&mut t);
    publish(&mut t, 3);
    let Take::Taken {
        version,
        redelivered: true,
        replayed: false,
        delivery: Delivery::Delivered,
        ..
    } = try_take(&mut t)
    else {
        panic!("batch 3 was in training");
    };
    assert_eq!(version, Version(3));
    publish(&mut t, 4);
    assert_eq!(standing(&t), [4, 4, 4, 1, 0]);
}

#[test]
fn a_checkpoint_of_the_next_version_ends_a_replay() {
    let mut t = three_trained();
    take(&mut t);
    resume(&mut t, replay(1));
    assert_eq!(resume(&mut t, replay(4)).kind, ResumeKind::Published);
    assert_eq!(standing(&t), [4, 4, 4, 2, 0]);
}
