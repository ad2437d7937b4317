//! The hot connection: one multiplexed connection that is rebuilt when it breaks.
//!
//! The library's own manager keeps a connection that nothing comes back from, and one whose server has become a replica; this
//! one gives a connection up on any error after which the next command would fare no better. Each new connection is examined first:
//! one to a database whose settings are refused counts as none, and is tried again.

use std::time::Duration;

use rand::Rng;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::time;

use super::durability::Demands;
use super::durability::examiner::{Examiner, ServerId};
use super::{Address, StoreError};

/// How long a command waits for a connection that is being rebuilt.
const PATIENCE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Which connection, counted from the first: a late error of an old connection must not close its successor.
pub type Generation = u64;

#[derive(Clone)]
enum State {
    Up(Up),
    Down(StoreError),
}

/// A connection that works.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: Generation,
    /// Who answers on it.
    pub(super) server: ServerId,
}

pub(super) struct Link {
    state: watch::Receiver<State>,
    broken: mpsc::UnboundedSender<(Generation, String)>,
}

impl Link {
    /// Starts the task that connects and connects again; it ends when the link is dropped.
    pub(super) fn open(address: &Address, demands: Demands) -> Result<Self, StoreError> {
        let client = address.client()?;
        let config = address.connection_config();
        let not_yet = StoreError::Unreachable("not connected yet".to_owned());
        let (sender, state) = watch::channel(State::Down(not_yet));
        let (broken, reports) = mpsc::unbounded_channel();
        let examiner = Examiner::new(demands);
        tokio::spawn(keep_connected(
            Connector {
                client,
                config,
                examiner,
            },
            sender,
            reports,
        ));
        Ok(Self { state, broken })
    }

    /// What came of the first attempt to connect, once it has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), StoreError> {
        // `self.state` itself never marks a value as seen, so that this sees any change since the beginning.
        let mut state = self.state.clone();
        // An error says that the task is gone, and then the state says why.
        let _ = state.changed().await;
        let found = state.borrow().clone();
        found.up().map(|_| ())
    }

    pub(super) async fn connection(&self) -> Result<(MultiplexedConnection, Generation), StoreError> {
        self.up().await.map(|up| (up.connection, up.generation))
    }

    /// The connection, waiting a little for one that is being rebuilt.
    pub(super) async fn up(&self) -> Result<Up, StoreError> {
        let now = self.state.borrow().clone();
        if let State::Up(up) = now {
            return Ok(up);
        }
        let mut state = self.state.clone();
        // Whatever ends the waiting, the state says what there is.
        let _ = time::timeout(PATIENCE, state.wait_for(|state| matches!(state, State::Up(_)))).await;
        let found = self.state.borrow().clone();
        found.up()
    }

    /// Whether this connection is still the one in use.
    pub(super) fn is_current(&self, generation: Generation) -> bool {
        matches!(&*self.state.borrow(), State::Up(up) if up.generation == generation)
    }

    /// Gives the connection up if the error says that it is of no more use.
    pub(super) fn observe(&self, error: &RedisError, generation: Generation) {
        if is_fatal(error) {
            // The task lives as long as the link does, so that the report cannot be lost.
            let _ = self.broken.send((generation, error.to_string()));
        }
    }
}

fn is_fatal(error: &RedisError) -> bool {
    let demoted = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    demoted || error.is_timeout() || error.is_io_error() || error.is_unrecoverable_error()
}

impl State {
    fn up(self) -> Result<Up, StoreError> {
        match self {
            Self::Up(up) => Ok(up),
            Self::Down(error) => Err(error),
        }
    }
}

struct Connector {
    client: redis::Client,
    config: redis::AsyncConnectionConfig,
    examiner: Examiner,
}

impl Connector {
    async fn connect(&mut self) -> Result<(MultiplexedConnection, ServerId), StoreError> {
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await
            .map_err(|error| StoreError::Unreachable(error.to_string()))?;
        let server = self.examiner.examine(&mut connection).await?;
        Ok((connection, server))
    }
}

async fn keep_connected(
    mut connector: Connector,
    state: watch::Sender<State>,
    mut reports: mpsc::UnboundedReceiver<(Generation, String)>,
) {
    let mut generation = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        match connector.connect().await {
            Ok((connection, server)) => {
                generation += 1;
                pause = FIRST_PAUSE;
                tracing::debug!(generation, ?server, "connected to the database");
                state.send_replace(State::Up(Up {
                    connection,
                    generation,
                    server,
                }));
                let reason = loop {
                    match reports.recv().await {
                        Some((reported, reason)) if reported == generation => break reason,
                        Some(_) => {}
                        None => return,
                    }
                };
                tracing::warn!(reason, "the connection to the database is given up");
                state.send_replace(State::Down(StoreError::Unreachable(reason)));
            }
            Err(error) => {
                state.send_replace(State::Down(error));
                let jitter = rand::rng().random_range(0.5..1.0);
                tokio::select! {
                    () = time::sleep(pause.mul_f64(jitter)) => {}
                    () = state.closed() => return,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
