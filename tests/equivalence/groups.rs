//! Groups on both: members, segments, occupies with members, and groups that lose their owner.

use berth::ledger::finishing::{Concluded, Finish, Finished as Finishing};
use berth::ledger::members::MemberReport;
use berth::ledger::segments::{NewSegment, Segment};
use berth::ledger::trajectories::TrajectoryState;
use berth::ledger::{LedgerError, Refusal};
use berth::protocol::tables::{
    EntryState, FinishedAs, Generated, Member, MemberEnd, MemberRefusal, OccupyRefusal, WeightsRefusal,
};
use berth::protocol::{Effect, EventType, Lineage, Reason, Reward, RunConfig, TrajectoryId, Version, Weights};
use berth::store::keys::RunKeys;
use berth::store::{migrations, script};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::twins::{Twins, effects_of};

/// A member as it is reported: how far its weights are below the latest, and how it ends.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    index: u32,
    failed: bool,
    lag: i64,
    lineage_lag: i64,
    /// How many versions above the first one it ended under.
    segments: u64,
    reward: Option<u8>,
}

/// Of one of the entries, whatever its state.
#[derive(Debug, Clone)]
pub(crate) enum GroupStep {
    Member(Index, Report),
    Occupy(Index, Vec<Report>),
    Segment(Index, Report),
}

pub(crate) fn step() -> impl Strategy<Value = GroupStep> {
    let index = any::<Index>;
    prop_oneof![
        16 => (index(), report()).prop_map(|(at, report)| GroupStep::Member(at, report)),
        4 => (index(), prop::collection::vec(report(), 0..6)).prop_map(|(at, all)| GroupStep::Occupy(at, all)),
        3 => (index(), report()).prop_map(|(at, report)| GroupStep::Segment(at, report)),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let lag = prop_oneof![8 => Just(0), 4 => 1..3_i64, 1 => Just(-1)];
    let lineage_lag = prop_oneof![9 => Just(0), 2 => 1..3_i64];
    let segments = prop_oneof![4 => Just(0), 1 => 1..3_u64];
    let reward = prop::option::weighted(0.8, 0..2_u8);
    (0..5_u32, prop::bool::weighted(0.2), lag, lineage_lag, segments, reward).prop_map(
        |(index, failed, lag, lineage_lag, segments, reward)| Report {
            index,
            failed,
            lag,
            lineage_lag,
            segments,
            reward,
        },
    )
}

/// The configurations, of runs with groups.
pub(crate) fn config(configs: impl Strategy<Value = RunConfig>) -> impl Strategy<Value = RunConfig> {
    let switches = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.7));
    (configs, 1..4_u32, 0..3_u32, switches).prop_map(|(config, size, spare, switches)| {
        let group_candidates = (size + spare).max(2);
        let (auto_occupy, drop_zero_variance, adopt_groups) = switches;
        RunConfig {
            group_size: size,
            group_candidates,
            max_concurrency: config.max_concurrency.map(|most| most.max(u64::from(group_candidates))),
            auto_occupy,
            drop_zero_variance,
            adopt_groups,
            ..config
        }
    })
}

impl Report {
    /// Versions and tokens rise alike. None begins with the first token, which would say what the whole began under.
    fn segment_of(version: Version) -> Segment {
        Segment {
            version,
            from_token: version.0 * 10 + 1,
        }
    }
}

impl Twins {
    pub(crate) async fn group_step(&mut self, step: &GroupStep) {
        let (GroupStep::Member(index, _) | GroupStep::Occupy(index, _) | GroupStep::Segment(index, _)) = step;
        let id = self.pick(*index, |_| true).unwrap_or_else(TrajectoryId::generate);
        match step {
            GroupStep::Member(_, report) => self.member(id, report).await,
            GroupStep::Occupy(_, reports) => self.occupy_group(id, reports).await,
            GroupStep::Segment(_, report) => self.segment(id, report).await,
        }
    }

    /// A grant reached nobody, says a server that takes its time: the entry may be anything by now.
    pub(crate) async fn abandon(&mut self, index: Index, is_holder: bool) {
        let id = self.pick(index, |_| true).unwrap_or_else(TrajectoryId::generate);
        let held_by = self.holders.get(&id).copied().unwrap_or(0);
        let holder = self.caller(if is_holder { held_by } else { held_by + 1 } % 3);
        let args = json!({ "id": id, "holder": holder, "layout": migrations::CURRENT, "mark": "mark" });
        let keys = RunKeys::new(self.run.as_str());
        let reply: Value = self
            .store
            .run(&script::ABANDON, &keys, &args)
            .await
            .expect("the script runs");
        let is_reserved = self
            .model
            .entry(id)
            .is_some_and(|entry| matches!(entry.state, EntryState::Reserved { .. }));
        let has_owner = self.model.orphans().all(|(orphan, _)| orphan != id);
        if is_holder && is_reserved && has_owner {
            assert_eq!(reply["body"]["outcome"], "abandoned");
            let effects = self.give_up(id, &Reason::Abandoned);
            self.holders.remove(&id);
            self.logged(EventType::Discard, &effects).await;
        } else {
            assert_eq!(reply["body"]["outcome"], "kept");
            assert_eq!(self.new_events().await, []);
        }
    }

    /// What becomes of a reservation for this reason.
    pub(crate) fn give_up(&mut self, id: TrajectoryId, reason: &Reason) -> Vec<Effect> {
        let ends_a_session = matches!(
            reason,
            Reason::LeaseExpired | Reason::WorkerRestarted | Reason::Abandoned
        );
        let given_up = if ends_a_session {
            self.model.lose(id, reason.clone())
        } else {
            self.model.discard(id, reason.clone())
        };
        given_up.expect("it was held").effects
    }

    fn weights(&self, report: &Report) -> Weights {
        Weights {
            version: Version(self.model.policy_version().0.saturating_add_signed(-report.lag)),
            lineage: Lineage(self.model.lineage().0.saturating_add_signed(-report.lineage_lag)),
        }
    }

    /// The same report for the ledger and for the model. What a call recorded of the member before counts, too.
    fn both(&self, id: TrajectoryId, report: &Report, lineage: Lineage) -> (MemberReport, Member) {
        let first = self.weights(report).version;
        let named = Version(first.0 + report.segments);
        let recorded = self.recorded.get(&(id, report.index)).copied();
        let newest = recorded.map_or(named, |recorded| recorded.max(named));
        let segments = (named > first).then(|| Report::segment_of(named));
        let sent = MemberReport {
            index: report.index,
            failed: report.failed,
            version: (!report.failed).then_some(first),
            finish: Finish {
                reward: report.reward.filter(|_| !report.failed).map(f64::from),
                ..Finish::default()
            },
            note: None,
            segments: segments.into_iter().collect(),
        };
        let end = if report.failed {
            MemberEnd::Failed
        } else {
            MemberEnd::Complete {
                generated: Generated {
                    first,
                    newest,
                    lineage: if newest > named { self.model.lineage() } else { lineage },
                },
                reward: report.reward.map(|reward| Reward(f64::from(reward))),
            }
        };
        let index = report.index;
        (sent, Member { index, end })
    }

    /// The model does not know the segments one by one.
    async fn is_out_of_order<T>(&mut self, answer: &Result<T, LedgerError>) -> bool {
        let out_of_order = Refusal::SegmentOutOfOrder;
        let is_so = matches!(answer, Err(LedgerError::Refused { refusal, .. }) if *refusal == out_of_order);
        if is_so {
            assert_eq!(self.new_events().await, []);
        }
        is_so
    }

    async fn member(&mut self, id: TrajectoryId, report: &Report) {
        let lineage = self.weights(report).lineage;
        let (sent, member) = self.both(id, report, lineage);
        let answer = self.ledger.member(&self.run, None, Some(lineage), id, &sent).await;
        if self.is_out_of_order(&answer).await {
            return;
        }
        match self.model.member(id, &member) {
            Ok(outcome) => {
                let told = answer.expect("the model records").value;
                assert_eq!(told.counted, outcome.counted);
                assert_eq!(
                    (told.complete as usize, told.failed as usize),
                    (outcome.complete, outcome.failed)
                );
                assert_eq!(told.state, shown(&outcome.state));
                let place = self.model.entry(id).and_then(berth::protocol::tables::Entry::place);
                if told.state == TrajectoryState::Occupied {
                    assert_eq!(
                        told.buffer.zip(told.slot),
                        place.map(|place| (place.buffer, place.slot))
                    );
                }
                self.logged(EventType::Member, &outcome.effects).await;
            }
            Err(refusal) => {
                let refused = crate::twins::refusal_of(answer);
                assert_eq!(code(&refused), expected(&refusal), "{refused}: {refusal}");
                self.logged(EventType::Member, &[]).await;
            }
        }
    }

    pub(crate) async fn occupy_group(&mut self, id: TrajectoryId, reports: &[Report]) {
        let lineage = reports
            .first()
            .map_or(self.model.lineage(), |report| self.weights(report).lineage);
        let (sent, members): (Vec<_>, Vec<_>) = reports.iter().map(|report| self.both(id, report, lineage)).unzip();
        let finishing = Finishing {
            members: sent,
            ..Finishing::new(id, Finish::default())
        };
        let answer = self.ledger.occupy(&self.run, None, Some(lineage), finishing).await;
        if self.is_out_of_order(&answer).await {
            return;
        }
        match self.model.occupy_group(id, &members) {
            Ok(finished) => match finished.end {
                FinishedAs::Occupied { place } => {
                    let Concluded::Occupied(told) = answer.expect("the model occupies").value else {
                        panic!("{id} is occupied");
                    };
                    assert_eq!(
                        (told.buffer, told.slot, told.late),
                        (place.buffer, place.slot, finished.late)
                    );
                    self.logged(EventType::Occupy, &finished.effects).await;
                }
                FinishedAs::Discarded { reason } if reason == Reason::Rewound => {
                    assert_eq!(
                        crate::twins::refusal_of(answer),
                        Refusal::TrajectoryDiscarded { reason }
                    );
                    self.logged(EventType::Discard, &finished.effects).await;
                }
                FinishedAs::Discarded { reason } => {
                    let Concluded::Discarded(told) = answer.expect("the model discards").value else {
                        panic!("{id} is discarded");
                    };
                    assert_eq!(told.reason, reason);
                    self.logged(EventType::Occupy, &finished.effects).await;
                }
                FinishedAs::Incomplete { complete } => {
                    let refused = crate::twins::refusal_of(answer);
                    let needed = self.model.config().group_size;
                    let complete = u32::try_from(complete).expect("a small number");
                    assert_eq!(refused, Refusal::GroupIncomplete { complete, needed });
                    self.logged(EventType::Member, &finished.effects).await;
                }
            },
            Err(refusal) => {
                let refused = crate::twins::refusal_of(answer);
                let expected = match &refusal {
                    OccupyRefusal::Unknown => "unknown",
                    OccupyRefusal::Discarded(_) => "discarded",
                    OccupyRefusal::Superseded => "superseded",
                    OccupyRefusal::Member(refusal) => expected(refusal),
                    OccupyRefusal::Group | OccupyRefusal::NoPlace => panic!("{id}: {refusal}"),
                };
                assert_eq!(code(&refused), expected, "{refused}: {refusal}");
                self.logged(EventType::Occupy, &[]).await;
            }
        }
    }

    async fn segment(&mut self, id: TrajectoryId, report: &Report) {
        let weights = self.weights(report);
        let new = NewSegment {
            id,
            member: Some(report.index),
            segment: Report::segment_of(weights.version),
            lineage: Some(weights.lineage),
        };
        let answer = self.ledger.segment(&self.run, None, new).await;
        if self.is_out_of_order(&answer).await {
            return;
        }
        match self.model.segment(id, Some(report.index), weights) {
            Ok(segmented) => {
                answer.expect("the model records");
                let events = self.new_events().await;
                let effects: Vec<_> = events.iter().flat_map(effects_of).collect();
                assert_eq!(effects, segmented.effects);
                if segmented.counted && !events.is_empty() {
                    self.recorded.insert((id, report.index), weights.version);
                }
            }
            Err(refusal) => {
                let refused = crate::twins::refusal_of(answer);
                assert_eq!(code(&refused), expected(&refusal), "{refused}: {refusal}");
                self.logged(EventType::Segment, &[]).await;
            }
        }
    }
}

fn shown(state: &EntryState) -> TrajectoryState {
    match state {
        EntryState::Reserved { .. } => TrajectoryState::Reserved,
        EntryState::Occupied { .. } => TrajectoryState::Occupied,
        EntryState::Taken { .. } => TrajectoryState::Taken,
        EntryState::Discarded { .. } => TrajectoryState::Discarded,
    }
}

fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownTrajectory => "unknown",
        Refusal::TrajectoryDiscarded { .. } => "discarded",
        Refusal::Superseded => "superseded",
        Refusal::NoSuchMember { .. } => "no such member",
        Refusal::VersionNotPublished { .. } => "not published",
        Refusal::VersionTooStale { .. } => "too stale",
        other => panic!("{other}"),
    }
}

fn expected(refusal: &MemberRefusal) -> &'static str {
    match refusal {
        MemberRefusal::Unknown => "unknown",
        MemberRefusal::Discarded(_) => "discarded",
        MemberRefusal::Superseded => "superseded",
        MemberRefusal::NoSuchMember { .. } => "no such member",
        MemberRefusal::Weights(WeightsRefusal::Abandoned { .. } | WeightsRefusal::NotPublished { .. }) => {
            "not published"
        }
        MemberRefusal::Weights(WeightsRefusal::TooStale { .. }) => "too stale",
        other => panic!("{other}"),
    }
}
