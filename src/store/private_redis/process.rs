//! One `redis-server` process: its flags, its start, its end.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    process::Stdio,
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use tokio::{
    process::{Child, Command},
    time::{Instant, timeout},
};
use tracing::{info, warn};

use super::{
    PrivateRedisError,
    data_dir::{DataDir, io_error},
};

/// How long one connection attempt and one answer may take.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// How often to look whether a starting server answers.
const START_TICK: Duration = Duration::from_millis(10);
/// How often to say that a server is still starting.
const START_NOTICE: Duration = Duration::from_secs(5);
/// How long a server may take to shut down before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How much of the log an error quotes, in bytes.
const LOG_TAIL: u64 = 2_000;

/// How to run the server of one data directory.
#[derive(Debug)]
pub(super) struct RedisServer {
    program: OsString,
    data_dir: DataDir,
}

impl RedisServer {
    pub(super) fn new(program: &OsStr, data_dir: DataDir) -> Self {
        Self {
            program: program.to_owned(),
            data_dir,
        }
    }

    /// Starts the program and waits until it answers or has ended.
    pub(super) async fn launch(&self) -> Result<Child, PrivateRedisError> {
        let mut child = self.command()?.spawn().map_err(|error| self.spawn_error(error))?;
        tokio::select! {
            end = child.wait() => {
                let status = end.map_err(io_error("wait for the server in", self.data_dir.path()))?;
                let log = self.data_dir.log();
                let log_tail = tail(&log);
                Err(PrivateRedisError::Ended { status, log, log_tail })
            }
            () = self.answers() => Ok(child),
        }
    }

    /// Asks the server to shut down, and kills it when it has not ended in time.
    pub(super) async fn shut_down(&self, mut child: Child) {
        request_shutdown(&self.data_dir.url()).await;
        if timeout(STOP_LIMIT, child.wait()).await.is_ok() {
            info!("the private redis-server has stopped");
            return;
        }
        warn!("the private redis-server did not shut down within {STOP_LIMIT:?}; it is killed");
        if let Err(error) = child.kill().await {
            warn!(%error, "cannot kill the private redis-server");
        }
    }

    fn command(&self) -> Result<Command, PrivateRedisError> {
        let log_path = self.data_dir.log();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(io_error("open", &log_path))?;
        let log_twin = log.try_clone().map_err(io_error("share", &log_path))?;
        let mut command = Command::new(&self.program);
        command
            .args(["--port", "0", "--daemonize", "no"])
            .arg("--unixsocket")
            .arg(self.data_dir.socket())
            .args(["--unixsocketperm", "700"])
            .arg("--dir")
            .arg(self.data_dir.path())
            .arg("--pidfile")
            .arg(self.data_dir.pid_file())
            .arg("--logfile")
            .arg(&log_path)
            // An acknowledged write is on the disk, and nothing is ever evicted.
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
            // A run writes far more than it keeps. Rewritten at the default of 64 MB, the file would be rewritten every few
            // seconds under load, each time by a child that copies the server's pages.
            .args(["--auto-aof-rewrite-min-size", "512mb"])
            .stdin(Stdio::from(self.data_dir.lock_for_server()?))
            // Complaints about flags come before the log file is open.
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_twin))
            // Ctrl-C on a terminal reaches the whole foreground group: in a group of its own, the server outlives
            // the last requests, and `shut_down` ends it.
            .process_group(0)
            // What drops a child unstopped is a start that failed or was given up, or a runtime that is torn down
            // (by a panic, say). No such end may leave a server behind, and a kill loses nothing.
            .kill_on_drop(true);
        Ok(command)
    }

    fn spawn_error(&self, error: io::Error) -> PrivateRedisError {
        if error.kind() == io::ErrorKind::NotFound {
            return PrivateRedisError::ProgramMissing {
                program: self.program.to_string_lossy().into_owned(),
            };
        }
        io_error("run", Path::new(&self.program))(error)
    }

    /// Returns when the server answers PING, which it does once it has loaded its data.
    async fn answers(&self) {
        let url = self.data_dir.url();
        let mut notice = Instant::now() + START_NOTICE;
        while let Err(error) = ping(&url).await {
            if Instant::now() >= notice {
                info!(%error, "waiting for the private redis-server");
                notice += START_NOTICE;
            }
            tokio::time::sleep(START_TICK).await;
        }
    }
}

/// Asks whatever answers at `url` to shut down; whether anything does.
pub(super) async fn request_shutdown(url: &str) -> bool {
    let mut connection = match connect(url).await {
        Ok(connection) => connection,
        Err(error) => return !error.is_connection_refusal(),
    };
    // Its answer is that it hangs up, so an error here says nothing.
    let _: Result<(), RedisError> = redis::cmd("SHUTDOWN").query_async(&mut connection).await;
    true
}

async fn ping(url: &str) -> Result<(), RedisError> {
    redis::cmd("PING").query_async(&mut connect(url).await?).await
}

async fn connect(url: &str) -> Result<MultiplexedConnection, RedisError> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CALL_LIMIT))
        .set_response_timeout(Some(CALL_LIMIT));
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&limits)
        .await
}

/// The last whole lines of a log; empty when it cannot be read.
fn tail(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let whole_lines = if length > LOG_TAIL {
            text.split_once('\n').map_or("", |(_, rest)| rest)
        } else {
            &text
        };
        Ok(whole_lines.trim().to_owned())
    };
    read().unwrap_or_default()
}
