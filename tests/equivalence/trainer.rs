//! The trainer's steps: what it is given, what it publishes, and how it comes back.

use berth::ledger::Refusal;
use berth::ledger::resuming;
use berth::ledger::training::{NextBatch, PublishRequest, TakeRequest};
use berth::ledger::trajectories::TrajectoryState;
use berth::protocol::tables::{
    Behind, CheckpointRefusal, Delivery, Publish, PublishRefusal, Resume, ResumeRefusal, SessionRefusal, SlotTables,
    Take,
};
use berth::protocol::{BufferId, Effect, Epoch, EventType, Lineage, ResumeMode, Version};

use crate::twins::{Twins, effects_of, refusal_of};

/// How a trainer comes back.
#[derive(Debug, Clone)]
pub(crate) struct Resuming {
    /// From a version so many above the latest, or it does not say which.
    pub(crate) ahead: Option<i64>,
    pub(crate) mode: ResumeMode,
    pub(crate) force: bool,
    /// The trainer has seen a `seq` that is so much above the run's: the database lost writes.
    pub(crate) behind: Option<u64>,
}

pub(crate) fn of_session(refusal: SessionRefusal) -> Refusal {
    match refusal {
        SessionRefusal::Fenced { .. } => Refusal::Fenced,
        SessionRefusal::LedgerBehind { .. } => Refusal::LedgerBehind,
    }
}

impl Twins {
    /// The epoch of a session that is so many later than the last one; none, where there was none.
    pub(crate) fn epoch(&self, later: i64) -> Option<Epoch> {
        let epoch = Epoch(self.model.epoch().0.saturating_add_signed(later));
        (epoch > Epoch(0)).then_some(epoch)
    }

    pub(crate) async fn take(&mut self, later: i64) {
        let epoch = self.epoch(later);
        let request = TakeRequest { epoch, version: None };
        let answer = self.ledger.take(&self.run, request).await;
        let take = match self.model.take(epoch) {
            Ok(Take::Drained { ids, effects }) => {
                let answer = answer.expect("a take is answered").value;
                return self.drained(&answer, &ids, &effects).await;
            }
            Ok(take) => take,
            Err(refusal) => {
                assert_eq!(refusal_of(answer), of_session(refusal));
                return assert_eq!(self.new_events().await, []);
            }
        };
        match (answer.expect("a take is answered").value, take) {
            (
                NextBatch::NotReady(none),
                Take::NotReady {
                    state,
                    occupied,
                    needed,
                    finished,
                },
            ) => {
                assert_eq!(none.finished, finished);
                assert_eq!(none.buffer_state, Some(state));
                assert_eq!((none.occupied as usize, none.needed as usize), (occupied, needed));
                self.logged(EventType::Take, &[]).await;
            }
            (
                NextBatch::Taken(taken),
                Take::Taken {
                    version,
                    entries,
                    redelivered,
                    replayed,
                    is_final,
                    delivery,
                    effects,
                },
            ) => {
                let batch = &taken.batch;
                assert_eq!(
                    (batch.version, batch.redelivered, batch.replayed, batch.is_final),
                    (BufferId(version.0), redelivered, replayed, is_final)
                );
                let got: Vec<_> = batch.trajectories.iter().map(|each| (each.id, each.version)).collect();
                let expected: Vec<_> = entries.iter().map(|entry| (entry.id, entry.version)).collect();
                assert_eq!(got, expected);
                let mut trajectories = batch.trajectories.iter();
                assert!(trajectories.all(|each| each.state == TrajectoryState::Taken));

                let events = self.new_events().await;
                let logged: Vec<_> = events
                    .iter()
                    .map(|event| (event.event_type, event.replayed, effects_of(event)))
                    .collect();
                let expected = match delivery {
                    Delivery::Taken => vec![(EventType::Take, false, effects)],
                    Delivery::Delivered => vec![(EventType::Deliver, replayed, Vec::new())],
                    Delivery::Repeated => Vec::new(),
                };
                assert_eq!(logged, expected);
            }
            (answer, take) => panic!("the ledger answers {answer:?}, the model {take:?}"),
        }
    }

    pub(crate) async fn publish(&mut self, ahead: u64, later: i64) {
        let version = Version(self.model.trainer_version().0 + ahead);
        let epoch = self.epoch(later);
        let request = PublishRequest {
            epoch,
            version,
            weights: None,
        };
        let answer = self.ledger.publish(&self.run, request).await;
        let out_of_order = |expected: u64, taken, delivered| Refusal::PublishOutOfOrder {
            expected: Version(expected),
            taken,
            delivered,
        };
        let logged = match self.model.publish(version, epoch) {
            Ok(publish) => {
                let published = answer.expect("the model publishes").value;
                assert_eq!(
                    (published.policy_version, published.trainer_version),
                    (self.model.policy_version(), self.model.trainer_version())
                );
                usize::from(publish != Publish::Unchanged)
            }
            Err(PublishRefusal::Session(refusal)) => {
                assert_eq!(refusal_of(answer), of_session(refusal));
                0
            }
            Err(PublishRefusal::OutOfOrder { expected }) => {
                assert!(
                    matches!(refusal_of(answer), Refusal::PublishOutOfOrder { expected: found, .. } if found == expected)
                );
                0
            }
            Err(PublishRefusal::NotTaken { batch }) => {
                assert_eq!(refusal_of(answer), out_of_order(batch.0 + 1, false, false));
                0
            }
            Err(PublishRefusal::NotDelivered { batch }) => {
                assert_eq!(refusal_of(answer), out_of_order(batch.0 + 1, true, false));
                0
            }
        };
        assert_eq!(self.new_events().await.len(), logged);
    }

    pub(crate) async fn checkpoint(&mut self, ahead: i64, later: i64) {
        let version = Version(self.model.trainer_version().0.saturating_add_signed(ahead));
        let epoch = self.epoch(later);
        let answer = self.ledger.checkpoint(&self.run, version, epoch).await;
        let logged = match self.model.checkpoint(version, epoch) {
            Ok(checkpointed) => {
                let oldest = answer.expect("the model has a checkpoint").value.oldest_kept;
                assert_eq!(oldest, checkpointed.oldest_kept.map(|version| BufferId(version.0)));
                usize::from(checkpointed.changed)
            }
            Err(CheckpointRefusal::Session(refusal)) => {
                assert_eq!(refusal_of(answer), of_session(refusal));
                0
            }
            Err(CheckpointRefusal::VersionNotPublished { trainer_version, .. }) => {
                let expected = Refusal::VersionNotPublished {
                    version: Some(version),
                    policy_version: trainer_version,
                };
                assert_eq!(refusal_of(answer), expected);
                0
            }
        };
        assert_eq!(self.new_events().await.len(), logged);
    }

    pub(crate) async fn resume(&mut self, resuming: &Resuming) {
        let resume_from = resuming
            .ahead
            .map(|ahead| Version(self.model.policy_version().0.saturating_add_signed(ahead)));
        self.trainers += 1;
        let request = resuming::Resume {
            trainer: "t0".parse().expect("a name"),
            session: format!("trainer-{}", self.trainers).parse().expect("a token"),
            resume_from,
            mode: resuming.mode,
            force: resuming.force,
        };
        let ledger = self.ledger.for_client(resuming.behind.map(|ahead| self.seen + ahead));
        let answer = ledger.resume(&self.run, &request).await;
        let behind = resuming.behind.map(|_| Behind {
            epoch: self.model.epoch(),
            lineage: self.model.lineage(),
        });
        let resumed = self.model.resume(&Resume {
            resume_from,
            mode: resuming.mode,
            force: resuming.force,
            behind,
        });
        match resumed {
            Ok(resumed) => {
                let answer = answer.expect("the model resumes").value;
                assert_eq!(
                    (
                        answer.epoch,
                        answer.lineage,
                        answer.policy_version,
                        answer.trainer_version
                    ),
                    (
                        resumed.epoch,
                        resumed.lineage,
                        resumed.policy_version,
                        resumed.trainer_version
                    )
                );
                let events = self.new_events().await;
                let logged: Vec<_> = events
                    .iter()
                    .map(|event| (event.event_type, event.resumed_from, effects_of(event)))
                    .collect();
                let expected = (EventType::TrainerOpened, Some(resumed.resumed_from), resumed.effects);
                assert_eq!(logged, [expected]);
                self.compare_batches().await;

                let again = ledger
                    .resume(&self.run, &request)
                    .await
                    .expect("the first answer")
                    .value;
                assert_eq!(again, answer);
                assert_eq!(self.new_events().await, []);
            }
            Err(refusal) => {
                let expected = match refusal {
                    ResumeRefusal::ResumeFromMissing => Refusal::ResumeFromMissing,
                    ResumeRefusal::BatchPruned { batch } => Refusal::BatchPruned {
                        version: BufferId(batch.0),
                    },
                    ResumeRefusal::LedgerBehind { policy_version, .. } => Refusal::CheckpointAhead { policy_version },
                };
                assert_eq!(refusal_of(answer), expected);
                assert_eq!(self.new_events().await, []);
            }
        }
    }

    /// Every batch that is kept holds what it held when it was taken.
    async fn compare_batches(&self) {
        let kept: Vec<_> = self.model.kept_batches().collect();
        for &version in &kept {
            let batch = self.ledger.batch(&self.run, BufferId(version.0), 0, 1_000).await;
            let batch = batch.expect("it is kept").value;
            let ids: Vec<_> = batch.trajectories.iter().map(|each| each.id).collect();
            let expected: Vec<_> = self.model.batch(version).iter().map(|entry| entry.id).collect();
            assert_eq!(ids, expected, "batch {version}");
        }
    }

    /// The run is deleted and created again under its name: nothing of it is left but its sequence, epoch and lineage.
    pub(crate) async fn create_again(&mut self) {
        self.ledger.delete_run(&self.run).await.expect("the run is deleted");
        let config = self.model.config().clone();
        self.ledger
            .create_run(&self.run, &config)
            .await
            .expect("the run is created");
        let lineage = Lineage(self.model.lineage().0 + 1);
        self.model = SlotTables::continued(config, self.model.epoch(), lineage);
        self.holders.clear();
        // The deletion, of which no event is left, and then the creation.
        self.begin_log(self.seen + 1);
        assert_eq!(self.new_events().await.len(), 1);
        for worker in 0..3 {
            self.restart(worker).await;
        }
    }

    /// Forgets what a sweep forgot, in the same order.
    pub(crate) fn prune(&mut self, effects: &[Effect]) {
        for effect in effects {
            let pruned = self.model.prune(effect.id()).expect("it is not kept");
            assert_eq!(pruned, *effect);
        }
    }
}
