//! A log checked as it is read: the auditor's findings, with the events around each, and what was checked.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use serde::{Serialize, Serializer};

use super::{Invariant, LogError};
use crate::protocol::audit::{Auditor, Resumes};
use crate::protocol::{Event, EventType};

/// How many events before a finding are shown with it.
const BEFORE: usize = 3;
/// How many after it.
const AFTER: usize = 2;

/// What was found out about one run.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Checked {
    /// The first event's number.
    pub(in crate::commands) first_seq: u64,
    /// The last event's number.
    pub(in crate::commands) last_seq: u64,
    /// How many events there are.
    pub(in crate::commands) events: u64,
    /// Entries admitted.
    pub(in crate::commands) reserved: u64,
    /// Entries finished, with the late ones.
    pub(in crate::commands) occupied: u64,
    /// Entries that were discarded and saved by a late occupy.
    pub(in crate::commands) late: u64,
    /// Members of groups that finished or failed, as far as they count.
    pub(in crate::commands) members: u64,
    /// Groups that lost their worker and kept their slot.
    pub(in crate::commands) orphaned: u64,
    /// Groups that got another one.
    pub(in crate::commands) adopted: u64,
    /// Entries discarded, by reason.
    pub(in crate::commands) discarded: BTreeMap<String, u64>,
    /// Batches taken.
    pub(in crate::commands) batches: u64,
    /// Pieces in which some of them were.
    pub(in crate::commands) pieces: u64,
    /// Entries in them, by staleness.
    pub(in crate::commands) staleness: BTreeMap<u64, u64>,
    /// Versions published.
    pub(in crate::commands) published: u64,
    /// Times that the batch in training was delivered to another trainer session.
    pub(in crate::commands) redelivered: u64,
    /// Times that a batch was delivered to be trained again in a replay.
    pub(in crate::commands) replayed: u64,
    /// Trainer sessions, by how they went on.
    pub(in crate::commands) trainer_sessions: Resumes,
    /// How often each invariant was violated.
    pub(in crate::commands) invariants: BTreeMap<Invariant, u64>,
    /// The event behind which nothing can be followed.
    pub(in crate::commands) followed_to: Option<u64>,
    /// The first violations.
    pub(in crate::commands) violations: Vec<Violation>,
}

/// One violation, and where it happened.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Violation {
    /// The event that shows it.
    pub(in crate::commands) seq: u64,
    /// What it breaks.
    pub(in crate::commands) invariant: Invariant,
    /// What is wrong.
    pub(in crate::commands) finding: String,
    /// The events around it.
    #[serde(serialize_with = "each_event")]
    pub(in crate::commands) around: Vec<Rc<Event>>,
    #[serde(skip)]
    awaited: usize,
}

fn each_event<S: Serializer>(events: &[Rc<Event>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(Rc::as_ref))
}

impl Checked {
    /// How many violations there are, shown or not.
    pub(in crate::commands) fn violated(&self) -> u64 {
        self.invariants.values().sum()
    }
}

/// Checks a log as it comes.
///
/// A run that was deleted and created again under its name goes on in the same log: each of them is a run of its own.
pub(in crate::commands) struct Checker {
    most: usize,
    done: Vec<Checked>,
    current: Option<Current>,
}

struct Current {
    auditor: Auditor,
    /// How many of the auditor's findings were taken down.
    taken_down: usize,
    recent: VecDeque<Rc<Event>>,
    checked: Checked,
}

impl Checker {
    /// A checker that keeps at most `most` violations of each run to show.
    pub(in crate::commands) fn new(most: usize) -> Self {
        Self {
            most,
            done: Vec::new(),
            current: None,
        }
    }

    /// Checks the next event.
    ///
    /// # Errors
    ///
    /// [`LogError::BeginsLate`] if it is the first, and not the creation of a run.
    pub(in crate::commands) fn apply(&mut self, event: Event) -> Result<(), LogError> {
        match self.current.take_if(|current| current.is_succeeded_by(&event)) {
            Some(ended) => self.done.push(ended.end()),
            None if self.current.is_none() && event.event_type != EventType::RunCreated => {
                return Err(LogError::BeginsLate { seq: event.seq });
            }
            None => {}
        }
        let most = self.most;
        self.current
            .get_or_insert_with(|| Current::new(event.seq))
            .apply(event, most);
        Ok(())
    }

    /// What was found out: of each run that the log tells of, the last of them the present one.
    ///
    /// # Errors
    ///
    /// [`LogError::Empty`] if no event came.
    pub(in crate::commands) fn end(self) -> Result<Vec<Checked>, LogError> {
        let mut done = self.done;
        done.push(self.current.ok_or(LogError::Empty)?.end());
        Ok(done)
    }
}

impl Current {
    fn new(first_seq: u64) -> Self {
        Self {
            auditor: Auditor::new(),
            taken_down: 0,
            recent: VecDeque::with_capacity(BEFORE + 1),
            checked: Checked {
                first_seq,
                last_seq: first_seq,
                events: 0,
                reserved: 0,
                occupied: 0,
                late: 0,
                members: 0,
                orphaned: 0,
                adopted: 0,
                discarded: BTreeMap::new(),
                batches: 0,
                pieces: 0,
                staleness: BTreeMap::new(),
                published: 0,
                redelivered: 0,
                replayed: 0,
                trainer_sessions: Resumes::default(),
                invariants: Invariant::ALL.map(|invariant| (invariant, 0)).into(),
                followed_to: None,
                violations: Vec::new(),
            },
        }
    }

    /// Whether the event creates the next run of this name. Its deletion took a number of its own, so that one that goes on
    /// with the next number cannot be it.
    fn is_succeeded_by(&self, event: &Event) -> bool {
        event.event_type == EventType::RunCreated && event.seq > self.checked.last_seq.saturating_add(1)
    }

    fn apply(&mut self, event: Event, most: usize) {
        let event = Rc::new(event);
        self.count(&event);
        for violation in self.checked.violations.iter_mut().filter(|each| each.awaited > 0) {
            violation.awaited -= 1;
            violation.around.push(Rc::clone(&event));
        }
        if self.recent.len() > BEFORE {
            self.recent.pop_front();
        }
        self.recent.push_back(Rc::clone(&event));

        self.auditor.apply(&event);
        let findings = self.auditor.violations();
        for finding in &findings[self.taken_down..] {
            let invariant = Invariant::broken_by(&finding.fault);
            *self.checked.invariants.entry(invariant).or_insert(0) += 1;
            let words = finding.fault.to_string();
            if words.starts_with("cannot go on") {
                self.checked.followed_to.get_or_insert(event.seq);
            }
            if self.checked.violations.len() < most {
                self.checked.violations.push(Violation {
                    seq: finding.seq,
                    invariant,
                    finding: words,
                    around: self.recent.iter().cloned().collect(),
                    awaited: AFTER,
                });
            }
        }
        self.taken_down = findings.len();
    }

    fn count(&mut self, event: &Event) {
        let checked = &mut self.checked;
        checked.events += 1;
        checked.last_seq = event.seq;
        checked.published += u64::from(event.event_type == EventType::Publish);
    }

    fn end(self) -> Checked {
        let Self {
            auditor, mut checked, ..
        } = self;
        let report = auditor.report();
        checked.reserved = report.reserved;
        checked.occupied = report.occupied;
        checked.late = report.late;
        checked.members = report.members;
        checked.orphaned = report.orphaned;
        checked.adopted = report.adopted;
        checked.discarded.clone_from(&report.discarded);
        checked.batches = report.takes;
        checked.pieces = report.pieces;
        checked.redelivered = report.redelivered;
        checked.replayed = report.replayed;
        checked.trainer_sessions = report.resumes;
        for (staleness, entries) in report.batches.iter().flat_map(|batch| &batch.staleness) {
            *checked.staleness.entry(*staleness).or_insert(0) += entries;
        }
        checked
    }
}
