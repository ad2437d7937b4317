//! The prompt queue as the event log tells it, held against what was fed, what was trained and what the ledger shows.

use std::collections::{BTreeMap, HashMap};

use berth::protocol::{Effect, Event, EventType, PromptState, TrajectoryId};
use serde_json::Value;

use crate::diary::{Entry, Line};
use crate::history::{History, State};

pub(crate) const STATES: [PromptState; 7] = [
    PromptState::Queued,
    PromptState::InFlight,
    PromptState::Occupied,
    PromptState::Trained,
    PromptState::Filtered,
    PromptState::Failed,
    PromptState::Dropped,
];

/// The name of the prompt that is fed at a position.
pub(crate) fn name(position: u64) -> String {
    format!("q-{position}")
}

/// What was fed, and what became of each.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    fed: Vec<String>,
    /// What an effect last said of a prompt, and of which entry. A fed prompt of which nothing was said is queued.
    told: BTreeMap<u64, (PromptState, TrajectoryId)>,
}

impl Queue {
    /// Takes an event into account. Returns what is wrong with it.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<String> {
        let mut problem = None;
        self.fed.extend(event.prompts.iter().map(|prompt| prompt.id.clone()));
        if event.event_type == EventType::Feed && event.fed != Some(self.fed.len() as u64) {
            problem = Some(format!("says that {:?} were fed, not {}", event.fed, self.fed.len()));
        }
        for effect in event.effects.iter().map(|logged| &logged.effect) {
            let Effect::Prompt {
                id, position, state, ..
            } = effect
            else {
                continue;
            };
            if position.0 >= self.fed.len() as u64 {
                problem = Some(format!("is about the prompt {position}, which was not fed"));
            }
            let is_handed_out = matches!(state, PromptState::InFlight | PromptState::Occupied);
            let before = self.told.insert(position.0, (*state, *id));
            let may_be = match before {
                None | Some((PromptState::Queued, _)) => is_handed_out,
                // It is its entry that leaves.
                Some((PromptState::InFlight | PromptState::Occupied, entry)) => !is_handed_out && entry == *id,
                Some(_) => false,
            };
            if !may_be {
                problem = Some(format!("makes the prompt {position} {state}, which was {before:?}"));
            }
        }
        problem
    }

    pub(crate) fn name(&self, position: u64) -> Option<String> {
        self.fed.get(usize::try_from(position).ok()?).cloned()
    }

    /// The state of each prompt that was fed; or the entry whose prompt has none.
    fn states(&self, history: &History) -> Vec<Result<PromptState, TrajectoryId>> {
        let state = |position| match self.told.get(&position) {
            None => Ok(PromptState::Queued),
            Some((PromptState::InFlight | PromptState::Occupied, id)) => match history.stories[id].state {
                State::Reserved(_) => Ok(PromptState::InFlight),
                State::Occupied(place) if history.is_taken(place) => Ok(PromptState::Trained),
                State::Occupied(_) => Ok(PromptState::Occupied),
                State::Discarded => Err(*id),
            },
            Some((state, _)) => Ok(*state),
        };
        (0..self.fed.len() as u64).map(state).collect()
    }
}

/// What was fed is in the log, each prompt is in one state and in one entry at most, and the ledger shows the same.
/// `counts` are those of the run's status; `listed` is the list of each state.
pub(crate) fn problems(
    feeder: &[Line],
    history: &History,
    counts: &Value,
    listed: &BTreeMap<PromptState, Vec<Value>>,
) -> Vec<String> {
    let queue = &history.queue;
    let mut problems = Vec::new();
    for line in feeder {
        if let Entry::Fed { offset, count, fed } = line.entry
            && (fed < offset + count || fed > queue.fed.len() as u64)
        {
            problems.push(format!("{line:?}: the log has {}", queue.fed.len()));
        }
    }
    for (position, fed) in (0..).zip(&queue.fed) {
        if *fed != name(position) {
            problems.push(format!("{fed} was fed as {position}"));
        }
    }
    problems.extend(doubled(history));
    let mut expected: BTreeMap<PromptState, Vec<u64>> = BTreeMap::new();
    for (position, state) in (0..).zip(queue.states(history)) {
        match state {
            Ok(state) => expected.entry(state).or_default().push(position),
            Err(id) => problems.push(format!(
                "the prompt {position} of {id}, which was discarded, is in no state"
            )),
        }
    }
    let mut shown: HashMap<&str, PromptState> = HashMap::new();
    let mut sum = 0;
    for state in STATES {
        let positions = expected.remove(&state).unwrap_or_default();
        let count = counts[state.as_str()].as_u64().unwrap_or(0);
        sum += count;
        if count != positions.len() as u64 {
            problems.push(format!("{count} prompts are {state}, the log has {}", positions.len()));
        }
        let names: Vec<_> = positions.into_iter().map(name).collect();
        let list = listed.get(&state).map_or(&[][..], Vec::as_slice);
        for prompt in list {
            let id = prompt["id"].as_str().unwrap_or_default();
            if prompt["state"] != state.as_str() || !names.iter().any(|name| name == id) {
                problems.push(format!("{prompt} is listed as {state}"));
            }
            if let Some(before) = shown.insert(id, state) {
                problems.push(format!("{id} is listed as {before} and as {state}"));
            }
        }
        // A trained one is forgotten with its batch, and in an hour a filtered one.
        let may_be_forgotten = [PromptState::Trained, PromptState::Filtered].contains(&state);
        if !may_be_forgotten && list.len() != names.len() {
            problems.push(format!(
                "{} prompts are listed as {state}, the log has {}",
                list.len(),
                names.len()
            ));
        }
    }
    if sum != queue.fed.len() as u64 {
        problems.push(format!("the counts add up to {sum}, and {} were fed", queue.fed.len()));
    }
    problems
}

/// Prompts that more than one entry stands for in the end.
fn doubled(history: &History) -> Vec<String> {
    let mut entries: BTreeMap<u64, usize> = BTreeMap::new();
    for story in history.stories.values() {
        if let (Some(position), State::Reserved(_) | State::Occupied(_)) = (story.position, story.state) {
            *entries.entry(position).or_default() += 1;
        }
    }
    let doubled = entries.into_iter().filter(|(_, count)| *count > 1);
    doubled
        .map(|(position, count)| format!("the prompt {position} is in {count} entries"))
        .collect()
}
