//! Runs: created, looked at, changed, deleted, listed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::call::NoArgs;
use super::state::{BufferCounts, State, Totals, Trainer};
use super::training::VersionRecord;
use super::{Ledger, LedgerError, Refusal, RunName, Seen, error::refused};
use crate::protocol::{BufferId, Lineage, PromptCounts, RunConfig, Version};
use crate::store::keys::{RUNS, RunKeys};
use crate::store::script;

/// A run as it stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunStatus {
    /// The run's name.
    #[schema(value_type = String)]
    pub run: RunName,
    /// Its configuration, as it is in force.
    pub config: RunConfig,
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights: raised by each rewind and each forced resume, and by each run of this name that was deleted.
    pub lineage: Lineage,
    /// `H`: the first buffer that is not taken.
    pub next_buffer: BufferId,
    /// `T`: the version that the trainer stands at.
    pub trainer_version: Version,
    /// Whether nothing more is admitted, because the run is to end.
    pub draining: bool,
    /// Whether the run is finished and a process may exit.
    pub finished: bool,
    /// Entries that are generating.
    pub reserved: u64,
    /// Trajectories that are generating: the unfinished candidates of groups.
    pub generating: u64,
    /// Finished entries that are not taken.
    pub occupied: u64,
    /// Workers whose lease has not run out.
    pub workers: u64,
    /// Taken batches that are kept.
    pub kept_batches: u64,
    /// The oldest of them.
    pub oldest_kept: Option<BufferId>,
    /// The run's sequence number: how many steps have changed it.
    pub seq: u64,
    /// The open buffers.
    pub buffers: Vec<BufferCounts>,
    /// The trainer.
    pub trainer: Trainer,
    /// How many prompts are in each state, of a run that hands them out.
    pub prompts: Option<PromptCounts>,
    /// What was done since the run was created.
    pub totals: Totals,
}

#[derive(Deserialize)]
pub(super) struct RunView {
    pub(super) config: RunConfig,
    pub(super) state: State,
    pub(super) finished: bool,
    sessions: u64,
    /// The latest version's record.
    pub(super) latest: Option<VersionRecord>,
    prompts: Option<PromptCounts>,
}

/// Whether a run was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It was created by this call.
    Created,
    /// It existed with this configuration.
    Existed,
}

#[derive(Serialize)]
struct CreateArgs<'a> {
    creating: bool,
    even_behind: bool,
    config: &'a RunConfig,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum CreateOutcome {
    Created,
    Exists { config: RunConfig },
}

/// Changes to a run's configuration; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConfigChanges {
    /// How long a silent session keeps what it holds, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The most trajectories that may be generating at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// The age at which a reservation is discarded, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation_timeout_ms: Option<u64>,
    /// How long the trainer waits for a stuck buffer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_timeout_ms: Option<u64>,
    /// The most reservations in the next buffer with which that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_max_reserved: Option<u64>,
    /// How many taken batches are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_batches: Option<u64>,
}

#[derive(Serialize)]
struct ConfigureArgs<'a> {
    changes: &'a ConfigChanges,
    cleared: &'a [&'static str],
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum ConfigureOutcome {
    Configured,
    TooFew { candidates: u32 },
}

#[derive(Serialize)]
struct DeleteArgs {
    even_behind: bool,
}

#[derive(Deserialize)]
struct Done {}

/// A page of runs.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunPage {
    /// The runs, in the order of their names.
    pub runs: Vec<RunStatus>,
    /// The `after` of the next page; null at the end.
    pub next: Option<String>,
}

impl Ledger {
    /// Creates a run, or confirms that it exists with this configuration (the parts that may change are not compared).
    ///
    /// Refused as [`Refusal::RunExists`] when it was created otherwise. Safe to repeat.
    pub async fn create_run(
        &self,
        run: &RunName,
        config: &RunConfig,
    ) -> Result<(Creation, Seen<RunStatus>), LedgerError> {
        let args = CreateArgs {
            creating: true,
            even_behind: true,
            config,
        };
        let seen = self.call::<CreateOutcome>(&script::CREATE, run, &args).await?;
        let creation = match &seen.value {
            CreateOutcome::Created => Creation::Created,
            CreateOutcome::Exists { config: existing } => {
                let fields = differing_fields(existing, config);
                if !fields.is_empty() {
                    return Err(refused(&seen, Refusal::RunExists { fields }));
                }
                Creation::Existed
            }
        };
        self.enlist(run).await?;
        Ok((creation, self.run(run).await?))
    }

    /// A run as it stands.
    pub async fn run(&self, run: &RunName) -> Result<Seen<RunStatus>, LedgerError> {
        Ok(self.view_run(run).await?.map(|view| status(run, view)))
    }

    pub(super) async fn view_run(&self, run: &RunName) -> Result<Seen<RunView>, LedgerError> {
        self.call(&script::VIEW_RUN, run, &NoArgs {}).await
    }

    /// Changes a run's configuration; the fields named in `cleared` are unset. Safe to repeat.
    ///
    /// Refused as [`Refusal::TooFewForAGroup`] when `max_concurrency` would let no group be admitted.
    pub async fn configure_run(
        &self,
        run: &RunName,
        changes: &ConfigChanges,
        cleared: &[&'static str],
    ) -> Result<Seen<RunStatus>, LedgerError> {
        let seen = self
            .call::<ConfigureOutcome>(&script::CONFIGURE, run, &ConfigureArgs { changes, cleared })
            .await?;
        if let ConfigureOutcome::TooFew { candidates } = seen.value {
            return Err(refused(&seen, Refusal::TooFewForAGroup { candidates }));
        }
        self.run(run).await
    }

    /// Deletes a run. Its name keeps its sequence number and lineage. Safe to repeat.
    pub async fn delete_run(&self, run: &RunName) -> Result<Seen<()>, LedgerError> {
        let seen = self
            .call::<Done>(&script::DELETE, run, &DeleteArgs { even_behind: true })
            .await?;
        let mut strike = redis::cmd("ZREM");
        strike.arg(RUNS).arg(run.as_str());
        self.parts.store.command::<u64>(&strike).await?;
        // Somebody may have created it again, and enlisted it, between the two.
        if self.run(run).await.is_ok() {
            self.enlist(run).await?;
        }
        Ok(seen.map(|_| ()))
    }

    /// A page of runs, in the order of their names, of those after `after`.
    pub async fn runs(&self, after: Option<&str>, limit: usize) -> Result<RunPage, LedgerError> {
        let names = self.run_names(after, limit + 1).await?;
        let next = (names.len() > limit).then(|| names[limit - 1].to_string());
        let mut runs = Vec::with_capacity(limit);
        for run in names.iter().take(limit) {
            match self.run(run).await {
                Ok(seen) => runs.push(seen.value),
                Err(
                    LedgerError::Refused {
                        refusal: Refusal::UnknownRun,
                        ..
                    }
                    | LedgerError::NewerLayout { .. },
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(RunPage { runs, next })
    }

    /// The names of at most `limit` runs, in their order, of those after `after`.
    pub(super) async fn run_names(&self, after: Option<&str>, limit: usize) -> Result<Vec<RunName>, LedgerError> {
        let low = after.map_or_else(|| "-".to_owned(), |name| format!("({name}"));
        let mut range = redis::cmd("ZRANGE");
        range
            .arg(RUNS)
            .arg(low)
            .arg("+")
            .arg("BYLEX")
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        let names: Vec<String> = self.parts.store.command(&range).await?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Puts a run on the list of all runs, by which the sweepers find it.
    async fn enlist(&self, run: &RunName) -> Result<(), LedgerError> {
        let mut add = redis::cmd("ZADD");
        add.arg(RUNS).arg(0).arg(run.as_str());
        self.parts.store.command::<u64>(&add).await?;
        Ok(())
    }

    pub(super) fn keys(run: &RunName) -> RunKeys {
        RunKeys::new(run.as_str())
    }
}

fn differing_fields(existing: &RunConfig, wanted: &RunConfig) -> Vec<&'static str> {
    macro_rules! compared {
        ($($field:ident)*) => { [$((stringify!($field), existing.$field == wanted.$field)),*] };
    }
    let compared = compared![
        batch_size max_staleness slots_per_buffer initial_version
        group_size group_candidates auto_occupy drop_zero_variance adopt_groups
        prompt_queue order order_window max_attempts drop_on final_batch
    ];
    compared
        .into_iter()
        .filter(|(_, same)| !same)
        .map(|(field, _)| field)
        .collect()
}

fn status(run: &RunName, view: RunView) -> RunStatus {
    let RunView {
        config,
        state,
        finished,
        sessions,
        latest: _,
        prompts,
    } = view;
    RunStatus {
        run: run.clone(),
        policy_version: state.policy_version,
        lineage: state.lineage,
        next_buffer: state.next_buffer,
        trainer_version: state.trainer_version,
        draining: state.is_draining(),
        finished,
        reserved: state.reserved(),
        generating: state.generating,
        occupied: state.occupied(),
        workers: sessions,
        kept_batches: state.kept_batches(),
        oldest_kept: state.kept_batches_from(0).next(),
        seq: state.seq,
        buffers: state.buffers(&config),
        trainer: state.trainer(),
        prompts,
        totals: state.totals().clone(),
        config,
    }
}
