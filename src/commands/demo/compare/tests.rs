use super::*;
use crate::commands::demo::record::EntryRecord;

fn entry(number: u128, version: u64, staleness: u64) -> EntryRecord {
    EntryRecord {
        id: TrajectoryId(uuid::Uuid::from_u128(number)),
        version: Version(version),
        staleness,
    }
}

fn batch(version: u64, entries: Vec<EntryRecord>) -> BatchRecord {
    BatchRecord {
        version: Version(version),
        redelivered: false,
        replayed: false,
        pieces: 1,
        waited_ms: 100,
        tokens: 10,
        entries,
    }
}

fn redelivered(batch: BatchRecord) -> BatchRecord {
    BatchRecord {
        redelivered: true,
        ..batch
    }
}

fn replayed(batch: BatchRecord) -> BatchRecord {
    BatchRecord {
        replayed: true,
        ..batch
    }
}

/// The record of a trainer that begins at `version`.
fn record_from(version: u64) -> TrainerRecord {
    let mut record = TrainerRecord::new(1);
    record.opened(&session(None, version, version));
    record
}

fn session(resume_from: Option<u64>, trainer_version: u64, policy_version: u64) -> SessionRecord {
    SessionRecord {
        resume_from: resume_from.map(Version),
        trainer_version: Version(trainer_version),
        policy_version: Version(policy_version),
    }
}

fn log(batches: &[(u64, &[(u64, u64)])]) -> Audit {
    let batches = batches
        .iter()
        .map(|(version, counts)| (Version(*version), counts.iter().copied().collect()));
    Audit {
        batches: batches.collect(),
        ..Audit::default()
    }
}

#[test]
fn batches_that_are_redelivered_or_replayed_count_once_and_their_waits_add_up() {
    let first = || batch(0, vec![entry(1, 0, 0), entry(2, 0, 0)]);
    let second = || batch(1, vec![entry(3, 0, 1), entry(4, 1, 0)]);
    let mut record = record_from(0);
    record.add(first());
    record.published(Version(1), Version(1));
    record.add(second());
    record.opened(&session(Some(0), 0, 1));
    record.add(replayed(first()));
    record.published(Version(1), Version(1));
    record.add(redelivered(second()));

    let log = Audit {
        replayed: 1,
        ..log(&[(0, &[(0, 2)]), (1, &[(0, 1), (1, 1)])])
    };
    assert_eq!(record.contradictions(&log), Vec::<String>::new());
    assert_eq!(record.differences(), Vec::<String>::new());
    assert_eq!(
        (record.entries(), record.tokens(), record.waited()),
        (4, 20, Duration::from_millis(400))
    );
    assert_eq!((record.redelivered(), record.replayed()), (1, 1));
}

#[test]
fn a_delivery_that_breaks_the_protocol_is_noticed() {
    let mut record = record_from(2);
    record.add(batch(2, vec![entry(1, 0, 2)]));
    record.published(Version(3), Version(3));
    record.add(batch(3, vec![entry(1, 3, 0), entry(2, 3, 1)]));
    record.add(batch(3, vec![entry(1, 3, 0), entry(2, 3, 1)]));
    assert_eq!(
        record.contradictions(&log(&[(2, &[(2, 1)]), (3, &[(0, 1), (1, 1)])])),
        [
            "batch 2: entry 00000000-0000-0000-0000-000000000001 of version 0 has staleness 2",
            "entry 00000000-0000-0000-0000-000000000001 is in batch 2 and in batch 3",
            "batch 3: entry 00000000-0000-0000-0000-000000000002 of version 3 has staleness 1",
            "batch 3 was delivered twice as if it were new",
        ]
    );
}

#[test]
fn other_entries_or_another_order_is_a_difference() {
    let mut record = record_from(0);
    record.add(batch(0, vec![entry(1, 0, 0), entry(2, 0, 0)]));
    record.add(redelivered(batch(0, vec![entry(1, 0, 0)])));
    record.published(Version(1), Version(1));
    record.opened(&session(Some(0), 0, 1));
    record.add(replayed(batch(0, vec![entry(2, 0, 0), entry(1, 0, 0)])));
    assert_eq!(
        record.differences(),
        [
            "batch 0 was not the same when it was redelivered",
            "batch 0 was not the same when it was replayed",
        ]
    );
}

#[test]
fn a_resume_that_breaks_the_protocol_is_noticed() {
    let mut record = record_from(0);
    record.add(batch(0, vec![entry(1, 0, 0)]));
    record.published(Version(1), Version(1));
    record.opened(&session(Some(0), 1, 0));
    record.add(redelivered(batch(0, vec![entry(1, 0, 0)])));
    record.published(Version(1), Version(1));
    record.add(replayed(batch(1, vec![entry(2, 1, 0)])));
    record.opened(&session(Some(0), 0, 2));
    record.add(redelivered(batch(0, vec![entry(1, 0, 0)])));
    let log = Audit {
        replayed: 2,
        ..log(&[(0, &[(0, 1)]), (1, &[(0, 1)])])
    };
    assert_eq!(
        record.contradictions(&log),
        [
            "the policy version went back from 1 to 0",
            "the trainer resumed from version 0, and goes on from version 1",
            "batch 0 was delivered to a trainer with weights of version 1",
            "batch 1 was delivered as replayed when version 1 was the latest",
            "batch 0 was delivered as not replayed when version 2 was the latest",
            "0 deliveries to be trained again, and 2 in the event log",
        ]
    );
}

#[test]
fn the_event_log_must_say_the_same() {
    let mut record = record_from(1);
    record.add(batch(1, vec![entry(1, 0, 1)]));
    record.published(Version(2), Version(2));
    record.add(batch(2, vec![entry(2, 2, 0)]));
    assert_eq!(
        record.contradictions(&log(&[(1, &[(0, 1)]), (3, &[(0, 1)])])),
        [
            "batch 1 was delivered with staleness 1: 1, and has 0: 1 in the event log",
            "batch 2 was delivered, and is not in the event log",
            "batch 3 is in the event log, and was never delivered",
        ]
    );
}
