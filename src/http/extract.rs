//! Requests into types: names in the path, queries, and JSON bodies, with an error that names the field.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body as AnyBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;

use super::problem::{Code, Problem};
use crate::ledger::RunName;
use crate::ledger::names::WorkerName;
use crate::protocol::{BufferId, TrajectoryId};

/// The most bytes of a body: 1,024 prompts of 512 bytes fit, each byte written as six.
const MOST_BYTES: usize = 4 << 20;
/// The most bytes of a body that finishes many: 1,024 of 16 KiB of `meta` and 2 KiB of `payload` fit.
const MOST_BYTES_OF_MANY: usize = 32 << 20;
/// The most bytes of a page of prompts: 1,024 of 16 KiB of `data` and 512 bytes of `id` fit, each byte of these written as six.
const MOST_BYTES_OF_PROMPTS: usize = 24 << 20;
/// The most bytes of a refused body that are read nevertheless.
const MOST_BYTES_THROWN_AWAY: usize = 64 << 20;
/// How long a client that was refused may pause in its sending.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// The longest that a call may wait.
const LONGEST_WAIT_MS: u64 = 60_000;

/// A JSON body of an ordinary size.
pub(super) struct Body<T>(pub(super) T);

/// A JSON body that may be as large as many finished trajectories are.
pub(super) struct BodyOfMany<T>(pub(super) T);

/// A JSON body that may be as large as a page of prompts is.
pub(super) struct BodyOfPrompts<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_json(request, MOST_BYTES).await.map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for BodyOfMany<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_json(request, MOST_BYTES_OF_MANY).await.map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for BodyOfPrompts<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_json(request, MOST_BYTES_OF_PROMPTS).await.map(Self)
    }
}

async fn read_json<T: DeserializeOwned>(request: Request, most: usize) -> Result<T, Problem> {
    let (head, mut body) = request.into_parts();
    match read_bytes(&head.headers, &mut body, most).await {
        // A call whose fields are all optional may have no body at all, and then no type of it.
        Ok(bytes) if bytes.is_empty() => parse(b"{}"),
        Ok(bytes) => parse(&bytes),
        Err(problem) => {
            tokio::spawn(throw_away(body));
            Err(problem)
        }
    }
}

async fn read_bytes(headers: &HeaderMap, body: &mut AnyBody, most: usize) -> Result<Bytes, Problem> {
    let content_type = headers
        .get(CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or_default());
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let too_large = || Problem::new(Code::TooLarge, format!("a body may have at most {most} bytes here"));
    let wrong_type = |found: &str| Problem::new(Code::UnsupportedMediaType, format!("the content-type is {found}"));
    if let Some(other) = content_type.filter(|kind| !is_json(kind)) {
        return Err(wrong_type(other));
    }
    if announced.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let bytes = Limited::new(body, most).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            too_large()
        } else {
            Problem::new(Code::InvalidRequest, "the body ended before its end")
        }
    })?;
    let bytes = bytes.to_bytes();
    if content_type.is_none() && !bytes.is_empty() {
        return Err(wrong_type("missing"));
    }
    Ok(bytes)
}

/// Reads what is still coming of a body that was refused. Otherwise the connection would be closed on a client that is still
/// sending, and many a client does not see an answer that comes before it has sent all.
async fn throw_away(mut body: AnyBody) {
    let mut left = MOST_BYTES_THROWN_AWAY;
    while let Ok(Some(Ok(frame))) = timeout(LONGEST_SILENCE, body.frame()).await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

fn is_json(content_type: &str) -> bool {
    content_type
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// A value that is written as an object: a struct alone would also be read from a list of its fields.
#[derive(Debug)]
pub(super) struct JsonObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let JsonObject(value) = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| invalid(&error.path().to_string(), &error.inner().to_string()))?;
    json.end()
        .map_err(|error| Problem::new(Code::InvalidRequest, error.to_string()))?;
    Ok(value)
}

/// Names the field that is missing or unknown, as well as one that has a wrong value.
fn invalid(path: &str, message: &str) -> Problem {
    let parent = path.trim_start_matches('.').trim_end_matches('?').trim_end_matches('.');
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .into_iter()
        .find_map(|start| message.strip_prefix(start)?.split('`').next());
    let field = match (parent, named) {
        (parent, Some(named)) if parent.is_empty() || parent == named => named.to_owned(),
        (parent, Some(named)) if parent.ends_with(&format!(".{named}")) => parent.to_owned(),
        (parent, Some(named)) => format!("{parent}.{named}"),
        (parent, None) => parent.to_owned(),
    };
    if field.is_empty() {
        Problem::new(Code::InvalidRequest, message)
    } else {
        Problem::invalid(field, message)
    }
}

/// The query, every parameter of which must be known.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            let text = rejection.body_text();
            let message = text
                .strip_prefix("Failed to deserialize query string: ")
                .unwrap_or(&text);
            match message.split_once(": ") {
                Some((path, message)) if !path.contains(' ') => invalid(path, message),
                _ => invalid("", message),
            }
        })?;
        Ok(Self(query.0))
    }
}

async fn segments<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<HashMap<String, String>, Problem> {
    let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
    path.map(|path| path.0)
        .map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))
}

fn segment<T: FromStr<Err: std::fmt::Display>>(segments: &HashMap<String, String>, name: &str) -> Result<T, Problem> {
    let text = segments.get(name).map(String::as_str).unwrap_or_default();
    text.parse()
        .map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
}

/// `/v1/runs/{run}…`
pub(super) struct RunPath(pub(super) RunName);

impl<S: Send + Sync> FromRequestParts<S> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(segment(&segments(parts, state).await?, "run")?))
    }
}

/// `…/trajectories/{id}…`
pub(super) struct TrajectoryPath(pub(super) RunName, pub(super) TrajectoryId);

impl<S: Send + Sync> FromRequestParts<S> for TrajectoryPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = segments(parts, state).await?;
        let run = segment(&segments, "run")?;
        // Ids are the server's: any other text is one that it does not know.
        let id = segment(&segments, "id")
            .map_err(|_| Problem::new(Code::UnknownTrajectory, "there is no trajectory of this id"))?;
        Ok(Self(run, id))
    }
}

/// `…/workers/{worker}…`
pub(super) struct WorkerPath(pub(super) RunName, pub(super) WorkerName);

impl<S: Send + Sync> FromRequestParts<S> for WorkerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = segments(parts, state).await?;
        Ok(Self(segment(&segments, "run")?, segment(&segments, "worker")?))
    }
}

/// `…/batches/{version}`
pub(super) struct BatchPath(pub(super) RunName, pub(super) BufferId);

impl<S: Send + Sync> FromRequestParts<S> for BatchPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = segments(parts, state).await?;
        Ok(Self(
            segment(&segments, "run")?,
            BufferId(segment(&segments, "version")?),
        ))
    }
}

/// `wait_ms` as a duration.
pub(super) fn wait(wait_ms: u64) -> Result<Duration, Problem> {
    if wait_ms > LONGEST_WAIT_MS {
        return Err(Problem::invalid("wait_ms", format!("at most {LONGEST_WAIT_MS}")));
    }
    Ok(Duration::from_millis(wait_ms))
}

/// A number of a request that has bounds.
pub(super) fn within<N: PartialOrd + std::fmt::Display>(
    field: &'static str,
    number: N,
    bounds: std::ops::RangeInclusive<N>,
) -> Result<N, Problem> {
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(Problem::invalid(
        field,
        format!("{number} is not from {} to {}", bounds.start(), bounds.end()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(path: &str, message: &str) -> String {
        invalid(path, message).field().unwrap_or("none").to_owned()
    }

    #[test]
    fn the_field_at_fault_is_named_whether_it_is_wrong_missing_or_unknown() {
        assert_eq!(field_of("batch_size", "invalid type: string"), "batch_size");
        assert_eq!(field_of(".", "missing field `batch_size` at line 1"), "batch_size");
        assert_eq!(
            field_of("max_stalness", "unknown field `max_stalness`, expected one of"),
            "max_stalness"
        );
        assert_eq!(field_of("trajectories[2]", "missing field `id`"), "trajectories[2].id");
        assert_eq!(field_of(".", "EOF while parsing"), "none");
    }
}
