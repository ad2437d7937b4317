//! A run of the model that checks itself after every step.

use std::collections::{BTreeMap, BTreeSet};

use berth::protocol::invariants::{self, Demand};
use berth::protocol::tables::{
    BatchEntry, EntryState, FeedRefusal, OccupyRefusal, PromptQueue, ReserveRefusal, SlotTables, Wish,
};
use berth::protocol::{
    BufferId, DrainQueue, Effect, Epoch, Event, EventType, FedPrompt, Lineage, Reason, RunConfig, TrajectoryId,
    Version, Weights,
};
use proptest::sample::Index;
use uuid::Uuid;

use crate::groups::GroupStep;
use crate::log::Log;
use crate::trainer::Resuming;

/// One step. Where it is about an entry, the index picks one of those that the step is possible for.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Under a version so many below the latest, in a lineage so many below the latest.
    Reserve {
        lag: i64,
        lineage_lag: i64,
        count: usize,
    },
    Occupy(Index),
    LateOccupy(Index),
    DiscardReserved(Index, &'static str),
    DiscardOccupied(Index),
    /// A client gives up an entry, finished or not, and wishes that its prompt is tried again.
    Requeue(Index),
    /// A page that begins so many after what was fed, or after all that was fed, whatever that is.
    Feed {
        ahead: Option<i64>,
        lengths: Vec<Option<u64>>,
    },
    Take,
    /// What is in flight finishes, with some more if that is not enough; a batch is taken and a version published.
    Train,
    /// A version so many above the one that the trainer stands at.
    Publish(u64),
    Limit(Option<u64>),
    Keep(u64),
    Resume(Resuming),
    /// Of a version so many below the one that the trainer stands at.
    Checkpoint(u64),
    /// Of an entry of some batch.
    Prune(Index),
    /// The trainer calls of a session so many before or after the open one.
    Stranger(i64),
    /// A trainer that has so many entries fewer than are taken of its batch.
    Stream {
        back: i64,
        min_entries: usize,
        max_entries: usize,
    },
    Drain(Option<DrainQueue>),
    Group(GroupStep),
}

/// A run, beside tables that are rebuilt from its effects alone, and its log.
pub(crate) struct Run {
    pub(crate) log: Log,
    pub(crate) tables: SlotTables,
    pub(crate) rebuilt: SlotTables,
    admitted: u128,
    /// The finished entries that nobody discarded, and that are not forgotten.
    pub(crate) finished: BTreeSet<TrajectoryId>,
    /// The batch of each entry that was taken, and that no rewind gave back.
    pub(crate) batches: BTreeMap<TrajectoryId, Version>,
    /// The batches as they were taken.
    pub(crate) taken: BTreeMap<Version, Vec<BatchEntry>>,
    /// The members that count.
    pub(crate) counted: BTreeSet<(TrajectoryId, u32)>,
}

impl Run {
    /// A run that goes on from a deleted one's epoch and lineage, if any are given.
    pub(crate) fn new(config: RunConfig, from: Option<(Epoch, Lineage)>) -> Self {
        let tables = match from {
            Some((epoch, lineage)) => SlotTables::continued(config.clone(), epoch, lineage),
            None => SlotTables::new(config.clone()),
        };
        Self {
            log: Log::of(config, from),
            rebuilt: tables.clone(),
            tables,
            admitted: 0,
            finished: BTreeSet::new(),
            batches: BTreeMap::new(),
            taken: BTreeMap::new(),
            counted: BTreeSet::new(),
        }
    }

    pub(crate) fn oversamples(&self) -> bool {
        self.tables.config().slots_per_buffer > self.tables.config().batch_size
    }

    pub(crate) fn log(self) -> Vec<Event> {
        self.log.events
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Reserve {
                lag,
                lineage_lag,
                count,
            } => self.reserve(*lag, *lineage_lag, *count),
            Step::Occupy(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Reserved { .. })) {
                    self.occupy(id);
                }
            }
            Step::LateOccupy(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Discarded { .. })) {
                    self.late_occupy(id);
                }
            }
            Step::DiscardReserved(index, reason) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Reserved { .. })) {
                    self.discard(id, reason);
                }
            }
            Step::DiscardOccupied(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Occupied { .. })) {
                    self.discard(id, "filtered");
                }
            }
            Step::Requeue(index) => {
                if let Some(id) = self.pick(*index, |s| {
                    matches!(s, EntryState::Reserved { .. } | EntryState::Occupied { .. })
                }) {
                    self.discard_with(id, "preempted", Wish::Requeue);
                }
            }
            Step::Feed { ahead, lengths } => self.feed(*ahead, lengths),
            Step::Take => self.take(),
            Step::Train => self.train(),
            Step::Publish(ahead) => self.publish(*ahead),
            Step::Limit(limit) => self.configure(RunConfig {
                max_concurrency: *limit,
                ..self.tables.config().clone()
            }),
            Step::Keep(keep_batches) => self.configure(RunConfig {
                keep_batches: *keep_batches,
                ..self.tables.config().clone()
            }),
            Step::Resume(resuming) => self.resume(resuming),
            Step::Checkpoint(lag) => self.checkpoint(*lag),
            Step::Prune(index) => {
                if let Some(id) = self.pick(*index, |s| matches!(s, EntryState::Taken { .. })) {
                    self.prune(id);
                }
            }
            Step::Stranger(ahead) => self.stranger(*ahead),
            Step::Stream {
                back,
                min_entries,
                max_entries,
            } => self.stream(*back, *min_entries, *max_entries),
            Step::Drain(draining) => self.drain(*draining),
            Step::Group(step) => self.group_step(step),
        }
        self.check();
    }

    pub(crate) fn pick(&self, index: Index, wanted: fn(&EntryState) -> bool) -> Option<TrajectoryId> {
        let candidates: Vec<TrajectoryId> = self
            .tables
            .entries()
            .filter(|(_, entry)| wanted(&entry.state))
            .map(|(id, _)| id)
            .collect();
        (!candidates.is_empty()).then(|| *index.get(&candidates))
    }

    fn reserve(&mut self, lag: i64, lineage_lag: i64, count: usize) {
        let weights = Weights {
            version: Version(self.tables.policy_version().0.saturating_add_signed(-lag)),
            lineage: Lineage(self.tables.lineage().0.saturating_add_signed(-lineage_lag)),
        };
        let ids = self.fresh_ids(count);
        let before = self.tables.clone();
        match self.tables.reserve(weights, &ids) {
            Ok(reserved) => {
                assert!(lag >= 0 && lineage_lag >= 0 && !self.tables.is_abandoned(weights));
                let admitted = reserved.effects.iter().filter(|e| matches!(e, Effect::Reserved { .. }));
                assert_eq!(reserved.granted, admitted.count());
                assert_eq!(reserved.blocked_by.is_none(), reserved.granted == count);
                self.check_limit(reserved.granted);
                if reserved.granted > 0 {
                    let event = self.log.event(EventType::Reserve, &reserved.effects);
                    event.version = Some(weights.version);
                    event.lineage = (weights.lineage > Lineage(0)).then_some(weights.lineage);
                    event.ids = ids;
                }
                self.follow(&reserved.effects);
            }
            Err(refusal) => {
                let unknown = matches!(refusal, ReserveRefusal::LineageUnknown { .. });
                assert_eq!(unknown, weights.lineage > before.lineage());
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
        }
    }

    /// Ids that were never given.
    pub(crate) fn fresh_ids(&mut self, count: usize) -> Vec<TrajectoryId> {
        let first = self.admitted;
        self.admitted += count as u128;
        let id = |n| TrajectoryId(Uuid::from_u128(first + n));
        (0..count as u128).map(id).collect()
    }

    /// So many entries were just admitted: what is generating is within the limit.
    pub(crate) fn check_limit(&self, admitted: usize) {
        let limit = self.tables.config().max_concurrency.unwrap_or(u64::MAX);
        assert!(admitted == 0 || self.tables.generating() <= limit, "over the limit");
    }

    fn train(&mut self) {
        let size = self.tables.config().batch_size as usize;
        self.feed(None, &vec![None; size]);
        self.reserve(0, 0, size);
        let is_reserved = |state: &EntryState| matches!(state, EntryState::Reserved { .. });
        let generating = |run: &Self| {
            run.tables
                .entries()
                .find(|(_, entry)| is_reserved(&entry.state))
                .map(|(id, _)| id)
        };
        while let Some(id) = generating(self) {
            self.occupy(id);
        }
        self.take();
        self.publish(1);
    }

    fn occupy(&mut self, id: TrajectoryId) {
        if self.tables.config().has_groups() {
            self.complete(id).expect("a finished group is never turned away");
            return;
        }
        let demand = Demand::beside(&self.tables, id);
        let version = self.version(id);
        let occupied = self.tables.occupy(id).expect("a finished entry is never turned away");
        assert!(!occupied.late && !occupied.repeated);
        self.occupied(id, occupied.place.buffer, version, &demand, &occupied.effects);
    }

    fn late_occupy(&mut self, id: TrajectoryId) {
        if self.tables.config().has_groups() {
            // A refusal is of the last member, and of no other.
            let _ = self.complete(id);
            return;
        }
        let demand = Demand::beside(&self.tables, id);
        let version = self.version(id);
        let before = self.tables.clone();
        match self.tables.occupy(id) {
            Ok(occupied) => {
                assert!(occupied.late && !occupied.repeated);
                self.occupied(id, occupied.place.buffer, version, &demand, &occupied.effects);
            }
            Err(OccupyRefusal::Discarded(_) | OccupyRefusal::Superseded) => {
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
            Err(refusal) => panic!("{id} is known and was discarded: {refusal}"),
        }
    }

    fn occupied(&mut self, id: TrajectoryId, buffer: BufferId, version: Version, demand: &Demand, effects: &[Effect]) {
        self.finished.insert(id);
        let event = self.log.event(EventType::Occupy, effects);
        event.ids = vec![id];
        event.late = matches!(effects[0], Effect::Reserved { .. });
        if !self.oversamples() {
            assert_eq!(demand.check(id, version, buffer), None);
            let moves = effects.iter().filter(|e| matches!(e, Effect::Moved { .. })).count() as u64;
            assert!(
                moves <= self.tables.config().max_staleness + 1,
                "{moves} moves in a cascade"
            );
        }
        self.follow(effects);

        let before = self.tables.clone();
        let again = self.tables.occupy(id).expect("an occupy sent again succeeds");
        assert!(again.repeated && again.effects.is_empty() && again.place.buffer == buffer);
        assert_eq!(self.tables, before, "an occupy sent again changes nothing");
    }

    fn discard(&mut self, id: TrajectoryId, reason: &str) {
        self.discard_with(id, reason, Wish::ByReason);
    }

    fn discard_with(&mut self, id: TrajectoryId, reason: &str, wish: Wish) {
        self.finished.remove(&id);
        let discarded = self
            .tables
            .discard_with(id, Reason::from(reason), wish)
            .expect("it is in the tables");
        let event = self.log.event(EventType::Discard, &discarded.effects);
        event.ids = vec![id];
        event.reason = Some(Reason::from(reason));
        event.requeue = wish == Wish::Requeue;
        self.follow(&discarded.effects);
    }

    fn feed(&mut self, ahead: Option<i64>, lengths: &[Option<u64>]) {
        let fed = self.tables.prompt_queue().map_or(0, PromptQueue::fed);
        let offset = ahead.map(|ahead| fed.saturating_add_signed(ahead));
        let prompt = |expected_tokens: &Option<u64>| FedPrompt {
            id: "q".to_owned(),
            expected_tokens: *expected_tokens,
        };
        let page: Vec<_> = lengths.iter().map(prompt).collect();
        let before = self.tables.clone();
        match self.tables.feed(offset, &page) {
            Ok(now) => {
                let added = usize::try_from(now - fed).expect("a page");
                let known = fed - offset.unwrap_or(fed);
                assert_eq!(now, fed.max(fed - known + page.len() as u64));
                if added > 0 {
                    let prompts = page[page.len() - added..].to_vec();
                    self.rebuilt.replay_feed(&prompts).expect("a queue");
                    let event = self.log.event(EventType::Feed, &[]);
                    event.fed = Some(now);
                    event.prompts = prompts;
                }
            }
            Err(refusal) => {
                match refusal {
                    FeedRefusal::NoPromptQueue => assert!(!self.tables.config().prompt_queue),
                    FeedRefusal::Gap { .. } => assert!(ahead.is_some_and(|ahead| ahead > 0)),
                    FeedRefusal::Draining => assert!(self.tables.draining().is_some()),
                }
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
        }
    }

    fn configure(&mut self, config: RunConfig) {
        self.log.event(EventType::RunChanged, &[]).config = Some(config.clone());
        self.tables.set_config(config.clone()).expect("it may change");
        self.rebuilt.set_config(config).expect("it may change");
    }

    pub(crate) fn follow(&mut self, effects: &[Effect]) {
        let surplus = |effect: &Effect| {
            matches!(
                effect,
                Effect::Discarded {
                    reason: Reason::Surplus,
                    ..
                }
            )
        };
        assert!(
            self.oversamples() || !effects.iter().any(surplus),
            "surplus without oversampling"
        );
        self.rebuilt
            .replay(effects)
            .expect("effects that the tables can follow");
    }

    fn version(&self, id: TrajectoryId) -> Version {
        self.tables.entry(id).expect("it was admitted").version
    }

    fn check(&self) {
        assert_eq!(invariants::check(&self.tables), []);
        assert_eq!(self.rebuilt, self.tables, "the effects are not all that changed");
        self.check_members();
        for id in &self.finished {
            let state = &self.tables.entry(*id).expect("it is remembered").state;
            let kept = matches!(state, EntryState::Occupied { .. } | EntryState::Taken { .. });
            assert!(kept, "{id} had finished and is {state:?}");
        }
        for version in self.tables.kept_batches() {
            assert_eq!(
                Some(self.tables.batch(version)),
                self.taken.get(&version).map(Vec::as_slice)
            );
        }
    }
}
