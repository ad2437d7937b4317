//! `berth demo`: a whole asynchronous training job on this machine, with everything that goes wrong in one.
//!
//! [`example`] is another show: the worked example of the protocol. [`story`] starts the processes and tells what happens; [`worker`] and [`trainer`] are those processes, which know nothing
//! but the server's address; [`audit`] and [`compare`] say at the end whether the protocol held.

mod audit;
mod cast;
mod checkpoint;
mod compare;
mod delivery;
mod draw;
mod example;
mod groups;
mod ink;
mod lengths;
mod pace;
mod plan;
mod record;
mod screen;
mod story;
mod streaming;
mod summary;
mod text;
mod trainer;
mod worker;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::client::Client;
use crate::commands::processes::{Notice, interrupted};
use cast::Cast;
use ink::Line;
use plan::{Plan, RUN, Scenario};
use screen::Screen;
use story::DemoError;
use summary::Summary;

pub use plan::DemoArgs;
pub use trainer::{DemoTrainerArgs, run_trainer};
pub use worker::{DemoWorkerArgs, run_worker};

/// Plays the whole job, or the worked example. Fails if a process does, or if an invariant was violated; an unusable file of lengths is wrong use.
pub async fn run(args: DemoArgs) -> ExitCode {
    let outcome = match args.scenario {
        Scenario::Job => stage(args).await,
        Scenario::Example => example::stage().await,
    };
    match outcome {
        Ok(Verdict::Clean) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("berth demo: {error}");
            ExitCode::from(if matches!(error, DemoError::Lengths(_)) { 2 } else { 1 })
        }
    }
}

/// What the demo found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Clean,
    Violated,
}

/// Plays the job; to be streamed, twice, and the two are compared.
async fn stage(args: DemoArgs) -> Result<Verdict, DemoError> {
    let plan = Plan::new(args)?;
    let mut screen = Screen::stdout();
    screen.add_all(plan.describe().map(Line::new));
    if !plan.stream {
        return Ok(play(&plan, &mut screen).await?.verdict);
    }
    screen.add_all(streaming::heading("First with whole batches"));
    let whole = play(&plan.with_whole_batches(), &mut screen).await?;
    screen.add_all(streaming::heading("Again with the same seed, streamed"));
    let streamed = play(&plan, &mut screen).await?;
    screen.add_all(streaming::comparison(&whole, &streamed));
    let is_clean = [&whole, &streamed].iter().all(|each| each.verdict == Verdict::Clean);
    Ok(if is_clean { Verdict::Clean } else { Verdict::Violated })
}

/// Plays the job once, and clears the stage however it ends.
async fn play(plan: &Plan, screen: &mut Screen) -> Result<Outcome, DemoError> {
    let (sender, mut notices) = mpsc::unbounded_channel();
    let mut cast = Cast::with_server(sender)?;
    let outcome = tokio::select! {
        outcome = perform(plan, &mut cast, &mut notices, screen) => outcome,
        _ = interrupted() => Err(DemoError::Interrupted),
    };
    screen.clear();
    cast.stop().await;
    outcome
}

async fn perform(
    plan: &Plan,
    cast: &mut Cast,
    notices: &mut mpsc::UnboundedReceiver<Notice>,
    screen: &mut Screen,
) -> Result<Outcome, DemoError> {
    cast.server_ready().await?;
    let started_at = Instant::now();
    let record = story::play(plan, cast, notices, screen).await?;
    let took = started_at.elapsed();
    cast.stop_players().await;

    let audit = audit::audit(&Client::new(cast.server().url())?.run(RUN)).await?;
    let contradictions = record.contradictions(&audit);
    let summary = Summary {
        max_staleness: plan.max_staleness,
        group_size: plan.group_size,
        pace: plan.pace,
        took,
        record: &record,
        audit: &audit,
        contradictions: &contradictions,
    };
    screen.add_all(summary.lines());
    Ok(Outcome {
        verdict: if summary.is_clean() {
            Verdict::Clean
        } else {
            Verdict::Violated
        },
        took,
        waited: record.waited(),
    })
}

/// What a job amounted to.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    verdict: Verdict,
    /// From the start of the processes to the last published version.
    took: Duration,
    /// How long the trainer waited for batches and pieces of them.
    waited: Duration,
}
