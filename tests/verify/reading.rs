//! Where logs come from, and what happens when one does not come whole.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::logs::{LogFile, events, exported, fill, refused, small_job, text, verify};
use crate::support::{Ledger, berth};

#[tokio::test]
async fn a_good_log_verifies_from_its_server_and_as_it_was_exported() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = small_job(&ledger.client()).await;
    fill(&run, 1_200).await;

    let export = exported(&run).await;
    let shown: Vec<Value> = export
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(shown, events(&run, 0).await, "as GET events shows them");

    let file = LogFile::with_text(&export);
    let (status, of_file) = verify(&["--events", &file.name()]).await;
    assert_eq!((status, &of_file["ok"]), (Some(0), &json!(true)), "{of_file:#}");
    assert_eq!(of_file["runs"][0]["events"], shown.len());
    let (status, of_server) = verify(&["--run", run.name(), "--url", ledger.server.url()]).await;
    assert_eq!(status, Some(0));
    assert_eq!(of_server, of_file);
}

#[tokio::test]
async fn a_log_comes_through_a_pipe_and_in_parts_that_overlap() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = small_job(&ledger.client()).await;
    let log = events(&run, 0).await;

    let mut piped = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["verify", "--events", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("berth runs");
    let mut input = piped.stdin.take().expect("a pipe");
    input
        .write_all(exported(&run).await.as_bytes())
        .await
        .expect("a reader");
    drop(input);
    let output = piped.wait_with_output().await.expect("an end");
    assert!(output.status.success(), "{output:?}");

    let (first, second) = (LogFile::of(&log[..9]), LogFile::of(&log[5..]));
    let (status, found) = verify(&["--events", &first.name(), &second.name()]).await;
    assert_eq!((status, &found["runs"][0]["events"]), (Some(0), &json!(log.len())));
}

#[tokio::test]
async fn what_cannot_be_checked_is_an_error_and_never_said_to_hold() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = small_job(&ledger.client()).await;
    let log = events(&run, 0).await;
    let url = ledger.server.url();

    let headless = LogFile::of(&log[1..]);
    let (status, said) = refused(&["--events", &headless.name()]).await;
    assert_eq!(status, Some(1));
    assert!(
        said.contains("begins with event 2 and not with the creation of the run"),
        "{said}"
    );

    let torn = LogFile::with_text(exported(&run).await.trim_end_matches("}\n"));
    let (status, said) = refused(&["--events", &torn.name()]).await;
    assert_eq!(status, Some(1));
    assert!(said.contains(&format!("line {} is not an event", log.len())), "{said}");

    let (status, said) = refused(&["--events", &LogFile::with_text("").name()]).await;
    assert_eq!((status, said.contains("no event")), (Some(1), true), "{said}");
    let (status, said) = refused(&["--events", "/nowhere"]).await;
    assert_eq!(
        (status, said.contains("/nowhere: No such file")),
        (Some(1), true),
        "{said}"
    );
    let (status, said) = refused(&["--run", "nobody", "--url", url]).await;
    assert_eq!((status, said.contains("404 unknown_run")), (Some(1), true), "{said}");
    let (status, said) = refused(&["--run", run.name(), "--url", url, "--archive", "/nowhere"]).await;
    assert_eq!(
        (status, said.contains("/nowhere: No such file")),
        (Some(1), true),
        "{said}"
    );
}

#[tokio::test]
async fn wrong_use_is_told_from_a_bad_log() {
    for arguments in [
        &[][..],
        &["--run", "r", "--events", "f"],
        &["--run", "not/a/name"],
        &["--run", "r", "--url", "not-a-url"],
        &["--run", "r", "--most", "many"],
    ] {
        assert_eq!(refused(arguments).await.0, Some(2), "{arguments:?}");
    }
    for arguments in [&["events"][..], &["events", "--run", "r", "--url", "ftp://x"]] {
        assert_eq!(berth(arguments).await.status.code(), Some(2), "{arguments:?}");
    }
    let output = berth(&["events", "--run", "r", "--after", "-1"]).await;
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn the_events_of_a_run_that_is_created_again_begin_with_its_creation() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = small_job(&ledger.client()).await;
    let before = events(&run, 0).await;
    run.delete().await.status(204);
    run.put("", json!({ "batch_size": 1, "max_staleness": 0 }))
        .await
        .status(201);
    run.names_lineage(1).await;
    run.reserve(0, "z").await.ok();

    let after = events(&run, 0).await;
    assert_eq!(after[0]["type"], "run_created");
    assert_eq!(after[0]["seq"], before.len() + 2);
    let (status, _) = verify(&["--run", run.name(), "--url", ledger.server.url()]).await;
    assert_eq!(status, Some(0));

    // A log that holds both tells of two runs.
    let (old, new) = (LogFile::of(&before), LogFile::of(&after));
    let (status, found) = verify(&["--events", &old.name(), &new.name()]).await;
    assert_eq!(status, Some(0), "{found:#}");
    let lengths: Vec<_> = found["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| &run["events"])
        .collect();
    assert_eq!(lengths, [&json!(before.len()), &json!(after.len())]);
}

#[tokio::test]
async fn events_follows_a_run_as_it_goes_on_and_ends_when_it_is_deleted() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let mut follower = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["events", "--follow", "--run", run.name(), "--url", ledger.server.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("berth runs");
    let mut told = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    let mut next = async || {
        let line = told.next_line().await.expect("text")?;
        let event: Value = serde_json::from_str(&line).expect("JSON");
        Some(event["type"].as_str().expect("a type").to_owned())
    };

    assert_eq!(next().await.as_deref(), Some("run_created"));
    run.reserve(0, "a").await.ok();
    assert_eq!(next().await.as_deref(), Some("session_opened"));
    assert_eq!(next().await.as_deref(), Some("reserve"));
    run.occupy("a").await.ok();
    assert_eq!(next().await.as_deref(), Some("occupy"));
    run.delete().await.status(204);
    assert_eq!(next().await, None);
    let output = follower.wait_with_output().await.expect("an end");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("404 unknown_run"), "{output:?}");
}
