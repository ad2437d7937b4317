//! The calls about one run.

use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Buffers, Checkpointed, Client, ClientError, EventPage, Finish, Heartbeat, HeartbeatAnswer, LatestVersion,
    MemberAnswer, MemberReport, NextBatch, Occupied, OpenTrainerSession, Piece, Published, Reserve, Reserved,
    RunSettings, RunStatus, TrainerSession, Workers,
};
use crate::protocol::{Epoch, TrajectoryId, Version};

/// The most events that one page is asked to hold.
const EVENTS_PER_PAGE: usize = 1_000;

/// The calls about one run. Every one of them may be repeated, and is when the [`Retry`](super::Retry) rules say so.
#[derive(Debug, Clone)]
pub struct RunClient {
    client: Client,
    /// `/v1/runs/{run}`.
    path: String,
}

impl RunClient {
    pub(super) fn new(client: Client, run: &str) -> Self {
        Self {
            client,
            path: format!("/v1/runs/{run}"),
        }
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The client beneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates the run, or confirms that it exists with these settings.
    pub async fn put(&self, settings: &RunSettings) -> Result<RunStatus, ClientError> {
        self.client
            .send(Method::PUT, &self.path, settings, Duration::ZERO)
            .await
    }

    /// The run's state in numbers.
    pub async fn status(&self) -> Result<RunStatus, ClientError> {
        self.client.get(&self.path, Duration::ZERO).await
    }

    /// Removes the run.
    pub async fn delete(&self) -> Result<(), ClientError> {
        self.client.delete(&self.path).await
    }

    /// Reserves places (*Reserve*).
    pub async fn reserve(&self, request: &Reserve) -> Result<Reserved, ClientError> {
        self.post("reservations", request, Duration::from_millis(request.wait_ms))
            .await
    }

    /// Finishes an entry (*Occupy*).
    pub async fn occupy(&self, id: TrajectoryId, request: &Finish) -> Result<Occupied, ClientError> {
        self.post(&format!("trajectories/{id}/occupy"), request, Duration::ZERO)
            .await
    }

    /// Finishes, or fails, one member of a group (*Groups*).
    pub async fn report_member(
        &self,
        group: TrajectoryId,
        index: u32,
        report: &MemberReport,
    ) -> Result<MemberAnswer, ClientError> {
        self.post(&format!("trajectories/{group}/members/{index}"), report, Duration::ZERO)
            .await
    }

    /// Renews a worker's lease, and waits for what it should know (*Workers, leases, time*).
    pub async fn heartbeat(&self, worker: &str, request: &Heartbeat) -> Result<HeartbeatAnswer, ClientError> {
        self.post(
            &format!("workers/{worker}/heartbeat"),
            request,
            Duration::from_millis(request.wait_ms),
        )
        .await
    }

    /// Opens a trainer session, which goes on from a checkpoint and ends the sessions before it (*Resume*).
    pub async fn open_trainer_session(&self, request: &OpenTrainerSession) -> Result<TrainerSession, ClientError> {
        self.post("trainer", request, Duration::ZERO).await
    }

    /// Takes the next batch for training, waiting for it for up to `wait` (*Take*). The epoch is that of the trainer's
    /// session, here and below; a run in which none was ever opened needs none.
    pub async fn next_batch(&self, epoch: Option<Epoch>, wait: Duration) -> Result<NextBatch, ClientError> {
        let body = TrainerCall {
            epoch,
            body: json!({ "wait_ms": millis(wait) }),
        };
        self.post("batches/next", &body, wait).await
    }

    /// Takes the next piece of a batch, waiting for it for up to `wait` (*Stream*).
    pub async fn next_piece(
        &self,
        epoch: Option<Epoch>,
        piece: Piece,
        wait: Duration,
    ) -> Result<NextBatch, ClientError> {
        let body = TrainerCall {
            epoch,
            body: json!({
                "stream": true,
                "version": piece.version,
                "from_offset": piece.from_offset,
                "min_entries": piece.min_entries,
                "wait_ms": millis(wait),
            }),
        };
        self.post("batches/next", &body, wait).await
    }

    /// Publishes `version` and says where its weights are (*Publish*).
    pub async fn publish(
        &self,
        epoch: Option<Epoch>,
        version: Version,
        weights: &str,
    ) -> Result<Published, ClientError> {
        let body = TrainerCall {
            epoch,
            body: json!({ "version": version, "weights": weights }),
        };
        self.post("versions", &body, Duration::ZERO).await
    }

    /// Lets go of the batches that a durable checkpoint of `version` covers.
    pub async fn checkpoint(&self, epoch: Option<Epoch>, version: Version) -> Result<Checkpointed, ClientError> {
        let body = TrainerCall {
            epoch,
            body: json!({ "version": version }),
        };
        self.post("checkpoints", &body, Duration::ZERO).await
    }

    /// The latest version.
    pub async fn latest_version(&self) -> Result<LatestVersion, ClientError> {
        self.client
            .get(&format!("{}/versions/latest", self.path), Duration::ZERO)
            .await
    }

    /// The slot tables.
    pub async fn buffers(&self) -> Result<Buffers, ClientError> {
        self.client
            .get(&format!("{}/buffers?slots=true", self.path), Duration::ZERO)
            .await
    }

    /// The workers.
    pub async fn workers(&self) -> Result<Workers, ClientError> {
        self.client.get(&format!("{}/workers", self.path), Duration::ZERO).await
    }

    /// Why the trainer waits, as `E` reads it.
    pub async fn explain<E: DeserializeOwned>(&self) -> Result<E, ClientError> {
        self.client.get(&format!("{}/explain", self.path), Duration::ZERO).await
    }

    /// The run's state in numbers, as `S` reads it.
    pub async fn status_as<S: DeserializeOwned>(&self) -> Result<S, ClientError> {
        self.client.get(&self.path, Duration::ZERO).await
    }

    /// The events after `after` (0 for all), at most a page of them, waiting for the first for up to `wait`. As `E` they are
    /// [`Event`](crate::protocol::Event)s, or the JSON itself.
    pub async fn events<E: DeserializeOwned>(&self, after: u64, wait: Duration) -> Result<EventPage<E>, ClientError> {
        let wait_ms = millis(wait);
        let path = format!(
            "{}/events?after={after}&limit={EVENTS_PER_PAGE}&wait_ms={wait_ms}",
            self.path
        );
        self.client.get(&path, wait).await
    }

    async fn post<B, A>(&self, what: &str, body: &B, wait: Duration) -> Result<A, ClientError>
    where
        B: Serialize + Sync,
        A: DeserializeOwned,
    {
        self.client
            .send(Method::POST, &format!("{}/{what}", self.path), body, wait)
            .await
    }
}

/// The body of a trainer's call.
#[derive(Serialize)]
struct TrainerCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    #[serde(flatten)]
    body: serde_json::Value,
}

/// A duration as the contract writes it.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
