//! Acknowledgements that wait for replicas (`WAIT`).
//!
//! `WAIT` blocks the connection that it is sent on, so it has one of its own, on which one task serves everybody: those who
//! come while it waits gather, and go together in the next round. Each round costs one small write and one `WAIT`, however
//! many calls it acknowledges.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::time;

use super::durability::examiner::{ServerId, server_id};
use super::link::Generation;
use super::{Address, CONNECT_TIMEOUT, StoreError};

/// How long the replicas may take.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
/// The key that the rounds write. It says nothing: that it was written is what counts.
const MARK: &str = "berth:replicated";

/// A call that may write, before it is sent: where it will be written.
#[derive(Debug, Clone)]
pub(crate) struct Writing {
    pub(super) generation: Generation,
    pub(super) server: ServerId,
}

/// Somebody who waits for the replicas.
struct Waiter {
    /// The process that took the write.
    server: ServerId,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

/// The place where writes wait for replicas.
pub(super) struct Replication {
    waiters: mpsc::UnboundedSender<Waiter>,
}

impl Replication {
    /// Starts the task that serves the waiting acknowledgements; it ends when this is dropped.
    ///
    /// Must be called within a Tokio runtime.
    pub(super) fn open(address: &Address, wanted: u32) -> Result<Self, StoreError> {
        let (waiters, arrivals) = mpsc::unbounded_channel();
        let rounds = Rounds {
            client: address.client()?,
            config: address.connection_config(),
            wanted,
            connection: None,
        };
        tokio::spawn(rounds.serve(arrivals));
        Ok(Self { waiters })
    }

    /// Returns once enough replicas have all that `server` has written until now.
    pub(super) async fn reached(&self, server: ServerId) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::NotReplicated("the task that waits for replicas ended".to_owned());
        self.waiters.send(Waiter { server, reply }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A connection that is used for nothing else, and the process at its other end.
struct Connection {
    redis: MultiplexedConnection,
    server: ServerId,
}

struct Rounds {
    client: redis::Client,
    config: redis::AsyncConnectionConfig,
    wanted: u32,
    connection: Option<Connection>,
}

impl Rounds {
    async fn serve(mut self, mut arrivals: mpsc::UnboundedReceiver<Waiter>) {
        while let Some(first) = arrivals.recv().await {
            let mut gathered = vec![first];
            while let Ok(next) = arrivals.try_recv() {
                gathered.push(next);
            }
            // Whoever hung up needs no answer: the others' round is the same without him.
            gathered.retain(|waiter| !waiter.reply.is_closed());
            if gathered.is_empty() {
                continue;
            }
            let outcome = self.round(&gathered).await;
            for waiter in gathered {
                let answer = match &outcome {
                    Ok((server, have)) => judge(*have, self.wanted, server, &waiter.server),
                    Err(reason) => Err(StoreError::NotReplicated(reason.clone())),
                };
                // He may have hung up meanwhile.
                let _ = waiter.reply.send(answer);
            }
        }
    }

    /// How many replicas have all that was written until now to which process.
    async fn round(&mut self, gathered: &[Waiter]) -> Result<(ServerId, u32), String> {
        if let Some(connection) = self.connection.take()
            && gathered.iter().all(|waiter| waiter.server == connection.server)
            // A connection that lay idle may have been closed, which says nothing of the replicas: once more on a new one.
            && let Ok(reached) = self.wait_on(connection).await
        {
            return Ok(reached);
        }
        let connection = self.connect().await.map_err(|error| error.to_string())?;
        self.wait_on(connection).await.map_err(|error| error.to_string())
    }

    async fn connect(&self) -> redis::RedisResult<Connection> {
        let mut redis = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        let server = time::timeout(CONNECT_TIMEOUT, server_id(&mut redis))
            .await
            .map_err(std::io::Error::from)??;
        Ok(Connection { redis, server })
    }

    /// Keeps the connection if it was of use.
    async fn wait_on(&mut self, mut connection: Connection) -> redis::RedisResult<(ServerId, u32)> {
        // WAIT counts the replicas that have the last write *of its own connection*, so this must be a write. The stream of
        // replication is one line: whoever has this write has every earlier one of the same process, and so what all who
        // gathered before it was sent had written on other connections.
        let mut round = redis::pipe();
        round.set(MARK, 1).ignore();
        round
            .cmd("WAIT")
            .arg(self.wanted)
            .arg(u64::try_from(REPLICAS_TIMEOUT.as_millis()).unwrap_or(u64::MAX));
        let (have,): (u32,) = round.query_async(&mut connection.redis).await?;
        let server = connection.server.clone();
        self.connection = Some(connection);
        Ok((server, have))
    }
}

/// The answer to a call that wrote to the process `written`, when `have` replicas of the process `asked` have what it wrote.
fn judge(have: u32, wanted: u32, asked: &ServerId, written: &ServerId) -> Result<(), StoreError> {
    // After a fail-over the new primary's replicas have all that it has; what the old one took may not be among it.
    if asked.is_none() || asked != written {
        return Err(StoreError::NotReplicated(
            "another database answers now than the one that took the write, or it does not say which it is".to_owned(),
        ));
    }
    if have < wanted {
        return Err(StoreError::NotReplicated(format!(
            "{have} of {wanted} replicas have it after {} ms",
            REPLICAS_TIMEOUT.as_millis()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> [ServerId; 2] {
        ["a", "b"].map(|id| Some(id.into()))
    }

    #[test]
    fn enough_replicas_of_the_process_that_took_the_write_acknowledge_it() {
        let [a, _] = ids();
        assert!(judge(2, 2, &a, &a).is_ok());
        assert!(judge(3, 2, &a, &a).is_ok());
    }

    #[test]
    fn too_few_are_counted_in_the_answer() {
        let [a, _] = ids();
        let error = judge(1, 2, &a, &a).expect_err("one is missing");

        assert_eq!(
            error.to_string(),
            "1 of 2 replicas have it after 1000 ms: whether the write will survive is unknown; repeating it is safe"
        );
    }

    #[test]
    fn replicas_of_another_process_or_of_one_unknown_say_nothing() {
        let [a, b] = ids();
        assert!(judge(2, 2, &b, &a).is_err());
        assert!(judge(2, 2, &None, &None).is_err());
    }
}
