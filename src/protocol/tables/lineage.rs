//! Which weights a rewind, a forced resume or a lost write has abandoned.

use crate::protocol::{Lineage, Version, Weights};

/// More points than these are never kept: the oldest two are made one, which only abandons more.
const MOST_POINTS: usize = 64;

/// Where the weights went another way, oldest first; both the lineages and the versions rise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RewindPoints(Vec<RewindPoint>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RewindPoint {
    /// The lineage that began here.
    lineage: Lineage,
    /// The version it went on from; `None` is below every version.
    to: Option<Version>,
}

impl RewindPoints {
    /// `lineage` begins, going on from version `to`, or from none.
    pub(super) fn push(&mut self, lineage: Lineage, to: Option<Version>) {
        // What an earlier point abandons that went no further back, this one abandons too.
        while self.0.last().is_some_and(|last| last.to >= to) {
            self.0.pop();
        }
        self.0.push(RewindPoint { lineage, to });
        if self.0.len() > MOST_POINTS {
            let oldest = self.0.remove(0);
            self.0[0].to = oldest.to;
        }
    }

    /// Whether a lineage later than these weights' went on from a version below theirs.
    pub(super) fn abandon(&self, weights: Weights) -> bool {
        self.0
            .iter()
            .any(|point| point.lineage > weights.lineage && point.to < Some(weights.version))
    }
}

#[cfg(test)]
mod tests {
    use super::{Lineage, MOST_POINTS, RewindPoint, RewindPoints, Version, Weights};

    fn point(lineage: u64, to: u64) -> RewindPoint {
        RewindPoint {
            lineage: Lineage(lineage),
            to: Some(Version(to)),
        }
    }

    fn points(of: &[(u64, u64)]) -> RewindPoints {
        let mut points = RewindPoints::default();
        for (lineage, to) in of {
            points.push(Lineage(*lineage), Some(Version(*to)));
        }
        points
    }

    fn abandoned(points: &RewindPoints, version: u64, lineage: u64) -> bool {
        points.abandon(Weights {
            version: Version(version),
            lineage: Lineage(lineage),
        })
    }

    #[test]
    fn weights_above_a_later_point_are_abandoned_and_no_others() {
        let points = points(&[(1, 5), (2, 8)]);
        for (version, lineage, expected) in [
            (5, 0, false),
            (6, 0, true),
            (6, 1, false),
            (8, 1, false),
            (9, 1, true),
            (9, 2, false),
        ] {
            assert_eq!(
                abandoned(&points, version, lineage),
                expected,
                "version {version} of lineage {lineage}"
            );
        }
    }

    #[test]
    fn a_point_further_back_replaces_those_that_it_covers() {
        assert_eq!(points(&[(1, 3), (2, 7), (3, 9), (4, 7)]).0, [point(1, 3), point(4, 7)]);
        assert_eq!(points(&[(1, 3), (2, 7), (3, 2)]).0, [point(3, 2)]);
    }

    #[test]
    fn a_point_below_every_version_stays_for_ever() {
        let mut points = RewindPoints::default();
        points.push(Lineage(3), None);
        points.push(Lineage(4), Some(Version(0)));
        assert!(abandoned(&points, 0, 2));
        assert!(!abandoned(&points, 0, 3));
        assert!(abandoned(&points, 1, 3));
    }

    #[test]
    fn of_too_many_points_the_two_oldest_become_one_that_abandons_what_both_did() {
        let rising: Vec<(u64, u64)> = (1..=66).map(|n| (n, 10 * n)).collect();
        let points = points(&rising);
        assert_eq!(points.0.len(), MOST_POINTS);
        assert_eq!(points.0[..2], [point(3, 10), point(4, 40)]);
        assert!(abandoned(&points, 11, 2), "more than before, never less");
    }
}
