//! The operations on whole tables, in the protocol's words and notation.

mod adoption;
mod discard;
mod draining;
mod example;
mod forced;
mod group_occupy;
mod groups;
mod kept;
mod late_groups;
mod occupy;
mod oversampling;
mod prompts;
mod replacing;
mod replaying;
mod reserve;
mod resume;
mod rewind;
mod segments;
mod streaming;
mod train;

use super::{
    Behind, Delivery, Member, MemberOutcome, MemberRefusal, Occupied, Reserved, Resume, ResumeRefusal, Resumed,
    SlotTables, Take,
};
use crate::protocol::notation::{id, ids, letter, weights_of};
use crate::protocol::{Effect, Epoch, Lineage, Reason, ResumeMode, Version};

/// Reserves entries of these letters under a version of the current lineage, all of which must be granted.
fn reserve(tables: &mut SlotTables, version: u64, letters: &str) -> Vec<Effect> {
    let reserved = try_reserve(tables, version, letters);
    assert_eq!(reserved.blocked_by, None, "reserving {letters}");
    reserved.effects
}

fn try_reserve(tables: &mut SlotTables, version: u64, letters: &str) -> Reserved {
    let weights = weights_of(version, tables.lineage().0);
    let reserved = tables.reserve(weights, &ids(letters));
    reserved.expect("a version that may reserve")
}

/// The entry finishes, which must succeed.
fn occupy(tables: &mut SlotTables, letter: char) -> Occupied {
    let occupied = tables.occupy(id(letter));
    occupied.unwrap_or_else(|refusal| panic!("occupying {letter}: {refusal}"))
}

/// A member of the group is reported, which must succeed.
fn member(tables: &mut SlotTables, letter: char, member: Member) -> MemberOutcome {
    let outcome = tables.member(id(letter), &member);
    outcome.unwrap_or_else(|refusal| panic!("{member:?} of {letter}: {refusal}"))
}

/// Members of the group are reported, all of which count; the effects of the last.
fn members(tables: &mut SlotTables, letter: char, reported: &[Member]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for each in reported {
        let outcome = member(tables, letter, *each);
        assert!(outcome.counted, "{each:?} of {letter}");
        effects = outcome.effects;
    }
    effects
}

/// Why a member is refused; nothing has changed.
fn refused_member(tables: &mut SlotTables, letter: char, member: Member) -> MemberRefusal {
    let before = tables.clone();
    let refusal = tables.member(id(letter), &member).expect_err("a refusal");
    assert_eq!(*tables, before, "a refusal changes nothing");
    refusal
}

/// The member does not count: nothing has changed.
fn not_counted(tables: &mut SlotTables, letter: char, reported: Member) {
    let before = tables.clone();
    let outcome = member(tables, letter, reported);
    assert!(
        !outcome.counted && outcome.effects.is_empty(),
        "{reported:?} of {letter}"
    );
    assert_eq!(*tables, before, "{reported:?} of {letter}");
}

/// The entry is discarded, which must succeed.
fn discard(tables: &mut SlotTables, letter: char, reason: &str) -> Vec<Effect> {
    let discarded = tables.discard(id(letter), Reason::from(reason));
    let discarded = discarded.unwrap_or_else(|refusal| panic!("discarding {letter}: {refusal}"));
    discarded.effects
}

/// The letters of the batch that is taken, or `None` if none can be.
fn take(tables: &mut SlotTables) -> Option<String> {
    match try_take(tables) {
        Take::NotReady { .. } | Take::Drained { .. } => None,
        Take::Taken { entries, .. } => Some(entries.iter().map(|e| letter(e.id)).collect()),
    }
}

/// A Take of the session that was opened last.
fn try_take(tables: &mut SlotTables) -> Take {
    tables.take(Some(tables.epoch())).expect("the session is open")
}

/// What giving a batch was: its letters, and `taken`, `delivered` or `repeated`.
fn delivery(tables: &mut SlotTables) -> (String, Delivery) {
    match try_take(tables) {
        Take::NotReady { .. } | Take::Drained { .. } => panic!("there is no batch"),
        Take::Taken { entries, delivery, .. } => (entries.iter().map(|e| letter(e.id)).collect(), delivery),
    }
}

fn publish(tables: &mut SlotTables, version: u64) {
    let published = tables.publish(Version(version), Some(tables.epoch()));
    published.expect("the version is next");
}

/// Takes the next batch and publishes the version that it trains.
fn train(tables: &mut SlotTables) {
    let version = tables.trainer_version().0;
    take(tables).expect("the batch is ready");
    publish(tables, version + 1);
}

/// Reserves, occupies and trains one batch after the other, each of the latest version and of one letter.
fn train_each(tables: &mut SlotTables, letters: &str) {
    for letter in letters.chars() {
        let version = tables.policy_version().0;
        reserve(tables, version, &letter.to_string());
        occupy(tables, letter);
        train(tables);
    }
}

fn replay(from: u64) -> Resume {
    Resume {
        resume_from: Some(Version(from)),
        ..Resume::default()
    }
}

fn rewind(from: u64) -> Resume {
    Resume {
        mode: ResumeMode::Rewind,
        ..replay(from)
    }
}

fn forced(resume: Resume) -> Resume {
    Resume { force: true, ..resume }
}

/// The run lost writes, and others have seen these.
fn behind(epoch: u64, lineage: u64, resume: Resume) -> Resume {
    Resume {
        behind: Some(Behind {
            epoch: Epoch(epoch),
            lineage: Lineage(lineage),
        }),
        ..resume
    }
}

/// Opens a trainer session, which must succeed.
fn resume(tables: &mut SlotTables, resume: Resume) -> Resumed {
    let resumed = tables.resume(&resume);
    resumed.unwrap_or_else(|refusal| panic!("resuming {resume:?}: {refusal}"))
}

/// Why no session is opened; nothing has changed.
fn refused(tables: &mut SlotTables, resume: Resume) -> ResumeRefusal {
    let before = tables.clone();
    let refusal = tables.resume(&resume).expect_err("a refusal");
    assert_eq!(*tables, before, "a refusal changes nothing");
    refusal
}

/// `V`, `T`, `H`, epoch and lineage.
fn standing(tables: &SlotTables) -> [u64; 5] {
    [
        tables.policy_version().0,
        tables.trainer_version().0,
        tables.next_buffer().0,
        tables.epoch().0,
        tables.lineage().0,
    ]
}

/// The kept batches, as numbers.
fn kept(tables: &SlotTables) -> Vec<u64> {
    tables.kept_batches().map(|version| version.0).collect()
}
