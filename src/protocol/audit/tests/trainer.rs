//! The trainer's events: good ones pass, and what is wrong with others is found.

use super::{Journal, audit, found, four_reserved, in_letters, told, two_batches};
use crate::protocol::audit::Resumes;
use crate::protocol::notation::{config, id};
use crate::protocol::tables::Resume;
use crate::protocol::{Effect, Epoch, EventType, Lineage, ResumeMode, RunConfig, Version};

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

fn train(journal: &mut Journal, version: u64, letter: &str) {
    journal.reserve(version, letter);
    journal.occupy(letter);
    journal.take();
    journal.publish(version + 1);
}

/// Batches a, b and c trained, version 3 published.
fn three_trained() -> Journal {
    let mut journal = Journal::new(config(1, 1, 1));
    for (version, letter) in [(0, "a"), (1, "b"), (2, "c")] {
        train(&mut journal, version, letter);
    }
    journal
}

#[test]
fn a_good_trainer_is_reported_without_a_finding() {
    let mut journal = two_batches(9);
    journal.resume(replay(1));
    journal.take();
    journal.publish(2);
    journal.resume(replay(0));
    journal.take();
    journal.publish(1);
    journal.resume(replay(0));
    journal.take();
    journal.publish(1);
    journal.take();
    journal.publish(2);
    journal.checkpoint(1);
    journal.prune(0, "a");
    journal.reserve(2, "c");
    journal.occupy("c");
    journal.resume(rewind(1));
    journal.take();
    journal.publish(2);
    journal.resume(forced(replay(5)));
    journal.resume_behind(forced(rewind(3)), 40, 7, 90);
    train(&mut journal, 3, "d");

    let auditor = audit(&journal.events);
    assert_eq!(told(&auditor), Vec::<String>::new());
    let report = auditor.report();
    let resumes = Resumes {
        continued: 1,
        replay: 2,
        rewind: 2,
        forced: 1,
        behind: 1,
    };
    assert_eq!(report.resumes, resumes);
    assert_eq!((report.takes, report.redelivered, report.replayed), (4, 1, 3));
    let versions: Vec<u64> = report.batches.iter().map(|batch| batch.version.0).collect();
    assert_eq!(versions, [0, 1, 1, 3]);
    assert_eq!(report.discarded, [("rewound".to_owned(), 1)].into());
}

#[test]
fn a_run_that_goes_on_from_a_deleted_one() {
    let mut journal = Journal::continued(config(1, 1, 1), 3, 2);
    journal.resume(Resume::default());
    train(&mut journal, 0, "a");
    assert_eq!(found(&journal), Vec::<String>::new());
    assert_eq!(audit(&journal.events).report().resumes.continued, 1);

    let mut without_a_session = Journal::continued(config(1, 1, 1), 3, 2);
    without_a_session.reserve(0, "a");
    without_a_session.occupy("a");
    without_a_session.event(EventType::Take, &[]).version = Some(Version(0));
    assert_eq!(
        found(&without_a_session),
        ["event 4: a call of the trainer that is to be refused: \
          the call is not of the trainer session that is open: the last one was 3"]
    );
}

#[test]
fn weights_of_another_lineage() {
    let mut journal = Journal::continued(config(1, 1, 1), 3, 2);
    journal.reserve(0, "a");
    journal.last().lineage = Some(Lineage(1));
    assert_eq!(
        found(&journal),
        ["event 2: a reserve that is to be refused: version 0 is not published, or was abandoned: the latest is 0"]
    );
    journal.last().lineage = Some(Lineage(3));
    assert_eq!(
        found(&journal),
        ["event 2: a reserve that is to be refused: lineage 3 is not known: the latest is 2"]
    );
}

#[test]
fn a_session_with_a_wrong_number() {
    for (what, spoil) in [
        ("epoch 0, and should have 1", 0),
        ("lineage 7, and should have 1", 1),
        ("policy_version 7, and should have 2", 2),
    ] {
        let mut journal = three_trained();
        journal.resume(rewind(2));
        let last = journal.last();
        match spoil {
            0 => last.epoch = Some(Epoch(0)),
            1 => last.lineage = Some(Lineage(7)),
            _ => last.policy_version = Some(Version(7)),
        }
        assert_eq!(
            found(&journal),
            [format!("event 14: the trainer session has the {what}")]
        );
    }
}

#[test]
fn a_session_that_was_to_be_refused() {
    let mut journal = three_trained();
    journal.checkpoint(2);
    journal.resume(forced(rewind(1)));
    journal.last().force = false;
    assert_eq!(
        found(&journal),
        ["event 15: a resume from version 1 that is to be refused: batch 1 is not kept"]
    );

    let mut journal = three_trained();
    journal.resume(forced(replay(7)));
    journal.last().force = false;
    assert_eq!(
        found(&journal),
        ["event 14: a resume from version 7 that is to be refused: \
          the ledger has not reached version 7: the latest is 3"]
    );
}

#[test]
fn a_session_without_what_it_needs() {
    for what in ["resumed_from", "epoch", "policy_version"] {
        let mut journal = three_trained();
        journal.resume(replay(3));
        let last = journal.last();
        match what {
            "resumed_from" => last.resumed_from = None,
            "epoch" => last.epoch = None,
            _ => last.policy_version = None,
        }
        assert_eq!(found(&journal), [format!("event 14: the event has no {what}")]);
    }
}

#[test]
fn a_version_that_no_run_can_reach_ends_the_audit() {
    let mut journal = four_reserved();
    journal.resume(replay(0));
    let last = journal.last();
    last.resumed_from = Some(Version(u64::MAX));
    last.force = true;
    assert_eq!(
        found(&journal)[1..],
        ["event 3: cannot go on: version 18446744073709551615 cannot come next"]
    );
}

#[test]
fn an_entry_that_a_rewind_lost_or_kept() {
    let mut journal = three_trained();
    journal.reserve(3, "d");
    journal.resume(rewind(2));
    let rewound = journal.last().effects.remove(0);
    assert_eq!(
        found(&journal),
        [
            "event 15: effect 0 is \"c was placed anew, from slot 0 of buffer 2 to slot 0 of buffer 2\", \
             and should be \"d was discarded from slot 0 of buffer 4 as rewound\"",
            "event 15: cannot go on: there is no slot 0 of buffer 4, where d is said to be",
        ]
    );
    journal.last().effects = vec![rewound];
    assert_eq!(
        found(&journal),
        ["event 15: effect 1 is none, and should be \
          \"c was placed anew, from slot 0 of buffer 2 to slot 0 of buffer 2\""]
    );
}

/// Version 3 is abandoned, and d, which it generated, stays where the rewind leaves room for it.
#[test]
fn an_entry_of_abandoned_weights_that_a_rewind_kept() {
    let mut journal = three_trained();
    journal.reserve(3, "d");
    journal.occupy("d");
    journal.resume(rewind(2));
    journal.last().effects.remove(0);
    let found = found(&journal);
    assert!(
        found.contains(&"event 16: rewind: d of version 3, generated in lineage 0, is of abandoned weights".to_owned()),
        "{found:?}"
    );
}

#[test]
fn a_batch_delivered_again_that_is_not_to_be() {
    let mut journal = three_trained();
    journal.event(EventType::Deliver, &[]).version = Some(Version(2));
    assert_eq!(
        found(&journal),
        ["event 14: batch 2 was delivered, and should have been none"]
    );

    let mut journal = three_trained();
    journal.resume(replay(1));
    journal.take();
    journal.last().version = Some(Version(2));
    assert_eq!(
        found(&journal),
        ["event 15: batch 2 was delivered, and should have been 1"]
    );

    let mut journal = three_trained();
    journal.resume(replay(1));
    journal.take();
    let mut again = journal.last().clone();
    again.seq += 1;
    journal.events.push(again);
    assert_eq!(
        found(&journal),
        ["event 16: batch 1 was delivered, and should have been none"]
    );
}

#[test]
fn a_wrong_replayed_mark() {
    let mut journal = three_trained();
    journal.resume(replay(1));
    journal.take();
    journal.last().replayed = false;
    assert_eq!(
        found(&journal),
        ["event 15: the delivery is marked replayed: false, and should be the contrary"]
    );
}

#[test]
fn a_batch_that_is_not_what_was_taken() {
    let mut journal = Journal::new(config(2, 2, 1));
    journal.reserve(0, "abcd");
    journal.occupy("abcd");
    journal.take();
    journal.publish(1);
    let lost = Effect::Pruned { id: id('a') };
    journal.event(EventType::Prune, &[lost]).version = Some(Version(0));
    journal.resume(replay(0));
    journal.take();
    assert_eq!(
        found(&journal),
        [
            "event 9: a prune that is to be refused: a: batch 0 is kept",
            "event 11: batch 0 is not what was taken: 2 entries then, 1 now",
        ]
    );
}

#[test]
fn a_version_published_before_its_batch_was_delivered_to_the_session() {
    let mut journal = two_batches(9);
    journal.resume(replay(1));
    journal.take();
    journal.publish(2);
    journal.events.remove(8);
    journal.last().seq = 9;
    assert_eq!(
        found(&journal),
        ["event 9: a publish of version 2 that is to be refused: \
          batch 1 was not delivered to this trainer session"]
    );
}

#[test]
fn a_batch_taken_in_a_replay() {
    let mut journal = three_trained();
    journal.resume(replay(1));
    journal.event(EventType::Take, &[]).version = Some(Version(3));
    assert_eq!(
        found(&journal)[0],
        "event 15: batch 3 was taken out of turn: the trainer stands at 1, the policy version is 3, the next buffer 3"
    );
}

#[test]
fn a_checkpoint_that_is_refused_or_changes_nothing() {
    let mut journal = three_trained();
    journal.event(EventType::Checkpoint, &[]).version = Some(Version(4));
    journal.event(EventType::Checkpoint, &[]).version = Some(Version(0));
    assert_eq!(
        found(&journal),
        [
            "event 14: a checkpoint of version 4 that is to be refused: \
             there can be no checkpoint of version 4: the trainer stands at 3",
            "event 15: the checkpoint of version 0 changed nothing",
        ]
    );
}

#[test]
fn a_sequence_that_rises_where_it_may_not() {
    let mut journal = three_trained();
    journal.resume_behind(replay(3), 4, 1, 50);
    let good = journal.events.clone();
    assert_eq!(found(&journal), Vec::<String>::new());

    journal.last().raised_from = None;
    assert_eq!(found(&journal), ["event 51: sequence: the next event is 14"]);

    for (raised_from, seq, behind) in [(12, 51, true), (13, 13, true), (13, 51, false)] {
        journal.events.clone_from(&good);
        let last = journal.last();
        (last.raised_from, last.seq, last.behind) = (Some(raised_from), seq, behind);
        let expected = format!("event {seq}: sequence: seq is said to have been raised from {raised_from}");
        assert_eq!(in_letters(&audit(&journal.events))[0], expected);
    }
}

/// The entries of a dissolved batch are in one batch when they are taken again.
#[test]
fn a_batch_that_a_rewind_took_back_is_taken_again() {
    let mut journal = Journal::new(RunConfig {
        keep_batches: 1,
        ..config(1, 1, 2)
    });
    journal.reserve(0, "abc");
    journal.occupy("abc");
    for version in 0..3 {
        journal.take();
        journal.publish(version + 1);
    }
    journal.prune(0, "a");
    journal.resume(rewind(2));
    journal.take();
    assert_eq!(found(&journal), Vec::<String>::new());
}
