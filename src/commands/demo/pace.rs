//! The compressed time of the demo: how long things take here that take minutes on a cluster.

use std::time::Duration;

use super::lengths::Lengths;

/// How fast one response is generated, in tokens per simulated second.
pub(super) const DECODE_TOKENS_PER_SECOND: f64 = 50.0;
/// How fast the trainer trains, in tokens per simulated second and response of a batch. Trainers are bought to match their
/// batch: with this figure a batch of mean length takes about six tenths of the time that one mean response takes.
const TRAIN_TOKENS_PER_SECOND_AND_RESPONSE: f64 = 80.0;
/// How long a worker takes to load new weights, in simulated seconds.
const LOAD_WEIGHTS_SECONDS: f64 = 5.0;
/// How long a response of mean length takes here, unless told otherwise.
const MEAN_RESPONSE: Duration = Duration::from_millis(500);

/// How fast simulated time runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// Simulated seconds in one real second.
    speed: f64,
}

impl Pace {
    /// A pace of `speed` simulated seconds a second, which is above 0.
    pub(super) fn new(speed: f64) -> Self {
        Self { speed }
    }

    /// The pace at which a mean response takes [`MEAN_RESPONSE`].
    pub(super) fn for_lengths(lengths: &Lengths) -> Self {
        Self::new(lengths.mean() / DECODE_TOKENS_PER_SECOND / MEAN_RESPONSE.as_secs_f64())
    }

    /// Simulated seconds in one real second.
    pub(super) fn speed(self) -> f64 {
        self.speed
    }

    /// The speed, as exactly as anybody wants to read it.
    pub(super) fn speed_in_words(self) -> String {
        let decimals = usize::from(self.speed < 10.0);
        format!("{:.decimals$}", self.speed)
    }

    /// How long it takes to generate `tokens`.
    pub(super) fn generating(self, tokens: u64) -> Duration {
        self.simulated(as_f64(tokens) / DECODE_TOKENS_PER_SECOND)
    }

    /// How long it takes a trainer that was bought for batches of `responses` to train on `tokens`.
    pub(super) fn training(self, tokens: u64, responses: u64) -> Duration {
        let rate = TRAIN_TOKENS_PER_SECOND_AND_RESPONSE * as_f64(responses.max(1));
        self.simulated(as_f64(tokens) / rate)
    }

    /// How long it takes to load new weights.
    pub(super) fn loading_weights(self) -> Duration {
        self.simulated(LOAD_WEIGHTS_SECONDS)
    }

    fn simulated(self, seconds: f64) -> Duration {
        // Beyond what a duration can hold is as good as never.
        Duration::try_from_secs_f64(seconds / self.speed).unwrap_or(Duration::MAX)
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_divided_by_the_speed() {
        let pace = Pace::new(250.0);
        assert_eq!(pace.generating(6_000), Duration::from_millis(480));
        assert_eq!(pace.training(128_000, 16), Duration::from_millis(400));
        assert_eq!(pace.loading_weights(), Duration::from_millis(20));
    }

    #[test]
    fn a_mean_response_takes_half_a_second_unless_told_otherwise() {
        let lengths = Lengths::Recorded(vec![100, 300]);
        assert_eq!(Pace::for_lengths(&lengths).generating(200), Duration::from_millis(500));
    }
}
