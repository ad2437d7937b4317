//! `berth serve`: the server, on a given Redis or on one of its own.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::commands::processes::parent_died;
use crate::http::{self, Hosts};
use crate::ledger::Ledger;
use crate::ledger::archive::{Archive, ArchiveError};
use crate::ledger::retention::Retention;
use crate::store::durability::Demands;
use crate::store::private_redis::{PrivateRedis, PrivateRedisError};
use crate::store::{Address, AddressError, Store, StoreError};
use crate::waiting::Waiting;

/// How long calls may take to end once the server was told to stop.
const FAREWELL: Duration = Duration::from_secs(10);

/// What `berth serve` is told.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The address to listen on. Another than loopback needs --insecure, as long as there are no tokens
    #[arg(long, env = "BERTH_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// The Redis that holds the runs, as `redis://host:port` or `redis+unix:///path/to.sock`. Without it, a private
    /// redis-server is started in --data-dir
    #[arg(long, env = "BERTH_REDIS_URL", value_name = "URL")]
    pub redis: Option<String>,
    /// Where the private redis-server keeps its files
    #[arg(
        long,
        env = "BERTH_DATA_DIR",
        default_value = "./berth-data",
        conflicts_with = "redis"
    )]
    pub data_dir: PathBuf,
    /// A further name that this server may be called by (`Host`); may be given more than once
    #[arg(long = "host", env = "BERTH_HOST", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Listen on an address that others can reach although anybody there could call
    #[arg(long, env = "BERTH_INSECURE")]
    pub insecure: bool,
    /// How many calls may wait on this server at once
    #[arg(long, env = "BERTH_MAX_WAITING", default_value_t = 10_000, value_name = "CALLS")]
    pub max_waiting: usize,
    /// What the database must be worth
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// How many events of each run stay in the database
    #[arg(
        long,
        env = "BERTH_EVENT_RETENTION",
        default_value_t = 100_000,
        value_name = "EVENTS",
        value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000)
    )]
    pub event_retention: u64,
    /// Where older events are written, as JSON lines, before they are removed from the database; without it they are gone
    #[arg(long, env = "BERTH_ARCHIVE_DIR", value_name = "DIR")]
    pub archive_dir: Option<PathBuf>,
    /// End when standard input closes, as it does when the program that started this one dies, however that happens
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// What the database must be worth.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// Use a Redis that throws keys away when its memory is full, although they may be leases and records of runs
    #[arg(long, env = "BERTH_ALLOW_EVICTION")]
    pub allow_eviction: bool,
    /// Use only a Redis that is known to lose nothing it acknowledged: append-only file, synced on every write
    #[arg(long, env = "BERTH_REQUIRE_DURABLE")]
    pub require_durable: bool,
    /// Answer a call that writes only once so many replicas of the Redis have what it wrote
    #[arg(long, env = "BERTH_WAIT_REPLICAS", default_value_t = 0, value_name = "REPLICAS")]
    pub wait_replicas: u32,
}

impl From<DatabaseArgs> for Demands {
    fn from(args: DatabaseArgs) -> Self {
        Self {
            allow_eviction: args.allow_eviction,
            require_durable: args.require_durable,
            wait_replicas: args.wait_replicas,
        }
    }
}

/// Why the server did not start, or ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It would have been open to others without tokens.
    #[error("{0} can be reached by others, and there are no tokens: listen on 127.0.0.1, or say --insecure")]
    Open(SocketAddr),
    /// The address of the Redis is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The private Redis did not start.
    #[error(transparent)]
    PrivateRedis(#[from] PrivateRedisError),
    /// The connections could not be set up.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive cannot be used.
    #[error("--archive-dir: {0}")]
    Archive(#[from] ArchiveError),
    /// The address could not be listened on, or the server failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl ServeError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(args: ServeArgs) -> ExitCode {
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth serve: {error}");
            ExitCode::from(if matches!(error, ServeError::Open(_) | ServeError::Address(_)) {
                2
            } else {
                1
            })
        }
    }
}

async fn serve(args: ServeArgs) -> Result<(), ServeError> {
    if !args.listen.ip().is_loopback() && !args.insecure {
        return Err(ServeError::Open(args.listen));
    }
    let retention = Retention {
        keep: args.event_retention,
        archive: args.archive_dir.map(Archive::open).transpose()?,
    };
    // Both are caught from the beginning, so that a signal during the start still stops the private Redis.
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::io("SIGTERM cannot be caught"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::io("SIGINT cannot be caught"))?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(ServeError::io(format!("{} cannot be listened on", args.listen)))?;
    let listen = listener
        .local_addr()
        .map_err(ServeError::io("the listening address is unknown"))?;

    let private = match args.redis {
        Some(_) => None,
        None => Some(PrivateRedis::start(&args.data_dir).await?),
    };
    let url = args
        .redis
        .or_else(|| private.as_ref().map(PrivateRedis::url))
        .unwrap_or_default();
    let stopped = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = parent_died(), if args.until_stdin_closes => {}
        }
    };
    let served = serve_on(
        &url,
        args.database.into(),
        listener,
        Hosts::new(listen, args.hosts),
        args.max_waiting,
        retention,
        stopped,
    )
    .await;
    // Last, when nobody can write any more.
    if let Some(private) = private {
        private.stop().await;
    }
    served
}

async fn serve_on(
    url: &str,
    demands: Demands,
    listener: TcpListener,
    hosts: Hosts,
    most_waiting: usize,
    retention: Retention,
    stopped: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address: Address = url.parse()?;
    let store = Store::with_demands(&address, demands)?;
    // A database that is away may come; one that is refused stays so until somebody mends it, and he is looking here now.
    if let Err(error @ StoreError::Unfit(_)) = store.first_attempt().await {
        return Err(error.into());
    }
    let ledger = Ledger::new(store);
    if let Err(error) = ledger.ping().await {
        tracing::warn!(%error, %address, "the database does not answer yet");
    }
    let (stop, stopping) = watch::channel(false);
    let sweeper = tokio::spawn(ledger.clone().keep_sweeping(stopping.clone()));
    let trimmer = tokio::spawn(ledger.clone().keep_trimming(retention, stopping.clone()));
    let router = http::router(
        ledger.clone(),
        Waiting::new(ledger, stopping.clone()),
        hosts,
        most_waiting,
    );
    let listen = listener
        .local_addr()
        .map_err(ServeError::io("the listening address is unknown"))?;
    let mut ending = stopping.clone();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        // An error says that the sender is gone, and with it the server.
        let _ = ending.wait_for(|stop| *stop).await;
    });
    let mut server = tokio::spawn(server.into_future());
    announce(listen, &address);

    tokio::select! {
        () = stopped => tracing::info!("told to stop: waiting calls are answered now"),
        ended = &mut server => return server_ended(ended),
    }
    let _ = stop.send(true);
    let ended = tokio::time::timeout(FAREWELL, &mut server).await;
    let _ = sweeper.await;
    let _ = trimmer.await;
    ended.map_or_else(
        |_| {
            tracing::warn!("some calls did not end in time and are cut off");
            Ok(())
        },
        server_ended,
    )
}

fn server_ended(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), ServeError> {
    let ended = ended.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    ended.map_err(ServeError::io("the server failed"))
}

/// Programs that start a server wait for this line and read the port from it.
fn announce(listen: SocketAddr, address: &Address) {
    tracing::info!(%listen, database = %address, "serving");
    let mut stdout = std::io::stdout().lock();
    // Nobody may be listening to what we say; that is no reason not to serve.
    let _ = writeln!(stdout, "berth listens on http://{listen}").and_then(|()| stdout.flush());
}
