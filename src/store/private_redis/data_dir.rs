//! The data directory of a private `redis-server`: the names in it, and the two locks that keep a second process off.

use std::{
    fmt::Write as _,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt, net::SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

use super::{PrivateRedisError, process};

/// How long a server that was left behind may take to shut down. It has nothing to flush, but a large append-only
/// file may still be loading.
const ORPHAN_LIMIT: Duration = Duration::from_secs(15);
/// How often to look whether it is gone.
const ORPHAN_TICK: Duration = Duration::from_millis(20);

/// A data directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// Held by this process alone: whoever has it may start a server here.
    _berth_lock: File,
    /// Held by this process and, through its standard input, by the server it starts: a lock goes with the open file
    /// and not with the process. So it is free exactly when no server of this directory lives, even one that has not
    /// opened its socket yet or no longer listens on it. Two servers on one append-only file would destroy it.
    redis_lock: File,
}

impl DataDir {
    /// Creates the directory if it is missing, locks it, and shuts down a server that a killed predecessor left there.
    pub(super) async fn claim(path: &Path) -> Result<Self, PrivateRedisError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io_error("create", path))?;
        let path = path.canonicalize().map_err(io_error("find", path))?;
        check_socket_path(&path.join("redis.sock"))?;

        let berth_lock = open_lock(&path.join("berth.lock"))?;
        if !try_lock(&berth_lock, &path)? {
            return Err(PrivateRedisError::InUse { data_dir: path });
        }
        let redis_lock = open_lock(&path.join("redis.lock"))?;
        let claimed = Self {
            path,
            _berth_lock: berth_lock,
            redis_lock,
        };
        claimed.end_orphan().await?;
        Ok(claimed)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("redis.sock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("redis.log")
    }

    pub(super) fn pid_file(&self) -> PathBuf {
        self.path.join("redis.pid")
    }

    /// The URL of the socket.
    pub(super) fn url(&self) -> String {
        socket_url(&self.socket())
    }

    /// What a server of this directory gets as its standard input, so that the lock lasts as long as it lives.
    pub(super) fn lock_for_server(&self) -> Result<File, PrivateRedisError> {
        self.redis_lock
            .try_clone()
            .map_err(io_error("share the lock of", &self.path))
    }

    /// Asks whatever answers on the socket to shut down, until nothing does and the server's lock is ours.
    async fn end_orphan(&self) -> Result<(), PrivateRedisError> {
        let deadline = Instant::now() + ORPHAN_LIMIT;
        let mut told = false;
        loop {
            let lock_is_ours = try_lock(&self.redis_lock, &self.path)?;
            let answered = process::request_shutdown(&self.url()).await;
            if lock_is_ours && !answered {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(PrivateRedisError::OrphanStays {
                    data_dir: self.path.clone(),
                });
            }
            if !told {
                warn!(data_dir = %self.path.display(), "shutting down a redis-server that an earlier berth left behind");
                told = true;
            }
            tokio::time::sleep(ORPHAN_TICK).await;
        }
    }
}

/// Asks the standard library, which knows each system's limit.
fn check_socket_path(socket: &Path) -> Result<(), PrivateRedisError> {
    match SocketAddr::from_pathname(socket) {
        Ok(_) => Ok(()),
        Err(_) => Err(PrivateRedisError::SocketPathTooLong {
            socket: socket.to_path_buf(),
        }),
    }
}

fn open_lock(path: &Path) -> Result<File, PrivateRedisError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(io_error("open", path))
}

/// Whether the lock is held now; taking it twice is no mistake.
fn try_lock(lock: &File, data_dir: &Path) -> Result<bool, PrivateRedisError> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(io_error("lock", data_dir)(error)),
    }
}

fn socket_url(socket: &Path) -> String {
    let mut url = String::from("redis+unix://");
    for &byte in socket.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => url.push(char::from(byte)),
            _ => write!(url, "%{byte:02X}").expect("writing to a String cannot fail"),
        }
    }
    url
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrivateRedisError {
    let path = path.to_path_buf();
    move |source| PrivateRedisError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_escapes_what_a_url_would_misread() {
        let socket = Path::new("/srv/a b/100%/q?#é/redis.sock");

        assert_eq!(
            socket_url(socket),
            "redis+unix:///srv/a%20b/100%25/q%3F%23%C3%A9/redis.sock"
        );
    }

    #[test]
    fn a_path_that_fits_a_socket_address_passes() {
        assert!(check_socket_path(Path::new("/srv/berth-data/redis.sock")).is_ok());
    }

    #[test]
    fn a_path_too_long_for_a_socket_address_is_named() {
        let socket = PathBuf::from(format!("/{}/redis.sock", "d".repeat(100)));

        let error = check_socket_path(&socket).expect_err("112 bytes fit nowhere");

        assert_eq!(
            error.to_string(),
            format!(
                "/{}/redis.sock is too long a path for a Unix socket: choose a shorter --data-dir",
                "d".repeat(100)
            )
        );
    }
}
