//! Bad requests: each gets its code, and the field at fault is named.

mod addresses;
mod bodies;
mod values;

use serde_json::json;

use crate::support::{Ledger, Run};

/// An id that no trajectory has.
const UNKNOWN_ID: &str = "0197f0a0-0000-7000-8000-000000000000";

/// A server, and a run with a reserved entry of prompt `a`.
async fn start() -> Option<(Ledger, Run)> {
    let ledger = Ledger::start().await?;
    let run = ledger.run(json!({ "batch_size": 4, "max_staleness": 1 })).await;
    run.reserve(0, "a").await.ok();
    Some((ledger, run))
}
