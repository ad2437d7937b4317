//! *Stream*: a batch in pieces.

use super::{SlotTables, discard, forced, occupy, publish, replay, reserve, resume, rewind, take, try_take};
use crate::protocol::notation::{config, id, letter, shorthand, tables, written};
use crate::protocol::tables::{
    BufferState, Delivery, DiscardRefusal, PublishRefusal, Stream, StreamRefusal, StreamRequest, Take,
};
use crate::protocol::{Reason, Version};

/// Asks for a piece behind the first `from` entries, of `least` to `most` entries.
fn try_stream(tables: &mut SlotTables, from: usize, least: usize, most: usize) -> Result<Stream, StreamRefusal> {
    let request = StreamRequest {
        from,
        min_entries: least,
        max_entries: most,
    };
    tables.stream(request, Some(tables.epoch()))
}

/// The piece in short, as in `0+2: c d, complete`: its batch, its offset, its entries and its marks.
fn stream(tables: &mut SlotTables, from: usize, least: usize, most: usize) -> String {
    match try_stream(tables, from, least, most).expect("a session that is open") {
        Stream::NotYet { .. } => "nothing".to_owned(),
        Stream::Drained { .. } => "drained".to_owned(),
        Stream::Piece(piece) => {
            let letters: Vec<String> = piece.entries.iter().map(|e| letter(e.id).to_string()).collect();
            let mut text = format!("{}+{}: {}", piece.version, piece.offset, letters.join(" "));
            for (holds, mark) in [
                (piece.complete, ", complete"),
                (piece.redelivered, ", again"),
                (piece.replayed, ", replayed"),
            ] {
                text.push_str(if holds { mark } else { "" });
            }
            text
        }
    }
}

const ALL: usize = usize::MAX;

#[test]
fn a_batch_is_taken_in_pieces_as_its_entries_finish() {
    let mut t = tables(config(4, 4, 0), "0: A B d c", &[]);
    assert_eq!(stream(&mut t, 0, 1, ALL), "0+0: a b");
    assert_eq!((t.streamed(), written(&t).as_str()), (2, "0: A B d c"));
    assert_eq!(stream(&mut t, 2, 1, ALL), "nothing");

    occupy(&mut t, 'c');
    assert_eq!(
        t.publish(Version(1), None),
        Err(PublishRefusal::NotTaken { batch: Version(0) })
    );
    assert_eq!(stream(&mut t, 2, 1, ALL), "0+2: c");
    occupy(&mut t, 'd');
    assert_eq!(stream(&mut t, 3, 1, ALL), "0+3: d, complete");
    assert_eq!((t.streamed(), written(&t).as_str()), (0, ""));
    publish(&mut t, 1);
}

#[test]
fn a_piece_has_at_least_what_was_asked_for_unless_the_batch_lacks_less() {
    let mut t = tables(config(5, 5, 0), "0: A b c d e", &[]);
    let waiting = Stream::NotYet {
        state: BufferState::Stuck,
        occupied: 1,
        needed: 5,
        finished: false,
    };
    assert_eq!(try_stream(&mut t, 0, 2, 2), Ok(waiting));
    occupy(&mut t, 'b');
    occupy(&mut t, 'c');
    assert_eq!(stream(&mut t, 0, 2, 2), "0+0: a b");
    assert_eq!(stream(&mut t, 2, 2, 2), "nothing", "only c has finished since");
    occupy(&mut t, 'd');
    assert_eq!(stream(&mut t, 2, 2, 2), "0+2: c d");
    occupy(&mut t, 'e');
    assert_eq!(stream(&mut t, 4, 2, 2), "0+4: e, complete");
}

#[test]
fn nothing_new_is_taken_for_a_caller_that_lacks_what_is_taken_already() {
    let mut t = tables(config(4, 4, 0), "0: A B C d", &[]);
    assert_eq!(stream(&mut t, 0, 1, 2), "0+0: a b");
    let before = t.clone();
    assert_eq!(stream(&mut t, 0, 1, ALL), "0+0: a b, again");
    assert_eq!(stream(&mut t, 1, 4, ALL), "0+1: b, again");
    assert_eq!(t, before);
    assert_eq!(stream(&mut t, 2, 1, ALL), "0+2: c");
    assert_eq!(
        try_stream(&mut t, 4, 1, ALL),
        Err(StreamRefusal::BeyondTaken { taken: 3 })
    );
}

#[test]
fn what_is_taken_can_be_neither_filtered_nor_moved() {
    let mut t = tables(config(3, 3, 0), "0: A B C", &[]);
    stream(&mut t, 0, 1, 1);
    let refusal = t.discard(id('a'), Reason::from("filtered"));
    assert_eq!(refusal, Err(DiscardRefusal::Taken { batch: Version(0) }));

    discard(&mut t, 'b', "filtered");
    assert_eq!(written(&t), "0: A C .");
    assert_eq!(stream(&mut t, 1, 1, ALL), "0+1: c");
}

#[test]
fn a_plain_take_waits_for_the_whole_and_returns_all_of_it() {
    let mut t = tables(config(2, 2, 0), "0: A b", &[]);
    stream(&mut t, 0, 1, ALL);
    assert!(matches!(try_take(&mut t), Take::NotReady { occupied: 1, .. }));
    occupy(&mut t, 'b');
    assert_eq!(take(&mut t).as_deref(), Some("ab"));
    assert_eq!(stream(&mut t, 1, 1, 1), "0+1: b, complete, again");
    assert_eq!(stream(&mut t, 2, 1, 1), "0+2: , complete, again");
    publish(&mut t, 1);
}

#[test]
fn the_last_piece_leaves_what_is_reserved_beside_it_as_surplus() {
    let mut t = tables(config(1, 2, 1), "0: A d | 1: B c", &[]);
    let Ok(Stream::Piece(piece)) = try_stream(&mut t, 0, 1, ALL) else {
        panic!("a has finished");
    };
    assert_eq!(shorthand(&piece.effects), ["d: 0.1 surplus", "c: 1.1 surplus"]);
}

#[test]
fn another_session_is_given_the_pieces_from_the_first_and_publishes_once_it_had_the_last() {
    let mut t = tables(config(2, 2, 1), "0: A b | 1: . .", &[]);
    stream(&mut t, 0, 1, ALL);
    resume(&mut t, replay(0));
    assert_eq!(stream(&mut t, 0, 1, ALL), "0+0: a, again");
    occupy(&mut t, 'b');
    assert_eq!(stream(&mut t, 1, 1, ALL), "0+1: b, complete");

    resume(&mut t, replay(0));
    let not_delivered = Err(PublishRefusal::NotDelivered { batch: Version(0) });
    assert_eq!(t.publish(Version(1), Some(t.epoch())), not_delivered);
    assert_eq!(stream(&mut t, 0, 1, 1), "0+0: a, again");
    assert_eq!(t.publish(Version(1), Some(t.epoch())), not_delivered);
    let Ok(Stream::Piece(end)) = try_stream(&mut t, 1, 1, 1) else {
        panic!("the batch is there");
    };
    assert_eq!((end.delivery, end.complete), (Delivery::Delivered, true));
    publish(&mut t, 1);
}

#[test]
fn a_replay_gives_parts_of_whole_batches_and_then_the_pieces_of_the_open_one() {
    let mut t = SlotTables::new(config(2, 2, 1));
    reserve(&mut t, 0, "abcd");
    for letter in "abcd".chars() {
        occupy(&mut t, letter);
    }
    take(&mut t);
    publish(&mut t, 1);
    assert_eq!(stream(&mut t, 0, 1, 1), "1+0: c");

    resume(&mut t, replay(0));
    assert_eq!(stream(&mut t, 0, 1, 1), "0+0: a, replayed");
    assert_eq!(stream(&mut t, 1, 1, 1), "0+1: b, complete, replayed");
    publish(&mut t, 1);
    assert_eq!(stream(&mut t, 0, 1, ALL), "1+0: c, again");
    assert_eq!(stream(&mut t, 1, 1, ALL), "1+1: d, complete");
}

#[test]
fn a_rewind_places_pieces_anew_like_batches() {
    let mut t = SlotTables::new(config(2, 2, 1));
    reserve(&mut t, 0, "abcd");
    for letter in "abc".chars() {
        occupy(&mut t, letter);
    }
    take(&mut t);
    publish(&mut t, 1);
    stream(&mut t, 0, 1, ALL);
    assert_eq!(t.streamed(), 1);

    let effects = resume(&mut t, rewind(0)).effects;
    assert_eq!(
        shorthand(&effects),
        [
            "a: 0.0 replaced 0.0",
            "b: 0.1 replaced 0.1",
            "c: 1.0 replaced 1.0",
            "d: 1.1 replaced 1.1"
        ]
    );
    assert_eq!((t.streamed(), written(&t).as_str()), (0, "0: A B | 1: C d"));
    discard(&mut t, 'c', "filtered");
}

#[test]
fn a_forced_resume_leaves_the_pieces_of_an_unfinished_batch_trained() {
    let mut t = tables(config(3, 3, 2), "0: A B . | 1: . . . | 2: . d c", &[]);
    stream(&mut t, 0, 1, 1);
    let effects = resume(&mut t, forced(replay(2))).effects;
    assert_eq!(
        shorthand(&effects),
        [
            "a: pruned",
            "b: 0.1 replaced 2.0",
            "d: 2.1 replaced 2.1",
            "c: 2.2 replaced 2.2"
        ]
    );
    assert_eq!(t.entry(id('a')), None);
    assert_eq!(t.streamed(), 0);
}
