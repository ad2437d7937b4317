//! The run as its event log tells it: where every entry is, and which batches there were when. It follows the effects and
//! nothing else, and shares no code with the auditor or the model.

mod batches;

use std::collections::{BTreeMap, HashMap};

use berth::protocol::{Effect, Event, EventType, Place, TrajectoryId};

pub(crate) use self::batches::Batch;
use crate::prompts::Queue;
use crate::rehearsal::{Config, GROUP_SIZE, Kind};

/// What became of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    pub(crate) version: u64,
    pub(crate) state: State,
    /// Whether the ledger forgot it with its batch.
    pub(crate) pruned: bool,
    pub(crate) occupied: u64,
    pub(crate) discarded: u64,
    pub(crate) late: bool,
    /// The members that counted, and whether they failed.
    pub(crate) members: BTreeMap<u32, bool>,
    /// Where its prompt was fed.
    pub(crate) position: Option<u64>,
    pub(crate) adoptions: usize,
}

impl Story {
    pub(crate) fn complete_members(&self) -> Vec<u32> {
        let complete = self.members.iter().filter(|(_, failed)| !**failed);
        complete.map(|(index, _)| *index).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Reserved(Place),
    /// Finished; taken, if the buffer is a batch.
    Occupied(Place),
    Discarded,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) stories: HashMap<TrajectoryId, Story>,
    pub(crate) batches: Vec<Batch>,
    /// The events between which each trainer session was open.
    epochs: BTreeMap<u64, (u64, u64)>,
    /// When the trainer went on by a version, in Unix milliseconds.
    pub(crate) advances: Vec<u64>,
    pub(crate) policy_version: u64,
    pub(crate) next_buffer: u64,
    pub(crate) trainer_version: u64,
    pub(crate) lineage: u64,
    is_draining: bool,
    /// The lineages that began, each with the version that it went back or on to.
    turns: Vec<(u64, u64)>,
    pub(crate) rewinds: u64,
    pub(crate) jumps: u64,
    slots: BTreeMap<Place, TrajectoryId>,
    pub(crate) queue: Queue,
    pub(crate) problems: Vec<String>,
}

impl History {
    pub(crate) fn of(events: &[Event], config: Config) -> Self {
        let mut history = Self::default();
        for (index, event) in events.iter().enumerate() {
            if event.seq != index as u64 + 1 {
                history.wrong(event, "is out of sequence");
            }
            history.follow(event, config);
        }
        history
    }

    fn wrong(&mut self, event: &Event, what: &str) {
        self.problems
            .push(format!("event {} ({:?}) {what}", event.seq, event.event_type));
    }

    fn follow(&mut self, event: &Event, config: Config) {
        let version = event.version.map_or(0, |version| version.0);
        if event.event_type == EventType::Reserve {
            let lineage = event.lineage.map_or(0, |lineage| lineage.0);
            let is_abandoned = self.turns.iter().any(|(began, to)| *began > lineage && *to < version);
            if is_abandoned || version > self.policy_version {
                self.wrong(event, "reserves under weights that are abandoned or not published");
            }
        }
        self.move_entries(event, config);
        if let Some(problem) = self.queue.follow(event) {
            self.wrong(event, &problem);
        }
        match event.event_type {
            EventType::Take | EventType::Stream => self.take(event, version, config),
            EventType::Drain => self.is_draining = event.drain == Some(true),
            EventType::Publish => self.publish(event, version),
            EventType::TrainerOpened => self.open(event),
            _ => {}
        }
    }

    /// The effects in their order. Within an event a place may be left after another entry came to it.
    fn move_entries(&mut self, event: &Event, config: Config) {
        let mut touched = Vec::new();
        for effect in event.effects.iter().map(|logged| &logged.effect) {
            let id = effect.id();
            if let Some(place) = self.place_of(id) {
                if effect.from().is_some_and(|from| from != place) {
                    self.wrong(
                        event,
                        &format!("moves {id} from where it is not: {effect}, it is at {place}"),
                    );
                }
                let is_leaving = matches!(
                    effect,
                    Effect::Moved { .. } | Effect::Promoted { .. } | Effect::Discarded { .. }
                );
                if is_leaving && event.event_type != EventType::TrainerOpened && self.is_taken(place) {
                    self.wrong(event, &format!("moves {id}, which is taken: {effect}"));
                }
                if self.slots.get(&place) == Some(&id) {
                    self.slots.remove(&place);
                }
            }
            self.tell(event, effect, config);
            touched.push(id);
        }
        for id in touched {
            let (Some(place), Some(story)) = (self.place_of(id), self.stories.get(&id)) else {
                continue;
            };
            let is_legal = (story.version..=story.version + config.max_staleness).contains(&place.buffer.0);
            if !is_legal {
                self.wrong(event, &format!("puts {id} into {place}, where it may not be"));
            }
            if self.slots.insert(place, id).is_some_and(|other| other != id) {
                self.wrong(event, &format!("puts two entries into {place}"));
            }
        }
    }

    fn place_of(&self, id: TrajectoryId) -> Option<Place> {
        let story = self.stories.get(&id).filter(|story| !story.pruned)?;
        match story.state {
            State::Reserved(place) | State::Occupied(place) => Some(place),
            State::Discarded => None,
        }
    }

    /// What one effect says of its entry.
    fn tell(&mut self, event: &Event, effect: &Effect, config: Config) {
        let id = effect.id();
        if let Effect::Reserved { version, to, .. } = effect {
            let story = Story {
                version: version.0,
                state: State::Reserved(*to),
                pruned: false,
                occupied: 0,
                discarded: 0,
                late: false,
                members: BTreeMap::new(),
                position: None,
                adoptions: 0,
            };
            let is_late = matches!(event.event_type, EventType::Occupy | EventType::Member);
            let known = self.stories.entry(id).or_insert_with(|| story.clone());
            let may_be = known.state == State::Discarded && known.version == version.0;
            known.late |= is_late;
            known.state = story.state;
            if is_late && !may_be {
                self.wrong(event, &format!("reserves {id}, late, which was not discarded"));
            }
            return;
        }
        let Some(story) = self.stories.get_mut(&id) else {
            return self.wrong(event, &format!("is about {id}, which was never admitted"));
        };
        match (effect, story.state) {
            (Effect::Moved { to, .. } | Effect::Replaced { to, .. }, State::Reserved(_)) => {
                story.state = State::Reserved(*to);
            }
            (
                Effect::Moved { to, .. } | Effect::Promoted { to, .. } | Effect::Replaced { to, .. },
                State::Occupied(_),
            ) => story.state = State::Occupied(*to),
            (Effect::Occupied { to, .. }, State::Reserved(_)) => {
                story.state = State::Occupied(*to);
                story.occupied += 1;
                let members = story.complete_members().len();
                if config.kind == Kind::Groups && members != GROUP_SIZE {
                    self.wrong(
                        event,
                        &format!("occupies {id}, of which {members} members are complete"),
                    );
                }
            }
            (
                Effect::Member {
                    index, failed, version, ..
                },
                State::Reserved(_) | State::Discarded,
            ) => {
                let versions = story.version..=self.policy_version;
                let is_legal = *failed || version.is_some_and(|version| versions.contains(&version.0));
                let is_first = story.members.insert(*index, *failed).is_none();
                if !is_legal || !is_first {
                    self.wrong(event, &format!("counts what it may not: {effect}, of {version:?}"));
                }
            }
            (Effect::Continued { .. } | Effect::Orphaned { .. }, _) => {}
            (Effect::Adopted { .. }, State::Reserved(_)) => story.adoptions += 1,
            (Effect::Prompt { position, .. }, _) => story.position = Some(position.0),
            (Effect::Discarded { .. }, State::Reserved(_) | State::Occupied(_)) => {
                story.state = State::Discarded;
                story.discarded += 1;
            }
            (Effect::Pruned { .. }, State::Occupied(_)) => story.pruned = true,
            (_, state) => self.wrong(
                event,
                &format!("has an effect that cannot be: {effect}, it is {state:?}"),
            ),
        }
    }

    fn publish(&mut self, event: &Event, version: u64) {
        if version <= self.trainer_version {
            return; // the reference of weights that had none
        }
        if version != self.trainer_version + 1 || version > self.next_buffer {
            self.wrong(event, "publishes out of order");
        }
        self.trainer_version = version;
        self.policy_version = self.policy_version.max(version);
        self.advances.push(event.at_ms);
    }

    fn open(&mut self, event: &Event) {
        let epoch = event.epoch.map_or(0, |epoch| epoch.0);
        let checkpoint = event.resumed_from.map_or(0, |version| version.0);
        let lineage = event.lineage.map_or(0, |lineage| lineage.0);
        if let Some(before) = self.epochs.values_mut().last() {
            before.1 = event.seq;
        }
        if self.epochs.insert(epoch, (event.seq, u64::MAX)).is_some() || epoch != self.epochs.len() as u64 {
            self.wrong(event, "has an epoch that is not the next");
        }
        if event.behind {
            self.wrong(event, "says that the database lost writes");
        }
        if lineage > self.lineage {
            self.turn(event, checkpoint, lineage);
        } else if checkpoint == self.policy_version + 1 && self.next_buffer == checkpoint {
            self.policy_version = checkpoint;
            self.advances.push(event.at_ms);
        } else if checkpoint > self.policy_version {
            self.wrong(event, "resumes from a version that is not there");
        }
        self.trainer_version = checkpoint;
        if event
            .policy_version
            .is_none_or(|version| version.0 != self.policy_version)
        {
            self.wrong(event, &format!("does not leave version {}", self.policy_version));
        }
    }

    /// A rewind or a forced resume.
    fn turn(&mut self, event: &Event, checkpoint: u64, lineage: u64) {
        if checkpoint > self.policy_version {
            self.jumps += 1;
        } else {
            self.rewinds += 1;
        }
        for batch in self.batches.iter_mut().filter(|batch| batch.version >= checkpoint) {
            batch.abandoned_at.get_or_insert(event.seq);
        }
        self.turns.push((lineage, checkpoint));
        self.lineage = lineage;
        self.policy_version = checkpoint;
        self.next_buffer = checkpoint;
    }
}
