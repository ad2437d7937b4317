//! Reserve.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, RunPath, wait, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::ledger::names::{Caller, Prompt, RequestId, SessionToken, WorkerName};
use crate::ledger::reserving::{Reservation, ReserveRequest};
use crate::protocol::{Lineage, Version};

/// A request for places.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewReservation {
    /// The worker that asks and will hold them.
    worker: WorkerName,
    /// Its session: a token that the process makes at its start. Left out, the worker's current session.
    session: Option<SessionToken>,
    /// How many entries; defaults to the number of `prompts`, or 1.
    #[schema(minimum = 1, maximum = 1024)]
    count: Option<usize>,
    /// The policy version of the weights that the worker really holds; defaults to what its session last said.
    version: Option<Version>,
    /// The lineage of those weights; needed once it has risen during the session, until the session has named the new one.
    lineage: Option<Lineage>,
    /// What the entries are generated from; each grant names its own. Left out in a run with a prompt queue, which hands the
    /// prompts out.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    prompts: Vec<Prompt>,
    /// Whether groups whose owner is gone go first, each in place of one of `count`; defaults to the run's `adopt_groups`.
    adopt: Option<bool>,
    /// How long to wait until at least one is granted.
    #[serde(default)]
    #[schema(maximum = 60000)]
    wait_ms: u64,
    /// Makes a repetition of the request the same request: it is answered as the first time.
    #[schema(value_type = Option<String>)]
    request_id: Option<RequestId>,
}

/// Reserves legal places for trajectories that are about to start.
#[utoipa::path(
    post, path = "/v1/runs/{run}/reservations", tag = "rollout", params(("run" = String, Path)),
    request_body = NewReservation,
    responses(
        (status = 200, body = Reservation, description = "what was granted; `blocked_by` says why it is fewer than asked for"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`version_too_stale`, `version_not_published`, `request_id_reused`, `fenced`, `ledger_behind`"),
        (status = 429, body = ProblemDocument, description = "`too_many_waiting`")
    )
)]
pub(super) async fn reserve(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(new): Body<NewReservation>,
) -> Result<Answer<Reservation>, Problem> {
    let count = new.count.unwrap_or(new.prompts.len().max(1));
    within("count", count, 1..=1_024)?;
    if new.prompts.len() > count {
        return Err(Problem::invalid(
            "prompts",
            format!("{} prompts for {count} entries", new.prompts.len()),
        ));
    }
    let wait = wait(new.wait_ms)?;
    let _place = if wait.is_zero() {
        None
    } else {
        Some(app.place_to_wait()?)
    };
    let request = ReserveRequest {
        caller: Caller {
            worker: new.worker,
            session: new.session,
        },
        count,
        version: new.version,
        lineage: new.lineage,
        adopt: new.adopt,
        prompts: new.prompts,
        request_id: new.request_id,
    };
    Ok(app.waiting.reserve(&run, request, wait).await?.into())
}
