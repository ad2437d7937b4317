//! Random tests that say little: while a failure is made smaller, each of its hundreds of attempts panics in silence, and what is
//! printed in the end is the smallest, and where it fails.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

thread_local! {
    /// Where the last attempt on this thread failed, if attempts are being made.
    static FAILED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// How many steps are tried in all: what `BERTH_RANDOM_STEPS` says, or else the default.
pub(crate) fn steps(default: usize) -> usize {
    let steps = std::env::var("BERTH_RANDOM_STEPS").ok();
    steps.map_or(default, |steps| steps.parse().expect("BERTH_RANDOM_STEPS is a number"))
}

/// Makes the check of so many random values. If one fails, the test fails with the smallest like it that was found.
pub(crate) fn try_random<S: Strategy>(values: &S, cases: usize, max_shrink_iters: u32, check: impl Fn(S::Value)) {
    listen();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: u32::try_from(cases).expect("a number of sequences"),
        failure_persistence: None,
        max_shrink_iters,
        ..ProptestConfig::default()
    });
    FAILED_AT.set(Some("nowhere".to_owned()));
    let result = runner.run(values, |value| {
        check(value);
        Ok(())
    });
    let failed_at = FAILED_AT.take().expect("it was set");
    if let Err(failure) = result {
        panic!("{failure}\nIt fails at {failed_at}.");
    }
}

/// From now on, panics of a thread that makes attempts are only noted.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            let is_attempt = FAILED_AT.with_borrow_mut(|failed_at| {
                let at = panicked
                    .location()
                    .map_or("an unknown place".to_owned(), ToString::to_string);
                failed_at.as_mut().map(|failed_at| *failed_at = at).is_some()
            });
            if !is_attempt {
                print(panicked);
            }
        }));
    });
}
