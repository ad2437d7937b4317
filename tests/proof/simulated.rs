//! How long things take: as on a cluster, with time compressed.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::Rng;

/// Simulated seconds in a real one.
const SPEED: f64 = 5_000.0;
/// How fast one response is generated, in tokens per simulated second.
const DECODE_TOKENS_PER_SECOND: f64 = 50.0;
/// How fast the trainer trains, in tokens per simulated second: a batch takes it about as long as two workers need to
/// generate one, so that the two overlap.
const TRAIN_TOKENS_PER_SECOND: f64 = 2_000.0;
/// How long a worker takes to load new weights, in simulated seconds.
const LOAD_WEIGHTS_SECONDS: f64 = 5.0;
/// The median length of a response, in tokens.
const MEDIAN: f64 = 6_000.0;
/// The standard deviation of the logarithm of a length.
const SIGMA: f64 = 0.9;
/// Where generation is cut off, in tokens.
const CUT: f64 = 38_912.0;

/// A response's length in tokens, log-normal and cut off: most are short, a few are many times longer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
pub(crate) fn length(random: &mut impl Rng) -> u64 {
    // 1 - [0, 1) is (0, 1]: its logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let normal = radius * (TAU * random.random::<f64>()).cos();
    (MEDIAN * (SIGMA * normal).exp()).round().clamp(1.0, CUT) as u64
}

/// How long it takes to generate a response of `tokens`.
pub(crate) fn generating(tokens: u64) -> Duration {
    simulated(as_f64(tokens) / DECODE_TOKENS_PER_SECOND)
}

/// How long it takes to train on `tokens`.
pub(crate) fn training(tokens: u64) -> Duration {
    simulated(as_f64(tokens) / TRAIN_TOKENS_PER_SECOND)
}

/// How long it takes to load new weights.
pub(crate) fn loading_weights() -> Duration {
    simulated(LOAD_WEIGHTS_SECONDS)
}

fn simulated(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds / SPEED)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
