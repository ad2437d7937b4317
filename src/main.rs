//! The command line.

use std::io::IsTerminal;
use std::process::ExitCode;

use berth::commands::{bench, demo, events, explain, serve, status, verify};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A Redis-backed ledger that bounds the staleness of asynchronous RL post-training, whatever dies.
#[derive(Debug, Parser)]
#[command(name = "berth", version, about, propagate_version = true)]
struct Cli {
    /// What to log: a level, or `tracing` directives
    #[arg(
        long,
        env = "BERTH_LOG",
        global = true,
        default_value = "info",
        value_name = "FILTER"
    )]
    log: EnvFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the ledger over HTTP, on a given Redis or on a private one
    Serve(serve::ServeArgs),
    /// Watch a whole asynchronous training job on this machine
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorkerArgs),
    #[command(hide = true)]
    DemoTrainer(demo::DemoTrainerArgs),
    /// Check every invariant of the protocol on the event log of a run
    Verify(verify::VerifyArgs),
    /// Print the event log of a run as JSON lines
    Events(events::EventsArgs),
    /// Say why the trainer of a run waits
    Explain(explain::ExplainArgs),
    /// Show a run in numbers
    Status(status::StatusArgs),
    /// Load a server, and print throughput and latency
    Bench(bench::BenchArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_read_by_a_person = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(cli.log)
        .with_ansi(is_read_by_a_person)
        .with_writer(std::io::stderr)
        .init();
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::DemoWorker(args) => demo::run_worker(args).await,
        Command::DemoTrainer(args) => demo::run_trainer(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Bench(args) => bench::run(args).await,
    }
}
