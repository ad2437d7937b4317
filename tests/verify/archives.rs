//! What leaves the database is archived first, whole.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::logs::{events, fill, lines, refused, verify};
use crate::retention::{new_run, server, trimmed_to};
use crate::support::{Database, Run, TestServer, eventually};

/// A directory that servers archive in.
struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn name(&self) -> &str {
        self.path().to_str().expect("a name that is text")
    }

    async fn server(&self, database: &Database) -> TestServer {
        server(database, &["--archive-dir", self.name()]).await
    }

    fn of_run(&self, run: &Run) -> PathBuf {
        self.path().join(run.name())
    }

    /// The files of a run, in order.
    fn files(&self, run: &Run) -> Vec<String> {
        let entries = fs::read_dir(self.of_run(run)).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// All events in it, in order.
    fn events(&self, run: &Run) -> Vec<Value> {
        let files = self.files(run);
        files
            .iter()
            .flat_map(|name| lines(&self.of_run(run).join(name)))
            .collect()
    }
}

/// A server that archives has said so in the run.
async fn is_noted(database: &Database, run: &Run) {
    let mut connection = database.connection().await;
    eventually("the run is noted to be archived", async || {
        redis::cmd("HEXISTS")
            .arg(format!("berth:{{{}}}:run", run.name()))
            .arg("archiving")
            .query_async::<bool>(&mut connection)
            .await
            .expect("an answer")
    })
    .await;
}

#[tokio::test]
async fn events_are_archived_as_they_were_shown_and_the_whole_log_verifies() {
    let Some(database) = Database::start().await else {
        return;
    };
    let archive = Archive::new();
    let server = archive.server(&database).await;
    let run = crate::logs::small_job(&server.client()).await;
    fill(&run, 1_950).await;
    let mut shown = events(&run, 0).await;
    let last = shown.len() as u64;
    fill(&run, 1_250).await;
    trimmed_to(&run, 2_001).await;
    shown.extend(
        events(&run, 2_000)
            .await
            .into_iter()
            .filter(|event| event["seq"].as_u64() > Some(last)),
    );

    assert_eq!(
        archive.files(&run),
        ["0000000000000001.jsonl", "0000000000001001.jsonl"]
    );
    let archived = archive.events(&run);
    assert_eq!(archived.len(), 2_000);
    assert_eq!(archived[..1_900], shown[..1_900]);
    let problem = run.get("events").await.problem(410, "events_pruned");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("--archive-dir"), "{detail}");

    let of_run = ["--run", run.name(), "--url", server.url()];
    let with_archive = [&of_run[..], &["--archive", archive.name()]].concat();
    let (status, found) = verify(&with_archive).await;
    assert_eq!(status, Some(0), "{found:#}");
    let seq = run.get("").await.ok()["seq"].clone();
    assert_eq!(found["runs"][0]["events"], seq);
    assert_eq!(found["runs"][0]["batches"], 3);

    // The chunks alone are the beginning of a log.
    let directory = archive.of_run(&run).display().to_string();
    let (status, found) = verify(&["--events", &directory]).await;
    assert_eq!((status, &found["runs"][0]["events"]), (Some(0), &2_000.into()));

    // Without one of them there is a gap, and without all of them nothing to begin with.
    fs::remove_file(archive.of_run(&run).join("0000000000001001.jsonl")).expect("a chunk");
    let (status, found) = verify(&with_archive).await;
    assert_eq!(status, Some(1));
    assert_eq!(found["runs"][0]["invariants"]["sequence"], 1, "{found:#}");
    assert_eq!(found["runs"][0]["violations"][0]["seq"], 2_001);
    fs::remove_file(archive.of_run(&run).join("0000000000000001.jsonl")).expect("a chunk");
    let (status, said) = refused(&with_archive).await;
    assert_eq!(
        (status, said.contains("begins with event 2001")),
        (Some(1), true),
        "{said}"
    );
}

#[tokio::test]
async fn servers_that_share_a_directory_write_the_same_chunks() {
    let Some(database) = Database::start().await else {
        return;
    };
    let archive = Archive::new();
    let servers = [archive.server(&database).await, archive.server(&database).await];
    let run = new_run(&servers[0].client()).await;

    fill(&run, 3_100).await;
    trimmed_to(&run, 2_001).await;

    let numbers: Vec<_> = archive.events(&run).iter().map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=2_000).map(Some).collect::<Vec<_>>());
    assert_eq!(
        archive.files(&run).len(),
        2,
        "and nothing unfinished: {:?}",
        archive.files(&run)
    );
}

#[tokio::test]
async fn servers_with_directories_of_their_own_have_all_of_it_between_them() {
    let Some(database) = Database::start().await else {
        return;
    };
    let archives = [Archive::new(), Archive::new()];
    let servers = [archives[0].server(&database).await, archives[1].server(&database).await];
    let run = new_run(&servers[0].client()).await;

    fill(&run, 3_100).await;
    trimmed_to(&run, 2_001).await;

    let arguments = [
        "--run",
        run.name(),
        "--url",
        servers[1].url(),
        "--archive",
        archives[0].name(),
        archives[1].name(),
    ];
    let (status, found) = verify(&arguments).await;
    assert_eq!(
        (status, &found["runs"][0]["events"]),
        (Some(0), &3_101.into()),
        "{found:#}"
    );
}

#[tokio::test]
async fn a_server_without_a_directory_does_not_trim_what_others_archive() {
    let Some(database) = Database::start().await else {
        return;
    };
    let archive = Archive::new();
    let mut archiving = archive.server(&database).await;
    let archived = new_run(&archiving.client()).await;
    is_noted(&database, &archived).await;
    archiving.stop().await;
    let plain = server(&database, &[]).await;
    let archived = archived.through(&plain.client());
    let other = new_run(&plain.client()).await;

    fill(&archived, 2_100).await;
    fill(&other, 2_100).await;
    trimmed_to(&other, 1_001).await;
    assert_eq!(events(&archived, 0).await.len(), 2_101);

    let _archiving = archive.server(&database).await;
    trimmed_to(&archived, 1_001).await;
    assert_eq!(archive.events(&archived).len(), 1_000);
}

#[tokio::test]
async fn what_cannot_be_archived_stays_until_it_can() {
    let Some(database) = Database::start().await else {
        return;
    };
    let archive = Archive::new();
    let server = archive.server(&database).await;
    let (blocked, free) = (new_run(&server.client()).await, new_run(&server.client()).await);
    // Nothing can be written where a file is in the way, as on a disk that is full.
    fs::write(archive.of_run(&blocked), "in the way").expect("a file");

    fill(&blocked, 2_100).await;
    fill(&free, 2_100).await;
    trimmed_to(&free, 1_001).await;
    assert_eq!(events(&blocked, 0).await.len(), 2_101);

    fs::remove_file(archive.of_run(&blocked)).expect("a file");
    trimmed_to(&blocked, 1_001).await;
    assert_eq!(archive.events(&blocked).len(), 1_000);
}
