//! What the clients wrote, held against the ledger's event log and its state.

use std::collections::{BTreeSet, HashMap};

use berth::protocol::audit::Auditor;
use berth::protocol::{Place, TrajectoryId};
use serde_json::Value;

use crate::diary::{Entry, Grant, Line, Member, TrainedEntry};
use crate::figures::Figures;
use crate::history::{History, State};
use crate::prompts;
use crate::rehearsal::{Config, Rehearsal};
use crate::stage::Play;
use crate::trainer_log;

/// So many problems are shown of each kind.
const SHOWN: usize = 10;

/// Prints the figures; panics when something does not fit.
pub(crate) fn check(play: &Play, rehearsal: &Rehearsal) {
    let history = History::of(&play.events, rehearsal.config);
    let kinds = [
        ("the event log", history.problems.clone()),
        ("what the workers were told", of_the_workers(&play.workers, &history)),
        (
            "what the trainer was told",
            trainer_log::problems(&play.trainer, &history),
        ),
        ("the prompts", of_the_prompts(play, &history, rehearsal.config)),
        ("what may never be answered", unexpected(play)),
        ("the state in the end", of_the_state(play, &history)),
        ("training went on", of_progress(play, &history)),
        ("the auditor", audited(play)),
    ];
    let violations = kinds.iter().map(|(_, problems)| problems.len()).sum();
    println!("{}", Figures::of(play, &history, rehearsal, violations));
    for (kind, problems) in kinds.iter().filter(|(_, problems)| !problems.is_empty()) {
        println!("\n{kind}: {} problems", problems.len());
        for problem in problems.iter().take(SHOWN) {
            println!("- {problem}");
        }
    }
    assert_eq!(violations, 0, "seed {}: see above", rehearsal.seed);
}

/// What stands for an entry in the batches that count: once, if nothing is doubled.
type Batched<'a> = HashMap<TrajectoryId, Vec<&'a TrainedEntry>>;

/// Every acknowledged occupy is in exactly one batch, or discarded, or still waits for its batch; and what else a worker was
/// told happened.
pub(crate) fn of_the_workers(diary: &[Line], history: &History) -> Vec<String> {
    let mut batches = Batched::new();
    for entry in history.final_batches().flat_map(|batch| &batch.entries) {
        batches.entry(entry.id).or_default().push(entry);
    }
    let mut problems = counted_twice(diary);
    for (id, places) in batches.iter().filter(|(_, places)| places.len() > 1) {
        problems.push(format!("{id} is in {} batches", places.len()));
    }
    for line in diary {
        let problem = match &line.entry {
            Entry::Granted { entries, .. } => entries.iter().find_map(|grant| of_a_grant(grant, history)),
            Entry::Member(member) => of_a_member(member, history, &batches),
            Entry::Occupied { id, late } => of_an_occupy(*id, *late, history, &batches),
            Entry::Discarded { id, reason } => match history.stories.get(id) {
                Some(story) if story.discarded > 0 => None,
                story => Some(format!("{id} was discarded as {reason}: {story:?}")),
            },
            Entry::Refused { id: Some(id), code, .. } => of_a_refusal(*id, code, history),
            _ => None,
        };
        problems.extend(problem);
    }
    problems
}

fn of_a_grant(grant: &Grant, history: &History) -> Option<String> {
    let Some(story) = history.stories.get(&grant.id) else {
        return Some(format!("the grant of {} is not in the log", grant.id));
    };
    let prompt = story.position.and_then(|position| history.queue.name(position));
    let is_as_told = story.version == grant.version
        && (prompt.is_none() || prompt == grant.prompt)
        && (!grant.adopted || story.adoptions > 0);
    (!is_as_told).then(|| format!("{grant:?} was told, the log has {story:?}"))
}

/// A member that counts is in the log, and with its group in a batch, in the tables, or discarded.
fn of_a_member(member: &Member, history: &History, batches: &Batched) -> Option<String> {
    let Member {
        id,
        index,
        failed,
        counted,
    } = *member;
    let Some(story) = history.stories.get(&id) else {
        return Some(format!("{id}, of which {member:?} was told, is not in the log"));
    };
    if !counted {
        return None;
    }
    let is_where_it_should = match story.state {
        State::Reserved(_) => false,
        State::Discarded => story.discarded > 0,
        State::Occupied(place) if history.is_taken(place) => {
            let entries = batches.get(&id).map_or(&[][..], Vec::as_slice);
            entries.iter().any(|entry| failed || entry.members.contains(&index))
        }
        State::Occupied(_) => story.occupied > 0,
    };
    let is_known = story.members.get(&index) == Some(&failed);
    (!is_known || !is_where_it_should).then(|| format!("{member:?} was told, the log has {story:?}"))
}

/// Of all the reports of a member one counts.
fn counted_twice(diary: &[Line]) -> Vec<String> {
    let mut counted = BTreeSet::new();
    let members = diary.iter().filter_map(|line| match &line.entry {
        Entry::Member(member) if member.counted => Some(member),
        _ => None,
    });
    members
        .filter(|member| !counted.insert((member.id, member.index)))
        .map(|member| format!("{member:?} was told twice"))
        .collect()
}

fn of_the_prompts(play: &Play, history: &History, config: Config) -> Vec<String> {
    if play.prompts.is_empty() {
        return Vec::new(); // a run without a queue
    }
    let counts = &play.status["prompts"];
    let mut problems = prompts::problems(&play.trainer, history, counts, &play.prompts);
    let unfinished = ["in_flight", "occupied"].iter().filter(|state| counts[**state] != 0);
    problems.extend(unfinished.map(|state| format!("some are {state} in the end: {counts}")));
    if config.hands_out_all() && counts["queued"] != 0 {
        problems.push(format!("some were never handed out: {counts}"));
    }
    problems
}

fn of_an_occupy(id: TrajectoryId, late: bool, history: &History, batches: &Batched) -> Option<String> {
    let Some(story) = history.stories.get(&id) else {
        return Some(format!("{id} was occupied and is not in the log"));
    };
    let is_in_a_batch = batches.get(&id).is_some_and(|places| places.len() == 1);
    let is_where_it_should = match story.state {
        State::Reserved(_) => false,
        State::Occupied(place) if history.is_taken(place) => is_in_a_batch,
        State::Occupied(_) | State::Discarded => !is_in_a_batch,
    };
    let is_finished = story.occupied == 1 && (story.state != State::Discarded || story.discarded > 0);
    let is_late_as_said = !late || story.late;
    (!is_where_it_should || !is_finished || !is_late_as_said)
        .then(|| format!("{id} was occupied (late: {late}): {story:?}"))
}

fn of_a_refusal(id: TrajectoryId, code: &str, history: &History) -> Option<String> {
    let story = history.stories.get(&id)?;
    let may_be = match code {
        "trajectory_discarded" | "superseded" => story.discarded > 0,
        "trajectory_taken" => story.occupied > 0,
        "unknown_trajectory" => story.pruned,
        _ => true,
    };
    (!may_be).then(|| format!("{id} was refused as {code}: {story:?}"))
}

/// Answers outside the contract, and repetitions that were answered otherwise.
fn unexpected(play: &Play) -> Vec<String> {
    let lines = play.workers.iter().chain(&play.trainer);
    let wrong = lines.filter(|line| {
        matches!(
            line.entry,
            Entry::Unexpected { .. } | Entry::Repeated { alike: false, .. }
        )
    });
    wrong.map(|line| format!("{line:?}")).collect()
}

/// The state that the ledger shows is the one that its log leads to.
fn of_the_state(play: &Play, history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    let shown =
        ["policy_version", "next_buffer", "trainer_version", "lineage"].map(|field| play.status[field].as_u64());
    let told = [
        history.policy_version,
        history.next_buffer,
        history.trainer_version,
        history.lineage,
    ]
    .map(Some);
    if shown != told {
        problems.push(format!("it is at {shown:?}, the log at {told:?}"));
    }
    if play.status["finished"] != true {
        problems.push(format!("everybody went, and it is not finished: {}", play.status));
    }
    let open = |place: &Place| place.buffer.0 >= history.next_buffer;
    let reserved: Vec<_> = history
        .stories
        .iter()
        .filter(|(_, story)| matches!(story.state, State::Reserved(_)))
        .collect();
    if play.status["reserved"] != 0 || !reserved.is_empty() {
        problems.push(format!(
            "reservations are left: {}, {reserved:?}",
            play.status["reserved"]
        ));
    }
    let waiting: BTreeSet<(Place, TrajectoryId)> = history
        .stories
        .iter()
        .filter_map(|(id, story)| match story.state {
            State::Occupied(place) if open(&place) => Some((place, *id)),
            _ => None,
        })
        .collect();
    let shown = occupied_slots(&play.buffers);
    if shown != waiting {
        problems.push(format!("the open buffers hold {shown:?}, the log has {waiting:?}"));
    }
    for kept in &play.batches {
        let version = kept["version"].as_u64().expect("a number");
        let entries = TrainedEntry::shown(kept);
        if !history
            .final_batches()
            .any(|batch| batch.version == version && batch.entries == entries)
        {
            problems.push(format!(
                "batch {version} is kept as {entries:?}, which is not in the log"
            ));
        }
    }
    problems
}

fn occupied_slots(buffers: &Value) -> BTreeSet<(Place, TrajectoryId)> {
    let mut occupied = BTreeSet::new();
    for buffer in buffers["buffers"].as_array().into_iter().flatten() {
        let version = buffer["version"].as_u64().expect("a number");
        for (slot, entry) in (0..).zip(buffer["slots"].as_array().into_iter().flatten()) {
            if entry["state"] == "occupied" || entry["state"] == "taken" {
                let id = entry["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
                occupied.insert((Place::new(version, slot), id));
            }
        }
    }
    occupied
}

/// Each fault is followed by a publish.
fn of_progress(play: &Play, history: &History) -> Vec<String> {
    let last = history.advances.iter().max().copied().unwrap_or(0);
    let followed_by_nothing = play.faults.iter().filter(|(_, over)| *over >= last);
    followed_by_nothing
        .map(|(kind, over)| format!("nothing was published after \"{kind}\", over at {over}"))
        .collect()
}

fn audited(play: &Play) -> Vec<String> {
    let mut auditor = Auditor::new();
    for event in &play.events {
        auditor.apply(event);
    }
    auditor
        .violations()
        .iter()
        .map(|finding| format!("{finding:?}"))
        .collect()
}
