//! What streaming is worth: the same job with whole batches and with pieces, side by side.

use std::time::Duration;

use super::Outcome;
use super::ink::{Ink, Line};
use super::text::{percent, seconds};

/// What stands above each of the two jobs.
pub(super) fn heading(text: &str) -> [Line; 2] {
    [Line::default(), Line::default().then(Ink::Bold, text)]
}

/// How long the trainer waited, and the job took, both ways.
pub(super) fn comparison(whole: &Outcome, streamed: &Outcome) -> Vec<Line> {
    let head = format!("  {:<18} {:>15} {:>15}", "streaming", "whole batches", "streamed");
    let row = |name: &str, each: fn(&Outcome) -> String| {
        Line::new(format!("  {name:<18} {:>15} {:>15}", each(whole), each(streamed)))
    };
    vec![
        Line::default(),
        Line::default().then(Ink::Bold, head),
        row("trainer waited", |it| seconds(it.waited)),
        row("of its time", |it| percent(it.waited, it.took)),
        row("the job took", |it| seconds(it.took)),
        Line::new(format!(
            "  The job was {}, with the same seed and the same kinds of incidents.",
            difference(whole.took, streamed.took)
        )),
    ]
}

/// How much shorter or longer the second time is.
fn difference(whole: Duration, streamed: Duration) -> String {
    let by = whole.abs_diff(streamed);
    let how = if streamed <= whole { "shorter" } else { "longer" };
    format!("{} {how} ({})", seconds(by), percent(by, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::Verdict;

    #[test]
    fn both_ways_stand_side_by_side() {
        let outcome = |took, waited| Outcome {
            verdict: Verdict::Clean,
            took: Duration::from_secs(took),
            waited: Duration::from_secs(waited),
        };
        let lines = comparison(&outcome(40, 24), &outcome(32, 16));
        let page: String = lines.iter().map(|line| line.plain() + "\n").collect();
        assert_eq!(
            page,
            "
  streaming            whole batches        streamed
  trainer waited              24.0 s          16.0 s
  of its time                   60 %            50 %
  the job took                40.0 s          32.0 s
  The job was 8.0 s shorter (20 %), with the same seed and the same kinds of incidents.
"
        );
    }
}
