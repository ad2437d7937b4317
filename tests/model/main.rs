//! Random operation sequences on the model: every invariant of the protocol after every step, and what an audit of their
//! logs finds.
//!
//! `BERTH_RANDOM_STEPS` sets how many steps are tried in all.

mod groups;
mod log;
mod pieces;
#[path = "../support/random.rs"]
mod random;
mod run;
mod trainer;

use berth::protocol::audit::Auditor;
use berth::protocol::{DrainQueue, Epoch, Event, FinalBatch, Lineage, PromptOrder, Reason, ResumeMode, RunConfig};
use proptest::prelude::*;
use proptest::sample::Index;

use groups::group_step;
use log::{damage, suffer};
use run::{Run, Step};
use trainer::Resuming;

/// On average.
const STEPS_A_SEQUENCE: usize = 100;

/// How many tests share the steps.
const TESTS: usize = 5;

/// Of groups that finish member by member, if there are any; else mostly of trajectories that finish at once.
fn step(of_groups: bool) -> impl Strategy<Value = Step> {
    let (at_once, by_and_by) = if of_groups { (4, 40) } else { (10, 4) };
    let reason = prop::sample::select(vec!["timed_out", "stuck_timeout", "failed"]);
    let limit = prop::option::weighted(0.7, 1..12_u64);
    prop_oneof![
        6 => reserve(),
        at_once => any::<Index>().prop_map(Step::Occupy),
        2 => any::<Index>().prop_map(Step::LateOccupy),
        2 => (any::<Index>(), reason).prop_map(|(index, reason)| Step::DiscardReserved(index, reason)),
        2 => any::<Index>().prop_map(Step::DiscardOccupied),
        1 => any::<Index>().prop_map(Step::Requeue),
        2 => feed(),
        2 => Just(Step::Train),
        5 => Just(Step::Take),
        4 => prop_oneof![9 => Just(1), 1 => 0..4_u64].prop_map(Step::Publish),
        1 => limit.prop_map(Step::Limit),
        1 => (1..8_u64).prop_map(Step::Keep),
        1 => resume(),
        1 => (0..4_u64).prop_map(Step::Checkpoint),
        1 => any::<Index>().prop_map(Step::Prune),
        1 => (-2..3_i64).prop_map(Step::Stranger),
        6 => stream(),
        1 => drain(),
        by_and_by => group_step().prop_map(Step::Group),
    ]
}

/// Mostly from where the trainer stands.
fn stream() -> impl Strategy<Value = Step> {
    let back = prop_oneof![6 => Just(0), 2 => 1..4_i64, 1 => -2..0_i64];
    let most = prop_oneof![1..4_usize, Just(usize::MAX)];
    (back, 1..4_usize, most).prop_map(|(back, min_entries, max_entries)| Step::Stream {
        back,
        min_entries,
        max_entries,
    })
}

fn drain() -> impl Strategy<Value = Step> {
    let queue = prop::sample::select(vec![DrainQueue::Finish, DrainQueue::Keep]);
    prop_oneof![2 => queue.prop_map(Some), 3 => Just(None)].prop_map(Step::Drain)
}

/// Mostly the weights of a worker that is a little late.
fn reserve() -> impl Strategy<Value = Step> {
    let lag = prop_oneof![20 => 0..5_i64, 1 => Just(-1)];
    let lineage_lag = prop_oneof![8 => Just(0), 2 => 1..4_i64, 1 => Just(-1)];
    (lag, lineage_lag, 1..6_usize).prop_map(|(lag, lineage_lag, count)| Step::Reserve {
        lag,
        lineage_lag,
        count,
    })
}

/// A page of prompts, some of which may have been fed before, or after some that were not.
fn feed() -> impl Strategy<Value = Step> {
    let ahead = prop::option::weighted(0.7, prop_oneof![8 => Just(0), 2 => -3..0_i64, 1 => 1..3_i64]);
    let lengths = prop::collection::vec(prop::option::of(0..4_u64), 0..8);
    (ahead, lengths).prop_map(|(ahead, lengths)| Step::Feed { ahead, lengths })
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

fn resume() -> impl Strategy<Value = Step> {
    let ahead = prop_oneof![1 => Just(None), 12 => prop_oneof![6 => -5..1_i64, 2 => 1..4_i64].prop_map(Some)];
    let mode = prop::sample::select(vec![ResumeMode::Replay, ResumeMode::Rewind]);
    let behind = prop::option::weighted(0.2, (0..9_u64, -1..3_i64, -1..3_i64));
    (ahead, mode, prop::bool::weighted(0.3), behind).prop_map(|(ahead, mode, force, behind)| {
        Step::Resume(Resuming {
            ahead,
            mode,
            force,
            behind,
        })
    })
}

/// What a deleted run of the name has left, sometimes.
fn origin() -> impl Strategy<Value = Option<(Epoch, Lineage)>> {
    let left = (0..4_u64, 1..4_u64).prop_map(|(epoch, lineage)| (Epoch(epoch), Lineage(lineage)));
    prop::option::weighted(0.2, left)
}

fn config(oversampling: bool) -> impl Strategy<Value = RunConfig> {
    let spare = if oversampling { 1..4_u32 } else { 0..1 };
    let limit = prop::option::weighted(0.3, 1..12_u64);
    let last = prop::sample::select(vec![FinalBatch::Short, FinalBatch::Discard]);
    let numbers = (1..5_u32, spare, 0..5_u64, limit, last, queue());
    numbers.prop_map(|(batch_size, spare, max_staleness, limit, last, queue)| RunConfig {
        batch_size,
        max_staleness,
        slots_per_buffer: batch_size + spare,
        max_concurrency: limit,
        lease_ms: 30_000,
        keep_batches: 4,
        initial_version: 3,
        final_batch: last,
        ..queue
    })
}

/// Groups beside all that a run of trajectories may have.
fn config_of_groups(oversampling: bool) -> impl Strategy<Value = RunConfig> {
    let sizes = (1..4_u32, 0..3_u32).prop_filter("more than one candidate", |(size, spare)| size + spare > 1);
    (config(oversampling), sizes, any::<(bool, bool, bool)>()).prop_map(
        |(config, (size, spare), (auto_occupy, drop_zero_variance, adopt_groups))| RunConfig {
            group_size: size,
            group_candidates: size + spare,
            auto_occupy,
            drop_zero_variance: drop_zero_variance && size > 1,
            adopt_groups,
            max_concurrency: config.max_concurrency.map(|limit| limit.max(u64::from(size + spare))),
            ..config
        },
    )
}

fn any_run() -> impl Strategy<Value = (RunConfig, Vec<Step>)> {
    any::<bool>().prop_flat_map(|oversampling| {
        prop_oneof![
            (config(oversampling), sequence(false)),
            (config_of_groups(oversampling), sequence(true)),
        ]
    })
}

fn sequence(of_groups: bool) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(of_groups), 1..2 * STEPS_A_SEQUENCE)
}

/// Makes the check of so many random values that the test has its share of the steps.
fn try_random<S: Strategy>(values: &S, check: impl Fn(S::Value)) {
    let cases = (random::steps(10_000) / TESTS).div_ceil(STEPS_A_SEQUENCE);
    random::try_random(values, cases, 10_000, check);
}

/// Runs the steps, and returns the log.
fn run(config: RunConfig, from: Option<(Epoch, Lineage)>, steps: &[Step]) -> Vec<Event> {
    let mut run = Run::new(config, from);
    for step in steps {
        run.step(step);
    }
    run.log()
}

fn audit(events: &[Event]) -> Auditor {
    let mut auditor = Auditor::new();
    for event in events {
        auditor.apply(event);
    }
    auditor
}

#[test]
fn every_invariant_holds_after_every_step_of_a_random_run() {
    try_random(&(config(false), origin(), sequence(false)), |(config, from, steps)| {
        let log = run(config, from, &steps);
        assert_eq!(audit(&log).violations(), []);
    });
}

#[test]
fn every_invariant_holds_after_every_step_of_a_random_run_with_oversampling() {
    try_random(&(config(true), origin(), sequence(false)), |(config, from, steps)| {
        let log = run(config, from, &steps);
        assert_eq!(audit(&log).violations(), []);
    });
}

#[test]
fn every_invariant_holds_after_every_step_of_a_random_run_of_groups() {
    try_random(
        &(config_of_groups(false), origin(), sequence(true)),
        |(config, from, steps)| {
            let log = run(config, from, &steps);
            assert_eq!(audit(&log).violations(), []);
        },
    );
}

#[test]
fn every_invariant_holds_after_every_step_of_a_random_run_of_groups_with_oversampling() {
    try_random(
        &(config_of_groups(true), origin(), sequence(true)),
        |(config, from, steps)| {
            let log = run(config, from, &steps);
            assert_eq!(audit(&log).violations(), []);
        },
    );
}

#[test]
fn a_damaged_log_is_found_out_and_never_ends_in_a_panic() {
    let runs = (any_run(), origin(), damage());
    try_random(&runs, |((config, steps), from, damage)| {
        let mut log = run(config, from, &steps);
        if suffer(&mut log, &damage) {
            assert_ne!(audit(&log).violations(), []);
        }
    });
}
