//! The end of a run (protocol, *Drain*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ledger, LedgerError, RunName, Seen};
use crate::protocol::DrainQueue;
use crate::store::script;

#[derive(Serialize)]
struct DrainArgs {
    drain: bool,
    queue: DrainQueue,
}

/// How far the end of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// Whether nothing more is admitted.
    pub draining: bool,
    /// Whether the run is finished and a process may exit.
    pub finished: bool,
    /// Entries that are still generating.
    pub reserved: u64,
}

impl Ledger {
    /// Admits nothing more, so that the run ends with what is in flight; or, with `None`, admits again. Safe to repeat.
    pub async fn drain(&self, run: &RunName, draining: Option<DrainQueue>) -> Result<Seen<Drained>, LedgerError> {
        let args = DrainArgs {
            drain: draining.is_some(),
            queue: draining.unwrap_or_default(),
        };
        self.call(&script::DRAIN, run, &args).await
    }
}
