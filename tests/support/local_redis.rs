//! A `redis-server` process of the test's own, which the test may kill, pause and restart.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{process::signal, wait::wait_for};

/// How long a command of a test may take. The library's own half a second is short on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Of a Redis that is to load its data slowly.
const KEYS_TO_LOAD: usize = 10_000;

/// A `redis-server` on a Unix socket in a directory of its own (so that no two tests meet on a port), configured as
/// we ask users to: append-only file synced on every write, no eviction. Both end with the value.
pub(crate) struct LocalRedis {
    process: Child,
    dir: TempDir,
    /// What differs from those settings, as words of a command line.
    settings: Vec<String>,
}

impl LocalRedis {
    /// Starts one, empty, and waits until it answers.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with further settings (`["--appendfsync", "everysec"]`), which it keeps over restarts.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        Self::start_as(Command::new("redis-server"), settings).await
    }

    /// Starts one that can write files of at most `kib` KiB, as on a full disk. A restart has as much room as it likes.
    pub(crate) async fn start_with_room_for(kib: usize) -> Self {
        let mut shell = Command::new("sh");
        // The signal that a process is sent beside the error would end it.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec redis-server \"$@\"", kib * 2);
        shell.args(["-c", &script, "redis-server"]);
        Self::start_as(shell, &[]).await
    }

    async fn start_as(command: Command, settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the test's Redis");
        let settings: Vec<String> = settings.iter().copied().map(str::to_owned).collect();
        let process = spawn(command, &dir, &settings);
        let mut redis = Self { process, dir, settings };
        redis.answers().await;
        redis
    }

    /// Where it listens, also after a restart.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}/redis.sock", self.dir.path().display())
    }

    /// A new connection.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        connect(&self.url()).await.expect("the test's Redis takes a connection")
    }

    /// SIGKILL. Until [`restart`](Self::restart), connections are refused.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("the test's Redis can be killed");
    }

    /// Starts it again on the same data and the same address.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.process = spawn(Command::new("redis-server"), &self.dir, &self.settings);
        self.answers().await;
    }

    /// Starts it again on the same data, so slowly that it still loads them when this returns: it says so to everybody.
    pub(crate) async fn restart_slowly(&mut self) {
        let mut connection = self.connection().await;
        let mut fill = redis::pipe();
        // It looks for calls after so many bytes of the file.
        fill.cmd("CONFIG").arg(&["SET", "rdbcompression", "no"]).ignore();
        for number in 0..KEYS_TO_LOAD {
            fill.set(format!("filler:{number}"), "x".repeat(1_024)).ignore();
        }
        let _: () = fill.query_async(&mut connection).await.expect("keys to load");
        let _: redis::Value = redis::cmd("BGREWRITEAOF")
            .query_async(&mut connection)
            .await
            .expect("a rewrite");
        wait_for("the data are in one file", async || {
            let info: String = redis::cmd("INFO")
                .arg("persistence")
                .query_async(&mut connection)
                .await
                .expect("its state");
            let is_done = info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0");
            is_done.then_some(())
        })
        .await;
        self.kill().await;
        let mut slow = Command::new("redis-server");
        // For each key so many microseconds.
        slow.args([
            "--key-load-delay",
            "300000",
            "--loading-process-events-interval-bytes",
            "1024",
        ]);
        self.process = spawn(slow, &self.dir, &self.settings);
        let url = self.url();
        wait_for("the test's Redis loads its data", async || {
            let error = ping(&url).await.err()?;
            (error.code() == Some("LOADING")).then_some(())
        })
        .await;
    }

    /// Lets it load the rest of its data at once, and returns when it has.
    pub(crate) async fn finish_loading(&mut self) {
        let mut connection = self.connection().await;
        let mut hurry = redis::cmd("CONFIG");
        hurry.arg(&["SET", "key-load-delay", "0"]);
        let _: () = hurry.query_async(&mut connection).await.expect("a command");
        self.answers().await;
    }

    /// A copy of all that it has acknowledged so far.
    pub(crate) fn copy(&self) -> DataCopy {
        let dir = tempfile::tempdir().expect("a directory for the copy");
        copy_files(&self.append_only_dir(), dir.path());
        DataCopy { dir }
    }

    /// Ends it and starts it again on what it had when the copy was made: everything after that is lost.
    pub(crate) async fn restore(&mut self, copy: &DataCopy) {
        self.kill().await;
        let files = self.append_only_dir();
        fs::remove_dir_all(&files).expect("the data can be removed");
        fs::create_dir(&files).expect("a directory for the data");
        copy_files(copy.dir.path(), &files);
        self.process = spawn(Command::new("redis-server"), &self.dir, &self.settings);
        self.answers().await;
    }

    fn append_only_dir(&self) -> PathBuf {
        self.dir.path().join("appendonlydir")
    }

    /// SIGSTOP: connections are accepted and never answered until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        signal(self.pid(), "STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("the test's Redis runs")
    }

    async fn answers(&mut self) {
        let url = self.url();
        wait_for("the test's Redis answers", async || {
            if let Some(status) = self.process.try_wait().expect("the state of a child") {
                let log = fs::read_to_string(self.dir.path().join("redis.log")).unwrap_or_default();
                panic!("the test's Redis ended with {status}:\n{log}");
            }
            ping(&url).await.ok()
        })
        .await;
    }
}

/// What a Redis had at some time.
pub(crate) struct DataCopy {
    dir: TempDir,
}

fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("the data of the test's Redis") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a file that can be copied");
    }
}

fn spawn(mut command: Command, dir: &TempDir, settings: &[String]) -> Child {
    command
        .args(["--port", "0", "--unixsocket"])
        .arg(dir.path().join("redis.sock"))
        .arg("--dir")
        .arg(dir.path())
        .arg("--logfile")
        .arg(dir.path().join("redis.log"))
        .args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ])
        .args(settings)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server is installed (apt install redis-server, brew install redis)")
}

async fn ping(url: &str) -> Result<(), RedisError> {
    redis::cmd("PING").query_async(&mut connect(url).await?).await
}

pub(super) async fn connect(url: &str) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT));
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}
