//! What the clients wrote, held against the ledger's event log and its state.

use std::collections::{BTreeSet, HashMap};

use berth::protocol::audit::Auditor;
use berth::protocol::{Place, TrajectoryId};
use serde_json::Value;

use crate::diary::{Entry, Line, TrainedEntry};
use crate::figures::Figures;
use crate::history::{History, State};
use crate::rehearsal::Rehearsal;
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

/// Every acknowledged occupy is in exactly one batch, or discarded, or still waits for its batch; and what else a worker was
/// told happened.
pub(crate) fn of_the_workers(diary: &[Line], history: &History) -> Vec<String> {
    let mut batches: HashMap<TrajectoryId, usize> = HashMap::new();
    for entry in history.final_batches().flat_map(|batch| &batch.entries) {
        *batches.entry(entry.id).or_default() += 1;
    }
    let mut problems = Vec::new();
    for (id, count) in batches.iter().filter(|(_, count)| **count > 1) {
        problems.push(format!("{id} is in {count} batches"));
    }
    for line in diary {
        let problem = match &line.entry {
            Entry::Granted { ids, version, .. } => ids.iter().find_map(|id| match history.stories.get(id) {
                None => Some(format!("the grant of {id} is not in the log")),
                Some(story) if story.version != *version => Some(format!("{id} was granted as {version}: {story:?}")),
                Some(_) => None,
            }),
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

fn of_an_occupy(
    id: TrajectoryId,
    late: bool,
    history: &History,
    batches: &HashMap<TrajectoryId, usize>,
) -> Option<String> {
    let Some(story) = history.stories.get(&id) else {
        return Some(format!("{id} was occupied and is not in the log"));
    };
    let is_in_a_batch = batches.get(&id) == Some(&1);
    let is_where_it_should = match story.state {
        State::Reserved(_) => false,
        State::Occupied(place) if place.buffer.0 < history.next_buffer => is_in_a_batch,
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
        "trajectory_discarded" => story.discarded > 0,
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
        let entries: Vec<TrainedEntry> =
            serde_json::from_value(kept["trajectories"].clone()).expect("the entries of a batch");
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
            if entry["state"] == "occupied" {
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
