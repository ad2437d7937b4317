//! The event log: pages of JSON, and a stream that resumes.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa::IntoParams;

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::{Query, RunPath, wait, within};
use crate::http::problem::{Code, Problem, ProblemDocument};
use crate::ledger::events::{EventPage, ShownEvent};
use crate::ledger::{Ledger, RunName};
use crate::protocol::TrajectoryId;
use crate::store::wakes::Subscription;

/// How many events a stream reads at once.
const STREAM_PAGE: usize = 100;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Those with a `seq` above this one.
    #[param(default = 0)]
    after: Option<u64>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Those that concern this trajectory.
    #[param(value_type = Option<uuid::Uuid>)]
    trajectory: Option<TrajectoryId>,
    /// How long to wait for the first.
    #[param(default = 0, maximum = 60000)]
    wait_ms: Option<u64>,
}

/// The event log. With `Accept: text/event-stream` it is a live stream, whose ids are the `seq` of the events: a client that
/// sends the last one as `Last-Event-ID` goes on behind it. The log is bounded: who asks for events that were trimmed, be it
/// by leaving `after` out, is told so.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "looking", params(("run" = String, Path), EventsQuery),
    responses(
        (status = 200, body = EventPage),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 410, body = ProblemDocument, description = "`events_pruned`, with the `first_seq` that is kept"),
        (status = 429, body = ProblemDocument, description = "`too_many_waiting`")
    )
)]
pub(super) async fn events(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=1_000)?;
    let wait = wait(query.wait_ms.unwrap_or(0))?;
    let after = query.after.unwrap_or(0);
    if wants_stream(&headers) {
        let after = last_event_id(&headers)?.unwrap_or(after);
        return stream_events(app, run, after, query.trajectory).await;
    }
    let _place = if wait.is_zero() {
        None
    } else {
        Some(app.place_to_wait()?)
    };
    let seen = app.waiting.events(&run, after, limit, query.trajectory, wait).await?;
    Ok(Answer::from(seen).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| {
            accept.split(',').any(|kind| {
                kind.split(';')
                    .next()
                    .is_some_and(|kind| kind.trim() == "text/event-stream")
            })
        })
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let seq = value.to_str().ok().and_then(|text| text.parse().ok());
    seq.map(Some)
        .ok_or_else(|| Problem::invalid("Last-Event-ID", "not the seq of an event"))
}

/// A stream in the middle of the log.
struct Reader {
    ledger: Ledger,
    run: RunName,
    after: u64,
    trajectory: Option<TrajectoryId>,
    read: VecDeque<ShownEvent>,
    subscription: Subscription,
    stop: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

async fn stream_events(
    app: App,
    run: RunName,
    after: u64,
    trajectory: Option<TrajectoryId>,
) -> Result<Response, Problem> {
    // What cannot be read from there is refused as long as there is a status to say it with.
    let first = app.ledger.events(&run, after, STREAM_PAGE, trajectory).await?.value;
    let place = app.places_to_wait.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::new(Code::TooManyWaiting, "as many calls wait as this server lets wait"))?;
    let (subscription, stop) = app.waiting.subscribe_events(&run).await;
    let mut reader = Reader {
        ledger: app.ledger.clone(),
        run,
        after,
        trajectory,
        read: VecDeque::new(),
        subscription,
        stop,
        _place: place,
    };
    reader.take_in(first);
    Ok(Sse::new(frames(reader))
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// The stream ends when the run is deleted, the server stops, the database is out of reach, or the log is trimmed faster
/// than the client reads: the client resumes it, and is then told.
fn frames(reader: Reader) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        let frame = SseEvent::default()
            .id(event.event.seq.to_string())
            .json_data(&event)
            .ok()?;
        Some((Ok(frame), reader))
    })
}

impl Reader {
    fn take_in(&mut self, page: EventPage) {
        let last = page.events.last().map(|event| event.event.seq);
        self.after = page.next.or(last).unwrap_or(self.after);
        self.read.extend(page.events);
    }

    async fn next(&mut self) -> Option<ShownEvent> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Some(event);
            }
            let page = self
                .ledger
                .events(&self.run, self.after, STREAM_PAGE, self.trajectory)
                .await
                .ok()?;
            let is_at_end = page.value.next.is_none();
            self.take_in(page.value);
            if !self.read.is_empty() || !is_at_end {
                continue;
            }
            tokio::select! {
                () = self.subscription.woken() => {}
                _ = self.stop.wait_for(|stop| *stop) => return None,
            }
        }
    }
}
