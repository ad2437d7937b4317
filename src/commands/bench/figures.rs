//! Latencies, and what is said of many of them.

use std::time::Duration;

use serde::Serialize;

/// Latencies as they were measured, and the time in which they were.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    latencies: Vec<Duration>,
    measured_for: Duration,
}

/// What is said of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    /// How many calls were measured.
    pub(super) calls: usize,
    /// Calls a second.
    pub(super) per_second: f64,
    /// Half of the calls took at most this long, in milliseconds.
    pub(super) p50_ms: f64,
    /// 99 of 100 calls took at most this long, in milliseconds.
    pub(super) p99_ms: f64,
    /// The longest, in milliseconds.
    pub(super) max_ms: f64,
}

impl Samples {
    /// Adds one latency.
    pub(super) fn add(&mut self, latency: Duration) {
        self.latencies.push(latency);
    }

    /// Adds the latencies of one client.
    pub(super) fn join(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
    }

    /// Notes that the clients have been calling for this much longer.
    pub(super) fn measured_for(&mut self, time: Duration) {
        self.measured_for += time;
    }

    /// Forgets all, after the warming-up.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What there is to say.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 calls")]
    pub(super) fn figures(&self) -> Figures {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        Figures {
            calls: sorted.len(),
            per_second: ratio(sorted.len() as f64, self.measured_for.as_secs_f64()),
            p50_ms: millis(percentile(&sorted, 50)),
            p99_ms: millis(percentile(&sorted, 99)),
            max_ms: millis(percentile(&sorted, 100)),
        }
    }
}

/// The smallest of the sorted values that `percent` per cent of them do not exceed (nearest rank); zero of none.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// `part / whole`, and 0 of nothing.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        for latency in milliseconds {
            samples.add(Duration::from_millis(latency));
        }
        samples.measured_for(Duration::from_secs(2));
        samples
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let figures = samples((1..=200).rev()).figures();
        assert_eq!(
            figures,
            Figures {
                calls: 200,
                per_second: 100.0,
                p50_ms: 100.0,
                p99_ms: 198.0,
                max_ms: 200.0
            }
        );
    }

    #[test]
    fn of_few_samples_the_high_percentiles_are_the_longest() {
        let figures = samples([7, 3, 5]).figures();
        assert_eq!(
            figures,
            Figures {
                calls: 3,
                per_second: 1.5,
                p50_ms: 5.0,
                p99_ms: 7.0,
                max_ms: 7.0
            }
        );
    }

    #[test]
    fn nothing_measured_is_all_zero() {
        let figures = Samples::default().figures();
        assert_eq!(
            figures,
            Figures {
                calls: 0,
                per_second: 0.0,
                p50_ms: 0.0,
                p99_ms: 0.0,
                max_ms: 0.0
            }
        );
    }
}
