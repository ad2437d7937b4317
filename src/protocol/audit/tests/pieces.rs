//! Batches that are taken in pieces, and runs that are finished: good logs pass, and what is wrong with others is found.

use super::{Journal, audit, found, told};
use crate::protocol::notation::{config, id, ids};
use crate::protocol::tables::Resume;
use crate::protocol::{
    DrainQueue, Effect, EventType, FinalBatch, LoggedEffect, Place, Reason, ResumeMode, RunConfig, Version,
};

const ALL: usize = usize::MAX;

/// `B = S = 3`, `η = 0`: a and b have finished, c is reserved, and a piece of one entry was taken: event 5.
fn a_piece_taken() -> Journal {
    let mut journal = Journal::new(config(3, 3, 0));
    journal.reserve(0, "abc");
    journal.occupy("ab");
    journal.stream(0, 1);
    journal
}

#[test]
fn a_good_run_in_pieces_is_reported_without_a_finding() {
    let mut journal = Journal::new(config(2, 2, 1));
    journal.reserve(0, "abcd");
    journal.occupy("a");
    journal.stream(0, ALL);
    journal.resume(Resume::default());
    journal.stream(0, ALL);
    journal.occupy("b");
    journal.stream(1, ALL);
    journal.resume(Resume::default());
    journal.stream(0, 1);
    journal.stream(1, 1);
    journal.publish(1);
    journal.occupy("c");
    journal.stream(0, ALL);
    journal.resume(Resume {
        resume_from: Some(Version(0)),
        mode: ResumeMode::Rewind,
        ..Resume::default()
    });
    journal.stream(0, ALL);
    journal.publish(1);
    journal.drain(Some(DrainQueue::Keep));
    journal.stream(0, ALL);
    journal.discard(EventType::Expire, "d", "stuck_timeout");
    journal.stream(1, ALL);
    journal.publish(2);
    journal.drain(None);
    journal.reserve(2, "e");

    let auditor = audit(&journal.events);
    assert_eq!(told(&auditor), Vec::<String>::new());
    let report = auditor.report();
    assert_eq!((report.pieces, report.takes), (6, 3));
    let batches: Vec<_> = report
        .batches
        .iter()
        .map(|batch| (batch.version.0, batch.entries))
        .collect();
    assert_eq!(batches, [(0, 2), (0, 2), (1, 1)]);
}

#[test]
fn a_good_end_without_a_shorter_batch() {
    let mut journal = Journal::new(RunConfig {
        final_batch: FinalBatch::Discard,
        ..config(2, 2, 1)
    });
    journal.reserve(0, "abc");
    journal.occupy("abc");
    journal.drain(Some(DrainQueue::Finish));
    journal.take();
    journal.publish(1);
    journal.discard_the_rest();
    assert_eq!(found(&journal), Vec::<String>::new());
    assert_eq!(
        audit(&journal.events).report().discarded,
        [("drained".to_owned(), 1)].into()
    );
}

#[test]
fn a_piece_taken_twice() {
    let mut journal = a_piece_taken();
    journal.stream(1, 1);
    let last = journal.last();
    last.offset = Some(0);
    assert_eq!(
        found(&journal),
        ["event 6: the piece is 1 entries of batch 0 behind the first 0, \
          and should be 1 entries of batch 0 behind the first 1"]
    );
}

#[test]
fn a_piece_skipped() {
    let mut journal = a_piece_taken();
    let event = journal.event(EventType::Stream, &[]);
    event.version = Some(Version(0));
    event.offset = Some(2);
    event.entries = Some(1);
    assert_eq!(
        found(&journal),
        ["event 6: the piece is 1 entries of batch 0 behind the first 2, \
          and should be 1 entries of batch 0 behind the first 1"]
    );
}

#[test]
fn a_piece_of_entries_that_have_not_finished() {
    let mut journal = a_piece_taken();
    journal.stream(1, 1);
    let event = journal.event(EventType::Stream, &[]);
    event.version = Some(Version(0));
    event.offset = Some(2);
    event.entries = Some(1);
    assert_eq!(
        found(&journal),
        ["event 7: the piece is 1 entries of batch 0 behind the first 2, and should be none"]
    );
}

#[test]
fn a_streamed_entry_filtered() {
    let mut journal = a_piece_taken();
    let discarded = Effect::Discarded {
        id: id('a'),
        reason: Reason::from("filtered"),
        from: Place::new(0, 0),
    };
    let event = journal.event(EventType::Discard, &[discarded]);
    event.ids = ids("a");
    event.reason = Some(Reason::from("filtered"));
    let found = found(&journal);
    assert_eq!(
        found[0],
        "event 6: a discard that is to be refused: a: the entry was taken with batch 0"
    );
    assert_eq!(found[1], "event 6: cannot go on: a is not in the tables");
}

#[test]
fn a_publish_before_the_batch_was_delivered_to_its_end() {
    let mut journal = Journal::new(config(2, 2, 0));
    journal.reserve(0, "ab");
    journal.occupy("ab");
    journal.stream(0, 1);
    let in_pieces = journal.events.len();
    journal.event(EventType::Publish, &[]).version = Some(Version(1));
    assert_eq!(
        found(&journal)[0],
        "event 6: a publish of version 1 that is to be refused: batch 0 was not taken yet"
    );

    journal.events.truncate(in_pieces);
    journal.stream(1, 1);
    journal.resume(Resume::default());
    journal.stream(0, 1);
    journal.event(EventType::Publish, &[]).version = Some(Version(1));
    assert_eq!(
        found(&journal),
        ["event 8: a publish of version 1 that is to be refused: batch 0 was not delivered to this trainer session"]
    );
}

#[test]
fn a_final_batch_while_something_is_reserved() {
    let mut journal = Journal::new(config(2, 2, 0));
    journal.reserve(0, "ab");
    journal.occupy("a");
    journal.drain(Some(DrainQueue::Finish));
    let event = journal.event(EventType::Take, &[]);
    event.version = Some(Version(0));
    event.is_final = true;
    event.entries = Some(1);
    assert_eq!(found(&journal)[0], "event 5: batch 0 has 1 entries, not 2");
}

#[test]
fn a_batch_that_is_wrongly_marked_as_the_last() {
    let mut journal = Journal::new(config(1, 1, 0));
    journal.reserve(0, "a");
    journal.occupy("a");
    journal.take();
    journal.last().is_final = true;
    assert_eq!(
        found(&journal),
        ["event 4: the batch is marked final: true, and should be the contrary"]
    );
}

#[test]
fn a_shorter_batch_that_was_to_be_discarded() {
    let mut journal = Journal::new(RunConfig {
        final_batch: FinalBatch::Discard,
        ..config(2, 2, 0)
    });
    journal.reserve(0, "a");
    journal.occupy("a");
    journal.drain(Some(DrainQueue::Finish));
    let event = journal.event(EventType::Take, &[]);
    event.version = Some(Version(0));
    event.is_final = true;
    assert_eq!(
        found(&journal),
        ["event 5: batch 0 was taken, and what the run has left over is to be discarded"]
    );
}

#[test]
fn entries_discarded_as_left_over_while_the_run_goes_on() {
    let mut journal = Journal::new(RunConfig {
        final_batch: FinalBatch::Discard,
        ..config(2, 2, 0)
    });
    journal.reserve(0, "a");
    journal.occupy("a");
    journal.drain(Some(DrainQueue::Finish));
    journal.discard_the_rest();
    let drain = journal.events.remove(3);
    for event in &mut journal.events[3..] {
        event.seq -= 1;
    }
    assert_eq!(drain.event_type, EventType::Drain);
    assert_eq!(
        found(&journal),
        ["event 4: these entries are not what a drained run has left over"]
    );
}

#[test]
fn an_admission_while_draining() {
    let mut journal = Journal::new(config(2, 2, 0));
    journal.drain(Some(DrainQueue::Finish));
    let reserved = Effect::Reserved {
        id: id('a'),
        version: Version(0),
        to: Place::new(0, 1),
    };
    let event = journal.event(EventType::Reserve, &[reserved]);
    event.version = Some(Version(0));
    event.ids = ids("a");
    assert_eq!(
        found(&journal),
        ["event 3: effect 0 is \"a reserved slot 1 of buffer 0 under version 0\", and should be none"]
    );
}

#[test]
fn a_drain_that_changes_nothing() {
    let mut journal = Journal::new(config(2, 2, 0));
    journal.drain(Some(DrainQueue::Finish));
    journal.event(EventType::Drain, &[]).drain = Some(true);
    assert_eq!(found(&journal), ["event 3: the drain changed nothing"]);
}

#[test]
fn what_was_taken_of_a_batch_stays_taken_when_the_trainer_goes_on_beyond_it() {
    let mut journal = Journal::new(config(2, 2, 2));
    journal.reserve(0, "abcdef");
    journal.occupy("a");
    journal.stream(0, 1);
    let forced = Resume {
        resume_from: Some(Version(2)),
        force: true,
        ..Resume::default()
    };
    journal.resume(forced);
    assert_eq!(found(&journal), Vec::<String>::new());

    let is_pruned = |logged: &LoggedEffect| matches!(logged.effect, Effect::Pruned { .. });
    journal.last().effects.retain(|logged| !is_pruned(logged));
    assert_ne!(found(&journal), Vec::<String>::new());
}
