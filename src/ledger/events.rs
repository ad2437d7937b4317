//! The run's event log (protocol, *Sequence*).

use redis::streams::StreamRangeReply;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::{Effect, Event, EventType, Place, TrajectoryId, Version};
use crate::store::StoreError;

/// The most events that one read fetches.
const READ: usize = 500;
/// The most events that a search for one trajectory's looks through for one page.
const MOST_LOOKED_THROUGH: usize = 10_000;

/// An event as it is shown: with the places and versions of the entries that it was about beside their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShownEvent {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Of each of `ids`, the place that it left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Option<Place>>,
    /// Of each of `ids`, the place that it got.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Option<Place>>,
    /// The policy versions that the event names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Version>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<ShownEvent>,
    /// The `after` of the next page; null at the end of the log.
    pub next: Option<u64>,
}

impl From<Event> for ShownEvent {
    fn from(event: Event) -> Self {
        let places_of = |id: TrajectoryId, place: fn(&Effect) -> Option<Place>| {
            event
                .effects
                .iter()
                .filter(move |logged| logged.effect.id() == id)
                .filter_map(move |logged| place(&logged.effect))
        };
        let from = event.ids.iter().map(|id| places_of(*id, Effect::from).next()).collect();
        let to = event
            .ids
            .iter()
            .map(|id| places_of(*id, Effect::to).next_back())
            .collect();
        let versions = event.version.into_iter().collect();
        Self {
            event,
            from,
            to,
            versions,
        }
    }
}

impl Ledger {
    /// A page of events with a `seq` above `after`, oldest first; with `trajectory`, those that concern it. Such a page may be
    /// short, and even empty, when many others lie between.
    ///
    /// Refused as [`Refusal::EventsPruned`] when some of those above `after` were trimmed: nobody may miss events unawares.
    pub async fn events(
        &self,
        run: &RunName,
        after: u64,
        limit: usize,
        trajectory: Option<TrajectoryId>,
    ) -> Result<Seen<EventPage>, LedgerError> {
        let view = self.view_run(run).await?;
        let mut events = Vec::new();
        let mut last = after;
        let mut looked_through = 0;
        let mut is_at_end = false;
        while events.len() < limit && looked_through < MOST_LOOKED_THROUGH && !is_at_end {
            let wanted = if trajectory.is_some() {
                READ
            } else {
                READ.min(limit - events.len())
            };
            let page = self.read_events(run, last, None, wanted).await?;
            let reaches_back = match page.first() {
                Some(event) => follows_directly(event, last),
                None => last >= view.value.state.seq,
            };
            if !reaches_back {
                self.refuse_if_pruned(run, view.seq, last).await?;
            }
            is_at_end = page.len() < wanted;
            looked_through += page.len();
            for event in page {
                last = event.seq;
                if trajectory.is_none_or(|id| concerns(&event, id)) {
                    events.push(ShownEvent::from(event));
                    if events.len() == limit {
                        break;
                    }
                }
            }
        }
        let next = (last < view.value.state.seq).then_some(last);
        // `after` says what the reader has seen, which this run may never have been.
        let seq = if last > after {
            view.seq.max(Some(last))
        } else {
            view.seq
        };
        Ok(Seen {
            seq,
            value: EventPage { events, next },
        })
    }

    /// Refuses a reader who has read up to `last` if events behind it were trimmed.
    ///
    /// Numbers may be missing for other reasons, too: a run begins behind the last event of a deleted one of its name, and
    /// `seq` is raised above what a database lost.
    async fn refuse_if_pruned(&self, run: &RunName, seq: Option<u64>, last: u64) -> Result<(), LedgerError> {
        let Some(oldest) = self.oldest_event(run).await? else {
            return Ok(());
        };
        if follows_directly(&oldest, last) {
            return Ok(());
        }
        let mut noted = redis::cmd("HEXISTS");
        noted.arg(Self::keys(run).part("run")).arg("archiving");
        let refusal = Refusal::EventsPruned {
            first: oldest.seq,
            archived: self.parts.store.command(&noted).await?,
        };
        Err(LedgerError::Refused { seq, refusal })
    }

    /// The first event that is kept.
    pub(super) async fn oldest_event(&self, run: &RunName) -> Result<Option<Event>, LedgerError> {
        Ok(self.read_events(run, 0, None, 1).await?.into_iter().next())
    }

    /// At most `limit` events above `after`, up to `last`.
    pub(super) async fn read_events(
        &self,
        run: &RunName,
        after: u64,
        last: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Event>, LedgerError> {
        let mut range = redis::cmd("XRANGE");
        range
            .arg(Self::keys(run).part("events"))
            .arg(format!("({after}-0"))
            .arg(last.map_or_else(|| "+".to_owned(), |last| format!("{last}-0")))
            .arg("COUNT")
            .arg(limit);
        let reply: StreamRangeReply = self.parts.store.read(&range).await?;
        let mut events = Vec::with_capacity(reply.ids.len());
        for entry in reply.ids {
            let packed: Option<Vec<u8>> = entry.get("event");
            let packed = packed.ok_or_else(|| StoreError::Broken(format!("event {} has no body", entry.id)))?;
            events.push(rmp_serde::from_slice(&packed).map_err(StoreError::from)?);
        }
        Ok(events)
    }
}

/// Whether no event of the run lies between `last` and this one.
fn follows_directly(event: &Event, last: u64) -> bool {
    let before = match event.event_type {
        EventType::RunCreated => 0,
        _ => event.raised_from.unwrap_or(event.seq.saturating_sub(1)),
    };
    before <= last
}

fn concerns(event: &Event, id: TrajectoryId) -> bool {
    event.ids.contains(&id) || event.effects.iter().any(|logged| logged.effect.id() == id)
}
