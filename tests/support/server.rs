//! The real `berth` binary as a process.

use std::{
    env,
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{http::Client, process::signal};

/// How long a server may take to start or to stop.
const LIMIT: Duration = Duration::from_secs(20);

/// A `berth serve` on a free port. Dropping it kills it.
pub(crate) struct TestServer {
    process: Child,
    url: String,
    log: Lines,
}

/// What a process has said so far.
type Lines = Arc<Mutex<Vec<String>>>;

impl TestServer {
    /// Starts a server on the Redis at `redis_url` and waits until it listens.
    pub(crate) async fn start(redis_url: &str) -> Self {
        Self::start_with(&["--redis", redis_url]).await
    }

    /// Starts `berth serve` with these flags besides `--listen`.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0"].iter().chain(flags);
        let mut process = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the berth binary runs");
        let log = Lines::default();
        show(process.stderr.take().expect("a pipe"), &log);
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let listening = timeout(LIMIT, async {
            while let Some(line) = lines.next_line().await.expect("the server's output is text") {
                if let Some(url) = line.strip_prefix("berth listens on ") {
                    return url.to_owned();
                }
            }
            panic!("berth ended with {:?} before it listened", process.wait().await)
        });
        let url = listening
            .await
            .unwrap_or_else(|_| panic!("berth did not listen within {LIMIT:?}"));
        show(lines.into_inner(), &Lines::default());
        Self { process, url, log }
    }

    /// The lines of its log so far that contain `words`.
    pub(crate) fn logged(&self, words: &str) -> Vec<String> {
        let lines = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(words)).cloned().collect()
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A client of this server, with connections of its own.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// SIGTERM; how it ended.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        signal(self.pid(), "TERM");
        timeout(LIMIT, self.process.wait())
            .await
            .unwrap_or_else(|_| panic!("berth did not stop within {LIMIT:?} of SIGTERM"))
            .expect("the state of a child")
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("the server can be killed");
    }

    /// SIGSTOP: it holds its connections and does nothing until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        signal(self.pid(), "STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("the server runs")
    }
}

/// Runs a `berth` command to its end.
pub(crate) async fn berth(arguments: &[&str]) -> Output {
    timeout(LIMIT, command(arguments).output())
        .await
        .unwrap_or_else(|_| panic!("berth {arguments:?} did not end within {LIMIT:?}"))
        .expect("the berth binary runs")
}

/// The binary, deaf to the settings of whoever runs the tests.
fn command<'a>(arguments: impl IntoIterator<Item = &'a &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("BERTH_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Passes a server's output on to the test's, so that it is shown when the test fails, and keeps it; so the pipe stays empty.
fn show(output: impl AsyncRead + Send + Unpin + 'static, log: &Lines) {
    let log = Arc::clone(log);
    let mut lines = BufReader::new(output).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            eprintln!("berth: {line}");
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}
