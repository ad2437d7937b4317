//! Batches in pieces: a trainer that was given another piece than the log has, or than before.

use super::queue::{GROUPS, batch, log, stream};
use berth::protocol::EventType;

use super::{event, history_of, id, lines, session};
use crate::diary::{Entry, Piece, Trained, TrainedEntry};
use crate::trainer_log;

fn piece(epoch: u64, offset: usize, complete: bool, entries: &[TrainedEntry]) -> Entry {
    Entry::Piece(Piece {
        epoch,
        version: 0,
        offset,
        complete,
        entries: entries.to_vec(),
    })
}

fn trained(entries: &[TrainedEntry]) -> Entry {
    Entry::Trained(Trained {
        epoch: 1,
        version: 0,
        redelivered: false,
        replayed: false,
        entries: entries.to_vec(),
    })
}

/// The first piece once more, with something changed.
fn otherwise(change: impl FnOnce(&mut TrainedEntry)) -> Entry {
    let [mut first, _] = batch();
    change(&mut first);
    piece(1, 0, false, &[first])
}

#[test]
fn pieces_that_fit_have_no_problems() {
    let history = history_of(log(), GROUPS);
    let [first, last] = batch().map(|entry| [entry]);
    let diary = lines(vec![
        session(1, 0, 0, 0),
        piece(1, 0, false, &first),
        piece(1, 0, false, &first),
        piece(1, 1, true, &last),
        trained(&batch()),
    ]);
    assert_eq!(trainer_log::problems(&diary, &history), Vec::<String>::new());
}

#[test]
fn a_piece_that_was_another_one_is_found() {
    let [first, last] = batch().map(|entry| [entry]);
    for (fault, given) in [
        ("another entry", otherwise(|entry| entry.id = id(2))),
        ("a member less", otherwise(|entry| entry.members = vec![0])),
        (
            "another prompt",
            otherwise(|entry| entry.prompt = Some("q-2".to_owned())),
        ),
        ("another place", piece(1, 0, false, &last)),
        ("more than there is", piece(1, 1, true, &batch())),
        ("an end that is none", piece(1, 0, true, &first)),
        ("another epoch", piece(2, 0, false, &first)),
    ] {
        let diary = lines(vec![given, trained(&batch())]);
        assert_ne!(
            trainer_log::problems(&diary, &history_of(log(), GROUPS)),
            Vec::<String>::new(),
            "{fault}"
        );
    }
}

#[test]
fn a_retry_that_gave_another_piece_is_found_although_the_log_has_it_in_another_lineage() {
    let [first, _] = batch().map(|entry| [entry]);
    let [_, last] = batch().map(|entry| [entry]);
    let diary = lines(vec![piece(1, 0, false, &first), piece(1, 0, false, &last)]);
    let problems = trainer_log::problems(&diary, &history_of(log(), GROUPS));
    assert!(
        problems.iter().any(|problem| problem.contains("before")),
        "{problems:?}"
    );
}

#[test]
fn pieces_that_leave_something_out_are_found_in_the_log() {
    let mut gap = log();
    gap[12] = stream(2, 1);
    let mut of_nothing = log();
    of_nothing[9] = stream(0, 2);
    let mut not_drained = log();
    not_drained[9].is_final = true;
    let mut something_left = not_drained.clone();
    let mut drain = event(EventType::Drain, 0, &[]);
    drain.drain = Some(true);
    something_left.insert(9, drain);
    for (fault, log) in [
        ("a gap", gap),
        ("an entry that is not finished", of_nothing),
        ("a last batch of a run that goes on", not_drained),
        ("a last batch that leaves a reservation", something_left),
    ] {
        assert_ne!(history_of(log, GROUPS).problems, Vec::<String>::new(), "{fault}");
    }
}
