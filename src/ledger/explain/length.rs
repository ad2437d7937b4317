//! Lengths of time in words.

use std::fmt;

/// A length of time, in milliseconds, as a person says it: `0.9 s`, `52 min`.
pub struct Length(pub u64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, minutes) = (self.0 / 1_000, self.0 / 60_000);
        match self.0 {
            0..10_000 => write!(f, "{seconds}.{} s", self.0 % 1_000 / 100),
            10_000..120_000 => write!(f, "{seconds} s"),
            120_000..7_200_000 => write!(f, "{minutes} min"),
            7_200_000..172_800_000 => write!(f, "{} h", minutes / 60),
            _ => write!(f, "{} days", minutes / 1_440),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_said_in_the_unit_that_fits_it() {
        const MINUTE: u64 = 60_000;
        for (ms, said) in [
            (0, "0.0 s"),
            (950, "0.9 s"),
            (9_999, "9.9 s"),
            (52_000, "52 s"),
            (2 * MINUTE, "2 min"),
            (119 * MINUTE, "119 min"),
            (120 * MINUTE, "2 h"),
            (47 * 60 * MINUTE, "47 h"),
            (48 * 60 * MINUTE, "2 days"),
        ] {
            assert_eq!(Length(ms).to_string(), said);
        }
    }
}
