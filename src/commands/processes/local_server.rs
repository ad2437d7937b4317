//! `berth serve` as a child, with its own Redis, for as long as a command runs.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Happened, Notice, Process, tail};

/// What the server prints, followed by its address, when it can be called.
const READY_LINE: &str = "berth listens on ";
/// How long a server may take to start, its Redis included.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to stop: it answers its waiting calls and closes its Redis first.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How much of its log an error shows.
const LOG_LINES: usize = 15;

/// A server on a free port of the loopback interface, with a private Redis in its data directory.
#[derive(Debug)]
pub(in crate::commands) struct LocalServer {
    process: Process,
    url: String,
    data_dir: PathBuf,
    notices: mpsc::UnboundedReceiver<Notice>,
    /// How it ended, once it has.
    end: Option<String>,
}

/// Why a server of one's own is not there.
#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum LocalServerError {
    /// It ended before it was ready, or without being asked to.
    #[error("the server ended ({status}){log}")]
    Ended {
        /// Its exit status in words.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// It said nothing for too long.
    #[error("the server was not ready within {} s{log}", START_TIMEOUT.as_secs())]
    NotReady {
        /// The last lines of its log.
        log: String,
    },
}

impl LocalServer {
    /// Starts a server that keeps its data and its log in `directory`. It can't be called before it is [`ready`](Self::ready).
    pub(in crate::commands) fn start(directory: &Path) -> io::Result<Self> {
        let data_dir = directory.join("data");
        let log = directory.join("server.log");
        let (sender, notices) = mpsc::unbounded_channel();
        let arguments: [&OsStr; 6] = [
            "serve".as_ref(),
            "--until-stdin-closes".as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--data-dir".as_ref(),
            data_dir.as_os_str(),
        ];
        let process = Process::start("server", arguments, &log, sender)?;
        Ok(Self {
            process,
            url: String::new(),
            data_dir,
            notices,
            end: None,
        })
    }

    /// Waits until the server can be called.
    pub(in crate::commands) async fn ready(&mut self) -> Result<(), LocalServerError> {
        match tokio::time::timeout(START_TIMEOUT, self.announced_url()).await {
            Ok(Some(url)) => {
                self.url = url;
                Ok(())
            }
            Ok(None) => Err(self.failed().await),
            Err(_) => Err(LocalServerError::NotReady { log: self.log_end() }),
        }
    }

    /// Its address, `http://127.0.0.1:PORT`; empty until it is ready.
    pub(in crate::commands) fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    pub(in crate::commands) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The address of its private Redis, for a client of that.
    pub(in crate::commands) fn redis_url(&self) -> String {
        format!("redis+unix://{}", self.data_dir.join("redis.sock").display())
    }

    /// Returns only when the server has ended without being asked to.
    pub(in crate::commands) async fn failed(&mut self) -> LocalServerError {
        while self.end.is_none() {
            match self.notices.recv().await {
                Some(Notice {
                    what: Happened::Ended(status),
                    ..
                }) => self.end = Some(status.to_string()),
                Some(_) => {}
                None => self.end = Some("unknown status".to_owned()),
            }
        }
        LocalServerError::Ended {
            status: self.end.clone().unwrap_or_default(),
            log: self.log_end(),
        }
    }

    /// Stops the server and its Redis.
    pub(in crate::commands) async fn stop(self) {
        let redis_url = self.redis_url();
        self.process.terminate(STOP_TIMEOUT).await;
        // A server that was killed has left its Redis behind; otherwise nobody answers.
        if let Ok(client) = redis::Client::open(redis_url)
            && let Ok(mut redis) = client.get_multiplexed_async_connection().await
        {
            let _: Result<(), _> = redis::cmd("SHUTDOWN").arg("NOSAVE").query_async(&mut redis).await;
        }
    }

    /// The address that the server announces, or `None` when it ends instead.
    async fn announced_url(&mut self) -> Option<String> {
        while let Some(notice) = self.notices.recv().await {
            match notice.what {
                Happened::Line(line) => {
                    if let Some(url) = line.strip_prefix(READY_LINE) {
                        return Some(url.trim().to_owned());
                    }
                }
                Happened::Ended(status) => {
                    self.end = Some(status.to_string());
                    return None;
                }
            }
        }
        None
    }

    fn log_end(&self) -> String {
        tail(self.process.log(), LOG_LINES)
    }
}
