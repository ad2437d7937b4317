//! Logs, and the programs that write and check them.

use std::path::{Path, PathBuf};
use std::process::Output;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Client, Run, berth};

/// How many calls are on their way at once while a log is filled.
const LANES: usize = 32;

/// A run that has done a little of everything: three batches trained, entries that moved, one filtered, one given up.
pub(crate) async fn small_job(client: &Client) -> Run {
    let config = json!({ "batch_size": 2, "max_staleness": 1, "keep_batches": 100 });
    let run = Run::create(client, config).await;
    run.reserve(0, "a b c d").await.ok();
    run.occupy("a").await.ok();
    run.occupy("c").await.ok();
    run.take().await.ok();
    run.publish(1).await.ok();
    run.reserve(1, "e f").await.ok();
    run.occupy("b").await.ok();
    run.discard("e", "failed").await.ok();
    run.occupy("d").await.ok();
    run.take().await.ok();
    run.publish(2).await.ok();
    run.reserve(2, "g h").await.ok();
    run.occupy("g").await.ok();
    run.discard("g", "filtered").await.ok();
    run.occupy("f").await.ok();
    run.occupy("h").await.ok();
    run.take().await.ok();
    run.publish(3).await.ok();
    run
}

/// Lets so many more events happen in a run.
pub(crate) async fn fill(run: &Run, events: u64) {
    // Each number is said once in a run, so that each call is a change.
    let from = run.get("").await.ok()["seq"].as_u64().expect("a number");
    let numbers: Vec<u64> = (from + 1..=from + events).collect();
    let lanes = numbers
        .chunks(numbers.len().div_ceil(LANES).max(1))
        .map(|lane| async move {
            for number in lane {
                run.patch("", json!({ "lease_ms": 100_000 + number })).await.ok();
            }
        });
    join_all(lanes).await;
}

/// Events as they are shown, from `after` on, to the end.
pub(crate) async fn events(run: &Run, after: u64) -> Vec<Value> {
    let mut events = Vec::new();
    let mut next = Some(after);
    while let Some(after) = next {
        let page = run.get(&format!("events?after={after}&limit=1000")).await.ok();
        events.extend(page["events"].as_array().expect("a list").iter().cloned());
        next = page["next"].as_u64();
    }
    events
}

/// The lines of a file as JSON.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parse = |line: &str| serde_json::from_str(line).expect("a line is JSON");
    text.lines().map(parse).collect()
}

/// A log in a file.
pub(crate) struct LogFile {
    dir: TempDir,
}

impl LogFile {
    pub(crate) fn of(events: &[Value]) -> Self {
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        Self::with_text(&(lines.join("\n") + "\n"))
    }

    pub(crate) fn with_text(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = Self { dir };
        std::fs::write(file.path(), text).expect("a file");
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("events.jsonl")
    }

    pub(crate) fn name(&self) -> String {
        self.path().display().to_string()
    }
}

/// What `berth events` prints of a run.
pub(crate) async fn exported(run: &Run) -> String {
    let output = berth(&["events", "--run", run.name(), "--url", run.client().url()]).await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `berth verify` with `--json`: how it ended and what it found.
pub(crate) async fn verify(arguments: &[&str]) -> (Option<i32>, Value) {
    let all: Vec<&str> = ["verify", "--json"].iter().chain(arguments).copied().collect();
    let output = berth(&all).await;
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), found)
}

/// Runs `berth verify` where it has nothing to check: what it says.
pub(crate) async fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let all: Vec<&str> = ["verify"].iter().chain(arguments).copied().collect();
    let output = berth(&all).await;
    assert_eq!(text(&output.stdout), "", "nothing is said to hold");
    (output.status.code(), text(&output.stderr))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a person reads.
pub(crate) async fn page(file: &LogFile) -> (Output, String) {
    let output = berth(&["verify", "--events", &file.name()]).await;
    let page = text(&output.stdout);
    (output, page)
}
