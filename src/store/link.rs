//! The hot connection: one multiplexed connection that is rebuilt when it breaks.
//!
//! The library's own manager keeps a connection that nothing comes back from, and one whose server has become a replica; this
//! one gives a connection up on any error after which the next command would fare no better.

use std::time::Duration;

use rand::Rng;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::time;

use super::{Address, StoreError};

/// How long a command waits for a connection that is being rebuilt.
const PATIENCE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Which connection, counted from the first: a late error of an old connection must not close its successor.
pub type Generation = u64;

#[derive(Clone)]
enum State {
    Up(MultiplexedConnection, Generation),
    Down(String),
}

pub(super) struct Link {
    state: watch::Receiver<State>,
    broken: mpsc::UnboundedSender<(Generation, String)>,
}

impl Link {
    /// Starts the task that connects and connects again; it ends when the link is dropped.
    pub(super) fn open(address: &Address) -> Result<Self, StoreError> {
        let client = address.client()?;
        let config = address.connection_config();
        let (sender, state) = watch::channel(State::Down("not connected yet".to_owned()));
        let (broken, reports) = mpsc::unbounded_channel();
        tokio::spawn(keep_connected(client, config, sender, reports));
        Ok(Self { state, broken })
    }

    pub(super) async fn connection(&self) -> Result<(MultiplexedConnection, Generation), StoreError> {
        if let State::Up(connection, generation) = &*self.state.borrow() {
            return Ok((connection.clone(), *generation));
        }
        let mut state = self.state.clone();
        let up = time::timeout(PATIENCE, state.wait_for(|state| matches!(state, State::Up(..)))).await;
        match up {
            Ok(Ok(found)) => match &*found {
                State::Up(connection, generation) => Ok((connection.clone(), *generation)),
                State::Down(reason) => Err(StoreError::Unreachable(reason.clone())),
            },
            _ => match &*self.state.borrow() {
                State::Up(connection, generation) => Ok((connection.clone(), *generation)),
                State::Down(reason) => Err(StoreError::Unreachable(reason.clone())),
            },
        }
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

async fn keep_connected(
    client: redis::Client,
    config: redis::AsyncConnectionConfig,
    state: watch::Sender<State>,
    mut reports: mpsc::UnboundedReceiver<(Generation, String)>,
) {
    let mut generation = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                generation += 1;
                pause = FIRST_PAUSE;
                tracing::debug!(generation, "connected to the database");
                state.send_replace(State::Up(connection, generation));
                let reason = loop {
                    match reports.recv().await {
                        Some((reported, reason)) if reported == generation => break reason,
                        Some(_) => {}
                        None => return,
                    }
                };
                tracing::warn!(reason, "the connection to the database is given up");
                state.send_replace(State::Down(reason));
            }
            Err(error) => {
                state.send_replace(State::Down(error.to_string()));
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
