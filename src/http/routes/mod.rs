//! The routes, by resource, and the `OpenAPI` document that is generated from them.

mod browser;
mod document;
mod draining;
mod events;
mod explaining;
mod finishing;
mod health;
mod looking;
mod members;
mod prompts;
mod reservations;
mod resuming;
mod runs;
mod training;
mod trajectories;
mod workers;

use axum::Json;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Berth",
        description = "A Redis-backed ledger that bounds the staleness of asynchronous RL post-training, whatever dies. \
            Errors are `application/problem+json` with a stable `code`; answers about a run carry its sequence number in the \
            header `berth-seq`."
    ),
    components(schemas(super::problem::ProblemDocument)),
    tags(
        (name = "runs", description = "A run and its configuration"),
        (name = "rollout", description = "What rollout workers call"),
        (name = "training", description = "What the trainer calls"),
        (name = "looking", description = "What people and tools look at"),
        (name = "server", description = "The server itself")
    )
)]
struct Document;

fn documented() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(runs::put_run, runs::get_run, runs::patch_run, runs::delete_run))
        .routes(routes!(runs::list_runs))
        .routes(routes!(reservations::reserve))
        .routes(routes!(finishing::occupy))
        .routes(routes!(finishing::occupy_many))
        .routes(routes!(members::member))
        .routes(routes!(members::segment))
        .routes(routes!(trajectories::discard))
        .routes(routes!(trajectories::claim))
        .routes(routes!(trajectories::get_trajectory))
        .routes(routes!(trajectories::list_trajectories))
        .routes(routes!(prompts::feed, prompts::list_prompts))
        .routes(routes!(workers::heartbeat))
        .routes(routes!(workers::list_workers))
        .routes(routes!(resuming::open_trainer_session))
        .routes(routes!(resuming::checkpoint))
        .routes(routes!(training::next_batch))
        .routes(routes!(training::publish))
        .routes(routes!(draining::drain))
        .routes(routes!(training::latest_version))
        .routes(routes!(training::list_batches))
        .routes(routes!(training::get_batch))
        .routes(routes!(looking::buffers))
        .routes(routes!(explaining::explain))
        .routes(routes!(explaining::distribution))
        .routes(routes!(events::events))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// All routes, with the document of them and its browser.
pub(super) fn all() -> OpenApiRouter<App> {
    documented()
        .route("/openapi.json", get(async || Json(openapi_document())))
        .merge(browser::browser().into())
}

/// The `OpenAPI` document, generated from the handlers. `openapi.json` is a copy of it that a test compares.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    document::completed(documented().into_openapi())
}
