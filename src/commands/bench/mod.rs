//! `berth bench`: how fast the ledger is, beside what a server that does next to nothing reaches on the same machine.
//!
//! All phases run through the same client connections, alternately and in short rounds, so that whatever else the machine
//! does hits all of them alike.

mod figures;
mod ledger_load;
mod page;
mod redis_side;
mod rounds;
mod yardstick;

use std::process::ExitCode;
use std::time::Duration;

use clap::value_parser;

use crate::client::{Client, ClientError, Retry};
use crate::commands::processes::{LocalServer, LocalServerError, ScratchDir, interrupted};
use page::Report;
use redis_side::RedisSide;
use rounds::Cases;

/// Load a server with clients that reserve and occupy, and print throughput and latency.
///
/// Beside them stand two yardsticks, taken in the same run through the same connections: a handler that does nothing, and
/// one that makes one trivial Redis call. Without --url the server is its own, with a private Redis.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// The server to load [default: one of its own, in a temporary directory].
    #[arg(long, env = "BERTH_BENCH_URL")]
    url: Option<String>,
    /// How many clients call at once, each on a connection that is kept alive.
    #[arg(
        long,
        env = "BERTH_BENCH_CLIENTS",
        default_value_t = 32,
        value_parser = value_parser!(u64).range(1..=10_000)
    )]
    clients: u64,
    /// Batch sizes to compare.
    #[arg(
        long,
        env = "BERTH_BENCH_BATCH_SIZES",
        value_delimiter = ',', default_value = "256",
        value_parser = value_parser!(u32).range(1..=65_536)
    )]
    batch_sizes: Vec<u32>,
    /// Bounds on staleness to compare, each with each batch size.
    #[arg(
        long,
        env = "BERTH_BENCH_STALENESS",
        value_delimiter = ',', default_value = "4",
        value_parser = value_parser!(u64).range(..=64)
    )]
    staleness: Vec<u64>,
    /// For how many seconds each phase is measured, in all its rounds together.
    #[arg(
        long,
        env = "BERTH_BENCH_DURATION",
        default_value_t = 5,
        value_parser = value_parser!(u64).range(1..=3_600)
    )]
    duration: u64,
    /// In how many rounds the phases take turns.
    #[arg(long, env = "BERTH_BENCH_ROUNDS", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Print one JSON document instead of a table.
    #[arg(long, env = "BERTH_BENCH_JSON")]
    json: bool,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Server(#[from] LocalServerError),
    #[error("the server could not be started: {0}")]
    Spawn(#[from] std::io::Error),
    #[error(transparent)]
    Call(#[from] ClientError),
    #[error("the private Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("a task of the benchmark failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("the report can't be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("stopped")]
    Interrupted,
}

/// Measures and prints.
pub async fn run(args: BenchArgs) -> ExitCode {
    match measure(&args).await.and_then(|report| report.print(args.json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &BenchArgs) -> Result<Report, BenchError> {
    if let Some(url) = &args.url {
        return load(args, url, None).await;
    }
    let directory = ScratchDir::new("berth-bench")?;
    let mut server = LocalServer::start(directory.path())?;
    let outcome = tokio::select! {
        outcome = load_own(args, &mut server) => outcome,
        _ = interrupted() => Err(BenchError::Interrupted),
    };
    server.stop().await;
    outcome
}

async fn load_own(args: &BenchArgs, server: &mut LocalServer) -> Result<Report, BenchError> {
    server.ready().await?;
    let redis_side = RedisSide::connect(&server.redis_url()).await?;
    let url = server.url().to_owned();
    tokio::select! {
        outcome = load(args, &url, Some(redis_side)) => outcome,
        error = server.failed() => Err(error.into()),
    }
}

async fn load(args: &BenchArgs, url: &str, mut redis_side: Option<RedisSide>) -> Result<Report, BenchError> {
    let patient = Client::new(url)?;
    // A client of its own for each: clones would share their connections.
    let clients = (0..args.clients).map(|_| Ok(Client::new(url)?.with_retry(Retry::never())));
    let clients = clients.collect::<Result<Vec<_>, ClientError>>()?;
    let mut cases = Cases::create(&patient, &args.batch_sizes, &args.staleness).await?;
    let slice = Duration::from_secs(args.duration) / args.rounds;
    let measured = rounds::measure(&clients, &mut cases, slice, args.rounds, redis_side.as_mut()).await;
    cases.delete().await?;
    Ok(cases.report(args, url, measured?))
}
