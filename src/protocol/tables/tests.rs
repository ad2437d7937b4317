//! The operations on whole tables, in the protocol's words and notation.

mod discard;
mod example;
mod occupy;
mod oversampling;
mod reserve;
mod train;

use super::{Occupied, Reserved, SlotTables, Take};
use crate::protocol::notation::{id, ids, letter};
use crate::protocol::{Effect, Reason, Version};

/// Reserves entries of these letters under a version, all of which must be granted.
fn reserve(tables: &mut SlotTables, version: u64, letters: &str) -> Vec<Effect> {
    let reserved = try_reserve(tables, version, letters);
    assert_eq!(reserved.blocked_by, None, "reserving {letters}");
    reserved.effects
}

fn try_reserve(tables: &mut SlotTables, version: u64, letters: &str) -> Reserved {
    let reserved = tables.reserve(Version(version), &ids(letters));
    reserved.expect("a version that may reserve")
}

/// The entry finishes, which must succeed.
fn occupy(tables: &mut SlotTables, letter: char) -> Occupied {
    let occupied = tables.occupy(id(letter));
    occupied.unwrap_or_else(|refusal| panic!("occupying {letter}: {refusal}"))
}

/// The entry is discarded, which must succeed.
fn discard(tables: &mut SlotTables, letter: char, reason: &str) -> Vec<Effect> {
    let discarded = tables.discard(id(letter), Reason::from(reason));
    let discarded = discarded.unwrap_or_else(|refusal| panic!("discarding {letter}: {refusal}"));
    discarded.effects
}

/// The letters of the batch that is taken, or `None` if none can be.
fn take(tables: &mut SlotTables) -> Option<String> {
    match tables.take() {
        Take::NotReady { .. } => None,
        Take::Taken { entries, .. } => Some(entries.iter().map(|e| letter(e.id)).collect()),
    }
}

fn publish(tables: &mut SlotTables, version: u64) {
    let published = tables.publish(Version(version));
    published.expect("the version is next");
}
