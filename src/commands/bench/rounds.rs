//! The order of measuring: every phase in every round, each round beginning with another one.

use std::time::Duration;

use super::figures::Samples;
use super::ledger_load::LedgerLoad;
use super::page::{CaseReport, Report, Yardsticks};
use super::redis_side::{RedisSide, SlowScripts};
use super::yardstick::Yardstick;
use super::{BenchArgs, BenchError};
use crate::client::{Client, ClientError};

/// How long each phase is loaded before anything is measured: connections open, scripts are loaded, caches fill.
const WARM_UP: Duration = Duration::from_millis(300);

/// How many clients there are while script times are taken.
const FEW: usize = 4;
/// For how long script times are taken in each case.
const SCRIPT_TIMES_SLICE: Duration = Duration::from_millis(500);

/// Everything that is measured.
#[derive(Debug)]
pub(super) struct Cases {
    nothing: Samples,
    one_redis_call: Samples,
    loads: Vec<LedgerLoad>,
}

impl Cases {
    /// Creates a run for each batch size with each bound.
    pub(super) async fn create(client: &Client, batch_sizes: &[u32], bounds: &[u64]) -> Result<Self, ClientError> {
        let mut loads = Vec::new();
        for &max_staleness in bounds {
            for &batch_size in batch_sizes {
                loads.push(LedgerLoad::create(client, batch_size, max_staleness).await?);
            }
        }
        Ok(Self {
            nothing: Samples::default(),
            one_redis_call: Samples::default(),
            loads,
        })
    }

    /// Removes the runs.
    pub(super) async fn delete(&self) -> Result<(), ClientError> {
        for load in &self.loads {
            load.delete().await?;
        }
        Ok(())
    }

    /// What was measured.
    pub(super) fn report(&self, args: &BenchArgs, url: &str, slow_scripts: Option<SlowScripts>) -> Report {
        let yardsticks = Yardsticks {
            nothing: self.nothing.figures(),
            one_redis_call: self.one_redis_call.figures(),
        };
        let ping = yardsticks.one_redis_call.per_second;
        Report {
            url: url.to_owned(),
            clients: args.clients,
            rounds: args.rounds,
            seconds_per_phase: args.duration,
            yardsticks,
            cases: CaseReport::of_all(&self.loads, ping),
            slow_scripts,
        }
    }

    /// Runs phase number `phase` for `slice`.
    async fn run_phase(&mut self, phase: usize, clients: &[Client], slice: Duration) -> Result<(), BenchError> {
        match phase {
            0 => Yardstick::Nothing.slice(clients, slice, &mut self.nothing).await,
            1 => {
                Yardstick::OneRedisCall
                    .slice(clients, slice, &mut self.one_redis_call)
                    .await
            }
            number => self.loads[number - 2].slice(clients, slice).await,
        }
    }

    fn forget(&mut self) {
        self.nothing.clear();
        self.one_redis_call.clear();
        for load in &mut self.loads {
            load.measured.clear();
        }
    }
}

/// Loads the server in `rounds` rounds, in each of which every phase lasts for `slice`. Returns which scripts were slow
/// meanwhile, and notes how long each takes, if Redis can be asked.
pub(super) async fn measure(
    clients: &[Client],
    cases: &mut Cases,
    slice: Duration,
    rounds: u32,
    mut redis_side: Option<&mut RedisSide>,
) -> Result<Option<SlowScripts>, BenchError> {
    let phases = 2 + cases.loads.len();
    for phase in 0..phases {
        cases.run_phase(phase, clients, WARM_UP).await?;
    }
    cases.forget();
    if let Some(redis_side) = &mut redis_side {
        redis_side.note_slow().await?;
    }
    for round in 0..rounds {
        for turn in 0..phases {
            cases
                .run_phase((round as usize + turn) % phases, clients, slice)
                .await?;
        }
    }
    let Some(redis_side) = redis_side else { return Ok(None) };
    let slow_scripts = redis_side.slow_scripts().await?;
    // So few that the bound blocks none of them, whatever the batch size: a blocked reserve is cheaper than a granted one.
    let few = &clients[..clients.len().min(FEW)];
    for load in &mut cases.loads {
        redis_side.note_all().await?;
        load.slice_unmeasured(few, SCRIPT_TIMES_SLICE).await?;
        load.script_times = redis_side.noted().await?;
    }
    Ok(Some(slow_scripts))
}
