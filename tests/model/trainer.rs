//! The trainer's steps of a random run: what it is given, what it publishes, and how it comes back.

use std::collections::BTreeSet;

use berth::protocol::tables::{
    Behind, Delivery, DiscardedFrom, Entry, EntryState, Publish, PublishRefusal, Resume, ResumeKind, ResumeRefusal,
    Resumed, Take,
};
use berth::protocol::{Effect, Epoch, EventType, Lineage, Reason, ResumeMode, TrajectoryId, Version};

use crate::pieces::check_length;
use crate::run::Run;

/// How a trainer comes back.
#[derive(Debug, Clone)]
pub(crate) struct Resuming {
    /// From a version so many above the latest, or it does not say which.
    pub(crate) ahead: Option<i64>,
    pub(crate) mode: ResumeMode,
    pub(crate) force: bool,
    /// The run is behind: how far above its own are the `seq`, epoch and lineage that others have seen.
    pub(crate) behind: Option<(u64, i64, i64)>,
}

impl Run {
    /// The open session, or none of one that is not needed.
    pub(crate) fn session(&self) -> Option<Epoch> {
        Some(self.tables.epoch()).filter(|epoch| *epoch > Epoch(0))
    }

    /// Whether a trainer of the last session may do anything: in a run that goes on from another it is that one's.
    pub(crate) fn may_train(&self) -> bool {
        self.tables.clone().take(self.session()).is_ok()
    }

    pub(crate) fn take(&mut self) {
        if !self.may_train() {
            return;
        }
        let before = self.tables.clone();
        match self.tables.take(self.session()).expect("the session is open") {
            Take::NotReady {
                occupied,
                needed,
                finished,
                ..
            } => {
                assert!(occupied < needed);
                assert_eq!(finished, self.tables.is_finished());
                assert_eq!(self.tables, before);
            }
            Take::Drained { ids, effects } => self.drained(&before, ids, &effects),
            Take::Taken {
                version,
                entries,
                redelivered,
                delivery: Delivery::Taken,
                effects,
                is_final,
                ..
            } => {
                assert!(!redelivered);
                check_length(&before, entries.len(), is_final);
                let in_pieces = before.streamed();
                assert_eq!(entries[..in_pieces], before.streamed_entries());
                self.train_on(version, &entries[in_pieces..]);
                let count = entries.len() as u64;
                self.taken.insert(version, entries);
                let event = self.log.event(EventType::Take, &effects);
                event.version = Some(version);
                event.is_final = is_final;
                event.entries = is_final.then_some(count);
                self.follow(&effects);
                self.rebuilt.replay_take().expect("the trainer was idle");
            }
            Take::Taken {
                version,
                entries,
                replayed,
                delivery,
                effects,
                ..
            } => {
                assert!(effects.is_empty());
                assert_eq!(Some(&entries), self.taken.get(&version), "as it was taken");
                assert_eq!(replayed, version < self.tables.policy_version());
                if delivery == Delivery::Repeated {
                    assert_eq!(self.tables, before);
                } else {
                    let event = self.log.event(EventType::Deliver, &[]);
                    event.version = Some(version);
                    event.replayed = replayed;
                    self.rebuilt.replay_deliver(version);
                }
            }
        }
    }

    pub(crate) fn publish(&mut self, ahead: u64) {
        if !self.may_train() {
            return;
        }
        let before = self.tables.clone();
        let trainer_version = before.trainer_version();
        let version = Version(trainer_version.0 + ahead);
        let delivered = before.deliverable().is_some() && before.delivered() == before.deliverable();
        match self.tables.publish(version, self.session()) {
            Ok(Publish::Unchanged) => {
                assert_eq!(ahead, 0);
                assert_eq!(self.tables, before);
            }
            Ok(publish) => {
                assert!(ahead == 1 && delivered);
                let replayed = trainer_version < before.policy_version();
                assert_eq!(publish == Publish::Replayed, replayed);
                assert_eq!(replayed, self.tables.policy_version() == before.policy_version());
                self.log.event(EventType::Publish, &[]).version = Some(version);
                self.rebuilt.replay_publish(version).expect("the version is next");
            }
            Err(refusal) => {
                let out_of_order = matches!(refusal, PublishRefusal::OutOfOrder { .. });
                assert!(out_of_order == (ahead > 1) && (out_of_order || !delivered));
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
        }
    }

    pub(crate) fn checkpoint(&mut self, lag: u64) {
        if !self.may_train() {
            return;
        }
        let before = self.tables.clone();
        let version = Version(self.tables.trainer_version().0.saturating_sub(lag));
        let session = self.session();
        let checkpointed = self.tables.checkpoint(version, session).expect("a checkpoint");
        assert_eq!(checkpointed.oldest_kept, self.tables.kept_batches().next());
        assert!(checkpointed.oldest_kept.is_none_or(|oldest| oldest >= version));
        if checkpointed.changed {
            self.log.event(EventType::Checkpoint, &[]).version = Some(version);
            self.rebuilt.replay_checkpoint(version);
        } else {
            assert_eq!(self.tables, before);
        }
    }

    pub(crate) fn prune(&mut self, id: TrajectoryId) {
        let before = self.tables.clone();
        let version = self.batches[&id];
        if let Ok(effect) = self.tables.prune(id) {
            assert!(!before.is_kept(version) && version < before.trainer_version());
            self.finished.remove(&id);
            self.log.event(EventType::Prune, std::slice::from_ref(&effect)).version = Some(version);
            self.follow(&[effect]);
        } else {
            assert_eq!(self.tables, before, "a refusal changes nothing");
            let is_in_pieces = version.0 == before.next_buffer().0;
            assert!(before.is_kept(version) || is_in_pieces);
        }
    }

    /// Nothing is given to a session that is not open.
    pub(crate) fn stranger(&mut self, ahead: i64) {
        let epoch = Epoch(self.tables.epoch().0.saturating_add_signed(ahead));
        if epoch == self.tables.epoch() {
            return;
        }
        let before = self.tables.clone();
        assert!(self.tables.take(Some(epoch)).is_err());
        assert!(self.tables.publish(Version(0), Some(epoch)).is_err());
        assert!(self.tables.checkpoint(Version(0), Some(epoch)).is_err());
        if before.epoch() > Epoch(0) {
            assert!(self.tables.take(None).is_err());
        }
        assert_eq!(self.tables, before, "a refusal changes nothing");
    }

    pub(crate) fn resume(&mut self, resuming: &Resuming) {
        let raise = |number: u64, by: i64| number.saturating_add_signed(by);
        let behind = resuming.behind.map(|(_, epoch, lineage)| Behind {
            epoch: Epoch(raise(self.tables.epoch().0, epoch)),
            lineage: Lineage(raise(self.tables.lineage().0, lineage)),
        });
        let resume = Resume {
            resume_from: resuming
                .ahead
                .map(|ahead| Version(raise(self.tables.policy_version().0, ahead))),
            mode: resuming.mode,
            force: resuming.force,
            behind,
        };
        let before = self.tables.clone();
        match self.tables.resume(&resume) {
            Ok(resumed) => {
                self.opened(&resume, &resumed, resuming.behind.map(|(seq, ..)| seq));
                let lineage_rose = resumed.lineage > before.lineage();
                let goes_another_way = matches!(resumed.kind, ResumeKind::Rewind | ResumeKind::Forced);
                assert_eq!(lineage_rose, goes_another_way || behind.is_some());
                assert!(resumed.epoch > before.epoch());
            }
            Err(refusal) => {
                assert!(
                    !resume.force
                        || matches!(
                            refusal,
                            ResumeRefusal::ResumeFromMissing | ResumeRefusal::BatchPruned { .. }
                        )
                );
                assert_eq!(self.tables, before, "a refusal changes nothing");
            }
        }
    }

    /// A session was opened, and `seq` rose by so many more.
    fn opened(&mut self, resume: &Resume, resumed: &Resumed, risen: Option<u64>) {
        assert_eq!(resumed.policy_version, self.tables.policy_version());
        assert_eq!(resumed.trainer_version, self.tables.trainer_version());
        let before = self.log.seq();
        let event = self.log.event(EventType::TrainerOpened, &resumed.effects);
        event.resumed_from = Some(resumed.resumed_from);
        event.mode = Some(resume.mode);
        event.force = resume.force;
        event.behind = resume.behind.is_some();
        event.epoch = Some(resumed.epoch);
        event.lineage = (resumed.lineage > Lineage(0)).then_some(resumed.lineage);
        event.policy_version = Some(resumed.policy_version);
        if let Some(risen) = risen.filter(|risen| *risen > 0) {
            event.seq += risen;
            event.raised_from = Some(before);
        }

        let said = Resume {
            resume_from: Some(resumed.resumed_from),
            ..*resume
        };
        let kind = self
            .rebuilt
            .replay_resume(&said, resumed.epoch, resumed.lineage, &resumed.effects)
            .expect("effects that the tables can follow");
        assert_eq!(kind, resumed.kind);
        self.laid_out(resumed);
    }

    /// Only what the protocol lets go of is gone, and everything else is told of.
    fn laid_out(&mut self, resumed: &Resumed) {
        let anew = matches!(resumed.kind, ResumeKind::Rewind | ResumeKind::Forced);
        assert!(anew || resumed.effects.is_empty());
        for effect in &resumed.effects {
            let id = effect.id();
            match effect {
                Effect::Discarded { reason, .. } => self.lost(id, reason, resumed.kind),
                Effect::Pruned { .. } => {
                    assert!(anew, "forgotten with its batch, or as a piece of one that is not kept");
                    self.finished.remove(&id);
                }
                Effect::Replaced { to, .. } => {
                    assert_eq!(self.tables.entry(id).and_then(Entry::place), Some(*to));
                }
                Effect::Prompt { .. } => {}
                other => panic!("{other} of a resume"),
            }
            self.batches.remove(&id);
        }
        if resumed.kind == ResumeKind::Rewind {
            self.taken.split_off(&resumed.resumed_from);
        }
        if anew {
            let told: BTreeSet<TrajectoryId> = resumed
                .effects
                .iter()
                .filter(|effect| matches!(effect, Effect::Replaced { .. }))
                .map(Effect::id)
                .collect();
            let in_tables = self.tables.entries().filter(|(_, entry)| entry.place().is_some());
            assert_eq!(told, in_tables.map(|(id, _)| id).collect());
        }
    }

    fn lost(&mut self, id: TrajectoryId, reason: &Reason, kind: ResumeKind) {
        self.finished.remove(&id);
        let entry = self.tables.entry(id).expect("it is remembered");
        let version = self.tables.policy_version();
        let EntryState::Discarded { discarded_from, .. } = entry.state else {
            panic!("{id} was discarded and is {:?}", entry.state);
        };
        match (kind, reason) {
            (ResumeKind::Rewind, Reason::Rewound) => assert!(entry.newest > version),
            // What a rewind leaves had a place before, and there is no less room than there was.
            (ResumeKind::Forced, Reason::TooStale) => {}
            (_, Reason::Surplus) => {
                assert!(self.oversamples());
                assert_eq!(discarded_from, DiscardedFrom::Reserved);
            }
            _ => panic!("{id} was discarded as {reason} by {kind:?}"),
        }
    }
}
