//! What the same clients reach with handlers that do next to nothing.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::BenchError;
use super::figures::Samples;
use crate::client::{Client, ClientError};

/// A handler to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yardstick {
    /// It does nothing: what HTTP, the client and the machine cost.
    Nothing,
    /// It makes one trivial Redis call.
    OneRedisCall,
}

impl Yardstick {
    fn path(self) -> &'static str {
        match self {
            Self::Nothing => "/healthz",
            Self::OneRedisCall => "/readyz",
        }
    }

    /// Has every client call it until `slice` is over.
    pub(super) async fn slice(
        self,
        clients: &[Client],
        slice: Duration,
        samples: &mut Samples,
    ) -> Result<(), BenchError> {
        let started_at = Instant::now();
        let mut tasks = JoinSet::new();
        for client in clients {
            tasks.spawn(call_until(client.clone(), self.path(), started_at + slice));
        }
        while let Some(measured) = tasks.join_next().await {
            samples.join(measured??);
        }
        samples.measured_for(started_at.elapsed());
        Ok(())
    }
}

async fn call_until(client: Client, path: &str, end: Instant) -> Result<Samples, ClientError> {
    let mut samples = Samples::default();
    while Instant::now() < end {
        let called_at = Instant::now();
        client.probe(path).await?;
        samples.add(called_at.elapsed());
    }
    Ok(samples)
}
