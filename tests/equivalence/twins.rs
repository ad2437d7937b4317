//! A run in the ledger and the same run in the model, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth::ledger::looking::SlotShown;
use berth::ledger::names::Caller;
use berth::ledger::trajectories::TrajectoryState;
use berth::ledger::{Ledger, LedgerError, Refusal, RunName, Seen};
use berth::protocol::audit::Auditor;
use berth::protocol::invariants;
use berth::protocol::tables::{EntryState, SlotState, SlotTables, Wish};
use berth::protocol::{BufferId, DrainQueue, Effect, Event, EventType, RunConfig, TrajectoryId, Version};
use berth::store::Store;
use proptest::sample::Index;
use uuid::Uuid;

use crate::accounts::Accounts;
use crate::groups::GroupStep;
use crate::trainer::Resuming;

/// One step. An index picks one of the entries that the step is about.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Reserve {
        worker: usize,
        lag: i64,
        lineage_lag: i64,
        count: usize,
    },
    OccupyReserved(Index),
    /// Of whatever state, or never heard of.
    OccupyAny(Index),
    /// Of whatever state.
    Discard(Index, &'static str),
    /// Of an occupied one.
    Filter(Index),
    /// Of whatever state, with the wish that its prompt is tried again.
    Requeue(Index),
    /// For a reason of the ledger's own, of a reservation.
    DiscardAs(Index, &'static str),
    /// Of whatever state: its grant, to who holds it or to somebody else, reached nobody.
    Abandon {
        index: Index,
        is_holder: bool,
    },
    /// A page that begins so many after what was fed, or after all that was fed.
    Feed {
        ahead: Option<i64>,
        lengths: Vec<Option<u64>>,
    },
    /// The worker opens a new session.
    Restart(usize),
    /// All leases run out.
    Expire,
    Claim {
        worker: usize,
        index: Index,
    },
    /// By the open session, or one so many later.
    Take(i64),
    /// A version so many above the trainer's, by a session so many later than the open one.
    Publish(u64, i64),
    Checkpoint(i64, i64),
    Resume(Resuming),
    CreateAgain,
    Configure(Option<u64>, u64),
    /// Everything has been reserved for too long.
    TimeOut,
    /// The trainer asks for a batch, and has waited for too long.
    HoldUp,
    /// A trainer that has so many entries fewer than are taken of its batch.
    Stream {
        back: i64,
        min_entries: usize,
        max_entries: Option<usize>,
        later: i64,
    },
    Drain(Option<DrainQueue>),
    /// Of a run with groups.
    Group(GroupStep),
}

pub(crate) struct Twins {
    pub(crate) ledger: Ledger,
    /// The same database, for scripts that no call of the ledger sends so.
    pub(crate) store: Arc<Store>,
    pub(crate) run: RunName,
    pub(crate) model: SlotTables,
    /// How often each worker has started.
    pub(crate) starts: [usize; 3],
    /// The holder of each reservation that the model knows.
    pub(crate) holders: BTreeMap<TrajectoryId, usize>,
    /// The segments that a call recorded of members: the newest version of each.
    pub(crate) recorded: BTreeMap<(TrajectoryId, u32), Version>,
    pub(crate) seen: u64,
    /// How many trainer sessions were asked for.
    pub(crate) trainers: usize,
    log: Auditor,
    accounts: Accounts,
}

impl Twins {
    pub(crate) async fn create(ledger: &Ledger, store: &Arc<Store>, config: RunConfig) -> Self {
        let run: RunName = format!("twins-{}", Uuid::new_v4().simple()).parse().expect("a name");
        ledger.create_run(&run, &config).await.expect("the run is created");
        let mut twins = Self {
            ledger: ledger.clone(),
            store: Arc::clone(store),
            run,
            model: SlotTables::new(config),
            starts: [0; 3],
            holders: BTreeMap::new(),
            recorded: BTreeMap::new(),
            seen: 0,
            trainers: 0,
            log: Auditor::new(),
            accounts: Accounts::default(),
        };
        assert_eq!(
            twins.new_events().await.len(),
            1,
            "the run's creation is its first event"
        );
        for worker in 0..3 {
            twins.restart(worker).await;
        }
        twins
    }

    /// The log alone tells no other story.
    pub(crate) async fn end(self) {
        assert_eq!(self.log.violations(), []);
        self.ledger.delete_run(&self.run).await.expect("the run is deleted");
    }

    pub(crate) async fn step(&mut self, step: &Step) {
        match step {
            Step::Reserve {
                worker,
                lag,
                lineage_lag,
                count,
            } => self.reserve(*worker, *lag, *lineage_lag, *count).await,
            Step::OccupyReserved(index) => {
                if let Some(id) = self.pick(*index, |state| matches!(state, EntryState::Reserved { .. })) {
                    self.occupy(id).await;
                }
            }
            Step::OccupyAny(index) => {
                let id = self.pick(*index, |_| true).unwrap_or_else(TrajectoryId::generate);
                self.occupy(id).await;
            }
            Step::Discard(index, reason) => {
                let id = self.pick(*index, |_| true).unwrap_or_else(TrajectoryId::generate);
                self.discard(id, reason, Wish::ByReason).await;
            }
            Step::Filter(index) => {
                if let Some(id) = self.pick(*index, |state| matches!(state, EntryState::Occupied { .. })) {
                    self.discard(id, "zero_gradient", Wish::ByReason).await;
                }
            }
            Step::Requeue(index) => {
                let id = self.pick(*index, |_| true).unwrap_or_else(TrajectoryId::generate);
                self.discard(id, "preempted", Wish::Requeue).await;
            }
            Step::DiscardAs(index, reason) => self.discard_as(*index, reason).await,
            Step::Abandon { index, is_holder } => self.abandon(*index, *is_holder).await,
            Step::Feed { ahead, lengths } => self.feed(*ahead, lengths).await,
            Step::Restart(worker) => self.restart(*worker).await,
            Step::Expire => self.expire().await,
            Step::Claim { worker, index } => self.claim(*worker, *index).await,
            Step::Take(later) => self.take(*later).await,
            Step::Publish(ahead, later) => self.publish(*ahead, *later).await,
            Step::Checkpoint(ahead, later) => self.checkpoint(*ahead, *later).await,
            Step::Resume(resuming) => self.resume(resuming).await,
            Step::CreateAgain => self.create_again().await,
            Step::TimeOut => self.time_out().await,
            Step::HoldUp => self.hold_up().await,
            Step::Stream {
                back,
                min_entries,
                max_entries,
                later,
            } => self.stream(*back, *min_entries, *max_entries, *later).await,
            Step::Drain(draining) => self.drain(*draining).await,
            Step::Group(step) => self.group_step(step).await,
            Step::Configure(limit, keep) => self.configure(*limit, *keep).await,
        }
        self.compare().await;
    }

    pub(crate) fn pick(&self, index: Index, wanted: fn(&EntryState) -> bool) -> Option<TrajectoryId> {
        let candidates: Vec<_> = self
            .model
            .entries()
            .filter(|(_, entry)| wanted(&entry.state))
            .map(|(id, _)| id)
            .collect();
        (!candidates.is_empty()).then(|| *index.get(&candidates))
    }

    pub(crate) fn caller(&self, worker: usize) -> Caller {
        Caller {
            worker: format!("rollout-{worker}").parse().expect("a name"),
            session: Some(format!("start-{}", self.starts[worker]).parse().expect("a token")),
        }
    }

    pub(crate) async fn new_events(&mut self) -> Vec<Event> {
        let page = self
            .ledger
            .events(&self.run, self.seen, 1_000, None)
            .await
            .expect("the log can be read")
            .value;
        let events: Vec<Event> = page.events.into_iter().map(|shown| shown.event).collect();
        for event in &events {
            match event.raised_from {
                Some(before) => assert!(before == self.seen && event.seq > before, "what was lost is left out"),
                None => assert_eq!(event.seq, self.seen + 1, "one event a step"),
            }
            self.seen = event.seq;
            self.log.apply(event);
            self.accounts.apply(event);
        }
        events
    }

    /// The log so far was in order, and begins anew behind `seq`.
    pub(crate) fn begin_log(&mut self, seq: u64) {
        assert_eq!(self.log.violations(), []);
        self.log = Auditor::new();
        self.accounts = Accounts::default();
        self.seen = seq;
    }

    /// What the step appended to the log: nothing, if it had no effects, or one event with just these.
    pub(crate) async fn logged(&mut self, event_type: EventType, effects: &[Effect]) {
        let events = self.new_events().await;
        let logged: Vec<_> = events
            .iter()
            .map(|event| (event.event_type, effects_of(event)))
            .collect();
        if effects.is_empty() {
            assert_eq!(logged, [], "a step that changes nothing is not logged");
        } else {
            assert_eq!(logged, [(event_type, effects.to_vec())]);
        }
    }

    /// The tables, the counts that are derived from them, and the invariants.
    async fn compare(&self) {
        assert_eq!(invariants::check(&self.model), []);
        let shown = self
            .ledger
            .slots(&self.run)
            .await
            .expect("the tables can be looked at")
            .value;
        assert_eq!(
            (
                shown.policy_version,
                shown.next_buffer,
                shown.trainer_version,
                shown.lineage
            ),
            (
                self.model.policy_version(),
                self.model.next_buffer(),
                self.model.trainer_version(),
                self.model.lineage()
            )
        );
        let model = self.model.buffers();
        assert_eq!(shown.buffers.len(), model.len());
        for (shown, model) in shown.buffers.iter().zip(&model) {
            assert_eq!((shown.counts.version, shown.counts.state), (model.buffer, model.state));
            let slots: Vec<SlotState> = shown.slots.iter().flatten().map(slot_state).collect();
            assert_eq!(slots, model.slots);
            let taken = shown.slots.iter().flatten().filter(|slot| is_taken(slot)).count();
            let is_next = model.buffer == self.model.next_buffer();
            assert_eq!(taken, if is_next { self.model.streamed() } else { 0 });
        }
        let status = self
            .ledger
            .run(&self.run)
            .await
            .expect("the run can be looked at")
            .value;
        assert_eq!(status.reserved, self.model.reserved() as u64);
        assert_eq!(
            (status.draining, status.finished),
            (self.model.draining().is_some(), self.model.is_finished())
        );
        assert_eq!(status.generating, self.model.generating());
        assert_eq!(status.kept_batches, self.model.kept_batches().count() as u64);
        assert_eq!(
            status.oldest_kept,
            self.model.kept_batches().next().map(|v| BufferId(v.0))
        );
        let totals = status.totals;
        let counted = totals.discarded.values().sum::<u64>() + totals.trained + status.reserved + status.occupied;
        assert_eq!(counted, totals.reserved + totals.late, "every admission is somewhere");
        let distribution = self.ledger.distribution(&self.run).await;
        let distribution = distribution.expect("the distribution can be looked at").value;
        self.accounts.check(&distribution, self.model.next_buffer(), &totals);
        self.compare_prompts().await;
    }
}

fn is_taken(shown: &SlotShown) -> bool {
    matches!(shown, SlotShown::Filled(entry) if entry.state == TrajectoryState::Taken)
}

fn slot_state(shown: &SlotShown) -> SlotState {
    match shown {
        SlotShown::Empty { .. } => SlotState::Empty,
        SlotShown::Filled(entry) if entry.state != TrajectoryState::Reserved => SlotState::Occupied {
            id: entry.id,
            version: entry.version,
        },
        SlotShown::Filled(entry) => SlotState::Reserved {
            id: entry.id,
            version: entry.version,
        },
    }
}

pub(crate) fn effects_of(event: &Event) -> Vec<Effect> {
    event.effects.iter().map(|logged| logged.effect.clone()).collect()
}

pub(crate) fn refusal_of<T: std::fmt::Debug>(answer: Result<Seen<T>, LedgerError>) -> Refusal {
    match answer {
        Err(LedgerError::Refused { refusal, .. }) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}
