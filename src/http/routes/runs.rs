//! Runs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, Query, RunPath, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::{App, to_the_end};
use crate::ledger::runs::{ConfigChanges, Creation, RunPage, RunStatus};
use crate::protocol::{FinalBatch, PromptOrder, Reason, RunConfig};

const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
const KEEP_BATCHES: std::ops::RangeInclusive<u64> = 1..=1_000_000;
const MOST_AT_ONCE: u64 = 1_000_000_000;
const CANDIDATES: std::ops::RangeInclusive<u32> = 1..=1_024;
/// Up to a year.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1..=31_536_000_000;
const COUNT: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
const ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// The reasons of the ledger's own whose prompts are queued again, or failed.
const DROPPABLE: [&str; 9] = [
    "lease_expired",
    "worker_restarted",
    "abandoned",
    "rewound",
    "too_stale",
    "surplus",
    "stuck_timeout",
    "timed_out",
    "group_failed",
];
/// A slot position (buffer times slots) must stay exact in the scripts, with room for as many batches as a run may train.
const INITIAL_VERSION: std::ops::RangeInclusive<u64> = 0..=100_000_000;

/// A run's configuration as a client gives it. Omitted fields have their defaults.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRun {
    /// `B`: entries in one training batch.
    #[schema(minimum = 1, maximum = 65536)]
    batch_size: u32,
    /// `η`: the bound on staleness, in policy versions.
    #[schema(minimum = 0, maximum = 64)]
    max_staleness: u64,
    /// `S`: slots in one buffer, `batch_size` to `2 * batch_size + 64`; default `batch_size`.
    slots_per_buffer: Option<u32>,
    /// The most trajectories that may be generating at once; default none.
    #[schema(minimum = 1)]
    max_concurrency: Option<u64>,
    /// `G`: members that make a prompt group; 1 is no group.
    #[serde(default = "one")]
    #[schema(default = one, minimum = 1, maximum = 1024)]
    group_size: u32,
    /// `G'`: members that are generated for a group, from `group_size`; default `group_size`.
    #[schema(minimum = 1, maximum = 1024)]
    group_candidates: Option<u32>,
    /// Whether a group with `group_size` members is occupied at once, and not by its client.
    #[serde(default = "yes")]
    #[schema(default = yes)]
    auto_occupy: bool,
    /// Whether a group whose rewards are all equal is discarded instead of occupied; needs groups.
    #[serde(default)]
    #[schema(default = false)]
    drop_zero_variance: bool,
    /// Whether a group with finished members outlives the session that holds it; default `prompt_queue`.
    adopt_groups: Option<bool>,
    /// How long a silent session keeps what it holds.
    #[serde(default = "default_lease_ms")]
    #[schema(default = default_lease_ms, minimum = 1000, maximum = 3_600_000)]
    lease_ms: u64,
    /// The age at which a reservation is discarded whatever its lease; default none.
    #[schema(minimum = 1)]
    reservation_timeout_ms: Option<u64>,
    /// How long the trainer waits for a stuck buffer before its reservations are discarded; default for ever.
    #[schema(minimum = 1)]
    stuck_timeout_ms: Option<u64>,
    /// The most reservations in the next buffer with which `stuck_timeout_ms` counts; default any number.
    #[schema(minimum = 1)]
    stuck_max_reserved: Option<u64>,
    /// How many taken batches are kept.
    #[serde(default = "default_keep_batches")]
    #[schema(default = default_keep_batches, minimum = 1, maximum = 1_000_000)]
    keep_batches: u64,
    /// The policy version that the run starts with.
    #[serde(default)]
    #[schema(default = 0, maximum = 100_000_000)]
    initial_version: u64,
    /// Whether the ledger hands out the prompts.
    #[serde(default)]
    #[schema(default = false)]
    prompt_queue: bool,
    /// The order in which it does.
    #[serde(default)]
    order: PromptOrder,
    /// Within how many feed positions `longest_first` sorts; default `batch_size`.
    #[schema(minimum = 1)]
    order_window: Option<u64>,
    /// How often a prompt is tried before it counts as failed.
    #[serde(default = "default_max_attempts")]
    #[schema(default = default_max_attempts, minimum = 1, maximum = 1_000_000)]
    max_attempts: u32,
    /// Reasons of the ledger's own whose prompts are dropped and not queued again.
    #[serde(default)]
    drop_on: Vec<Reason>,
    /// What becomes of the entries that are left when a drained run cannot fill another batch.
    #[serde(default)]
    final_batch: FinalBatch,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn default_max_attempts() -> u32 {
    3
}

fn default_lease_ms() -> u64 {
    30_000
}

fn default_keep_batches() -> u64 {
    256
}

impl NewRun {
    fn config(self) -> Result<RunConfig, Problem> {
        let batch_size = within("batch_size", self.batch_size, 1..=65_536)?;
        let slots = self.slots_per_buffer.unwrap_or(batch_size);
        let group_size = within("group_size", self.group_size, CANDIDATES)?;
        let candidates = self.group_candidates.unwrap_or(group_size);
        let group_candidates = within("group_candidates", candidates, group_size..=1_024)?;
        let concurrency = u64::from(group_candidates)..=MOST_AT_ONCE;
        let order_window = self.order_window.unwrap_or(u64::from(batch_size));
        if self.drop_zero_variance && group_size == 1 {
            return Err(Problem::invalid(
                "drop_zero_variance",
                "it needs groups: a group_size of 2 or more",
            ));
        }
        if let Some(other) = self.drop_on.iter().find(|reason| !DROPPABLE.contains(&reason.as_str())) {
            let known = DROPPABLE.join(", ");
            let detail = format!("{other} is none of the reasons whose prompts are tried again: {known}");
            return Err(Problem::invalid("drop_on", detail));
        }
        let mut drop_on = Vec::with_capacity(DROPPABLE.len());
        for reason in self.drop_on {
            if !drop_on.contains(&reason) {
                drop_on.push(reason);
            }
        }
        Ok(RunConfig {
            batch_size,
            max_staleness: within("max_staleness", self.max_staleness, 0..=64)?,
            slots_per_buffer: within("slots_per_buffer", slots, batch_size..=2 * batch_size + 64)?,
            max_concurrency: within_if_set("max_concurrency", self.max_concurrency, concurrency)?,
            group_size,
            group_candidates,
            auto_occupy: self.auto_occupy,
            drop_zero_variance: self.drop_zero_variance,
            adopt_groups: self.adopt_groups.unwrap_or(self.prompt_queue),
            lease_ms: within("lease_ms", self.lease_ms, LEASE_MS)?,
            reservation_timeout_ms: within_if_set("reservation_timeout_ms", self.reservation_timeout_ms, TIMEOUT_MS)?,
            stuck_timeout_ms: within_if_set("stuck_timeout_ms", self.stuck_timeout_ms, TIMEOUT_MS)?,
            stuck_max_reserved: within_if_set("stuck_max_reserved", self.stuck_max_reserved, COUNT)?,
            keep_batches: within("keep_batches", self.keep_batches, KEEP_BATCHES)?,
            initial_version: within("initial_version", self.initial_version, INITIAL_VERSION)?,
            prompt_queue: self.prompt_queue,
            order: self.order,
            order_window: within("order_window", order_window, COUNT)?,
            max_attempts: within("max_attempts", self.max_attempts, ATTEMPTS)?,
            drop_on,
            final_batch: self.final_batch,
        })
    }
}

fn within_if_set(
    field: &'static str,
    value: Option<u64>,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Problem> {
    value.map(|value| within(field, value, allowed)).transpose()
}

/// What a change does to a field that may be unset.
#[derive(Debug, Default)]
enum Change<T> {
    /// The field is not named: it stays.
    #[default]
    Keep,
    /// The field is null: it is unset.
    Clear,
    /// The field has a value.
    Set(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// Changes to a run's configuration. Omitted fields stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunChanges {
    /// How long a silent session keeps what it holds.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<u64>, nullable = false, minimum = 1000, maximum = 3_600_000)]
    lease_ms: Option<u64>,
    /// The most trajectories that may be generating at once; null for no limit.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1)]
    max_concurrency: Change<u64>,
    /// The age at which a reservation is discarded whatever its lease; null for none.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1)]
    reservation_timeout_ms: Change<u64>,
    /// How long the trainer waits for a stuck buffer before its reservations are discarded; null for ever.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1)]
    stuck_timeout_ms: Change<u64>,
    /// The most reservations in the next buffer with which `stuck_timeout_ms` counts; null for any number.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1)]
    stuck_max_reserved: Change<u64>,
    /// How many taken batches are kept.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 1_000_000)]
    keep_batches: Option<u64>,
}

/// A field that may be left out, but not unset.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(deserializer).map(Some)
}

/// Creates a run, or confirms that it exists with this configuration.
#[utoipa::path(
    put, path = "/v1/runs/{run}", tag = "runs", params(("run" = String, Path)), request_body = NewRun,
    responses(
        (status = 201, body = RunStatus, description = "created"),
        (status = 200, body = RunStatus, description = "it exists with this configuration"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 409, body = ProblemDocument, description = "`run_exists`, with the differing `fields`")
    )
)]
pub(super) async fn put_run(
    State(app): State<App>,
    RunPath(run): RunPath,
    Body(new): Body<NewRun>,
) -> Result<Answer<RunStatus>, Problem> {
    let config = new.config()?;
    let mut creation = None;
    let seen = to_the_end(async move {
        let (creation, seen) = app.ledger.create_run(&run, &config).await?;
        Ok(seen.map(|status| (creation, status)))
    })
    .await?
    .map(|(how, status)| {
        creation = Some(how);
        status
    });
    let status = if creation == Some(Creation::Created) {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(Answer::with_status(status, seen))
}

/// A run as it stands.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", params(("run" = String, Path)),
    responses((status = 200, body = RunStatus), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn get_run(State(app): State<App>, RunPath(run): RunPath) -> Result<Answer<RunStatus>, Problem> {
    Ok(app.ledger.run(&run).await?.into())
}

/// Changes what may be changed of a run's configuration.
#[utoipa::path(
    patch, path = "/v1/runs/{run}", tag = "runs", params(("run" = String, Path)), request_body = RunChanges,
    responses(
        (status = 200, body = RunStatus),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`")
    )
)]
pub(super) async fn patch_run(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(changes): Body<RunChanges>,
) -> Result<Answer<RunStatus>, Problem> {
    let mut cleared = Vec::new();
    let mut change = |field, change: Change<u64>, allowed| match change {
        Change::Keep => Ok(None),
        Change::Clear => {
            cleared.push(field);
            Ok(None)
        }
        Change::Set(value) => within(field, value, allowed).map(Some),
    };
    let changes = ConfigChanges {
        lease_ms: within_if_set("lease_ms", changes.lease_ms, LEASE_MS)?,
        // That a group's candidates fit is for the script to see: it knows how many they are.
        max_concurrency: change("max_concurrency", changes.max_concurrency, 1..=MOST_AT_ONCE)?,
        reservation_timeout_ms: change("reservation_timeout_ms", changes.reservation_timeout_ms, TIMEOUT_MS)?,
        stuck_timeout_ms: change("stuck_timeout_ms", changes.stuck_timeout_ms, TIMEOUT_MS)?,
        stuck_max_reserved: change("stuck_max_reserved", changes.stuck_max_reserved, COUNT)?,
        keep_batches: within_if_set("keep_batches", changes.keep_batches, KEEP_BATCHES)?,
    };
    Ok(
        to_the_end(async move { app.ledger.configure_run(&run, &changes, &cleared).await })
            .await?
            .into(),
    )
}

/// Deletes a run. Its name keeps its sequence number and its lineage.
#[utoipa::path(
    delete, path = "/v1/runs/{run}", tag = "runs", params(("run" = String, Path)),
    responses((status = 204), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn delete_run(State(app): State<App>, RunPath(run): RunPath) -> Result<Response, Problem> {
    let seen = to_the_end(async move { app.ledger.delete_run(&run).await }).await?;
    let mut response = Answer::from(seen).into_response();
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.body_mut() = axum::body::Body::empty();
    response.headers_mut().remove(axum::http::header::CONTENT_TYPE);
    response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
    Ok(response)
}

/// Which runs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// Those after this name.
    after: Option<String>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The runs, in the order of their names.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", params(RunsQuery), responses((status = 200, body = RunPage)))]
pub(super) async fn list_runs(
    State(app): State<App>,
    Query(query): Query<RunsQuery>,
) -> Result<Json<RunPage>, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=1_000)?;
    Ok(Json(app.ledger.runs(query.after.as_deref(), limit).await?))
}
