//! How long responses are: a long-tailed distribution, or lengths recorded from somebody's own runs.

use std::f64::consts::TAU;
use std::io;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The median of the default distribution, in tokens.
const MEDIAN: f64 = 6_000.0;
/// The standard deviation of the logarithm of a length.
const SIGMA: f64 = 0.9;
/// Where generation is cut off, in tokens.
const CUT: u64 = 38_912;
/// How many draws the mean of the default distribution is estimated from.
const DRAWS_FOR_MEAN: u32 = 20_000;

/// Where response lengths come from. All of them are at least one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lengths {
    /// Log-normal, cut off: most responses are short, a few are many times longer.
    LogNormal,
    /// Drawn with equal chances from recorded ones. Never empty.
    Recorded(Vec<u64>),
}

/// Why a file of lengths can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LengthsError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: line {line}: `{text}` is not a whole number of tokens above 0", path.display())]
    BadLine { path: PathBuf, line: usize, text: String },
    #[error("{}: no lengths in it", path.display())]
    Empty { path: PathBuf },
}

impl Lengths {
    /// The lengths in `path`, or the default distribution.
    pub(super) fn load(path: Option<&Path>) -> Result<Self, LengthsError> {
        let Some(path) = path else { return Ok(Self::LogNormal) };
        let text = std::fs::read_to_string(path).map_err(|source| LengthsError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// One number a line; what follows a `#` is a comment, and empty lines are nothing.
    fn parse(path: &Path, text: &str) -> Result<Self, LengthsError> {
        let mut lengths = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = line.split('#').next().unwrap_or_default().trim();
            if number.is_empty() {
                continue;
            }
            match number.parse() {
                Ok(length) if length > 0 => lengths.push(length),
                _ => {
                    let text = number.chars().take(40).collect();
                    return Err(LengthsError::BadLine {
                        path: path.to_owned(),
                        line: index + 1,
                        text,
                    });
                }
            }
        }
        if lengths.is_empty() {
            return Err(LengthsError::Empty { path: path.to_owned() });
        }
        Ok(Self::Recorded(lengths))
    }

    /// Draws a length, in tokens.
    pub(super) fn draw(&self, random: &mut impl Rng) -> u64 {
        match self {
            Self::LogNormal => log_normal(random),
            Self::Recorded(lengths) => lengths[random.random_range(0..lengths.len())],
        }
    }

    /// Whether a response of this length was cut off rather than finished.
    pub(super) fn is_cut(&self, length: u64) -> bool {
        matches!(self, Self::LogNormal) && length == CUT
    }

    /// The longest that can be drawn, in tokens.
    pub(super) fn longest(&self) -> u64 {
        match self {
            Self::LogNormal => CUT,
            Self::Recorded(lengths) => lengths.iter().copied().max().unwrap_or(1),
        }
    }

    /// The mean length, in tokens.
    #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
    pub(super) fn mean(&self) -> f64 {
        match self {
            Self::LogNormal => {
                let mut random = StdRng::seed_from_u64(0);
                let total: u64 = (0..DRAWS_FOR_MEAN).map(|_| log_normal(&mut random)).sum();
                total as f64 / f64::from(DRAWS_FOR_MEAN)
            }
            Self::Recorded(lengths) => lengths.iter().map(|&length| length as f64).sum::<f64>() / lengths.len() as f64,
        }
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::LogNormal => "log-normal, median 6,000 tokens, sigma 0.9, cut at 38,912".to_owned(),
            Self::Recorded(lengths) => {
                let mut sorted = lengths.clone();
                sorted.sort_unstable();
                let (median, longest) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
                let [count, median, longest] = [sorted.len() as u64, median, longest].map(super::text::grouped);
                format!("{count} recorded ones, median {median} tokens, longest {longest}")
            }
        }
    }
}

/// `exp` of a normal variate, by the transform of Box and Muller.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 1..=CUT before"
)]
#[expect(clippy::cast_precision_loss, reason = "CUT is far below 2^52")]
fn log_normal(random: &mut impl Rng) -> u64 {
    // 1 - [0, 1) is (0, 1]: its logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let normal = radius * (TAU * random.random::<f64>()).cos();
    (MEDIAN * (SIGMA * normal).exp()).round().clamp(1.0, CUT as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Lengths, String> {
        Lengths::parse(Path::new("my.lengths"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_holds_one_number_a_line_and_comments() {
        assert_eq!(
            parse("# ours\n12\n\n  7 # short\n900\n"),
            Ok(Lengths::Recorded(vec![12, 7, 900]))
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, message) in [
            (
                "12\nabc\n",
                "my.lengths: line 2: `abc` is not a whole number of tokens above 0",
            ),
            ("0\n", "my.lengths: line 1: `0` is not a whole number of tokens above 0"),
            (
                "# c\n5\n-3\n",
                "my.lengths: line 3: `-3` is not a whole number of tokens above 0",
            ),
            (
                "1.5",
                "my.lengths: line 1: `1.5` is not a whole number of tokens above 0",
            ),
            ("# nothing\n\n", "my.lengths: no lengths in it"),
        ] {
            assert_eq!(parse(text), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Lengths::load(Some(Path::new("/nowhere/my.lengths"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/nowhere/my.lengths: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn the_real_lengths_that_come_along_can_be_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/lengths/azure-conv-2023.lengths");
        let lengths = Lengths::load(Some(Path::new(path))).unwrap();
        assert_eq!(
            lengths.describe(),
            "4,096 recorded ones, median 217 tokens, longest 1,000"
        );
    }

    #[test]
    fn one_seed_draws_one_sequence() {
        let draw = |seed| -> Vec<u64> {
            let mut random = StdRng::seed_from_u64(seed);
            (0..50).map(|_| Lengths::LogNormal.draw(&mut random)).collect()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn drawn_lengths_are_long_tailed_and_cut() {
        let mut random = StdRng::seed_from_u64(1);
        let mut lengths: Vec<u64> = (0..10_001).map(|_| Lengths::LogNormal.draw(&mut random)).collect();
        lengths.sort_unstable();
        let median = lengths[5_000];
        assert!((5_700..6_300).contains(&median), "{median}");
        // A share of 1 - Φ(ln(38,912 / 6,000) / 0.9) = 1.9 % is longer than the cut.
        let cut = lengths.iter().filter(|&&length| length == 38_912).count();
        assert!((130..250).contains(&cut), "{cut}");
        assert_eq!(lengths.last(), Some(&38_912));
        assert!(lengths[0] >= 1);
        assert!(Lengths::LogNormal.is_cut(38_912));
    }
}
