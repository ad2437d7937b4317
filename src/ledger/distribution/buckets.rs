//! Lengths in tokens, in buckets that grow with them: sixteen to an octave, so that a boundary is off by a sixteenth at most.
//!
//! `lua/prelude/figures.lua` counts in the same buckets.

/// Sixteen sub-buckets to an octave: the four binary digits behind the first.
const SUB_DIGITS: u32 = 4;

/// A bucket of lengths. They order as the lengths do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bucket(u32);

impl Bucket {
    /// The bucket of a length.
    pub(super) fn of(tokens: u64) -> Self {
        if tokens == 0 {
            return Self(0);
        }
        let digits = u64::BITS - tokens.leading_zeros();
        // The first digit stands at the top, and is shifted out.
        let behind_the_first = tokens.rotate_left(u64::BITS - digits) << 1;
        let sub = u32::try_from(behind_the_first >> (u64::BITS - SUB_DIGITS)).unwrap_or(0);
        Self((digits << SUB_DIGITS) + sub)
    }

    /// The bucket of a field of the figures; `None` for the one of entries without a length.
    pub(super) fn from_field(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// The greatest length in it.
    pub(super) fn greatest(self) -> u64 {
        let (digits, sub) = (self.0 >> SUB_DIGITS, u64::from(self.0 & ((1 << SUB_DIGITS) - 1)));
        if digits == 0 {
            return 0;
        }
        let first = 1_u64 << (digits - 1);
        if digits <= SUB_DIGITS {
            // So few digits that each length has a bucket of its own.
            return first + (sub >> (SUB_DIGITS + 1 - digits));
        }
        let width = first >> SUB_DIGITS;
        first + (sub + 1) * width - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_at_most_the_greatest_of_its_bucket_and_above_that_of_the_one_before() {
        let lengths = (0..5_000).chain((13..=53).flat_map(|digits| {
            let power = 1_u64 << digits;
            [power - 1, power, power + 1, power + power / 3]
        }));
        let mut before = (0, Bucket(0));
        for tokens in lengths {
            let bucket = Bucket::of(tokens);
            assert!(tokens <= bucket.greatest(), "{tokens} is in {bucket:?}");
            assert_eq!(Bucket::of(bucket.greatest()), bucket, "{tokens}");
            if bucket != before.1 && tokens == before.0 + 1 {
                assert_eq!(before.1.greatest(), before.0, "{bucket:?} begins behind the one before");
            }
            before = (tokens, bucket);
        }
    }

    #[test]
    fn a_boundary_is_off_by_a_sixteenth_at_most() {
        for tokens in [1, 5, 31, 100, 2_100, 8_192, 131_071, 1 << 40] {
            let greatest = Bucket::of(tokens).greatest();
            assert!(greatest - tokens <= tokens / 16, "{tokens} counts as up to {greatest}");
        }
    }

    #[test]
    fn short_lengths_have_buckets_of_their_own() {
        for tokens in 0..32 {
            assert_eq!(Bucket::of(tokens).greatest(), tokens);
        }
    }
}
