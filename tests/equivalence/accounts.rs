//! What became of every entry, told by the log alone: what the run's distribution must say.

use std::collections::BTreeMap;

use berth::ledger::distribution::{Distribution, Quarter, Share};
use berth::protocol::{BufferId, Effect, Event, EventType, Place, Reason, RunConfig, TrajectoryId, Version};

/// A length for an entry, known from its id: most are short, some are long, and some are not said.
pub(crate) fn tokens_of(id: TrajectoryId) -> Option<u64> {
    let random = id.to_string().bytes().rev().take(6).fold(0_u64, |sum, byte| {
        let digit = char::from(byte).to_digit(16).unwrap_or(0);
        sum * 16 + u64::from(digit)
    });
    match random % 8 {
        0 => None,
        1 => Some(1_000 + random / 8 % 60_000),
        2 => Some(0),
        _ => Some(random / 8 % 200),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Trained,
    Filtered,
    Discarded,
}

/// An entry that left the tables, each time that it did.
struct Left {
    fate: Fate,
    reason: Option<Reason>,
    tokens: Option<u64>,
    staleness: u64,
    queued_ms: Option<u64>,
}

/// An entry in the tables or in a batch.
struct Inside {
    version: Version,
    place: Place,
    occupied_at_ms: Option<u64>,
}

/// All that the log has told so far.
#[derive(Default)]
pub(crate) struct Accounts {
    inside: BTreeMap<TrajectoryId, Inside>,
    left: Vec<Left>,
    admitted: u64,
    /// The lengths of all that finished.
    finished: Vec<Option<u64>>,
    taken_at_ms: BTreeMap<BufferId, u64>,
    /// The buffer of which pieces are taken, and how many entries they have.
    streamed: Option<(BufferId, u64)>,
    /// Whether the entries are groups, of whose members no length is said.
    are_groups: bool,
}

impl Accounts {
    pub(crate) fn apply(&mut self, event: &Event) {
        let batch = event.version.map(|version| BufferId(version.0));
        match (event.event_type, batch) {
            (EventType::RunCreated, _) => {
                self.are_groups = event.config.as_ref().is_some_and(RunConfig::has_groups);
            }
            (EventType::Take, Some(batch)) => {
                // A batch counts as taken from its first piece on.
                if self.streamed.is_none_or(|(streamed, _)| streamed != batch) {
                    self.taken_at_ms.insert(batch, event.at_ms);
                }
                self.streamed = None;
            }
            (EventType::Stream, Some(batch)) => {
                let taken = event.offset.unwrap_or(0) + event.entries.unwrap_or(0);
                if event.offset == Some(0) {
                    self.taken_at_ms.insert(batch, event.at_ms);
                }
                self.streamed = Some((batch, taken));
            }
            (EventType::TrainerOpened, _) if !event.effects.is_empty() => self.streamed = None,
            _ => {}
        }
        for logged in &event.effects {
            self.apply_effect(&logged.effect, event.at_ms);
        }
    }

    fn apply_effect(&mut self, effect: &Effect, at_ms: u64) {
        match effect {
            Effect::Reserved { id, version, to } => {
                self.admitted += 1;
                let inside = Inside {
                    version: *version,
                    place: *to,
                    occupied_at_ms: None,
                };
                self.inside.insert(*id, inside);
            }
            Effect::Discarded { id, reason, from } => {
                let entry = self.inside.remove(id).expect("it was in the tables");
                if *reason == Reason::ZeroVariance {
                    self.finished.push(None);
                }
                let is_filtered = matches!(reason, Reason::Client(_)) && entry.occupied_at_ms.is_some();
                self.left.push(Left {
                    fate: if is_filtered || *reason == Reason::ZeroVariance {
                        Fate::Filtered
                    } else {
                        Fate::Discarded
                    },
                    reason: Some(reason.clone()),
                    tokens: entry.occupied_at_ms.and(self.length_of(*id)),
                    staleness: from.buffer.0 - entry.version.0,
                    queued_ms: entry.occupied_at_ms.map(|from| at_ms - from),
                });
            }
            Effect::Pruned { id } => {
                let entry = self.inside.remove(id).expect("it was in a batch");
                let trained = self.trained(*id, &entry);
                self.left.push(trained);
            }
            Effect::Occupied { id, to, .. } => {
                self.finished.push(self.length_of(*id));
                let entry = self.inside.get_mut(id).expect("it was in the tables");
                entry.occupied_at_ms = Some(at_ms);
                entry.place = *to;
            }
            other => {
                if let (Some(entry), Some(to)) = (self.inside.get_mut(&other.id()), other.to()) {
                    entry.place = to;
                }
            }
        }
    }

    fn length_of(&self, id: TrajectoryId) -> Option<u64> {
        tokens_of(id).filter(|_| !self.are_groups)
    }

    fn trained(&self, id: TrajectoryId, entry: &Inside) -> Left {
        let buffer = entry.place.buffer;
        let taken_at_ms = self.taken_at_ms[&buffer];
        Left {
            fate: Fate::Trained,
            reason: None,
            tokens: self.length_of(id),
            staleness: buffer.0 - entry.version.0,
            // Of a batch in pieces: until the first was taken.
            queued_ms: entry.occupied_at_ms.map(|from| taken_at_ms.saturating_sub(from)),
        }
    }

    /// The distribution is what the log tells, and the totals are its.
    pub(crate) fn check(&self, shown: &Distribution, next_buffer: BufferId, totals: &berth::ledger::state::Totals) {
        let is_taken = |place: Place| {
            let is_piece = self
                .streamed
                .is_some_and(|(buffer, taken)| place.buffer == buffer && u64::from(place.slot.0) < taken);
            place.buffer < next_buffer || is_piece
        };
        let kept = self.inside.iter().filter(|(_, entry)| is_taken(entry.place));
        let kept: Vec<_> = kept.map(|(id, entry)| self.trained(*id, entry)).collect();
        let all: Vec<&Left> = self.left.iter().chain(&kept).collect();
        let of = |wanted: Fate| share(all.iter().copied().filter(move |left| left.fate == wanted));

        assert_eq!(shown.trained, of(Fate::Trained));
        assert_eq!(shown.filtered, of(Fate::Filtered));
        assert_eq!(shown.discarded, of(Fate::Discarded));
        assert_eq!(shown.finished, lengths(self.finished.iter().copied()));
        let admitted = Share {
            entries: self.admitted,
            mean_tokens: shown.finished.mean_tokens,
            ..share(all.iter().copied())
        };
        assert_eq!(shown.admitted, admitted);
        let mut by_reason: BTreeMap<String, Vec<&Left>> = BTreeMap::new();
        for left in &all {
            if let Some(reason) = &left.reason {
                by_reason.entry(reason.to_string()).or_default().push(left);
            }
        }
        let by_reason: BTreeMap<_, _> = by_reason
            .into_iter()
            .map(|(reason, left)| (reason, share(left.into_iter())))
            .collect();
        assert_eq!(shown.by_reason, by_reason);

        assert_eq!(shown.trained.entries, totals.trained);
        let of_equal_rewards = totals.discarded.get("zero_variance").copied().unwrap_or(0);
        assert_eq!(shown.finished.entries, totals.occupied + of_equal_rewards);
        let discarded: BTreeMap<_, _> = by_reason
            .iter()
            .map(|(reason, share)| (reason.clone(), share.entries))
            .collect();
        assert_eq!(discarded, totals.discarded);
        self.check_quarters(&shown.quarters, &all);
    }

    fn check_quarters(&self, quarters: &[Quarter], all: &[&Left]) {
        let mut known: Vec<u64> = self.finished.iter().flatten().copied().collect();
        known.sort_unstable();
        assert_eq!(quarters.len(), if known.is_empty() { 0 } else { 4 });
        let mut above = None;
        for (number, quarter) in quarters.iter().enumerate() {
            let up_to = quarter.up_to_tokens;
            let exact = known[(known.len() * (number + 1)).div_ceil(4) - 1];
            assert!(
                (exact..=exact + exact / 16).contains(&up_to),
                "{up_to} is about {exact}"
            );
            let is_within = |tokens: Option<u64>| {
                tokens.is_some_and(|tokens| tokens <= up_to && above.is_none_or(|above| tokens > above))
            };
            let of = |wanted: Fate| {
                let within = all.iter().copied();
                share(within.filter(move |left| left.fate == wanted && is_within(left.tokens)))
            };
            let finished = self.finished.iter().copied().filter(|tokens| is_within(*tokens));
            let expected = Quarter {
                up_to_tokens: up_to,
                finished: lengths(finished),
                trained: of(Fate::Trained),
                filtered: of(Fate::Filtered),
                discarded: of(Fate::Discarded),
            };
            assert_eq!(*quarter, expected);
            above = Some(up_to);
        }
    }
}

fn lengths(all: impl Iterator<Item = Option<u64>>) -> Share {
    let all: Vec<_> = all.collect();
    Share {
        entries: all.len() as u64,
        mean_tokens: mean(all.into_iter().flatten()),
        ..Share::default()
    }
}

fn share<'a>(all: impl Iterator<Item = &'a Left>) -> Share {
    let all: Vec<_> = all.collect();
    Share {
        entries: all.len() as u64,
        mean_tokens: mean(all.iter().filter_map(|left| left.tokens)),
        mean_staleness: mean(all.iter().map(|left| left.staleness)),
        mean_queued_ms: mean(all.iter().filter_map(|left| left.queued_ms)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the sums are small")]
fn mean(all: impl Iterator<Item = u64>) -> Option<f64> {
    let all: Vec<_> = all.collect();
    let sum: u64 = all.iter().sum();
    (!all.is_empty()).then(|| (sum as f64 / all.len() as f64 * 1_000.0).round() / 1_000.0)
}
