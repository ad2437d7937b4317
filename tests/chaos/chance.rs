//! Everything that is drawn, and the only place that sleeps for no reason: pauses of a random length are the workload
//! itself, a trajectory that is generated or a training step. Whatever waits *for* something waits on a condition.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A sequence of draws that its seed fixes.
pub(crate) struct Chance(RefCell<StdRng>);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RefCell::new(StdRng::seed_from_u64(seed)))
    }

    /// A number of the range.
    pub(crate) fn between(&self, range: RangeInclusive<u64>) -> u64 {
        self.0.borrow_mut().random_range(range)
    }

    /// A duration of so many milliseconds.
    pub(crate) fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.between(range))
    }

    /// True once in so many times.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.between(1..=times) == 1
    }

    /// One of them.
    pub(crate) fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.0.borrow_mut().random_range(0..all.len())]
    }

    /// A seed for another sequence.
    pub(crate) fn seed(&self) -> u64 {
        self.0.borrow_mut().random()
    }

    /// A pause of so many milliseconds, as whoever works or trains makes one.
    pub(crate) async fn pause(&self, range: RangeInclusive<u64>) {
        tokio::time::sleep(self.millis(range)).await;
    }
}
