//! `berth demo` and `berth bench`, as their users start them.

mod support;

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{eventually, lives, signal};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Far above what anything here takes on a slow, busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// A small job of groups in fast time: a mean response takes about 170 ms.
const SMALL: [&str; 8] = [
    "demo",
    "--batch-size",
    "4",
    "--batches",
    "7",
    "--workers",
    "2",
    "--speed=1000",
];
/// A job that does not end within a test.
const ENDLESS: [&str; 5] = ["demo", "--batches", "1000000", "--speed", "2000"];

/// A berth process whose temporary files all go into one directory.
struct Started {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    temporary: TempDir,
}

impl Started {
    fn new(arguments: &[&str]) -> Self {
        let temporary = TempDir::new().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
            command.env_remove(name);
        }
        let mut process = command
            .args(arguments)
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("berth starts");
        let stdout = process.stdout.take().expect("a pipe");
        Self {
            process,
            lines: BufReader::new(stdout).lines(),
            temporary,
        }
    }

    /// Reads on until a line contains `text`, and returns that.
    async fn line_with(&mut self, text: &str) -> String {
        let read_on = async {
            while let Some(line) = self.lines.next_line().await.expect("lines of text") {
                if line.contains(text) {
                    return line;
                }
            }
            panic!("it ended without a line that contains `{text}`");
        };
        timeout(LIMIT, read_on)
            .await
            .unwrap_or_else(|_| panic!("no line that contains `{text}` within {LIMIT:?}"))
    }

    /// Everything that it still says on standard output and on standard error, and how it ends.
    async fn end(&mut self) -> (String, String, ExitStatus) {
        timeout(LIMIT, self.read_to_end())
            .await
            .unwrap_or_else(|_| panic!("it did not end within {LIMIT:?}"))
    }

    async fn read_to_end(&mut self) -> (String, String, ExitStatus) {
        let mut said = String::new();
        while let Some(line) = self.lines.next_line().await.expect("lines of text") {
            said.extend([&line, "\n"]);
        }
        let mut complaint = String::new();
        let stderr = self.process.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut complaint).await.expect("text");
        (said, complaint, self.process.wait().await.expect("an end"))
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        entries(self.temporary.path())
    }

    /// The process id of the private Redis.
    fn redis(&self) -> u32 {
        let pid_file = self.leftovers()[0].join("data/redis.pid");
        let pid = std::fs::read_to_string(pid_file).expect("a pid file");
        pid.trim().parse().expect("a number")
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The number after `pid ` in a line.
fn pid_in(line: &str) -> u32 {
    let digits: String = line
        .split("pid ")
        .nth(1)
        .expect("a pid")
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

/// What every job of [`SMALL`] says, whatever its entries are and however they are taken.
const SURVIVES: [&str; 13] = [
    " response of a",
    " hangs; its heartbeat goes on",
    ": discarded as timed_out",
    "rollout-1  killed (SIGKILL, pid ",
    "trainer    killed (SIGKILL, pid ",
    "comes back with its checkpoint of version 0: it trains batches 0 to 2 again, as they were; rollout goes on with version 3",
    "trains batch 0 again: the same 4 entries",
    "trains batch 2 again: the same 4 entries",
    "is back at version 3, having trained 3 batches again",
    "saves a checkpoint of version 4",
    "  event log          0 violations in ",
    "  delivered again    0 differences in 4 batches (1 redelivered, 3 replayed), compared entry by entry\n",
    "  trainer's record   0 contradictions to the event log in 7 batches\n",
];

/// Each of the texts is said; where they name workers, of whichever.
fn assert_says(said: &str, expected: &[&str]) {
    for text in expected {
        let swapped = text
            .replace("rollout-1", "rollout-x")
            .replace("rollout-2", "rollout-1")
            .replace("rollout-x", "rollout-2");
        assert!(
            said.contains(text) || said.contains(&swapped),
            "no `{text}` in:\n{said}"
        );
    }
}

#[tokio::test]
async fn the_demo_survives_what_it_does_to_itself_and_counts_no_violation() {
    let mut demo = Started::new(&SMALL);

    let (said, complaint, status) = demo.end().await;

    assert!(status.success(), "{complaint}{said}");
    assert_says(&said, &SURVIVES);
    assert_says(
        &said,
        &[
            "7 batches of 4 groups of 4 responses",
            "rollout-1  one response of a group hangs; its heartbeat goes on",
            " kept, to be adopted",
            "rollout-2  adopts a group of rollout-1: ",
            "rollout-2  has finished the group: 4 members, ",
            "gets batch 3 again: the same 4 entries",
            "   replayed\n",
            "   redelivered\n",
            " saved\n",
        ],
    );
    assert!(!said.contains("  adopted            0 groups"), "{said}");
    assert_eq!(demo.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_demo_of_single_responses_survives_it_too() {
    let mut demo = Started::new(&[&SMALL[..], &["--group-size", "1"]].concat());

    let (said, complaint, status) = demo.end().await;

    assert!(status.success(), "{complaint}{said}");
    assert_says(&said, &SURVIVES);
    assert_says(
        &said,
        &[
            "7 batches of 4, ",
            "discarded as lease_expired",
            "gets batch 3 again: the same 4 entries",
        ],
    );
    assert!(!said.contains("adopt"), "{said}");
    assert_eq!(demo.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_demo_that_streams_plays_its_job_both_ways_and_compares_them() {
    let mut demo = Started::new(&[&SMALL[..], &["--stream"]].concat());

    let (said, complaint, status) = demo.end().await;

    assert!(status.success(), "{complaint}{said}");
    let (whole, streamed) = said
        .split_once("\nAgain with the same seed, streamed\n")
        .expect("two jobs");
    assert_says(whole, &SURVIVES);
    assert_says(streamed, &SURVIVES);
    assert!(!whole.contains("came in "), "{said}");
    assert_says(
        streamed,
        &[
            "; came in ",
            "  streaming            whole batches        streamed\n",
            "  trainer waited      ",
            ", with the same seed and the same kinds of incidents.\n",
        ],
    );
    assert_eq!(demo.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_worked_example_is_played_row_by_row() {
    let mut demo = Started::new(&["demo", "--scenario", "example"]);

    let (said, complaint, status) = demo.end().await;

    assert!(status.success(), "{complaint}{said}");
    for expected in [
        "  buffer 0  buffer 1  buffer 2\n",
        "  . . f e   d c b a   closed    ✓ A–F reserve at version 0\n",
        "  taken     F G b h   J k l i   ✓ J finishes: h and b may not go to buffer 2\n",
        "  taken     taken     taken     ✓ version 2 published: buffer 2 is taken at once\n",
        "  13 of 13 steps as in the example\n",
        "  event log: 0 violations in ",
    ] {
        assert!(said.contains(expected), "no `{expected}` in:\n{said}");
    }
    assert_eq!(demo.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_interrupted_demo_takes_all_its_processes_with_it() {
    let mut demo = Started::new(&ENDLESS);
    let server = pid_in(&demo.line_with("listens on").await);
    let worker = pid_in(&demo.line_with("rollout-1").await);
    demo.line_with("batch 0").await;
    let redis = demo.redis();

    signal(demo.process.id().expect("it runs"), "INT");
    let (_, complaint, status) = demo.end().await;

    assert_eq!(
        complaint,
        "berth demo: stopped; every process that it started has ended\n"
    );
    assert_eq!(status.code(), Some(1));
    assert_eq!([server, worker, redis].map(lives), [false; 3]);
    assert_eq!(demo.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_processes_of_a_killed_demo_end_by_themselves() {
    let mut demo = Started::new(&ENDLESS);
    let server = pid_in(&demo.line_with("listens on").await);
    let worker = pid_in(&demo.line_with("rollout-1").await);
    let trainer = pid_in(&demo.line_with("trainer").await);
    demo.line_with("batch 0").await;
    let redis = demo.redis();

    demo.process.kill().await.expect("it is killed");

    let all_ended = async || [server, worker, trainer, redis].map(lives) == [false; 4];
    eventually("every process has ended", all_ended).await;
}

#[tokio::test]
async fn a_file_of_lengths_that_is_none_is_wrong_use() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("my.lengths");
    std::fs::write(&file, "# ours\n900\nmany\n").expect("a file");
    let file = file.to_str().expect("a name");

    let (said, complaint, status) = Started::new(&["demo", "--lengths", file]).end().await;

    let expected = format!("berth demo: {file}: line 3: `many` is not a whole number of tokens above 0\n");
    assert_eq!((said.as_str(), complaint), ("", expected));
    assert_eq!(status.code(), Some(2));
}

#[tokio::test]
async fn the_bench_measures_every_case_beside_its_yardsticks() {
    let arguments = [
        "bench",
        "--json",
        "--clients=4",
        "--duration=1",
        "--rounds=2",
        "--batch-sizes=8,64",
        "--staleness=1",
    ];
    let mut bench = Started::new(&arguments);

    let (said, complaint, status) = bench.end().await;

    assert!(status.success(), "{complaint}");
    let report: Value = serde_json::from_str(&said).expect("a JSON document");
    for yardstick in ["nothing", "one_redis_call"] {
        assert!(report["yardsticks"][yardstick]["calls"].as_u64() > Some(0), "{report}");
    }
    let cases = report["cases"].as_array().expect("cases");
    let sizes: Vec<_> = cases.iter().map(|case| case["batch_size"].as_u64()).collect();
    assert_eq!(sizes, [Some(8), Some(64)]);
    for case in cases {
        assert!(
            case["reserve"]["calls"].as_u64() > Some(0) && case["occupy"]["calls"].as_u64() > Some(0),
            "{report}"
        );
    }
    assert_eq!(bench.leftovers(), Vec::<PathBuf>::new());
}
