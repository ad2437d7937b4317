//! What each step does to both, and what must be the same afterwards.

use berth::ledger::finishing::{Concluded, Finish, Finished, OccupiedState};
use berth::ledger::names::ClientReason;
use berth::ledger::reserving::{Grant, ReserveRequest};
use berth::ledger::runs::ConfigChanges;
use berth::ledger::sessions::HeartbeatRequest;
use berth::ledger::{LedgerError, Refusal};
use berth::protocol::invariants::Demand;
use berth::protocol::tables::{DiscardRefusal, Entry, EntryState, OccupyRefusal, ReserveRefusal, Wish};
use berth::protocol::{BufferId, Effect, EventType, Lineage, Place, Reason, RunConfig, TrajectoryId, Version, Weights};
use proptest::sample::Index;

use crate::accounts::tokens_of;
use crate::twins::{Twins, effects_of, refusal_of};

impl Twins {
    pub(crate) async fn reserve(&mut self, worker: usize, lag: i64, lineage_lag: i64, count: usize) {
        let weights = Weights {
            version: Version(self.model.policy_version().0.saturating_add_signed(-lag)),
            lineage: Lineage(self.model.lineage().0.saturating_add_signed(-lineage_lag)),
        };
        let ids: Vec<_> = (0..count).map(|_| TrajectoryId::generate()).collect();
        let request = ReserveRequest {
            caller: self.caller(worker),
            count,
            version: Some(weights.version),
            lineage: Some(weights.lineage),
            adopt: None,
            prompts: Vec::new(),
            request_id: None,
        };
        let answer = self.ledger.reserve(&self.run, &request, &ids).await;
        match self.model.reserve_adopting(weights, &ids) {
            Ok(reserved) => {
                let reservation = answer.expect("the model reserves").value;
                let granted: Vec<_> = reservation.granted.iter().map(granted_effect).collect();
                let is_of_a_prompt = |effect: &&Effect| matches!(effect, Effect::Prompt { .. });
                let placed = reserved.effects.iter().filter(|effect| !is_of_a_prompt(effect));
                assert_eq!(granted, placed.cloned().collect::<Vec<_>>());
                assert_eq!(reservation.blocked_by, reserved.blocked_by);
                for grant in &reservation.granted {
                    self.holders.insert(grant.id, worker);
                    self.check_prompt(grant);
                    assert_eq!(
                        grant.deadline,
                        BufferId(grant.version.0 + self.model.config().max_staleness)
                    );
                }
                self.logged(EventType::Reserve, &reserved.effects).await;
            }
            Err(refusal) => {
                let expected = match refusal {
                    ReserveRefusal::VersionNotPublished {
                        version,
                        policy_version,
                    } => Refusal::VersionNotPublished {
                        version: Some(version),
                        policy_version,
                    },
                    ReserveRefusal::IdReused { id } => panic!("{id} is new"),
                    ReserveRefusal::LineageUnknown { .. } => Refusal::LedgerBehind,
                    ReserveRefusal::VersionTooStale { .. } => Refusal::VersionTooStale {
                        policy_version: self.model.policy_version(),
                    },
                };
                assert_eq!(refusal_of(answer), expected);
                self.logged(EventType::Reserve, &[]).await;
            }
        }
    }

    pub(crate) async fn occupy(&mut self, id: TrajectoryId) {
        if self.model.config().has_groups() {
            return self.occupy_group(id, &[]).await;
        }
        let demand = Demand::beside(&self.model, id);
        let answer = self
            .ledger
            .occupy(
                &self.run,
                None,
                None,
                Finished::new(
                    id,
                    Finish {
                        tokens: tokens_of(id),
                        ..Finish::default()
                    },
                ),
            )
            .await;
        match self.model.occupy(id) {
            Ok(occupied) => {
                let Concluded::Occupied(place) = answer.expect("the model occupies").value else {
                    panic!("{id} is no group");
                };
                assert_eq!((place.buffer, place.slot), (occupied.place.buffer, occupied.place.slot));
                assert_eq!(place.late, occupied.late);
                let is_taken = place.buffer < self.model.next_buffer() || self.model.is_streamed(occupied.place);
                assert_eq!(
                    place.state,
                    if is_taken {
                        OccupiedState::Taken
                    } else {
                        OccupiedState::Occupied
                    }
                );
                let config = self.model.config();
                if !occupied.repeated && config.slots_per_buffer == config.batch_size {
                    let version = self.model.entry(id).expect("it is in the tables").version;
                    assert_eq!(demand.check(id, version, place.buffer), None);
                }
                self.logged(EventType::Occupy, &occupied.effects).await;
            }
            Err(refusal) => {
                let expected = match refusal {
                    OccupyRefusal::Unknown => Refusal::UnknownTrajectory,
                    OccupyRefusal::Discarded(reason) => Refusal::TrajectoryDiscarded { reason },
                    OccupyRefusal::Group | OccupyRefusal::Member(_) => panic!("{id} is a single trajectory"),
                    OccupyRefusal::Superseded => Refusal::Superseded,
                    OccupyRefusal::NoPlace => panic!("{id} was not discarded as surplus in time"),
                };
                assert_eq!(refusal_of(answer), expected);
                self.logged(EventType::Occupy, &[]).await;
            }
        }
    }

    pub(crate) async fn discard(&mut self, id: TrajectoryId, reason: &str, wish: Wish) {
        let word: ClientReason = reason.parse().expect("a client's reason");
        let answer = self.ledger.discard(&self.run, None, id, &word, None, wish).await;
        if wish == Wish::Requeue && self.model.prompt_queue().is_none() {
            assert_eq!(refusal_of(answer), Refusal::NoPromptQueue);
            return assert_eq!(self.new_events().await, []);
        }
        match self.model.discard_with(id, Reason::from(reason), wish) {
            Ok(discarded) => {
                let answer = answer.expect("the model discards").value;
                assert_eq!(answer.discarded_from, discarded.discarded_from);
                let promoted: Vec<_> = answer
                    .promoted
                    .iter()
                    .map(|each| (each.id, each.from, each.to))
                    .collect();
                let expected: Vec<_> = discarded
                    .effects
                    .iter()
                    .filter_map(|effect| match effect {
                        Effect::Promoted { id, from, to } => Some((*id, from.buffer, to.buffer)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(promoted, expected);
                self.logged(EventType::Discard, &discarded.effects).await;
            }
            Err(refusal) => {
                let expected = match refusal {
                    DiscardRefusal::Unknown => Refusal::UnknownTrajectory,
                    DiscardRefusal::Taken { .. } => Refusal::TrajectoryTaken,
                };
                assert_eq!(refusal_of(answer), expected);
                self.logged(EventType::Discard, &[]).await;
            }
        }
    }

    /// A new process of the worker calls for the first time: what the old one held is gone at once.
    pub(crate) async fn restart(&mut self, worker: usize) {
        self.starts[worker] += 1;
        let caller = self.caller(worker);
        let beat = HeartbeatRequest {
            caller,
            version: None,
            lineage: None,
            holding: None,
            acknowledged: Vec::new(),
        };
        self.ledger
            .heartbeat(&self.run, &beat)
            .await
            .expect("a heartbeat is answered");
        let held = self.held_by(worker);
        self.lost(&[EventType::SessionOpened], &held, &Reason::WorkerRestarted)
            .await;
    }

    pub(crate) async fn expire(&mut self) {
        let held = (0..3).flat_map(|worker| self.held_by(worker)).collect::<Vec<_>>();
        loop {
            let swept = self.ledger.sweep(&self.run, &[]).await.expect("a sweep");
            if swept.leases == 0 && !swept.more {
                break;
            }
        }
        self.lost(&[EventType::Expire; 3], &held, &Reason::LeaseExpired).await;
    }

    pub(crate) fn held_by(&self, worker: usize) -> Vec<TrajectoryId> {
        let is_reserved = |id: &TrajectoryId| {
            self.model
                .entry(*id)
                .is_some_and(|entry| matches!(entry.state, EntryState::Reserved { .. }))
        };
        let held = self
            .holders
            .iter()
            .filter(|(id, holder)| **holder == worker && is_reserved(id));
        held.map(|(id, _)| *id).collect()
    }

    /// All of `held` was discarded in some steps, each front-most first, or became surplus by it.
    pub(crate) async fn lost(&mut self, types: &[EventType], held: &[TrajectoryId], reason: &Reason) {
        let events = self.new_events().await;
        let (prunes, events): (Vec<_>, Vec<_>) = events
            .into_iter()
            .partition(|event| event.event_type == EventType::Prune);
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event.event_type, types[number]);
            let mut effects = Vec::new();
            for (turn, id) in event.ids.iter().enumerate() {
                assert!(held.contains(id), "{id} was not held");
                let front_most = event.ids[turn..].iter().min_by_key(|id| self.place(**id));
                assert_eq!(Some(id), front_most);
                effects.extend(self.give_up(*id, reason));
            }
            assert_eq!(effects_of(event), effects);
        }
        for prune in prunes {
            self.prune(&effects_of(&prune));
        }
        for id in held {
            let state = &self.model.entry(*id).expect("it was held").state;
            let is_orphan = self.model.orphans().any(|(orphan, _)| orphan == *id);
            let is_gone = matches!(state, EntryState::Discarded { .. });
            assert!(is_gone || is_orphan, "{id} is still {state:?}");
            self.holders.remove(id);
        }
    }

    fn place(&self, id: TrajectoryId) -> Option<Place> {
        self.model.entry(id).and_then(Entry::place)
    }

    pub(crate) async fn claim(&mut self, worker: usize, index: Index) {
        let Some(id) = self.pick(index, |state| matches!(state, EntryState::Reserved { .. })) else {
            return;
        };
        let answer = self.ledger.claim(&self.run, &self.caller(worker), id).await;
        match answer {
            Ok(_) => {
                let is_new = self.holders.insert(id, worker) != Some(worker);
                let events = self.new_events().await;
                assert_eq!(events.len(), usize::from(is_new));
                let effects: Vec<_> = events.iter().flat_map(effects_of).collect();
                assert_eq!(effects, self.model.claim(id));
            }
            // The weights that the worker named in its last Reserve are older than the entry's.
            Err(LedgerError::Refused {
                refusal: Refusal::VersionTooStale { .. },
                ..
            }) => {
                assert_eq!(self.new_events().await, []);
            }
            Err(error) => panic!("a claim of a reservation: {error}"),
        }
    }

    pub(crate) async fn configure(&mut self, max_concurrency: Option<u64>, keep_batches: u64) {
        let candidates = u64::from(self.model.config().group_candidates);
        let max_concurrency = max_concurrency.map(|most| most.max(candidates));
        let config = RunConfig {
            max_concurrency,
            keep_batches,
            ..self.model.config().clone()
        };
        let differs = config != *self.model.config();
        let changes = ConfigChanges {
            max_concurrency,
            keep_batches: Some(keep_batches),
            ..ConfigChanges::default()
        };
        let cleared: &[_] = if max_concurrency.is_none() {
            &["max_concurrency"]
        } else {
            &[]
        };
        self.ledger
            .configure_run(&self.run, &changes, cleared)
            .await
            .expect("both may change");
        self.model.set_config(config).expect("both may change");
        assert_eq!(self.new_events().await.len(), usize::from(differs));
    }
}

fn granted_effect(grant: &Grant) -> Effect {
    if grant.adopted {
        return Effect::Adopted { id: grant.id };
    }
    Effect::Reserved {
        id: grant.id,
        version: grant.version,
        to: Place {
            buffer: grant.buffer,
            slot: grant.slot,
        },
    }
}
