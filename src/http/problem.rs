//! Errors as RFC 9457 `application/problem+json`: the one place where they get their codes and statuses (`api.md`, *Codes*).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::SEQ_HEADER;
use crate::ledger::{LedgerError, Refusal};
use crate::protocol::{Reason, Version};
use crate::store::StoreError;

/// The stable word that clients test on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// The request is not what the contract says.
    InvalidRequest,
    /// The request comes from a web page, or by a name that this server does not have.
    Forbidden,
    /// Nothing is served under this path.
    UnknownPath,
    /// No such run.
    UnknownRun,
    /// No such trajectory, or one that is forgotten.
    UnknownTrajectory,
    /// No such batch yet.
    UnknownBatch,
    /// The path takes other methods.
    MethodNotAllowed,
    /// The run exists with another configuration.
    RunExists,
    /// The weights are too old to be of use.
    VersionTooStale,
    /// The version is above the latest published one.
    VersionNotPublished,
    /// The trajectory was discarded.
    TrajectoryDiscarded,
    /// The trajectory's prompt was handed out again, has failed or was dropped.
    Superseded,
    /// The trajectory is in a batch.
    TrajectoryTaken,
    /// Fewer members are complete than make the group.
    GroupIncomplete,
    /// A segment that begins no later, or under no newer version, than the one before it.
    SegmentOutOfOrder,
    /// The request id was used for another request.
    RequestIdReused,
    /// Prompts between what was fed and the page are missing.
    FeedGap,
    /// The run has no prompt queue.
    NoPromptQueue,
    /// The run is being finished.
    Draining,
    /// A newer session has opened.
    Fenced,
    /// The database has lost writes that were acknowledged.
    LedgerBehind,
    /// Another version is to be published next.
    PublishOutOfOrder,
    /// Another batch is the next one.
    OtherBatch,
    /// The batch is no longer kept.
    BatchPruned,
    /// Events that were asked for are no longer in the log.
    EventsPruned,
    /// The body is too large.
    TooLarge,
    /// The body is not `application/json`.
    UnsupportedMediaType,
    /// As many calls wait as may.
    TooManyWaiting,
    /// The database was written by a newer Berth.
    NewerLayout,
    /// The database gave no usable answer: whether a write happened is unknown, and repeating it is safe.
    DatabaseUnavailable,
    /// A fault of the server's own.
    Internal,
}

impl Code {
    fn status_and_title(self) -> (StatusCode, &'static str) {
        match self {
            Self::InvalidRequest => (StatusCode::BAD_REQUEST, "The request is not valid"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "Not from here"),
            Self::UnknownPath => (StatusCode::NOT_FOUND, "There is nothing under this path"),
            Self::UnknownRun => (StatusCode::NOT_FOUND, "There is no such run"),
            Self::UnknownTrajectory => (StatusCode::NOT_FOUND, "There is no such trajectory"),
            Self::UnknownBatch => (StatusCode::NOT_FOUND, "There is no such batch yet"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "The path takes other methods"),
            Self::RunExists => (StatusCode::CONFLICT, "The run exists with another configuration"),
            Self::VersionTooStale => (StatusCode::CONFLICT, "The weights are too old"),
            Self::VersionNotPublished => (StatusCode::CONFLICT, "The version is not published"),
            Self::TrajectoryDiscarded => (StatusCode::CONFLICT, "The trajectory was discarded"),
            Self::Superseded => (StatusCode::CONFLICT, "The prompt has gone on without the trajectory"),
            Self::FeedGap => (StatusCode::CONFLICT, "Prompts before the page are missing"),
            Self::NoPromptQueue => (StatusCode::CONFLICT, "The run has no prompt queue"),
            Self::Draining => (StatusCode::CONFLICT, "The run is being finished"),
            Self::TrajectoryTaken => (StatusCode::CONFLICT, "The trajectory was taken for training"),
            Self::GroupIncomplete => (StatusCode::CONFLICT, "The group is not complete"),
            Self::SegmentOutOfOrder => (StatusCode::CONFLICT, "The segments are out of order"),
            Self::RequestIdReused => (StatusCode::CONFLICT, "The request id was used for another request"),
            Self::Fenced => (StatusCode::CONFLICT, "A newer session has opened"),
            Self::LedgerBehind => (StatusCode::CONFLICT, "The database has lost writes"),
            Self::PublishOutOfOrder => (StatusCode::CONFLICT, "Another version is to be published next"),
            Self::OtherBatch => (StatusCode::CONFLICT, "Another batch is the next one"),
            Self::BatchPruned => (StatusCode::GONE, "The batch is no longer kept"),
            Self::EventsPruned => (StatusCode::GONE, "The log does not reach back so far"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Self::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body must be application/json"),
            Self::TooManyWaiting => (StatusCode::TOO_MANY_REQUESTS, "Too many calls are waiting"),
            Self::NewerLayout => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The database was written by a newer Berth",
            ),
            Self::DatabaseUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "The database is not available"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "A fault of the server's own"),
        }
    }

    /// The word itself, where a result carries it without being a response of its own.
    pub(super) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::UnknownRun => Self::UnknownRun,
            Refusal::RunExists { .. } => Self::RunExists,
            Refusal::Fenced => Self::Fenced,
            Refusal::LedgerBehind | Refusal::CheckpointAhead { .. } => Self::LedgerBehind,
            Refusal::VersionUnknown
            | Refusal::ResumeFromMissing
            | Refusal::BeyondTaken { .. }
            | Refusal::PromptsGiven
            | Refusal::NoGroups
            | Refusal::MemberMissing
            | Refusal::NoSuchMember { .. }
            | Refusal::TooFewForAGroup { .. } => Self::InvalidRequest,
            Refusal::GroupIncomplete { .. } => Self::GroupIncomplete,
            Refusal::SegmentOutOfOrder => Self::SegmentOutOfOrder,
            Refusal::VersionNotPublished { .. } => Self::VersionNotPublished,
            Refusal::VersionTooStale { .. } => Self::VersionTooStale,
            Refusal::RequestIdReused => Self::RequestIdReused,
            Refusal::UnknownTrajectory => Self::UnknownTrajectory,
            Refusal::TrajectoryDiscarded { .. } => Self::TrajectoryDiscarded,
            Refusal::Superseded => Self::Superseded,
            Refusal::FeedGap { .. } => Self::FeedGap,
            Refusal::NoPromptQueue => Self::NoPromptQueue,
            Refusal::Draining => Self::Draining,
            Refusal::TrajectoryTaken => Self::TrajectoryTaken,
            Refusal::OtherBatch { .. } => Self::OtherBatch,
            Refusal::PublishOutOfOrder { .. } => Self::PublishOutOfOrder,
            Refusal::UnknownBatch { .. } => Self::UnknownBatch,
            Refusal::BatchPruned { .. } => Self::BatchPruned,
            Refusal::EventsPruned { .. } => Self::EventsPruned,
        }
    }
}

/// A problem, on its way to become a response. Boxed, because every result of a handler has room for one.
#[derive(Debug)]
pub(crate) struct Problem {
    document: Box<ProblemDocument>,
    seq: Option<u64>,
}

/// A problem document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    /// A URI of the kind of problem.
    r#type: String,
    /// The kind of problem, in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// This very problem, in words.
    detail: String,
    /// The stable word to test on.
    code: Code,
    /// The field of the request that is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The fields in which an existing run differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<&'static str>,
    /// Why the trajectory was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The version, batch or offset that would have been accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    /// The latest published version.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_version: Option<Version>,
    /// The `seq` of the first event that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seq: Option<u64>,
}

impl Problem {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, title) = code.status_and_title();
        let word = serde_json::to_value(code)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default();
        let document = ProblemDocument {
            r#type: format!("urn:berth:problem:{word}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            code,
            field: None,
            fields: Vec::new(),
            reason: None,
            expected: None,
            policy_version: None,
            first_seq: None,
        };
        Self {
            document: Box::new(document),
            seq: None,
        }
    }

    /// A request whose field `field` is not what the contract says.
    pub(super) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(Code::InvalidRequest, detail);
        problem.document.field = Some(field.into());
        problem
    }

    /// The field that is at fault, if one is named.
    #[cfg(test)]
    pub(super) fn field(&self) -> Option<&str> {
        self.document.field.as_deref()
    }

    fn refused(refusal: &Refusal, seq: Option<u64>) -> Self {
        let mut problem = Self {
            seq,
            ..Self::new(Code::of(refusal), refusal.to_string())
        };
        let document = &mut problem.document;
        match refusal {
            Refusal::RunExists { fields } => document.fields.clone_from(fields),
            Refusal::VersionUnknown => document.field = Some("version".to_owned()),
            Refusal::PromptsGiven => document.field = Some("prompts".to_owned()),
            Refusal::FeedGap { fed } => document.expected = Some(*fed),
            Refusal::BeyondTaken { .. } => document.field = Some("from_offset".to_owned()),
            Refusal::ResumeFromMissing => document.field = Some("resume_from".to_owned()),
            Refusal::VersionNotPublished { policy_version, .. }
            | Refusal::VersionTooStale { policy_version }
            | Refusal::CheckpointAhead { policy_version } => {
                document.policy_version = Some(*policy_version);
            }
            Refusal::TrajectoryDiscarded { reason } => document.reason = Some(reason.clone()),
            Refusal::OtherBatch { expected } => document.expected = Some(expected.0),
            Refusal::PublishOutOfOrder { expected, .. } => document.expected = Some(expected.0),
            Refusal::EventsPruned { first, .. } => document.first_seq = Some(*first),
            Refusal::NoGroups | Refusal::MemberMissing => document.field = Some("member".to_owned()),
            Refusal::NoSuchMember { .. } => document.field = Some("index".to_owned()),
            Refusal::TooFewForAGroup { .. } => document.field = Some("max_concurrency".to_owned()),
            Refusal::UnknownRun
            | Refusal::Fenced
            | Refusal::LedgerBehind
            | Refusal::GroupIncomplete { .. }
            | Refusal::SegmentOutOfOrder
            | Refusal::RequestIdReused
            | Refusal::UnknownTrajectory
            | Refusal::Superseded
            | Refusal::NoPromptQueue
            | Refusal::Draining
            | Refusal::TrajectoryTaken
            | Refusal::UnknownBatch { .. }
            | Refusal::BatchPruned { .. } => {}
        }
        problem
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Refused { seq, refusal } => Self::refused(&refusal, seq),
            LedgerError::NewerLayout { .. } => Self::new(Code::NewerLayout, error.to_string()),
            LedgerError::Store(
                StoreError::Unreachable(_)
                | StoreError::Refusing(_)
                | StoreError::Unfit(_)
                | StoreError::NotReplicated(_),
            ) => Self::new(Code::DatabaseUnavailable, error.to_string()),
            LedgerError::Store(StoreError::Broken(_)) => {
                tracing::error!(%error, "the database and this server do not understand each other");
                Self::new(Code::Internal, error.to_string())
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { document, seq } = self;
        let code = document.code;
        let mut response = (code.status_and_title().0, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seq) = seq {
            headers.insert(SEQ_HEADER, seq.into());
        }
        if code == Code::DatabaseUnavailable {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
