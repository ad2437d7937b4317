//! The `redis-server` that `berth serve` keeps for itself when it is given no `--redis`: started in the data
//! directory, on a Unix socket that only this user can reach, restarted when it dies, stopped last.
//!
//! Only the process and its directory are the business of this module. Whoever reads or writes data connects to
//! [`PrivateRedis::url`] as to any other Redis.

mod data_dir;
mod error;
mod process;

use std::{ffi::OsStr, path::Path, time::Duration};

use tokio::{process::Child, sync::oneshot, task::JoinHandle, time::Instant};
use tracing::{error, info, warn};

use self::{data_dir::DataDir, process::RedisServer};

pub use self::error::PrivateRedisError;

/// The pause before the first restart of a server that had been steady; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two restarts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server that lived this long was steady: its end starts the pauses afresh.
const STEADY: Duration = Duration::from_secs(30);

/// A running private `redis-server`, with the task that restarts it.
///
/// [`stop`](Self::stop) ends it in order. A value that is merely dropped ends it too, but nobody waits for that.
#[derive(Debug)]
pub struct PrivateRedis {
    url: String,
    /// Never sent on: that it is gone is the message.
    stop: oneshot::Sender<()>,
    supervisor: JoinHandle<()>,
}

impl PrivateRedis {
    /// Starts `redis-server` in `data_dir` (created if it is missing) and waits until it has loaded its data and
    /// answers, however long that takes. A server that a killed predecessor left behind is shut down first.
    ///
    /// # Errors
    /// When another process uses the directory, when the program is missing or ends at once, when the directory
    /// cannot be used, or when its path is too long for a Unix socket.
    pub async fn start(data_dir: &Path) -> Result<Self, PrivateRedisError> {
        Self::start_program("redis-server", data_dir).await
    }

    /// [`start`](Self::start) with another program that takes the flags of `redis-server`: a path, or a name to be
    /// found in `PATH`.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_program(program: impl AsRef<OsStr>, data_dir: &Path) -> Result<Self, PrivateRedisError> {
        let data_dir = DataDir::claim(data_dir).await?;
        let url = data_dir.url();
        let server = RedisServer::new(program.as_ref(), data_dir);
        let child = server.launch().await?;
        info!(url, "the private redis-server answers");
        let (stop, stopped) = oneshot::channel();
        let supervisor = tokio::spawn(supervise(server, child, stopped));
        Ok(Self { url, stop, supervisor })
    }

    /// Where to connect: `redis+unix:///absolute/path/redis.sock`, with bytes that mean something in a URL
    /// percent-encoded. It stays the same over restarts.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Ends the supervision and the server: asks it to shut down, waits, and kills it if it does not. Either way no
    /// acknowledged write is lost, since each was synced to the append-only file before it was acknowledged.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.supervisor.await {
            error!(%error, "the supervisor of the private redis-server failed");
        }
    }
}

/// Restarts the server whenever it ends, until `stopped` resolves; then shuts it down.
async fn supervise(server: RedisServer, mut child: Child, mut stopped: oneshot::Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        tokio::select! {
            _ = &mut stopped => return server.shut_down(child).await,
            end = child.wait() => match end {
                Ok(status) => warn!(%status, "the private redis-server died"),
                Err(error) => error!(%error, "cannot tell whether the private redis-server lives; it is replaced"),
            },
        }
        if since.elapsed() >= STEADY {
            pause = FIRST_PAUSE;
        }
        child = tokio::select! {
            // Dropping the restart kills a server that is still loading: it has accepted no write.
            _ = &mut stopped => return,
            child = restart(&server, &mut pause) => child,
        };
    }
}

/// Tries until a server answers, with a growing pause before each attempt.
async fn restart(server: &RedisServer, pause: &mut Duration) -> Child {
    loop {
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        match server.launch().await {
            Ok(child) => {
                info!("the private redis-server answers again");
                return child;
            }
            Err(error) => error!(%error, "cannot restart the private redis-server; trying again"),
        }
    }
}
