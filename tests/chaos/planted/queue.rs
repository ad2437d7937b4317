//! Groups with prompts of the queue: what is wrong with their members, and with the states of the prompts.

use std::collections::BTreeMap;

use berth::protocol::{
    Attempt, Effect, Event, EventType, FedPrompt, FeedPosition, Place, PromptState, Reason, Version,
};
use serde_json::{Value, json};

use super::{CONFIG, event, history_of, id, lines, occupied, opened, reserved};
use crate::checks::of_the_workers;
use crate::diary::{Entry, Grant, Member, TrainedEntry};
use crate::history::History;
use crate::prompts;
use crate::rehearsal::{Config, Kind};

pub(super) const GROUPS: Config = Config {
    kind: Kind::Groups,
    ..CONFIG
};

fn feed(names: &[&str], in_all: u64) -> Event {
    let mut page = event(EventType::Feed, 0, &[]);
    let prompt = |name: &&str| FedPrompt {
        id: (*name).to_owned(),
        expected_tokens: None,
    };
    page.prompts = names.iter().map(prompt).collect();
    page.fed = Some(in_all);
    page
}

fn prompt(number: u128, position: u64, state: PromptState) -> Effect {
    Effect::Prompt {
        id: id(number),
        position: FeedPosition(position),
        state,
        attempt: Attempt(1),
    }
}

fn member(number: u128, index: u32, failed: bool) -> Effect {
    Effect::Member {
        id: id(number),
        index,
        failed,
        version: Some(Version(0)),
        newest: None,
        reward: None,
    }
}

fn discarded(number: u128, from: (u64, u32)) -> Effect {
    Effect::Discarded {
        id: id(number),
        reason: Reason::Client("failed".to_owned()),
        from: Place::new(from.0, from.1),
    }
}

pub(super) fn stream(offset: u64, entries: u64) -> Event {
    let mut stream = event(EventType::Stream, 0, &[]);
    (stream.offset, stream.entries) = (Some(offset), Some(entries));
    stream
}

/// Three prompts are fed. Of two groups the first loses its worker after two members, is adopted and filled, and streamed
/// before the second is.
pub(super) fn log() -> Vec<Event> {
    let moved = Effect::Moved {
        id: id(2),
        from: Place::new(0, 0),
        to: Place::new(0, 1),
    };
    let reserve = [
        reserved(1, 0, 1),
        prompt(1, 0, PromptState::InFlight),
        reserved(2, 0, 0),
        prompt(2, 1, PromptState::InFlight),
    ];
    vec![
        event(EventType::RunCreated, 0, &[]),
        opened(1, 0, 0, 0, &[]),
        feed(&["q-0", "q-1", "q-2"], 3),
        event(EventType::Reserve, 0, &reserve),
        event(EventType::Member, 0, &[member(1, 0, false)]),
        event(EventType::Member, 0, &[member(1, 1, true)]),
        event(EventType::Expire, 0, &[Effect::Orphaned { id: id(1) }]),
        event(EventType::Reserve, 0, &[Effect::Adopted { id: id(1) }]),
        event(
            EventType::Member,
            0,
            &[member(1, 2, false), moved, occupied(1, (0, 1), (0, 0))],
        ),
        stream(0, 1),
        event(EventType::Member, 0, &[member(2, 0, false)]),
        event(
            EventType::Member,
            0,
            &[member(2, 1, false), occupied(2, (0, 1), (0, 1))],
        ),
        stream(1, 1),
        event(EventType::Publish, 1, &[]),
    ]
}

/// The entries of its batch.
pub(super) fn batch() -> [TrainedEntry; 2] {
    [(1, "q-0", [0, 2]), (2, "q-1", [0, 1])].map(|(number, prompt, members)| TrainedEntry {
        id: id(number),
        version: 0,
        prompt: Some(prompt.to_owned()),
        members: members.to_vec(),
    })
}

fn told(number: u128, index: u32, failed: bool) -> Entry {
    Entry::Member(Member {
        id: id(number),
        index,
        failed,
        counted: true,
    })
}

fn granted(prompt: &str, adopted: bool) -> Entry {
    let grant = Grant {
        id: id(2),
        version: 0,
        prompt: Some(prompt.to_owned()),
        adopted,
    };
    Entry::Granted {
        request: String::new(),
        lineage: 0,
        entries: vec![grant],
    }
}

fn fed(offset: u64, count: u64, fed: u64) -> Entry {
    Entry::Fed { offset, count, fed }
}

fn counts() -> Value {
    json!({ "queued": 1, "in_flight": 0, "occupied": 0, "trained": 2, "filtered": 0, "failed": 0, "dropped": 0 })
}

fn listed(all: &[(PromptState, &[&str])]) -> BTreeMap<PromptState, Vec<Value>> {
    let list = |(state, names): &(PromptState, &[&str])| {
        let shown = names.iter().map(|name| json!({ "id": name, "state": state }));
        (*state, shown.collect())
    };
    all.iter().map(list).collect()
}

fn as_it_is() -> BTreeMap<PromptState, Vec<Value>> {
    listed(&[(PromptState::Queued, &["q-2"]), (PromptState::Trained, &["q-0", "q-1"])])
}

fn of_the_prompts(history: &History) -> Vec<String> {
    prompts::problems(&[], history, &counts(), &as_it_is())
}

#[test]
fn groups_and_prompts_that_fit_have_no_problems() {
    let history = history_of(log(), GROUPS);
    assert_eq!(history.problems, Vec::<String>::new());
    let worker = lines(vec![
        granted("q-1", false),
        told(1, 0, false),
        told(1, 1, true),
        Entry::Occupied { id: id(1), late: false },
    ]);
    assert_eq!(of_the_workers(&worker, &history), Vec::<String>::new());
    let feeder = lines(vec![fed(0, 3, 3), fed(1, 2, 3)]);
    let problems = prompts::problems(&feeder, &history, &counts(), &as_it_is());
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn faults_of_groups_in_the_log_are_found() {
    let with = |at: usize, event: Event| {
        let mut log = log();
        log.insert(at, event);
        log
    };
    let mut of_newer_weights = member(2, 2, false);
    if let Effect::Member { version, .. } = &mut of_newer_weights {
        *version = Some(Version(1));
    }
    let mut half_a_group = log();
    half_a_group.remove(4);
    for (fault, log) in [
        (
            "a member counts twice",
            with(5, event(EventType::Member, 0, &[member(1, 0, false)])),
        ),
        (
            "a member counts after its group was filled",
            with(10, event(EventType::Member, 0, &[member(1, 3, false)])),
        ),
        (
            "a member is of weights that are not published",
            with(5, event(EventType::Member, 0, &[of_newer_weights])),
        ),
        ("a group is occupied with one member", half_a_group),
        (
            "a group is adopted that was never admitted",
            with(8, event(EventType::Reserve, 0, &[Effect::Adopted { id: id(3) }])),
        ),
        (
            "what was streamed is discarded",
            with(10, event(EventType::Discard, 0, &[discarded(1, (0, 0))])),
        ),
        (
            "a prompt is handed out twice",
            with(5, event(EventType::Reserve, 0, &[prompt(3, 0, PromptState::InFlight)])),
        ),
        (
            "a prompt is handed out that was not fed",
            with(5, event(EventType::Reserve, 0, &[prompt(1, 9, PromptState::InFlight)])),
        ),
        ("more were fed than are in the page", with(3, feed(&["q-3"], 5))),
    ] {
        assert_ne!(history_of(log, GROUPS).problems, Vec::<String>::new(), "{fault}");
    }
}

#[test]
fn what_a_worker_was_told_of_a_group_and_did_not_happen_is_found() {
    for (fault, log, told) in [
        ("a member that is not in the log", log(), vec![told(2, 2, false)]),
        ("a member that failed", log(), vec![told(1, 1, false)]),
        ("a member of no group", log(), vec![told(3, 0, false)]),
        (
            "a member that counts for two",
            log(),
            vec![told(1, 0, false), told(1, 0, false)],
        ),
        (
            "a member whose group is left behind",
            log()[..6].to_vec(),
            vec![told(1, 0, false)],
        ),
        ("an adoption that was not", log(), vec![granted("q-1", true)]),
        ("another prompt", log(), vec![granted("q-0", false)]),
    ] {
        let problems = of_the_workers(&lines(told), &history_of(log, GROUPS));
        assert_eq!(problems.len(), 1, "{fault}: {problems:?}");
    }
}

#[test]
fn prompts_that_are_lost_or_doubled_are_found() {
    let history = history_of(log(), GROUPS);
    let mut one_lost = counts();
    one_lost["queued"] = 0.into();
    let elsewhere = listed(&[(PromptState::Failed, &["q-2"]), (PromptState::Trained, &["q-0", "q-1"])]);
    let in_two = listed(&[(PromptState::Queued, &["q-2"]), (PromptState::Trained, &["q-0", "q-2"])]);
    let unlisted = listed(&[(PromptState::Trained, &["q-0", "q-1"])]);
    for (fault, feeder, counts, listed) in [
        ("a count is too low", vec![], one_lost, as_it_is()),
        ("one is in another state", vec![], counts(), elsewhere),
        ("one is in two states", vec![], counts(), in_two),
        ("one is in no list", vec![], counts(), unlisted),
        (
            "a page that is not in the log",
            vec![fed(3, 1, 4)],
            counts(),
            as_it_is(),
        ),
        ("a page of which less was fed", vec![fed(2, 2, 3)], counts(), as_it_is()),
    ] {
        let problems = prompts::problems(&lines(feeder), &history, &counts, &listed);
        assert_ne!(problems, Vec::<String>::new(), "{fault}");
    }

    let mut of_another_name = log();
    of_another_name[2] = feed(&["q-0", "q-1", "q-1"], 3);
    let mut in_two_entries = log();
    in_two_entries.push(event(
        EventType::Reserve,
        0,
        &[reserved(3, 1, 1), prompt(3, 0, PromptState::InFlight)],
    ));
    let mut in_no_state = log();
    in_no_state.truncate(11);
    in_no_state.push(event(EventType::Discard, 0, &[discarded(2, (0, 1))]));
    for (fault, log, word) in [
        ("one was fed under another name", of_another_name, "was fed as"),
        ("one is in two entries", in_two_entries, "is in 2 entries"),
        ("one left with its entry", in_no_state, "is in no state"),
    ] {
        let problems = of_the_prompts(&history_of(log, GROUPS));
        assert!(
            problems.iter().any(|problem| problem.contains(word)),
            "{fault}: {problems:?}"
        );
    }
}
