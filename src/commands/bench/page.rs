//! The report, as a table and as JSON.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::BenchError;
use super::figures::{Figures, ratio};
use super::ledger_load::{LedgerLoad, Measured};
use super::redis_side::{ScriptTimes, SlowScripts};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) url: String,
    pub(super) clients: u64,
    pub(super) rounds: u32,
    pub(super) seconds_per_phase: u64,
    pub(super) yardsticks: Yardsticks,
    pub(super) cases: Vec<CaseReport>,
    /// `None` for a server whose Redis is not ours to ask.
    pub(super) slow_scripts: Option<SlowScripts>,
}

/// What handlers that do next to nothing reach.
#[derive(Debug, Serialize)]
pub(super) struct Yardsticks {
    /// `GET /healthz`, which does nothing.
    pub(super) nothing: Figures,
    /// `GET /readyz`, which makes one trivial Redis call.
    pub(super) one_redis_call: Figures,
}

/// One batch size with one bound.
#[derive(Debug, Serialize)]
pub(super) struct CaseReport {
    pub(super) batch_size: u32,
    pub(super) max_staleness: u64,
    pub(super) reserve: Figures,
    pub(super) occupy: Figures,
    /// Reserves and occupies a second, together.
    pub(super) per_second: f64,
    /// The share of that in the rate of `one_redis_call`.
    pub(super) of_one_redis_call: f64,
    /// How long each script takes inside Redis; none if it was not asked.
    pub(super) script_times: Vec<ScriptTimes>,
    /// How many times as much time a reserve and an occupy take as in the first case: the medians inside Redis, added up, or
    /// if it was not asked, those that the clients saw.
    pub(super) cost_to_first: f64,
    /// Batches taken and published.
    pub(super) batches: u64,
    /// Reserves that found no legal place and are in none of the latencies.
    pub(super) blocked: u64,
    /// Reserves under a version that had become too stale, likewise.
    pub(super) too_stale: u64,
}

impl CaseReport {
    /// The reports of all cases, beside the rate of `one_redis_call`.
    pub(super) fn of_all(loads: &[LedgerLoad], one_redis_call: f64) -> Vec<Self> {
        let mut cases: Vec<Self> = loads.iter().map(|load| Self::new(load, one_redis_call)).collect();
        let first = cases.first().map_or(0.0, Self::cost);
        for case in &mut cases {
            case.cost_to_first = ratio(case.cost(), first);
        }
        cases
    }

    fn new(load: &LedgerLoad, one_redis_call: f64) -> Self {
        let LedgerLoad {
            batch_size,
            max_staleness,
            measured,
            script_times,
            ..
        } = load;
        let per_second = Self::rate(measured);
        Self {
            batch_size: *batch_size,
            max_staleness: *max_staleness,
            reserve: measured.reserve.figures(),
            occupy: measured.occupy.figures(),
            per_second,
            of_one_redis_call: ratio(per_second, one_redis_call),
            script_times: script_times.clone(),
            cost_to_first: 1.0,
            batches: measured.batches,
            blocked: measured.blocked,
            too_stale: measured.too_stale,
        }
    }

    /// What a reserve and an occupy take, in milliseconds.
    fn cost(&self) -> f64 {
        match (self.script_micros("reserve"), self.script_micros("occupy")) {
            (Some(reserve), Some(occupy)) => Duration::from_micros(reserve + occupy).as_secs_f64() * 1_000.0,
            _ => self.reserve.p50_ms + self.occupy.p50_ms,
        }
    }

    /// The median time of a script inside Redis.
    fn script_micros(&self, script: &str) -> Option<u64> {
        self.script_times
            .iter()
            .find(|times| times.script == script)
            .map(|times| times.p50_micros)
    }

    /// Reserves and occupies a second, together: each occupy follows a reserve that was granted, at once or after a wait.
    fn rate(measured: &Measured) -> f64 {
        2.0 * measured.occupy.figures().per_second
    }
}

impl Report {
    /// Prints the report on standard output.
    pub(super) fn print(&self, as_json: bool) -> Result<(), BenchError> {
        let text = if as_json {
            serde_json::to_string_pretty(self)? + "\n"
        } else {
            self.table()
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(())
    }

    fn table(&self) -> String {
        let Self {
            url,
            clients,
            rounds,
            seconds_per_phase,
            yardsticks,
            ..
        } = self;
        let mut lines = vec![
            format!("{clients} clients against {url}, {seconds_per_phase} s for each phase, in {rounds} rounds"),
            String::new(),
            row("", ["calls/s", "p50 ms", "p99 ms", "max ms"].map(str::to_owned)),
            figures_row("does nothing (GET /healthz)", &yardsticks.nothing),
            figures_row("one Redis call (GET /readyz)", &yardsticks.one_redis_call),
        ];
        lines.extend(self.cases.iter().flat_map(CaseReport::rows));
        lines.push(String::new());
        lines.extend(self.slow_rows());
        lines.join("\n") + "\n"
    }

    fn slow_rows(&self) -> Vec<String> {
        let Some(slow) = &self.slow_scripts else {
            return vec!["Slow scripts: this server's Redis was not asked".to_owned()];
        };
        let limit = format!("over {} µs", slow.threshold_micros);
        if slow.scripts.is_empty() {
            return vec![format!("Slow scripts (Redis SLOWLOG, {limit}): none")];
        }
        let mut rows = vec![format!("Slow scripts (Redis SLOWLOG, {limit}):")];
        rows.extend(slow.scripts.iter().map(|script| {
            format!(
                "  {:<16} {:>6} times, {:>8} µs at most",
                script.script, script.calls, script.max_micros
            )
        }));
        rows
    }
}

impl CaseReport {
    fn rows(&self) -> Vec<String> {
        let Self {
            batch_size,
            max_staleness,
            per_second,
            ..
        } = self;
        let Self {
            batches,
            blocked,
            too_stale,
            ..
        } = self;
        let share = 100.0 * self.of_one_redis_call;
        vec![
            String::new(),
            format!("batch_size {batch_size}, max_staleness {max_staleness}"),
            figures_row("  reserve", &self.reserve),
            figures_row("  occupy", &self.occupy),
            format!("{:<30} {per_second:>10.0}   {share:.0} % of one Redis call", "  both"),
            self.cost_row(),
            format!(
                "  {batches} batches trained; not in the latencies: {blocked} reserves blocked, {too_stale} too stale"
            ),
        ]
    }

    fn cost_row(&self) -> String {
        let cost = self.cost_to_first;
        let medians: Vec<String> = ["reserve", "occupy"]
            .iter()
            .filter_map(|script| Some(format!("{script} {} µs", self.script_micros(script)?)))
            .collect();
        if medians.is_empty() {
            return format!("  {cost:.2} times the latency of the first case");
        }
        format!(
            "  median inside Redis: {}; {cost:.2} times the first case",
            medians.join(", ")
        )
    }
}

fn figures_row(name: &str, figures: &Figures) -> String {
    let Figures {
        per_second,
        p50_ms,
        p99_ms,
        max_ms,
        ..
    } = figures;
    let cells = [
        format!("{per_second:.0}"),
        format!("{p50_ms:.2}"),
        format!("{p99_ms:.2}"),
        format!("{max_ms:.2}"),
    ];
    row(name, cells)
}

fn row(name: &str, [rate, p50, p99, max]: [String; 4]) -> String {
    format!("{name:<30} {rate:>10} {p50:>9} {p99:>9} {max:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(per_second: f64, p50_ms: f64) -> Figures {
        Figures {
            calls: 100,
            per_second,
            p50_ms,
            p99_ms: p50_ms * 3.0,
            max_ms: p50_ms * 10.0,
        }
    }

    fn times(script: &str, calls: usize, p50_micros: u64) -> ScriptTimes {
        ScriptTimes {
            script: script.to_owned(),
            calls,
            p50_micros,
            p99_micros: p50_micros * 2,
            max_micros: p50_micros * 3,
        }
    }

    fn report(slow_scripts: Option<SlowScripts>) -> Report {
        Report {
            url: "http://127.0.0.1:4000".to_owned(),
            clients: 32,
            rounds: 10,
            seconds_per_phase: 5,
            yardsticks: Yardsticks {
                nothing: figures(40_000.0, 0.7),
                one_redis_call: figures(30_000.0, 1.0),
            },
            cases: vec![CaseReport {
                batch_size: 256,
                max_staleness: 4,
                reserve: figures(9_000.0, 1.5),
                occupy: figures(9_000.0, 1.75),
                per_second: 18_000.0,
                of_one_redis_call: 0.6,
                script_times: vec![times("occupy", 500, 60), times("reserve", 500, 45)],
                cost_to_first: 1.0,
                batches: 176,
                blocked: 3,
                too_stale: 0,
            }],
            slow_scripts,
        }
    }

    #[test]
    fn the_table() {
        let slow = SlowScripts {
            threshold_micros: 1_000,
            scripts: vec![times("take", 2, 1_100)],
        };
        assert_eq!(
            report(Some(slow)).table(),
            "\
32 clients against http://127.0.0.1:4000, 5 s for each phase, in 10 rounds

                                  calls/s    p50 ms    p99 ms    max ms
does nothing (GET /healthz)         40000      0.70      2.10      7.00
one Redis call (GET /readyz)        30000      1.00      3.00     10.00

batch_size 256, max_staleness 4
  reserve                            9000      1.50      4.50     15.00
  occupy                             9000      1.75      5.25     17.50
  both                              18000   60 % of one Redis call
  median inside Redis: reserve 45 µs, occupy 60 µs; 1.00 times the first case
  176 batches trained; not in the latencies: 3 reserves blocked, 0 too stale

Slow scripts (Redis SLOWLOG, over 1000 µs):
  take                  2 times,     3300 µs at most
"
        );
    }

    #[test]
    fn no_slow_script_is_said_too() {
        let slow = SlowScripts {
            threshold_micros: 1_000,
            scripts: Vec::new(),
        };
        assert!(
            report(Some(slow))
                .table()
                .ends_with("\nSlow scripts (Redis SLOWLOG, over 1000 µs): none\n")
        );
        assert!(
            report(None)
                .table()
                .ends_with("\nSlow scripts: this server's Redis was not asked\n")
        );
    }
}
