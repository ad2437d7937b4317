//! The scripts held to the model: random operation sequences on both, and after every step the same answers, the same
//! effects in the event log, the same tables and counts, and every invariant of the protocol.
//!
//! `BERTH_RANDOM_STEPS` sets how many steps are tried in all.

mod accounts;
mod acts;
mod groups;
mod pieces;
mod prompts;
#[path = "../support/random.rs"]
mod random;
mod stragglers;
#[path = "../support/mod.rs"]
mod support;
mod trainer;
mod twins;

use std::sync::Arc;

use berth::ledger::Ledger;
use berth::protocol::{DrainQueue, FinalBatch, PromptOrder, Reason, ResumeMode, RunConfig};
use berth::store::Store;
use proptest::prelude::*;
use proptest::sample::Index;

use support::Database;
use trainer::Resuming;
use twins::{Step, Twins};

/// On average.
const STEPS_A_SEQUENCE: usize = 60;
/// How many tests share the steps.
const TESTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let reason = prop::sample::select(vec!["failed", "filtered"]);
    let limit = prop::option::weighted(0.7, 1..12_u64);
    let worker = || 0..3_usize;
    prop_oneof![
        10 => reserve(),
        12 => any::<Index>().prop_map(Step::OccupyReserved),
        3 => any::<Index>().prop_map(Step::OccupyAny),
        2 => (any::<Index>(), reason).prop_map(|(index, reason)| Step::Discard(index, reason)),
        2 => any::<Index>().prop_map(Step::Filter),
        1 => any::<Index>().prop_map(Step::Requeue),
        2 => prompts(),
        1 => worker().prop_map(Step::Restart),
        1 => Just(Step::Expire),
        1 => (worker(), any::<Index>()).prop_map(|(worker, index)| Step::Claim { worker, index }),
        8 => later().prop_map(Step::Take),
        6 => (prop_oneof![8 => Just(1), 2 => 0..4_u64], later()).prop_map(|(ahead, later)| Step::Publish(ahead, later)),
        1 => (-4..2_i64, later()).prop_map(|(ahead, later)| Step::Checkpoint(ahead, later)),
        2 => resume(),
        8 => stream(),
        1 => drain(),
        1 => Just(Step::TimeOut),
        4 => Just(Step::HoldUp),
        1 => (limit, 1..8_u64).prop_map(|(limit, keep)| Step::Configure(limit, keep)),
        1 => prop_oneof![9 => Just(Step::Take(0)), 1 => Just(Step::CreateAgain)],
    ]
}

/// A page is fed, or a reservation is discarded for a reason for which its prompt is tried again, or a grant reached nobody.
fn prompts() -> impl Strategy<Value = Step> {
    let ahead = prop::option::weighted(0.7, prop_oneof![8 => Just(0), 2 => -3..0_i64, 1 => 1..3_i64]);
    let lengths = prop::collection::vec(prop::option::of(0..4_u64), 1..8);
    let reasons = vec!["timed_out", "stuck_timeout"];
    prop_oneof![
        2 => (ahead, lengths).prop_map(|(ahead, lengths)| Step::Feed { ahead, lengths }),
        1 => (any::<Index>(), prop::sample::select(reasons)).prop_map(|(index, reason)| Step::DiscardAs(index, reason)),
        1 => (any::<Index>(), prop::bool::weighted(0.8)).prop_map(|(index, is_holder)| Step::Abandon { index, is_holder }),
    ]
}

/// No prompt queue, or one of some kind.
fn queue() -> impl Strategy<Value = RunConfig> {
    let order = prop::sample::select(vec![PromptOrder::Fed, PromptOrder::LongestFirst]);
    let dropped = vec![Reason::TimedOut, Reason::LeaseExpired, Reason::Surplus, Reason::Rewound];
    let drop_on = prop::sample::subsequence(dropped, 0..3);
    (prop::bool::weighted(0.6), order, 1..5_u64, 1..4_u32, drop_on).prop_map(
        |(prompt_queue, order, order_window, max_attempts, drop_on)| RunConfig {
            prompt_queue,
            order,
            order_window,
            max_attempts,
            drop_on,
            ..RunConfig::new(1, 0)
        },
    )
}

/// Mostly from where the trainer stands.
fn stream() -> impl Strategy<Value = Step> {
    let back = prop_oneof![6 => Just(0), 2 => 1..4_i64, 1 => -2..0_i64];
    let most = prop::option::of(1..4_usize);
    (back, 1..4_usize, most, later()).prop_map(|(back, min_entries, max_entries, later)| Step::Stream {
        back,
        min_entries,
        max_entries,
        later,
    })
}

fn drain() -> impl Strategy<Value = Step> {
    let queue = prop::sample::select(vec![DrainQueue::Finish, DrainQueue::Keep]);
    prop_oneof![2 => queue.prop_map(Some), 3 => Just(None)].prop_map(Step::Drain)
}

fn reserve() -> impl Strategy<Value = Step> {
    let lineage_lag = prop_oneof![12 => Just(0), 4 => 1..4_i64, 1 => Just(-1)];
    (0..3_usize, -1..6_i64, lineage_lag, 1..6_usize).prop_map(|(worker, lag, lineage_lag, count)| Step::Reserve {
        worker,
        lag,
        lineage_lag,
        count,
    })
}

/// Most calls are the open session's.
fn later() -> impl Strategy<Value = i64> {
    prop_oneof![20 => Just(0), 1 => -2..3_i64]
}

fn resume() -> impl Strategy<Value = Step> {
    let ahead = prop::option::weighted(0.95, prop_oneof![6 => -4..2_i64, 1 => 2..5_i64, 1 => -12..0_i64]);
    let mode = prop_oneof![Just(ResumeMode::Replay), Just(ResumeMode::Rewind)];
    let behind = prop::option::weighted(0.2, 1..5_u64);
    (ahead, mode, any::<bool>(), behind).prop_map(|(ahead, mode, force, behind)| {
        Step::Resume(Resuming {
            ahead,
            mode,
            force,
            behind,
        })
    })
}

fn config(oversampling: bool) -> impl Strategy<Value = RunConfig> {
    let spare = if oversampling { 1..4_u32 } else { 0..1 };
    let limit = prop::option::weighted(0.3, 1..12_u64);
    let last = prop::sample::select(vec![FinalBatch::Short, FinalBatch::Discard]);
    let numbers = (1..5_u32, spare, 0..5_u64, limit, last, queue());
    numbers.prop_map(
        |(batch_size, spare, max_staleness, max_concurrency, final_batch, queue)| RunConfig {
            batch_size,
            max_staleness,
            slots_per_buffer: batch_size + spare,
            max_concurrency,
            final_batch,
            // Leases end when a sweep says so, and nobody sweeps here but the steps.
            lease_ms: 1,
            keep_batches: 5,
            initial_version: 3,
            ..queue
        },
    )
}

fn hold_the_scripts_to_the_model(configs: impl Strategy<Value = RunConfig>, step: impl Strategy<Value = Step>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    // A database in a container is taken down within a runtime.
    let _context = runtime.enter();
    let Some(database) = runtime.block_on(Database::start()) else {
        return;
    };
    let address = database.url().parse().expect("the test's database has an address");
    let ledger = runtime.block_on(async { Ledger::new(Store::new(&address).expect("a store")) });
    let store = Arc::new(runtime.block_on(async { Store::new(&address).expect("a store") }));

    let cases = (random::steps(6_000) / TESTS).div_ceil(STEPS_A_SEQUENCE);
    let sequences = (configs, prop::collection::vec(step, 1..2 * STEPS_A_SEQUENCE));
    random::try_random(&sequences, cases, 500, |(config, steps)| {
        runtime.block_on(async {
            let mut twins = Twins::create(&ledger, &store, config).await;
            for step in &steps {
                twins.step(step).await;
            }
            twins.end().await;
        });
    });
}

#[test]
fn the_scripts_do_what_the_model_does() {
    hold_the_scripts_to_the_model(config(false), step());
}

#[test]
fn the_scripts_do_what_the_model_does_with_oversampling() {
    hold_the_scripts_to_the_model(config(true), step());
}

#[test]
fn the_scripts_do_what_the_model_does_with_groups() {
    let steps = prop_oneof![2 => step(), 3 => groups::step().prop_map(Step::Group)];
    hold_the_scripts_to_the_model(groups::config(any::<bool>().prop_flat_map(config)), steps);
}
