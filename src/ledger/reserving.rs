//! Reserve: a legal place before a trajectory starts (protocol, *Reserve* and *Idempotency*).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::coalescing::Coalescer;
use super::names::{Caller, Prompt, RequestId};
use super::prompts::PromptData;
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::tables::BlockedBy;
use crate::protocol::{BufferId, Lineage, Slot, TrajectoryId, Version};
use crate::store::{StoreError, script};

/// The most entries that one script admits.
const STEP: usize = 50;

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct ReserveRequest {
    /// Who asks, and will hold what is granted.
    pub caller: Caller,
    /// How many entries, 1 to 1,024.
    pub count: usize,
    /// The version of the weights that the worker really holds, or what its session last said.
    pub version: Option<Version>,
    /// The lineage of those weights; the current one if left out, but for a session that has seen it rise.
    pub lineage: Option<Lineage>,
    /// Whether groups without an owner go first; the run's `adopt_groups` if left out.
    pub adopt: Option<bool>,
    /// What the entries are generated from; at most `count`, and none if the run has a prompt queue.
    pub prompts: Vec<Prompt>,
    /// The client's id for the request, if it wants a repetition to be answered as the first time.
    pub request_id: Option<RequestId>,
}

/// One admitted entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The entry.
    pub id: TrajectoryId,
    /// What it is generated from, if the client said.
    pub prompt: Option<String>,
    /// The policy version that it was admitted under.
    pub version: Version,
    /// The last buffer that it may be trained in.
    pub deadline: BufferId,
    /// The buffer it was given a slot in.
    pub buffer: BufferId,
    /// The slot.
    pub slot: Slot,
    /// Which attempt at its prompt this is, from 1.
    pub attempt: u32,
    /// What was fed with its prompt, if the ledger hands the prompts out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<PromptData>,
    /// Whether it is a group that had lost its owner, with the members that it had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The members of an adopted group that are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_done: Option<Vec<u32>>,
    /// The members of an adopted group that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_failed: Option<Vec<u32>>,
}

/// The answer to a Reserve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// What was granted, in the order asked for.
    pub granted: Vec<Grant>,
    /// What blocked the rest, if fewer than asked for were granted.
    pub blocked_by: Option<BlockedBy>,
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
    /// `H`: the first buffer that is not taken.
    pub next_buffer: BufferId,
    /// How long the session keeps what it holds if it stays silent, in milliseconds.
    pub lease_expires_in_ms: u64,
    /// Whether the run is finished and a process may exit.
    #[serde(default)]
    pub finished: bool,
    /// How many groups wait for an owner: what blocks one call does not block another that may adopt them.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub orphans: u64,
}

/// The Reserve calls that are on their way.
pub(super) type Reserves = Coalescer<ReserveCall, ReserveOutcome>;

#[derive(Clone, Serialize)]
pub(super) struct ReserveCall {
    #[serde(flatten)]
    caller: Caller,
    version: Option<Version>,
    lineage: Option<Lineage>,
    adopt: Option<bool>,
    ids: Vec<TrajectoryId>,
    prompts: Vec<Prompt>,
    request: Option<RequestArgs>,
}

#[derive(Clone, Serialize)]
struct RequestArgs {
    id: RequestId,
    fingerprint: String,
    step: usize,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum ReserveOutcome {
    Granted(Reservation),
    Repeated { answers: Vec<Reservation> },
    Closed,
    PromptsGiven,
    VersionUnknown,
    VersionNotPublished { policy_version: Version },
    VersionTooStale { policy_version: Version },
    RequestIdReused,
}

/// What one step of a Reserve came to.
enum Step {
    Granted(Reservation),
    /// The request was answered before: this is all that it granted.
    Repeated(Vec<Reservation>),
    /// Somebody repeated this very request and was answered with what the steps so far had granted.
    Closed,
}

#[derive(Serialize)]
struct AbandonArgs<'a> {
    id: TrajectoryId,
    holder: &'a Caller,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum AbandonOutcome {
    Abandoned,
    Kept,
}

impl Ledger {
    /// Reserves one entry for each of `ids`, or as many of them as there are places for, or groups to be adopted in their stead: in
    /// steps, each of which is whole.
    ///
    /// With a `request_id`, a repetition is answered as the first call was, and ends the first call if it still goes on.
    /// The ids must be new, and `request.count` of them.
    pub async fn reserve(
        &self,
        run: &RunName,
        request: &ReserveRequest,
        ids: &[TrajectoryId],
    ) -> Result<Seen<Reservation>, LedgerError> {
        let mut answers = Vec::new();
        let mut seq = None;
        let mut prompts = request.prompts.as_slice();
        for (step, ids) in ids.chunks(STEP).enumerate() {
            let seen = match self.reserve_step(run, request, step, ids, prompts).await {
                // What was granted before is the caller's, who would not be told of it.
                Err(LedgerError::Refused { .. }) if !answers.is_empty() => break,
                seen => seen?,
            };
            seq = seen.seq;
            match seen.value {
                Step::Granted(answer) => {
                    let is_blocked = answer.blocked_by.is_some();
                    // Adopted groups have their own.
                    let used = answer.granted.iter().filter(|grant| !grant.adopted).count();
                    prompts = &prompts[used.min(prompts.len())..];
                    answers.push(answer);
                    if is_blocked {
                        break;
                    }
                }
                Step::Repeated(all) => {
                    answers = all;
                    break;
                }
                Step::Closed => break,
            }
        }
        let value = answers
            .into_iter()
            .reduce(joined)
            .ok_or_else(|| StoreError::Broken("no step of a reserve".into()))?;
        Ok(Seen { seq, value })
    }

    /// Takes back a grant that reached nobody: the entry is discarded, or is a group that waits for another owner. Says whether
    /// it did: not what was finished meanwhile, or is held by another session than the one it was granted to.
    pub(crate) async fn abandon(&self, run: &RunName, id: TrajectoryId, holder: &Caller) -> Result<bool, LedgerError> {
        let seen = self
            .call::<AbandonOutcome>(&script::ABANDON, run, &AbandonArgs { id, holder })
            .await?;
        Ok(matches!(seen.value, AbandonOutcome::Abandoned))
    }

    async fn reserve_step(
        &self,
        run: &RunName,
        request: &ReserveRequest,
        step: usize,
        ids: &[TrajectoryId],
        prompts: &[Prompt],
    ) -> Result<Seen<Step>, LedgerError> {
        let call = ReserveCall {
            caller: request.caller.clone(),
            version: request.version,
            lineage: request.lineage,
            adopt: request.adopt,
            ids: ids.to_vec(),
            prompts: prompts[..prompts.len().min(ids.len())].to_vec(),
            request: request.request_id.clone().map(|id| RequestArgs {
                id,
                fingerprint: fingerprint(request),
                step,
            }),
        };
        let seen = self.shared_call(&self.parts.reserves, run, &call, ids.len()).await?;
        let refusal = match seen.value {
            ReserveOutcome::Granted(answer) => {
                return Ok(Seen {
                    seq: seen.seq,
                    value: Step::Granted(answer),
                });
            }
            ReserveOutcome::Repeated { answers } => {
                return Ok(Seen {
                    seq: seen.seq,
                    value: Step::Repeated(answers),
                });
            }
            ReserveOutcome::Closed => {
                return Ok(Seen {
                    seq: seen.seq,
                    value: Step::Closed,
                });
            }
            ReserveOutcome::PromptsGiven => Refusal::PromptsGiven,
            ReserveOutcome::VersionUnknown => Refusal::VersionUnknown,
            ReserveOutcome::VersionNotPublished { policy_version } => Refusal::VersionNotPublished {
                version: request.version,
                policy_version,
            },
            ReserveOutcome::VersionTooStale { policy_version } => Refusal::VersionTooStale { policy_version },
            ReserveOutcome::RequestIdReused => Refusal::RequestIdReused,
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }
}

fn joined(mut earlier: Reservation, later: Reservation) -> Reservation {
    let mut granted = std::mem::take(&mut earlier.granted);
    granted.extend(later.granted);
    Reservation { granted, ..later }
}

/// Tells one request from another under the same id. Waiting longer for the same is the same request.
fn fingerprint(request: &ReserveRequest) -> String {
    let body = (
        request.count,
        request.version,
        request.lineage,
        request.adopt,
        &request.prompts,
    );
    let text = serde_json::to_string(&body).unwrap_or_default();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).to_string()
}
