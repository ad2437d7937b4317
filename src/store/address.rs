//! Where a database is.

use std::fmt;
use std::str::FromStr;

use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo};
use thiserror::Error;

use super::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};

/// The address of a Redis: `redis://host:port/db` or `redis+unix:///path/to.sock`.
#[derive(Debug, Clone)]
pub struct Address {
    info: ConnectionInfo,
    shown: String,
}

/// Why a text is not the address of a Redis.
#[derive(Debug, Error)]
#[error("{text} is not the address of a Redis (redis://host:port or redis+unix:///path/to.sock): {reason}")]
pub struct AddressError {
    text: String,
    reason: String,
}

impl Address {
    pub(crate) fn info(&self) -> ConnectionInfo {
        self.info.clone()
    }

    pub(crate) fn client(&self) -> redis::RedisResult<Client> {
        Client::open(self.info.clone())
    }

    // The library's own defaults are half a second for a response and no limit for a cluster.
    #[expect(clippy::unused_self, reason = "topologies to come have limits of their own")]
    pub(crate) fn connection_config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let info = text.into_connection_info().map_err(|error| AddressError {
            text: text.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            shown: info.addr().to_string(),
            info,
        })
    }
}

/// The host and port, or the path: never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
