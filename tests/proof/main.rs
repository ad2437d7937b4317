//! The proof run: prompt groups with long-tailed lengths under every bound from 0 to 5, without a fault. Every batch is
//! whole, nothing is thrown away, and no entry is staler than the bound.
//!
//! Through HTTP and a real Redis, with time compressed. `BERTH_PROOF_BATCHES` says how many batches are trained under each
//! bound; `make proof` trains 100.

#[path = "../support/mod.rs"]
mod support;

mod figures;
mod job;
mod simulated;
mod trainer;
mod worker;

use figures::Figures;
use job::Job;
use support::Ledger;

/// The bounds, in policy versions.
const BOUNDS: std::ops::RangeInclusive<u64> = 0..=5;
/// How many batches are trained under each, unless the environment says otherwise.
const BATCHES: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn under_every_bound_all_batches_are_whole_and_nothing_is_discarded() {
    let Some(ledger) = Ledger::start().await else { return };
    let batches = batches();
    println!("{}", Figures::head(BOUNDS));
    let mut all = Vec::new();
    for max_staleness in BOUNDS {
        let job = Job { max_staleness, batches };
        let figures = job.run(&ledger).await;
        println!("{}", figures.row(BOUNDS));
        all.push(figures);
    }
    println!("{}", Figures::foot(&all));
    for figures in &all {
        figures.check();
    }
}

/// What the environment says, or [`BATCHES`].
fn batches() -> u64 {
    match std::env::var("BERTH_PROOF_BATCHES") {
        Ok(text) if !text.is_empty() => text.parse().expect("BERTH_PROOF_BATCHES is a number of batches"),
        _ => BATCHES,
    }
}
