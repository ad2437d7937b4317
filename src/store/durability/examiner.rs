//! Reads a database's settings on a new connection, says in the log what they mean, and refuses what the operator does not want.

use std::collections::HashMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{InfoDict, RedisResult};
use tokio::time;

use super::{Demands, Durability, Eviction, Settings, Unfit, Verdict, judge};
use crate::store::{CONNECT_TIMEOUT, StoreError};

const SETTINGS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
];

/// The process that answers on a connection, by the id that a Redis makes at its start; `None` where it does not tell.
pub(in crate::store) type ServerId = Option<Arc<str>>;

/// Judges each new connection.
pub(in crate::store) struct Examiner {
    demands: Demands,
    /// What was said last of a refused database, which is looked at again and again.
    said: Option<Unfit>,
}

impl Examiner {
    pub(in crate::store) fn new(demands: Demands) -> Self {
        Self { demands, said: None }
    }

    /// Says what the database at the other end is worth, and who it is; an error if it is not to be used.
    pub(in crate::store) async fn examine(
        &mut self,
        connection: &mut MultiplexedConnection,
    ) -> Result<ServerId, StoreError> {
        let (settings, server) = time::timeout(CONNECT_TIMEOUT, ask(connection))
            .await
            .map_err(|_| StoreError::Unreachable("it does not tell its settings in time".to_owned()))?
            .map_err(|error| StoreError::Unreachable(error.to_string()))?;
        let verdict = judge(&settings);
        if let Some(unfit) = verdict.refusal(&self.demands) {
            if self.said.as_ref() != Some(&unfit) {
                tracing::error!("the database is refused until this is mended: {unfit}");
                self.said = Some(unfit.clone());
            }
            return Err(unfit.into());
        }
        self.said = None;
        self.say(&verdict);
        Ok(server)
    }

    fn say(&self, verdict: &Verdict) {
        let durability = &verdict.durability;
        if durability.is_sound() {
            tracing::info!("the database: {durability}");
        } else if *durability == Durability::Unknown {
            tracing::warn!("the database: {durability}");
        } else {
            tracing::warn!("THE DATABASE IS NOT DURABLE: {durability}");
        }
        match &verdict.eviction {
            Eviction::Never => tracing::info!("the database: {}", Eviction::Never),
            Eviction::Unknown => tracing::warn!("the database: {}", Eviction::Unknown),
            evicts @ Eviction::Evicts { .. } => {
                tracing::warn!("THE DATABASE EVICTS, as --allow-eviction allows: {evicts}");
            }
        }
        if verdict.is_replica {
            tracing::warn!("the database is a replica and takes no writes");
        }
        let wanted = self.demands.wait_replicas;
        match verdict.replicas {
            Some(connected) if connected < wanted => tracing::warn!(
                "the database has {connected} replicas, and --wait-replicas wants what is written on {wanted}: writing calls \
                 fail until there are as many"
            ),
            Some(connected) => tracing::info!(
                replicas = connected,
                wait_replicas = wanted,
                "the database: its replicas"
            ),
            None => tracing::info!(
                wait_replicas = wanted,
                "the database: it does not tell how many replicas it has"
            ),
        }
    }
}

async fn ask(connection: &mut MultiplexedConnection) -> RedisResult<(Settings, ServerId)> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg(&SETTINGS);
    let config: Option<HashMap<String, String>> = if_told(config.query_async(connection).await)?;
    let mut config = config.unwrap_or_default();
    let info = who(connection).await?;
    let of_info = |name| info.as_ref().and_then(|info| info.get::<String>(name));
    let settings = Settings {
        appendonly: config.remove("appendonly"),
        appendfsync: config.remove("appendfsync"),
        no_appendfsync_on_rewrite: config.remove("no-appendfsync-on-rewrite"),
        save: config.remove("save"),
        // INFO is allowed on managed services that forbid CONFIG.
        maxmemory_policy: config
            .remove("maxmemory-policy")
            .or_else(|| of_info("maxmemory_policy")),
        maxmemory: config.remove("maxmemory").or_else(|| of_info("maxmemory")),
        role: of_info("role"),
        replicas: info.as_ref().and_then(|info| info.get("connected_slaves")),
    };
    Ok((settings, id_in(info.as_ref())))
}

/// The process that answers on this connection.
pub(in crate::store) async fn server_id(connection: &mut MultiplexedConnection) -> RedisResult<ServerId> {
    Ok(id_in(who(connection).await?.as_ref()))
}

async fn who(connection: &mut MultiplexedConnection) -> RedisResult<Option<InfoDict>> {
    let mut info = redis::cmd("INFO");
    info.arg(&["server", "memory", "replication"]);
    if_told(info.query_async(connection).await)
}

fn id_in(info: Option<&InfoDict>) -> ServerId {
    info.and_then(|info| info.get::<String>("run_id")).map(Arc::from)
}

/// That a command is forbidden, or not known, is an answer as well. It must not be taken for a database that is busy or away.
fn if_told<T>(answer: RedisResult<T>) -> RedisResult<Option<T>> {
    match answer {
        Ok(told) => Ok(Some(told)),
        Err(error) if matches!(error.code(), Some("ERR" | "NOPERM")) => Ok(None),
        Err(error) => Err(error),
    }
}
