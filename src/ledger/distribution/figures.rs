//! What became of the entries, by length, as it is counted (`lua/prelude/figures.lua`).

use std::collections::BTreeMap;

use super::buckets::Bucket;

/// What is known of some entries, as sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sums {
    /// How many they are.
    pub(super) entries: f64,
    /// Of how many the length is known.
    pub(super) with_tokens: f64,
    /// The sum of those lengths.
    pub(super) tokens: f64,
    /// The sum of their stalenesses.
    pub(super) staleness: f64,
    /// How many of them had finished.
    pub(super) queued: f64,
    /// How long those waited in the tables, in milliseconds.
    pub(super) queued_ms: f64,
}

impl From<[f64; 6]> for Sums {
    fn from([entries, with_tokens, tokens, staleness, queued, queued_ms]: [f64; 6]) -> Self {
        Self {
            entries,
            with_tokens,
            tokens,
            staleness,
            queued,
            queued_ms,
        }
    }
}

impl Sums {
    pub(super) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.with_tokens += other.with_tokens;
        self.tokens += other.tokens;
        self.staleness += other.staleness;
        self.queued += other.queued;
        self.queued_ms += other.queued_ms;
    }
}

impl<'a> FromIterator<&'a Sums> for Sums {
    fn from_iter<I: IntoIterator<Item = &'a Sums>>(all: I) -> Self {
        all.into_iter().fold(Sums::default(), |mut sum, each| {
            sum.add(*each);
            sum
        })
    }
}

/// Sums by length; under `None` those of entries whose length is not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ByLength(BTreeMap<Option<Bucket>, Sums>);

impl ByLength {
    pub(super) fn add(&mut self, bucket: Option<Bucket>, sums: Sums) {
        self.0.entry(bucket).or_default().add(sums);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (bucket, sums) in &other.0 {
            self.add(*bucket, *sums);
        }
    }

    /// Of all lengths, known or not.
    pub(super) fn total(&self) -> Sums {
        self.0.values().collect()
    }

    /// Of the buckets that a quarter has, which begin behind `above` and end with `up_to`.
    pub(super) fn within(&self, above: Option<Bucket>, up_to: Bucket) -> Sums {
        let known = self
            .0
            .iter()
            .filter_map(|(bucket, sums)| bucket.map(|bucket| (bucket, sums)));
        known
            .filter(|(bucket, _)| *bucket <= up_to && above.is_none_or(|above| *bucket > above))
            .map(|(_, sums)| sums)
            .collect()
    }

    pub(super) fn entries_of_known_length(&self) -> impl Iterator<Item = (Bucket, f64)> + '_ {
        self.0
            .iter()
            .filter_map(|(bucket, sums)| bucket.map(|bucket| (bucket, sums.entries)))
    }
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    /// Entries that finished, whatever became of them since.
    pub(super) finished: ByLength,
    /// Entries that were trained.
    pub(super) trained: ByLength,
    /// Finished entries that a client discarded, and groups without a gradient.
    pub(super) filtered: ByLength,
    /// Entries that were discarded otherwise.
    pub(super) discarded: ByLength,
    /// The filtered and the discarded ones, by reason.
    pub(super) by_reason: BTreeMap<String, Sums>,
}

impl Figures {
    /// From the fields of the run's hash. One that is not known is left out: a newer server may count more.
    pub(super) fn from_fields(fields: Vec<(String, [f64; 6])>) -> Self {
        let mut figures = Self::default();
        for (field, sums) in fields {
            let Some((kind, by)) = field.split_once(':') else {
                continue;
            };
            let by_length = match kind {
                "finished" => &mut figures.finished,
                "trained" => &mut figures.trained,
                "filtered" => &mut figures.filtered,
                "discarded" => &mut figures.discarded,
                "by_reason" => {
                    figures.by_reason.entry(by.to_owned()).or_default().add(sums.into());
                    continue;
                }
                _ => continue,
            };
            by_length.add(Bucket::from_field(by), sums.into());
        }
        figures
    }
}
