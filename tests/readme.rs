//! What the README and docs/http.md tell a user to run, run as it is written.
//!
//! The Python has the client of this repository, and httpx from the environment that `make test` keeps in
//! target/python, from the machine's own Python, or from an environment made here.

mod support;

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::json;
use support::{Ledger, TestServer, say_not_run};
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

const MARK: &str = "tests/readme.rs -->";

/// The code blocks of a language that follow a line with the mark, joined, for a server at `address`.
fn marked_blocks(document: &str, language: &str, address: &str) -> String {
    let text = std::fs::read_to_string(format!("{}/{document}", env!("CARGO_MANIFEST_DIR"))).expect(document);
    let fence = format!("```{language}");
    let mut code = String::new();
    let mut is_marked = false;
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_inside = !is_inside && is_marked && line == fence;
            is_marked = false;
        } else if is_inside {
            code.push_str(line);
            code.push('\n');
        } else {
            is_marked |= line.contains(MARK);
        }
    }
    assert!(
        !code.is_empty(),
        "{document} has no {language} block after a line with `{MARK}`"
    );
    code.replace("127.0.0.1:8080", address)
}

fn address(server: &TestServer) -> String {
    server.url().trim_start_matches("http://").to_owned()
}

async fn bash(code: &str) -> Output {
    let failing = "curl() { command curl --fail-with-body --silent --show-error \"$@\" && echo; }";
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &format!("{failing}\n{code}")])
        .stdin(Stdio::null())
        .output()
        .await
        .expect("bash runs")
}

fn assert_success(output: &Output, code: &str) {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{code}\n-- said:\n{out}\n{err}");
}

#[tokio::test]
async fn the_calls_of_the_readme_work_one_after_the_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let address = address(&ledger.server);

    let calls = marked_blocks("README.md", "sh", &address);
    assert_success(&bash(&calls).await, &calls);

    let run = ledger.client().get("/v1/runs/quickstart").await.ok();
    assert_eq!(&run["reserved"], 1, "{run:#}");
}

/// What the README's lines leave to the reader: an engine that follows the published weights, and a loss.
const STAND_INS: &str = r#"
import threading, types

class Engine:
    version = 0
    def generate(self, data):
        return types.SimpleNamespace(reward=1.0, n=data["n"])
    def follow(self):
        import berth
        run = berth.connect("http://127.0.0.1:8080").run("grpo-7b")
        while True:
            self.version = run.weights(after=self.version, wait_ms=10_000).version

engine, step = Engine(), 0
threading.Thread(target=engine.follow, daemon=True).start()
def update(batch): print(f"trained {len(batch)}")
def save(step): return f"file:///weights/{step}"
"#;

#[tokio::test]
async fn the_lines_of_python_train_a_fed_run_to_its_end() {
    let Some(python) = python().await else { return };
    // As `make serve` starts it.
    let data = TempDir::new().expect("a temporary directory");
    let server = TestServer::start_with(&["--data-dir", &data.path().to_string_lossy()]).await;
    let client = server.client();
    let config = json!({ "batch_size": 16, "max_staleness": 1, "prompt_queue": true });
    client.put("/v1/runs/grpo-7b", config).await.status(201);
    let prompts: Vec<_> = (0..40)
        .map(|n| json!({ "id": format!("q-{n}"), "data": { "n": n } }))
        .collect();
    let page = json!({ "offset": 0, "prompts": prompts });
    client.post("/v1/runs/grpo-7b/prompts", page).await.ok();
    client
        .post("/v1/runs/grpo-7b/drain", json!({ "drain": true }))
        .await
        .ok();

    let address = address(&server);
    let lines = marked_blocks("README.md", "python", &address);
    let (connecting, processes) = lines.split_once("# rollout process\n").expect("a rollout process");
    let (rollout, trainer) = processes.split_once("# trainer process\n").expect("a trainer process");
    let stand_ins = STAND_INS.replace("127.0.0.1:8080", &address);
    let process = |part: &str| {
        let code = format!("{stand_ins}{connecting}{part}");
        let mut command = Command::new(&python);
        command
            .args(["-c", &code])
            .env("PYTHONPATH", CLIENT)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        async move { (command.output().await.expect("Python runs"), code) }
    };
    let both = async { tokio::join!(process(rollout), process(trainer)) };
    let ((rollout_output, rollout_code), (trainer_output, trainer_code)) =
        timeout(LIMIT, both).await.expect("both processes end");

    assert_success(&rollout_output, &rollout_code);
    assert_success(&trainer_output, &trainer_code);
    assert_eq!(
        String::from_utf8_lossy(&trainer_output.stdout),
        "trained 16\ntrained 16\ntrained 8\n"
    );
    let run = client.get("/v1/runs/grpo-7b").await.ok();
    assert_eq!(
        (&run["finished"], &run["prompts"]["trained"]),
        (&true.into(), &40.into()),
        "{run:#}"
    );
}

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/src");

/// Far above what two short processes take, and below the runner's own limit.
const LIMIT: Duration = Duration::from_secs(120);

/// A Python that can import the client. `None`, said aloud, where there is no Python, or no httpx to be had.
async fn python() -> Option<String> {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/target/python/bin/python");
    for python in [kept, "python3"] {
        if succeeds(
            Command::new(python)
                .env("PYTHONPATH", CLIENT)
                .args(["-c", "import berth"]),
        )
        .await
        {
            return Some(python.to_owned());
        }
    }
    let environment = concat!(env!("CARGO_TARGET_TMPDIR"), "/readme-python");
    let python = format!("{environment}/bin/python");
    let made = succeeds(Command::new("python3").args(["-m", "venv", "--clear", environment])).await
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "-q", "httpx"])).await;
    if !made {
        say_not_run("python3 is missing, or httpx cannot be installed");
    }
    made.then_some(python)
}

/// Whether a command can be run and succeeds; what it says is not shown.
async fn succeeds(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).output().await;
    output.is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn the_walkthrough_works_from_its_first_call_to_its_last() {
    let Some(ledger) = Ledger::start().await else { return };

    let calls = marked_blocks("docs/http.md", "sh", &address(&ledger.server));
    assert_success(&bash(&calls).await, &calls);

    ledger
        .client()
        .get("/v1/runs/walkthrough")
        .await
        .problem(404, "unknown_run");
}
