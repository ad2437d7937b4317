//! The database: how it is reached, the scripts that run in it, the keys of a run, and what wakes a waiting call.
//!
//! Knows Redis and msgpack; knows nothing of what a script means.

mod address;
pub mod durability;
mod error;
pub mod keys;
mod link;
pub mod migrations;
pub mod private_redis;
mod replication;
pub mod script;
pub mod wakes;

use std::time::Duration;

use deadpool_redis::{Manager, Pool, Runtime, Timeouts};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use serde::{Serialize, de::DeserializeOwned};

pub use address::{Address, AddressError};
use durability::Demands;
pub use error::StoreError;
use keys::RunKeys;
pub use link::Generation;
use link::Link;
use replication::Replication;
pub(crate) use replication::Writing;
use script::Script;

/// How long a command may take before its connection is given up.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to come up.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections of the pool: they serve reads whose answers are large, so that these never stand before a transition.
const POOL_SIZE: usize = 4;

/// One connection, for one script.
pub struct Line<'a> {
    link: &'a Link,
    connection: MultiplexedConnection,
    generation: Generation,
}

impl Line<'_> {
    /// Which connection it is, counted from the server's first.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Runs one script on a run's keys, once.
    ///
    /// A connection that breaks leaves it unknown whether the script ran; it is not sent again here. Every script says at
    /// its head why sending it twice is safe, so a caller may.
    pub async fn run<T: DeserializeOwned>(
        mut self,
        script: &Script,
        keys: &RunKeys,
        args: &impl Serialize,
    ) -> Result<T, StoreError> {
        let packed = rmp_serde::to_vec_named(args)?;
        let reply: Result<Vec<u8>, _> = script.invoke(&mut self.connection, keys, &packed).await;
        match reply {
            Ok(bytes) => Ok(rmp_serde::from_slice(&bytes)?),
            Err(error) => {
                self.link.observe(&error, self.generation);
                Err(error.into())
            }
        }
    }
}

/// A Redis that holds runs.
pub struct Store {
    address: Address,
    link: Link,
    pool: Pool,
    /// Where writes wait for replicas, if they do.
    replication: Option<Replication>,
}

impl Store {
    /// Sets up the connections to `address`, with the demands that `berth serve` has by default.
    ///
    /// Must be called within a Tokio runtime: a task keeps the hot connection alive.
    pub fn new(address: &Address) -> Result<Self, StoreError> {
        Self::with_demands(address, Demands::default())
    }

    /// Sets up the connections to `address`; nothing has to answer there yet. A database that does not meet the demands counts
    /// as unavailable until it does.
    ///
    /// Must be called within a Tokio runtime: a task keeps the hot connection alive.
    pub fn with_demands(address: &Address, demands: Demands) -> Result<Self, StoreError> {
        let manager = Manager::new_with_config(address.info(), address.connection_config())?;
        let timeouts = Timeouts {
            wait: Some(RESPONSE_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        };
        let pool = Pool::builder(manager)
            .max_size(POOL_SIZE)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()?;
        Ok(Self {
            address: address.clone(),
            link: Link::open(address, demands)?,
            pool,
            replication: match demands.wait_replicas {
                0 => None,
                wanted => Some(Replication::open(address, wanted)?),
            },
        })
    }

    /// What came of the first attempt to reach the database, once it has ended: [`StoreError::Unfit`] where it is refused.
    pub async fn first_attempt(&self) -> Result<(), StoreError> {
        self.link.first_attempt().await
    }

    /// Where this database is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The hot connection as it is now.
    pub async fn line(&self) -> Result<Line<'_>, StoreError> {
        let (connection, generation) = self.link.connection().await?;
        Ok(Line {
            link: &self.link,
            connection,
            generation,
        })
    }

    /// Runs one script on a run's keys, on the hot connection, once: see [`Line::run`].
    pub async fn run<T: DeserializeOwned>(
        &self,
        script: &Script,
        keys: &RunKeys,
        args: &impl Serialize,
    ) -> Result<T, StoreError> {
        self.line().await?.run(script, keys, args).await
    }

    /// Runs a script that takes no arguments and answers a plain value (a migration).
    pub async fn run_plain<T: redis::FromRedisValue>(&self, script: &Script, keys: &RunKeys) -> Result<T, StoreError> {
        let (mut connection, generation) = self.link.connection().await?;
        let reply = script.invoke(&mut connection, keys, &[]).await;
        reply.map_err(|error| {
            self.link.observe(&error, generation);
            error.into()
        })
    }

    /// Sends one command on the hot connection, once.
    pub async fn command<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StoreError> {
        let (mut connection, generation) = self.link.connection().await?;
        let reply = connection.req_packed_command(command).await;
        // What the database refuses it answers, too, as a value of that kind.
        match reply.and_then(redis::Value::extract_error) {
            Ok(value) => Ok(redis::from_redis_value(value).map_err(redis::RedisError::from)?),
            Err(error) => {
                self.link.observe(&error, generation);
                Err(error.into())
            }
        }
    }

    /// Sends one command that only reads, and whose answer may be large, on a connection of the pool.
    pub async fn read<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StoreError> {
        // The pool does not examine the database: where the hot connection is refused, nothing is read either.
        self.link.up().await?;
        let mut connection = self.pool.get().await?;
        Ok(command.query_async(&mut connection).await?)
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.command::<String>(&redis::cmd("PING")).await.map(|_| ())
    }

    /// To be called before a script is sent whose answer is to wait for [`replicated`](Self::replicated); `None` where no
    /// answer waits for replicas, or the script writes nothing.
    pub(crate) async fn writing(&self, script: &Script) -> Result<Option<Writing>, StoreError> {
        if self.replication.is_none() || !script.may_write() {
            return Ok(None);
        }
        let up = self.link.up().await?;
        Ok(Some(Writing {
            generation: up.generation,
            server: up.server,
        }))
    }

    /// Returns once as many replicas as demanded have what was written since `writing` was got.
    pub(crate) async fn replicated(&self, writing: Option<Writing>) -> Result<(), StoreError> {
        let (Some(replication), Some(writing)) = (&self.replication, writing) else {
            return Ok(());
        };
        // Had the connection been rebuilt in between, it would be unknown which process took the write.
        if !self.link.is_current(writing.generation) {
            let reason = "the connection broke before the replicas were asked".to_owned();
            return Err(StoreError::NotReplicated(reason));
        }
        replication.reached(writing.server).await
    }
}
