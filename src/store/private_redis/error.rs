//! What can keep a private `redis-server` from starting, in words for the person who typed `berth serve`.

use std::{io, path::PathBuf, process::ExitStatus};

use thiserror::Error;

/// Why a private `redis-server` did not start.
#[derive(Debug, Error)]
pub enum PrivateRedisError {
    /// Another process holds the lock of the data directory.
    #[error("another berth uses the data directory {}: stop it, or choose another --data-dir", .data_dir.display())]
    InUse {
        /// The directory, as an absolute path.
        data_dir: PathBuf,
    },

    /// The program is not installed.
    #[error(
        "`{program}` is not installed: `apt install redis-server` (Debian, Ubuntu) or `brew install redis` (macOS) \
         gets it; or name a running Redis with --redis"
    )]
    ProgramMissing {
        /// What was looked for.
        program: String,
    },

    /// The socket's path does not fit into a socket address (107 bytes on Linux, 103 on macOS).
    #[error("{} is too long a path for a Unix socket: choose a shorter --data-dir", .socket.display())]
    SocketPathTooLong {
        /// The path of the socket.
        socket: PathBuf,
    },

    /// The server ended before it answered.
    #[error("redis-server ended ({status}) before it answered; {} ends with:\n{log_tail}", .log.display())]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The path of its log.
        log: PathBuf,
        /// The last lines of its log.
        log_tail: String,
    },

    /// A server of a killed predecessor does not shut down.
    #[error(
        "a redis-server that an earlier berth left behind in {} does not shut down: end it (its process id is in \
         redis.pid there), then start again",
        .data_dir.display()
    )]
    OrphanStays {
        /// The directory, as an absolute path.
        data_dir: PathBuf,
    },

    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried, as in "cannot create …".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}
