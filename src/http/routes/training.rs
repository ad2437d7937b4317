//! The trainer's calls, and the batches.

use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{BatchPath, Body, Query, RunPath, wait, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::{App, to_the_end};
use crate::ledger::batches::{Batch, BatchPage};
use crate::ledger::training::{LatestVersion, NextBatch, PieceRequest, PublishRequest, Published, TakeRequest};
use crate::protocol::ids::GREATEST_EXACT;
use crate::protocol::{BufferId, Epoch, Lineage, Version};

const MOST_BYTES_OF_WEIGHTS: usize = 2 << 10;
/// The most entries that a batch can have.
const MOST_ENTRIES: usize = 65_536;

/// A request for the next batch.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NextBatchRequest {
    /// The number of the trainer's session; required once one was opened.
    epoch: Option<Epoch>,
    /// The batch that the caller means; another one is refused.
    version: Option<BufferId>,
    /// Whether to take it in pieces, as its entries finish.
    #[serde(default)]
    stream: bool,
    /// How many entries of the batch the caller has already; required with `stream`.
    from_offset: Option<usize>,
    /// With `stream`: the fewest entries that are worth taking; default 1. What the batch still lacks, if that is fewer.
    #[schema(minimum = 1, maximum = 65536)]
    min_entries: Option<usize>,
    /// With `stream`: the most entries to be given; no limit if left out. At least `min_entries`.
    #[schema(minimum = 1)]
    max_entries: Option<usize>,
    /// How long to wait for it.
    #[serde(default)]
    #[schema(maximum = 60000)]
    wait_ms: u64,
}

impl NextBatchRequest {
    /// The piece that is asked for, if one is.
    fn piece(&self) -> Result<Option<PieceRequest>, Problem> {
        if !self.stream {
            let only_of_pieces = [
                ("from_offset", self.from_offset),
                ("min_entries", self.min_entries),
                ("max_entries", self.max_entries),
            ];
            return match only_of_pieces.into_iter().find(|(_, said)| said.is_some()) {
                Some((field, _)) => Err(Problem::invalid(field, "only with `stream`")),
                None => Ok(None),
            };
        }
        let Some(from) = self.from_offset else {
            return Err(Problem::invalid("from_offset", "required with `stream`"));
        };
        let min_entries = within("min_entries", self.min_entries.unwrap_or(1), 1..=MOST_ENTRIES)?;
        if let Some(max_entries) = self.max_entries {
            within("max_entries", max_entries, min_entries..=usize::MAX)?;
        }
        Ok(Some(PieceRequest {
            from: from.min(usize::try_from(GREATEST_EXACT).unwrap_or(usize::MAX)),
            min_entries,
            // More than any batch has is no limit.
            max_entries: self.max_entries.filter(|most| *most <= MOST_ENTRIES),
        }))
    }
}

/// Takes the next batch, or the one that was taken and whose successor is not published yet, or the next that is to be trained
/// again after a resume from an older checkpoint. With `stream`, takes it in pieces: the answer to the same `from_offset` is the
/// same piece, as long as `min_entries` and `max_entries` are the same.
#[utoipa::path(
    post, path = "/v1/runs/{run}/batches/next", tag = "training", params(("run" = String, Path)),
    request_body = NextBatchRequest,
    responses(
        (status = 200, body = NextBatch),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`other_batch`, `fenced`, `ledger_behind`"),
        (status = 429, body = ProblemDocument, description = "`too_many_waiting`")
    )
)]
pub(super) async fn next_batch(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(request): Body<NextBatchRequest>,
) -> Result<Answer<NextBatch>, Problem> {
    let wait = wait(request.wait_ms)?;
    let _place = if wait.is_zero() {
        None
    } else {
        Some(app.place_to_wait()?)
    };
    let piece = request.piece()?;
    let batch = TakeRequest {
        epoch: request.epoch,
        version: request.version,
    };
    Ok(app.waiting.next_batch(&run, batch, piece, wait).await?.into())
}

/// A version to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewVersion {
    /// The version.
    version: Version,
    /// The number of the trainer's session; required once one was opened.
    epoch: Option<Epoch>,
    /// Where its weights are: a reference of at most 2 KiB, handed to workers by `versions/latest`.
    #[schema(max_length = 2048)]
    weights: Option<String>,
}

/// Publishes the version that the batch was trained into, once it was delivered in this session. One that is published already stays as it is.
#[utoipa::path(
    post, path = "/v1/runs/{run}/versions", tag = "training", params(("run" = String, Path)), request_body = NewVersion,
    responses(
        (status = 200, body = Published),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`publish_out_of_order`, with the version `expected`; `fenced`, `ledger_behind`")
    )
)]
pub(super) async fn publish(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(new): Body<NewVersion>,
) -> Result<Answer<Published>, Problem> {
    if new
        .weights
        .as_ref()
        .is_some_and(|weights| weights.len() > MOST_BYTES_OF_WEIGHTS)
    {
        return Err(Problem::invalid(
            "weights",
            format!("at most {MOST_BYTES_OF_WEIGHTS} bytes"),
        ));
    }
    let publish = async move {
        let request = PublishRequest {
            epoch: new.epoch,
            version: new.version,
            weights: new.weights.as_deref(),
        };
        app.ledger.publish(&run, request).await
    };
    Ok(to_the_end(publish).await?.into())
}

/// Which version to wait for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LatestQuery {
    /// A version newer than this one.
    #[param(value_type = Option<u64>)]
    after: Option<u64>,
    /// The lineage of the weights that the caller has: it is answered at once when this is not the current one.
    #[param(value_type = Option<u64>)]
    lineage: Option<u64>,
    /// How long to wait for it.
    #[param(default = 0, maximum = 60000)]
    wait_ms: Option<u64>,
}

/// The latest version and its weights; waits for one newer than `after`, and answers with the latest also when none came.
#[utoipa::path(
    get, path = "/v1/runs/{run}/versions/latest", tag = "rollout", params(("run" = String, Path), LatestQuery),
    responses(
        (status = 200, body = LatestVersion),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 429, body = ProblemDocument, description = "`too_many_waiting`")
    )
)]
pub(super) async fn latest_version(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<LatestQuery>,
) -> Result<Answer<LatestVersion>, Problem> {
    let wait = wait(query.wait_ms.unwrap_or(0))?;
    let _place = if wait.is_zero() {
        None
    } else {
        Some(app.place_to_wait()?)
    };
    Ok(app
        .waiting
        .latest_version(&run, query.after.map(Version), query.lineage.map(Lineage), wait)
        .await?
        .into())
}

/// Which batches to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchesQuery {
    /// Those after this one.
    after: Option<u64>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The batches that are kept, oldest first.
#[utoipa::path(
    get, path = "/v1/runs/{run}/batches", tag = "looking", params(("run" = String, Path), BatchesQuery),
    responses((status = 200, body = BatchPage), (status = 404, body = ProblemDocument, description = "`unknown_run`"))
)]
pub(super) async fn list_batches(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<BatchesQuery>,
) -> Result<Answer<BatchPage>, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=1_000)?;
    Ok(app.ledger.batches(&run, query.after.map(BufferId), limit).await?.into())
}

/// Which part of a batch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchQuery {
    /// How many entries to leave out at its front.
    #[param(default = 0)]
    from_offset: Option<usize>,
    /// At most so many entries; all if left out.
    #[param(minimum = 1)]
    max_entries: Option<usize>,
}

/// A batch that was taken, whole or a part of it; of one that is streamed, what was taken of it so far.
#[utoipa::path(
    get, path = "/v1/runs/{run}/batches/{version}", tag = "looking",
    params(("run" = String, Path), ("version" = u64, Path), BatchQuery),
    responses(
        (status = 200, body = Batch),
        (status = 404, body = ProblemDocument, description = "`unknown_batch`, `unknown_run`"),
        (status = 410, body = ProblemDocument, description = "`batch_pruned`")
    )
)]
pub(super) async fn get_batch(
    State(app): State<App>,
    BatchPath(run, version): BatchPath,
    Query(query): Query<BatchQuery>,
) -> Result<Answer<Batch>, Problem> {
    let most = within("max_entries", query.max_entries.unwrap_or(usize::MAX), 1..=usize::MAX)?;
    Ok(app
        .ledger
        .batch(&run, version, query.from_offset.unwrap_or(0), most)
        .await?
        .into())
}
