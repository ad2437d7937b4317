//! What can go wrong between us and the database.

use deadpool_redis::{BuildError, PoolError};
use redis::RedisError;
use thiserror::Error;

use super::durability::Unfit;

/// Why the database gave no usable answer.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// It cannot be reached, or the connection broke: whether a script ran is unknown.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// It answers, but refuses to work now: it is loading, read-only, out of memory or cannot write its file. Nothing ran.
    #[error("the database refuses to work: {0}")]
    Refusing(String),
    /// Its settings are not what the operator demands. Nothing ran.
    #[error("the database is refused: {0}")]
    Unfit(#[from] Unfit),
    /// What was written is not known to be on as many replicas as the operator demands.
    #[error("{0}: whether the write will survive is unknown; repeating it is safe")]
    NotReplicated(String),
    /// It holds something that this program did not write, or answered something that no script answers.
    #[error("the database holds or answered something unexpected: {0}")]
    Broken(String),
}

impl StoreError {
    /// Whether another call would fare no better now.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Refusing(_) | Self::Unfit(_))
    }
}

/// Error codes with which a Redis refuses a script before it begins.
const REFUSALS: [&str; 12] = [
    // The library loads a script that is missing and sends the call again: so this one was lost twice.
    "NOSCRIPT",
    "OOM",
    "MISCONF",
    "BUSY",
    "NOREPLICAS",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOAUTH",
    "NOPERM",
];

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        match error.code() {
            Some(code) if REFUSALS.contains(&code) => Self::Refusing(error.to_string()),
            Some(_) => Self::Broken(error.to_string()),
            None if matches!(
                error.kind(),
                redis::ErrorKind::UnexpectedReturnType | redis::ErrorKind::Parse
            ) =>
            {
                Self::Broken(error.to_string())
            }
            None => Self::Unreachable(error.to_string()),
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl From<BuildError> for StoreError {
    fn from(error: BuildError) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<rmp_serde::encode::Error> for StoreError {
    fn from(error: rmp_serde::encode::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<rmp_serde::decode::Error> for StoreError {
    fn from(error: rmp_serde::decode::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
