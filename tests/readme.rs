//! What the README and docs/http.md tell a user to run, run as it is written.

mod support;

use std::process::{Output, Stdio};

use support::{Ledger, TestServer};
use tokio::process::Command;

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
async fn the_calls_and_the_python_of_the_readme_work_one_after_the_other() {
    let Some(ledger) = Ledger::start().await else { return };
    let address = address(&ledger.server);

    let calls = marked_blocks("README.md", "sh", &address);
    assert_success(&bash(&calls).await, &calls);

    let python = marked_blocks("README.md", "python", &address);
    let output = Command::new("python3")
        .args(["-c", &python])
        .stdin(Stdio::null())
        .output()
        .await;
    assert_success(&output.expect("python3 runs"), &python);

    let run = ledger.client().get("/v1/runs/quickstart").await.ok();
    assert_eq!(
        (&run["policy_version"], &run["totals"]["trained"]),
        (&1.into(), &2.into())
    );
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
