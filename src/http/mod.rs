//! The HTTP front: routes by resource over the ledger's calls (`api.md`).
//!
//! A request goes straight through: route, ledger call, script, typed outcome, response. Every error reaches HTTP in
//! [`problem`], in one place.

mod answer;
mod client;
mod extract;
mod guard;
mod problem;
mod routes;

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;

use crate::ledger::{Ledger, LedgerError, Seen};
use crate::waiting::Waiting;
pub use guard::Hosts;
use problem::{Code, Problem};
pub use routes::openapi_document;

/// What the handlers share. Each layer between the router and a handler clones it.
#[derive(Clone)]
pub(crate) struct App(Arc<AppParts>);

pub(crate) struct AppParts {
    ledger: Ledger,
    waiting: Waiting,
    places_to_wait: Arc<Semaphore>,
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl App {
    /// The same for a client that has seen the run of its call at `seq`.
    fn for_client(&self, seq: u64) -> Self {
        let ledger = self.ledger.for_client(Some(seq));
        Self(Arc::new(AppParts {
            waiting: self.waiting.with(ledger.clone()),
            ledger,
            places_to_wait: Arc::clone(&self.places_to_wait),
        }))
    }

    /// A place for a call that waits, or `too_many_waiting`.
    fn place_to_wait(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.places_to_wait.try_acquire().map_err(|_| {
            Problem::new(
                Code::TooManyWaiting,
                "as many calls wait on this server as it was told to let wait",
            )
        })
    }
}

/// Runs a transition to its end, even if the client hangs up meanwhile: a command that was sent cannot be called back, and
/// what follows it must not be left undone.
async fn to_the_end<T: Send + 'static>(
    transition: impl Future<Output = Result<Seen<T>, LedgerError>> + Send + 'static,
) -> Result<Seen<T>, Problem> {
    match tokio::spawn(transition).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(Problem::new(Code::Internal, error.to_string())),
    }
}

/// The whole front: `most_waiting` is how many calls may wait at once.
pub fn router(ledger: Ledger, waiting: Waiting, hosts: Hosts, most_waiting: usize) -> Router {
    let app = App(Arc::new(AppParts {
        ledger,
        waiting,
        places_to_wait: Arc::new(Semaphore::new(most_waiting)),
    }));
    let (router, _) = routes::all().split_for_parts();
    router
        .fallback(|| async { Problem::new(Code::UnknownPath, "nothing is served under this path") })
        .method_not_allowed_fallback(|request: Request| async move {
            let method = request.method().clone();
            Problem::new(Code::MethodNotAllowed, format!("{method} is not possible here"))
        })
        .with_state(app)
        .layer(middleware::from_fn_with_state(Arc::new(hosts), guard::only_invited))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(TraceLayer::new_for_http())
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Problem::new(Code::Internal, "the server ran into a fault of its own; see its log").into_response()
}
