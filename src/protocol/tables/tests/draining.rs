//! *Drain*: the end of a run.

use super::{discard, occupy, publish, replay, reserve, resume, rewind, take, train, try_reserve, try_take};
use crate::protocol::notation::{config, id, ids, shorthand, tables, written};
use crate::protocol::tables::{BlockedBy, OccupyRefusal, SlotTables, Stream, StreamRequest, Take};
use crate::protocol::{DrainQueue, FinalBatch, Reason, RunConfig, Version};

fn drained(mut tables: SlotTables) -> SlotTables {
    assert!(tables.drain(Some(DrainQueue::Finish)));
    tables
}

/// `B = 2`, and what is left in the end is discarded.
fn discarding() -> RunConfig {
    RunConfig {
        final_batch: FinalBatch::Discard,
        ..config(2, 2, 1)
    }
}

#[test]
fn nothing_is_admitted_any_more_until_the_drain_is_called_off() {
    let mut t = drained(tables(config(2, 2, 0), "0: . .", &[]));
    let blocked = try_reserve(&mut t, 0, "a");
    assert_eq!((blocked.granted, blocked.blocked_by), (0, Some(BlockedBy::Draining)));
    assert!(!t.drain(Some(DrainQueue::Finish)), "it drains already");
    assert!(t.drain(Some(DrainQueue::Keep)), "what becomes of the queue is news");
    assert!(t.drain(None) && !t.drain(None));
    reserve(&mut t, 0, "a");
}

#[test]
fn batches_go_on_while_they_are_full_and_the_last_one_is_shorter() {
    let mut t = drained(tables(config(2, 2, 1), "0: A B | 1: C d", &[]));
    let Take::Taken { is_final, .. } = try_take(&mut t) else {
        panic!("buffer 0 is ready");
    };
    assert!(!is_final);
    publish(&mut t, 1);
    assert_eq!(take(&mut t), None, "d is still generated");
    discard(&mut t, 'd', "failed");

    let Take::Taken { entries, is_final, .. } = try_take(&mut t) else {
        panic!("nothing more is to come");
    };
    assert_eq!((entries.len(), is_final), (1, true));
    assert!(!t.is_finished(), "its version is not published");
    publish(&mut t, 2);
    assert!(t.is_finished());
    assert!(matches!(try_take(&mut t), Take::NotReady { finished: true, .. }));
}

#[test]
fn a_run_that_ends_with_a_full_batch_has_no_shorter_one() {
    let mut t = drained(tables(config(2, 2, 0), "0: A B", &[]));
    train(&mut t);
    assert!(t.is_finished());
}

#[test]
fn what_is_left_over_is_discarded_where_the_run_wants_it() {
    let mut t = drained(tables(discarding(), "0: A . | 1: . .", &[]));
    let Take::Drained { ids: gone, effects } = try_take(&mut t) else {
        panic!("a is left over");
    };
    assert_eq!(
        (gone, shorthand(&effects)),
        (ids("a"), vec!["a: 0.0 drained".to_owned()])
    );
    assert!(t.is_finished());
}

#[test]
fn what_was_streamed_is_not_discarded_but_the_beginning_of_a_shorter_batch() {
    let mut t = tables(discarding(), "0: A . | 1: . .", &[]);
    let request = |from| StreamRequest {
        from,
        min_entries: 1,
        max_entries: 1,
    };
    let Ok(Stream::Piece(piece)) = t.stream(request(0), None) else {
        panic!("a has finished");
    };
    assert!(!piece.complete);
    let mut t = drained(t);
    let Ok(Stream::Piece(end)) = t.stream(request(1), None) else {
        panic!("nothing more is to come");
    };
    assert_eq!((end.entries.len(), end.complete, end.is_final), (0, true, true));
    publish(&mut t, 1);
    assert!(t.is_finished());
}

#[test]
fn the_last_piece_is_final_only_when_all_that_is_left_was_given() {
    let mut t = drained(tables(config(4, 4, 0), "0: A B C .", &[]));
    let mut piece = |from| {
        let request = StreamRequest {
            from,
            min_entries: 2,
            max_entries: 2,
        };
        let Ok(Stream::Piece(piece)) = t.stream(request, None) else {
            panic!("there is some left");
        };
        (piece.entries.len(), piece.complete, piece.is_final)
    };
    assert_eq!(piece(0), (2, false, false));
    assert_eq!(piece(2), (1, true, true));
    assert_eq!(piece(2), (1, true, true), "a retry");
}

#[test]
fn a_late_occupy_is_welcome_until_the_run_is_finished() {
    let mut t = tables(config(2, 2, 1), "0: . a | 1: c b", &[]);
    for letter in "abc".chars() {
        discard(&mut t, letter, "lease_expired");
    }
    let mut t = drained(t);
    assert!(t.is_finished(), "nothing is left");
    let refusal = t.occupy(id('a'));
    assert_eq!(refusal, Err(OccupyRefusal::Discarded(Reason::LeaseExpired)));

    t.drain(None);
    occupy(&mut t, 'a');
    let mut t = drained(t);
    assert!(occupy(&mut t, 'b').late);
    assert_eq!(written(&t), "0: A B | 1: . .");
}

#[test]
fn a_rewind_of_a_finished_run_has_its_batches_again() {
    let mut t = drained(tables(config(2, 2, 1), "0: A B | 1: C .", &[]));
    train(&mut t);
    train(&mut t);
    assert!(t.is_finished() && t.is_final(Version(1)));

    resume(&mut t, rewind(1));
    assert!(!t.is_finished() && !t.is_final(Version(1)));
    assert_eq!(written(&t), "1: C . | 2: . .");
    train(&mut t);
    resume(&mut t, replay(1));
    assert!(!t.is_finished(), "the trainer is not as far");
    let Take::Taken { replayed, is_final, .. } = try_take(&mut t) else {
        panic!("the batch is kept");
    };
    assert!(replayed && is_final);
    publish(&mut t, 2);
    assert!(t.is_finished());
}
