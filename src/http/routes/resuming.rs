//! Trainer sessions and checkpoints.

use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{Body, RunPath, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::to_the_end;
use crate::ledger::names::{SessionToken, TrainerName};
use crate::ledger::resuming::{Checkpointed, Resume, Resumed};
use crate::protocol::{Epoch, ResumeMode, Version};

/// A slot position (buffer times slots) must stay exact in the scripts.
const RESUME_FROM: std::ops::RangeInclusive<u64> = 0..=500_000_000;

/// A trainer process that starts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTrainerSession {
    /// The trainer.
    trainer: TrainerName,
    /// A token that the process makes at its start: the call may be repeated with it. Left out, each call opens a session.
    session: Option<SessionToken>,
    /// The version that its checkpoint holds; may be left out before the first publish.
    #[schema(maximum = 500_000_000)]
    resume_from: Option<Version>,
    /// How to go on from a checkpoint that is older than the latest version.
    #[serde(default)]
    mode: ResumeMode,
    /// Go on although the database does not know the checkpoint's version, or rewind without the batches that are gone.
    #[serde(default)]
    force: bool,
}

/// Opens a trainer session, which goes on from a checkpoint. Earlier sessions are over.
#[utoipa::path(
    post, path = "/v1/runs/{run}/trainer", tag = "training", params(("run" = String, Path)), request_body = NewTrainerSession,
    responses(
        (status = 200, body = Resumed, description = "also when the call is repeated"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`fenced`: a newer session has opened; `ledger_behind`: the database does not know the checkpoint's version"),
        (status = 410, body = ProblemDocument, description = "`batch_pruned`: what is to be trained again is no longer kept")
    )
)]
pub(super) async fn open_trainer_session(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(new): Body<NewTrainerSession>,
) -> Result<Answer<Resumed>, Problem> {
    if let Some(version) = new.resume_from {
        within("resume_from", version.0, RESUME_FROM)?;
    }
    let session = match new.session {
        Some(session) => session,
        None => Uuid::new_v4()
            .to_string()
            .parse()
            .map_err(|_| Problem::invalid("session", "none could be made: send one"))?,
    };
    let resume = Resume {
        trainer: new.trainer,
        session,
        resume_from: new.resume_from,
        mode: new.mode,
        force: new.force,
    };
    Ok(to_the_end(async move { app.ledger.resume(&run, &resume).await })
        .await?
        .into())
}

/// A durable checkpoint.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCheckpoint {
    /// The version that it holds.
    version: Version,
    /// The number of the trainer's session; required once one was opened.
    epoch: Option<Epoch>,
}

/// Lets go of the batches that a durable checkpoint covers: those below its version.
#[utoipa::path(
    post, path = "/v1/runs/{run}/checkpoints", tag = "training", params(("run" = String, Path)), request_body = NewCheckpoint,
    responses(
        (status = 200, body = Checkpointed),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument,
            description = "`version_not_published` above the trainer's version, `fenced`, `ledger_behind`")
    )
)]
pub(super) async fn checkpoint(
    Client(app): Client,
    RunPath(run): RunPath,
    Body(new): Body<NewCheckpoint>,
) -> Result<Answer<Checkpointed>, Problem> {
    let checkpoint = async move { app.ledger.checkpoint(&run, new.version, new.epoch).await };
    Ok(to_the_end(checkpoint).await?.into())
}
