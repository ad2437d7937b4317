//! Steps of a random run that are about groups and their members, about what goes on under newer weights, and about who
//! holds an entry.

use berth::protocol::invariants::Demand;
use berth::protocol::tables::{
    EntryState, Finished, FinishedAs, Generated, Member, MemberEnd, MemberRefusal, OccupyRefusal,
};
use berth::protocol::{Effect, EventType, Lineage, Reason, Reward, TrajectoryId, Version, Weights};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::run::Run;

/// A member as it is reported: how far its weights are below the latest, and how it ends.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    index: u32,
    /// Whether the index may be past the candidates.
    past: bool,
    failed: bool,
    lag: i64,
    lineage_lag: i64,
    /// How many versions it went through.
    segments: u64,
    reward: Option<u8>,
}

/// Who is told of an end of what.
#[derive(Debug, Clone)]
pub(crate) enum GroupStep {
    Member(Index, Report),
    /// By its client, with these members.
    Occupy(Index, Vec<Report>),
    /// Of an entry, or a candidate of one, under weights so far below the latest.
    Segment(Index, Report),
    /// Of a trajectory whose end such weights generated.
    OccupyContinued(Index, Report),
    /// Its holder is gone, or never had it.
    Lose(Index, &'static str),
    Claim(Index),
    Adopt {
        lag: i64,
        count: usize,
    },
}

pub(crate) fn group_step() -> impl Strategy<Value = GroupStep> {
    let index = any::<Index>;
    let reason = prop::sample::select(vec!["lease_expired", "worker_restarted", "abandoned"]);
    prop_oneof![
        16 => (index(), report()).prop_map(|(at, report)| GroupStep::Member(at, report)),
        3 => (index(), prop::collection::vec(report(), 0..6)).prop_map(|(at, all)| GroupStep::Occupy(at, all)),
        3 => (index(), report()).prop_map(|(at, report)| GroupStep::Segment(at, report)),
        2 => (index(), report()).prop_map(|(at, report)| GroupStep::OccupyContinued(at, report)),
        4 => (index(), reason).prop_map(|(at, reason)| GroupStep::Lose(at, reason)),
        1 => index().prop_map(GroupStep::Claim),
        3 => (0..3_i64, 1..4_usize).prop_map(|(lag, count)| GroupStep::Adopt { lag, count }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let lag = prop_oneof![8 => Just(0), 4 => 1..3_i64, 1 => Just(-1)];
    let lineage_lag = prop_oneof![9 => Just(0), 2 => 1..3_i64, 1 => Just(-1)];
    let segments = prop_oneof![4 => Just(0), 1 => 1..3_u64];
    let reward = prop::option::weighted(0.8, 0..2_u8);
    let ends = (prop::bool::weighted(0.02), prop::bool::weighted(0.2));
    (0..60_u32, ends, lag, lineage_lag, segments, reward).prop_map(
        |(index, (past, failed), lag, lineage_lag, segments, reward)| Report {
            index,
            past,
            failed,
            lag,
            lineage_lag,
            segments,
            reward,
        },
    )
}

impl Run {
    pub(crate) fn group_step(&mut self, step: &GroupStep) {
        let (GroupStep::Member(index, _)
        | GroupStep::Occupy(index, _)
        | GroupStep::Segment(index, _)
        | GroupStep::OccupyContinued(index, _)
        | GroupStep::Lose(index, _)
        | GroupStep::Claim(index)) = step
        else {
            let GroupStep::Adopt { lag, count } = step else {
                unreachable!("all others are about an entry");
            };
            self.adopt(*lag, *count);
            return;
        };
        let is_held_by_somebody = matches!(step, GroupStep::Lose(..) | GroupStep::Claim(..));
        let is_reserved = |state: &EntryState| matches!(state, EntryState::Reserved { .. });
        // Mostly of what is generating, now and then of what is not any more.
        let any_one = self.pick(*index, |_| true);
        let reserved = self.pick(*index, is_reserved);
        let rarely = index.index(1_000) % 5 == 0 && !is_held_by_somebody;
        let Some(id) = (if rarely { any_one } else { reserved }) else {
            return;
        };
        let has_groups = self.tables.config().has_groups();
        match step {
            GroupStep::Member(_, report) => self.member(id, report),
            GroupStep::Occupy(_, reports) if has_groups => self.occupy_group(id, reports),
            GroupStep::Segment(_, report) => self.segment(id, report),
            GroupStep::OccupyContinued(_, report) if !has_groups => self.occupy_continued(id, report),
            GroupStep::Lose(_, reason) => self.lose(id, reason),
            GroupStep::Claim(_) => self.claim(id),
            _ => {}
        }
    }

    /// The entry finishes as it should: a trajectory, or a group with as many members as it lacks; or else the word for why
    /// it was refused.
    pub(crate) fn complete(&mut self, id: TrajectoryId) -> Result<(), String> {
        let entry = self.tables.entry(id).expect("it is known").clone();
        let config = self.tables.config().clone();
        let lacking = (config.group_size as usize).saturating_sub(entry.complete());
        let unreported = (0..config.group_candidates).filter(|index| !entry.members.contains_key(index));
        let lineage = self.tables.lineage();
        for index in unreported.take(lacking) {
            let version = entry.version;
            let member = Member {
                index,
                end: MemberEnd::Complete {
                    generated: Generated::by(Weights { version, lineage }),
                    reward: Some(Reward(f64::from(index) + 10.0)),
                },
            };
            match self.report(id, &member, lineage) {
                Ok(_) => {}
                Err(MemberRefusal::Discarded(reason)) => return Err(reason.to_string()),
                Err(MemberRefusal::Superseded) => return Err("superseded".to_owned()),
                Err(refusal) => panic!("{member:?} of {id}: {refusal}"),
            }
        }
        if config.auto_occupy {
            return Ok(());
        }
        match self.finish(id, &[], lineage) {
            Ok(_) => Ok(()),
            Err(OccupyRefusal::Discarded(reason)) => Err(reason.to_string()),
            Err(OccupyRefusal::Superseded) => Err("superseded".to_owned()),
            Err(refusal) => panic!("occupying {id}: {refusal}"),
        }
    }

    fn weights(&self, report: &Report) -> Weights {
        Weights {
            version: Version(self.tables.policy_version().0.saturating_add_signed(-report.lag)),
            lineage: Lineage(self.tables.lineage().0.saturating_add_signed(-report.lineage_lag)),
        }
    }

    fn reported(&self, report: &Report) -> (Member, Lineage) {
        let Weights { version, lineage } = self.weights(report);
        let generated = Generated {
            first: Version(version.0.saturating_sub(report.segments)),
            newest: version,
            lineage,
        };
        let end = if report.failed {
            MemberEnd::Failed
        } else {
            MemberEnd::Complete {
                generated,
                reward: report.reward.map(|reward| Reward(f64::from(reward))),
            }
        };
        let index = self.candidate(report);
        (Member { index, end }, lineage)
    }

    fn candidate(&self, report: &Report) -> u32 {
        let candidates = self.tables.config().group_candidates;
        if report.past {
            candidates + report.index
        } else {
            report.index % candidates
        }
    }

    fn member(&mut self, id: TrajectoryId, report: &Report) {
        let (member, lineage) = self.reported(report);
        let may_be_refused = self.report(id, &member, lineage);
        if may_be_refused.is_ok() {
            let before = self.tables.clone();
            let again = self.tables.member(id, &member).expect("a member sent again succeeds");
            assert!(!again.counted && again.effects.is_empty());
            assert_eq!(self.tables, before, "a member sent again changes nothing");
        }
    }

    /// Reports a member; whether it counts.
    fn report(&mut self, id: TrajectoryId, member: &Member, lineage: Lineage) -> Result<bool, MemberRefusal> {
        let before = self.tables.clone();
        let outcome = self.tables.member(id, member).inspect_err(|_| {
            assert_eq!(self.tables, before, "a refusal changes nothing");
        })?;
        if !outcome.counted {
            assert_eq!(self.tables, before, "what does not count changes nothing");
            return Ok(false);
        }
        let event = self.log.event(EventType::Member, &outcome.effects);
        event.ids = vec![id];
        event.late = is_late(&outcome.effects);
        event.lineage = (lineage < before.lineage()).then_some(lineage);
        self.went_on(id, &before_of(&before, id), &outcome.effects);
        Ok(true)
    }

    fn occupy_group(&mut self, id: TrajectoryId, reports: &[Report]) {
        let reported: Vec<_> = reports.iter().map(|report| self.reported(report)).collect();
        let lineage = reported.first().map_or(self.tables.lineage(), |(_, lineage)| *lineage);
        let members: Vec<Member> = reported
            .into_iter()
            .map(|(mut member, _)| {
                if let MemberEnd::Complete { generated, .. } = &mut member.end {
                    generated.lineage = lineage;
                }
                member
            })
            .collect();
        if let Ok(end) = self.finish(id, &members, lineage) {
            let before = self.tables.clone();
            match self.tables.occupy_group(id, &members) {
                Ok(again) => assert_eq!((again.end, again.effects), (end, Vec::new())),
                Err(refusal) => assert!(matches!(
                    (refusal, end),
                    (OccupyRefusal::Discarded(Reason::Rewound), FinishedAs::Discarded { .. })
                )),
            }
            assert_eq!(self.tables, before, "an occupy sent again changes nothing");
        }
    }

    fn finish(&mut self, id: TrajectoryId, members: &[Member], lineage: Lineage) -> Result<FinishedAs, OccupyRefusal> {
        let before = self.tables.clone();
        let finished = self.tables.occupy_group(id, members).inspect_err(|_| {
            assert_eq!(self.tables, before, "a refusal changes nothing");
        })?;
        self.log_finished(id, &finished, EventType::Member, lineage);
        self.went_on(id, &before_of(&before, id), &finished.effects);
        Ok(finished.end)
    }

    /// One event, if anything changed: by what it ended with.
    fn log_finished(&mut self, id: TrajectoryId, finished: &Finished, incomplete: EventType, lineage: Lineage) {
        if finished.effects.is_empty() {
            return;
        }
        let is_rewound = matches!(
            finished.end,
            FinishedAs::Discarded {
                reason: Reason::Rewound
            }
        );
        let event_type = match finished.end {
            _ if is_rewound => EventType::Discard,
            FinishedAs::Incomplete { .. } => incomplete,
            FinishedAs::Occupied { .. } | FinishedAs::Discarded { .. } => EventType::Occupy,
        };
        let run_lineage = self.tables.lineage();
        let event = self.log.event(event_type, &finished.effects);
        event.ids = vec![id];
        event.late = is_late(&finished.effects);
        event.lineage = (lineage < run_lineage).then_some(lineage);
        event.reason = is_rewound.then_some(Reason::Rewound);
    }

    fn segment(&mut self, id: TrajectoryId, report: &Report) {
        let weights = self.weights(report);
        let has_groups = self.tables.config().has_groups();
        let member = has_groups.then_some(self.candidate(report));
        let before = self.tables.clone();
        match self.tables.segment(id, member, weights) {
            Ok(segmented) => {
                assert!(segmented.counted || segmented.effects.is_empty());
                // That a trajectory was continued under the version before is no news.
                if segmented.counted && (has_groups || !segmented.effects.is_empty()) {
                    let event = self.log.event(EventType::Segment, &segmented.effects);
                    event.ids = vec![id];
                    event.version = Some(weights.version);
                    event.lineage = (weights.lineage < before.lineage()).then_some(weights.lineage);
                }
                self.follow(&segmented.effects);
            }
            Err(_) => assert_eq!(self.tables, before, "a refusal changes nothing"),
        }
    }

    fn occupy_continued(&mut self, id: TrajectoryId, report: &Report) {
        let weights = self.weights(report);
        let before = self.tables.clone();
        match self.tables.occupy_continued(id, weights) {
            Ok(finished) => {
                self.log_finished(id, &finished, EventType::Occupy, weights.lineage);
                self.went_on(id, &before_of(&before, id), &finished.effects);
            }
            Err(_) => assert_eq!(self.tables, before, "a refusal changes nothing"),
        }
    }

    /// What follows from an entry's going on: it may have been occupied, in the earliest place, or discarded.
    fn went_on(&mut self, id: TrajectoryId, before: &Before, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Member { id, index, .. } = effect {
                assert!(
                    self.counted.insert((*id, *index)),
                    "member {index} of {id} counts twice"
                );
            }
        }
        let occupied = effects.iter().find_map(|effect| match effect {
            Effect::Occupied { to, .. } => Some(to.buffer),
            _ => None,
        });
        if let Some(buffer) = occupied {
            self.finished.insert(id);
            if !self.oversamples() {
                assert_eq!(before.demand.check(id, before.version, buffer), None);
            }
        }
        self.follow(effects);
    }

    fn lose(&mut self, id: TrajectoryId, reason: &str) {
        let before = self.tables.entry(id).expect("it is reserved").clone();
        let lost = self.tables.lose(id, Reason::from(reason)).expect("it is reserved");
        let outlives = before.complete() > 0 && self.tables.config().adopt_groups;
        assert_eq!(outlives, matches!(&lost.effects[..], [] | [Effect::Orphaned { .. }]));
        assert_eq!(lost.repeated, before.orphan);
        if !lost.repeated {
            let event = self.log.event(EventType::Expire, &lost.effects);
            event.ids = vec![id];
            event.reason = Some(Reason::from(reason));
        }
        self.follow(&lost.effects);
    }

    fn claim(&mut self, id: TrajectoryId) {
        let was_orphan = self.tables.entry(id).is_some_and(|entry| entry.orphan);
        let effects = self.tables.claim(id);
        assert_eq!(was_orphan, !effects.is_empty());
        self.log.event(EventType::Claim, &effects).ids = vec![id];
        self.follow(&effects);
    }

    fn adopt(&mut self, lag: i64, count: usize) {
        let weights = Weights {
            version: Version(self.tables.policy_version().0.saturating_add_signed(-lag)),
            lineage: self.tables.lineage(),
        };
        let fitting: Vec<TrajectoryId> = self
            .tables
            .orphans()
            .filter(|(_, version)| *version <= weights.version)
            .map(|(id, _)| id)
            .collect();
        let fresh = self.fresh_ids(count);
        let Ok(reserved) = self.tables.reserve_adopting(weights, &fresh) else {
            return;
        };
        let adopted: Vec<TrajectoryId> = fitting.into_iter().take(count).collect();
        assert_eq!(reserved.adopted, adopted.len());
        let is_granted = |effect: &&Effect| !matches!(effect, Effect::Prompt { .. });
        let granted: Vec<TrajectoryId> = reserved.effects.iter().filter(is_granted).map(Effect::id).collect();
        assert_eq!(granted[..adopted.len()], adopted);
        assert_eq!(granted.len(), reserved.granted);
        self.check_limit(reserved.granted - reserved.adopted);
        if reserved.granted > 0 {
            let event = self.log.event(EventType::Reserve, &reserved.effects);
            event.version = Some(weights.version);
            event.lineage = (weights.lineage > Lineage(0)).then_some(weights.lineage);
            event.ids = granted;
        }
        self.follow(&reserved.effects);
    }

    /// No member that counted is forgotten before its group is.
    pub(crate) fn check_members(&self) {
        for (id, index) in &self.counted {
            if let Some(entry) = self.tables.entry(*id) {
                assert!(entry.members.contains_key(index), "member {index} of {id} is lost");
            }
        }
        let recorded: usize = self.tables.entries().map(|(_, entry)| entry.members.len()).sum();
        assert!(recorded <= self.counted.len());
    }
}

/// What an entry's place is measured against.
struct Before {
    demand: Demand,
    version: Version,
}

fn before_of(tables: &berth::protocol::tables::SlotTables, id: TrajectoryId) -> Before {
    Before {
        demand: Demand::beside(tables, id),
        version: tables.entry(id).expect("it is known").version,
    }
}

fn is_late(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Reserved { .. }))
}
