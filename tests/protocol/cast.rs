//! Who acts in these tests, and how to look at what they are answered.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Client, Ledger, Response, Run, Trainer, eventually};

/// A rollout process. It speaks of its own session in every call.
#[derive(Clone)]
pub(crate) struct Worker {
    run: Run,
    name: String,
    session: String,
}

impl Worker {
    /// The first process of the worker of this name.
    pub(crate) fn of(run: &Run, name: &str) -> Self {
        Self {
            run: run.clone(),
            name: name.to_owned(),
            session: format!("{name}-1"),
        }
    }

    /// The next process of the same worker: the same name, a new session.
    pub(crate) fn restarted(&self) -> Self {
        Self {
            session: format!("{}+", self.session),
            ..self.clone()
        }
    }

    /// The same process, calling another server.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            run: self.run.through(client),
            ..self.clone()
        }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// `body` with this worker and its session.
    pub(crate) fn says(&self, mut body: Value) -> Value {
        body["worker"] = json!(self.name);
        body["session"] = json!(self.session);
        body
    }

    pub(crate) async fn reserve(&self, body: Value) -> Response {
        self.run.post("reservations", self.says(body)).await
    }

    /// Reserves for one prompt under `version`, and returns the id.
    pub(crate) async fn gets(&self, version: u64, prompt: &str) -> String {
        let answer = self.reserve(json!({ "version": version, "prompts": [prompt] })).await;
        ids(&answer.ok()["granted"]).remove(0)
    }

    pub(crate) async fn occupy(&self, id: &str, body: Value) -> Response {
        let path = format!("trajectories/{id}/occupy");
        self.run.post(&path, self.says(body)).await
    }

    /// Reports a member of a group.
    pub(crate) async fn member(&self, id: &str, index: u32, body: Value) -> Response {
        let path = format!("trajectories/{id}/members/{index}");
        self.run.post(&path, self.says(body)).await
    }

    /// Finishes these members of a group, each with its index as its reward.
    pub(crate) async fn finishes(&self, id: &str, indexes: Range<u32>) {
        for index in indexes {
            self.member(id, index, json!({ "reward": index })).await.ok();
        }
    }

    pub(crate) async fn segment(&self, id: &str, body: Value) -> Response {
        let path = format!("trajectories/{id}/segments");
        self.run.post(&path, self.says(body)).await
    }

    pub(crate) async fn discard(&self, id: &str, reason: &str) -> Response {
        let path = format!("trajectories/{id}/discard");
        self.run.post(&path, self.says(json!({ "reason": reason }))).await
    }

    pub(crate) async fn claim(&self, id: &str) -> Response {
        let path = format!("trajectories/{id}/claim");
        self.run.post(&path, self.says(json!({}))).await
    }

    pub(crate) async fn heartbeat(&self, mut body: Value) -> Response {
        body["session"] = json!(self.session);
        let path = format!("workers/{}/heartbeat", self.name);
        self.run.post(&path, body).await
    }

    /// What a heartbeat tells it to stop, as `[[prompt or id, reason] …]`.
    pub(crate) async fn is_told(&self) -> Value {
        told(&self.heartbeat(json!({})).await.ok())
    }

    /// A Reserve for one prompt that waits a minute at most, and is known to the ledger when this returns.
    pub(crate) async fn waits_for_a_place(&self, ledger: &Ledger, version: u64, prompt: &str) -> JoinHandle<Response> {
        let body = json!({ "version": version, "prompts": [prompt], "wait_ms": 60_000 });
        let worker = self.clone();
        let call = tokio::spawn(async move { worker.reserve(body).await });
        eventually("the waiting worker is known", async || self.is_known().await).await;
        until_somebody_waits(ledger, &self.run, "admission").await;
        call
    }

    async fn is_known(&self) -> bool {
        let page = self.run.get("workers").await.ok();
        each(&page["workers"]).any(|worker| worker["worker"] == self.name && worker["session"] == self.session)
    }
}

/// The cancellations of a heartbeat's answer, as `[[id, reason] …]`.
pub(crate) fn told(heartbeat: &Value) -> Value {
    each(&heartbeat["cancelled"])
        .map(|cancelled| json!([cancelled["id"], cancelled["reason"]]))
        .collect()
}

/// A server on which at most so many calls may wait.
pub(crate) async fn ledger_with_places_to_wait(places: usize) -> Option<Ledger> {
    let database = crate::support::Database::start().await?;
    let flags = ["--redis", &database.url(), "--max-waiting", &places.to_string()];
    let server = crate::support::TestServer::start_with(&flags).await;
    Some(Ledger { server, database })
}

/// Returns once a server listens for what wakes calls that wait for `topic`: one of them has come to wait.
pub(crate) async fn until_somebody_waits(ledger: &Ledger, run: &Run, topic: &str) {
    let channel = format!("berth:{{{}}}:wake:{topic}", run.name());
    let mut connection = ledger.database.connection().await;
    eventually("somebody waits", async || {
        let mut channels = redis::cmd("PUBSUB");
        channels.arg("CHANNELS").arg(&channel);
        let found: Vec<String> = channels.query_async(&mut connection).await.expect("the channels");
        !found.is_empty()
    })
    .await;
}

/// Lets the lease of whoever is silent run out: returns once `id` was discarded for it.
pub(crate) async fn until_expired(run: &Run, id: &str) {
    eventually("the lease runs out", async || {
        let entry = trajectory(run, id).await;
        entry["reason"] == "lease_expired"
    })
    .await;
}

/// Taking and publishing: trains what is ready, up to and with the batch of `version`.
pub(crate) async fn train(run: &Run, version: u64) {
    let batch = run.take().await.ok();
    assert_eq!(batch["batch"]["version"], version, "{batch:#}");
    run.publish(version + 1).await.ok();
}

/// Generates and trains the batches of these versions one after another, each by the newest weights: the batch of
/// version 3 is of prompts `a3 b3 …`.
pub(crate) async fn train_batches(run: &Run, trainer: &Trainer, versions: Range<u64>) {
    let size = run.get("").await.ok()["config"]["batch_size"].as_u64();
    let letters = ["a", "b", "c", "d"]
        .iter()
        .take(usize::try_from(size.unwrap_or(0)).expect("a small number"));
    for version in versions {
        let prompts: Vec<_> = letters.clone().map(|letter| format!("{letter}{version}")).collect();
        finish(run, version, &prompts.join(" ")).await;
        trainer.trains(version).await;
    }
}

/// Reserves and finishes one entry for each of the prompts, in that order.
pub(crate) async fn finish(run: &Run, version: u64, prompts: &str) {
    run.reserve(version, prompts).await.ok();
    for prompt in prompts.split_whitespace() {
        run.occupy(prompt).await.ok();
    }
}

pub(crate) async fn trajectory(run: &Run, id: &str) -> Value {
    run.get(&format!("trajectories/{id}")).await.ok()
}

/// The ids in a list of entries.
pub(crate) fn ids(entries: &Value) -> Vec<String> {
    each(entries)
        .map(|entry| entry["id"].as_str().expect("an entry has an id").to_owned())
        .collect()
}

/// The prompts in a list of entries, as in `"a d c e"`.
pub(crate) fn prompts(entries: &Value) -> String {
    let prompts = each(entries).map(|entry| entry["prompt"].as_str().unwrap_or("-"));
    prompts.collect::<Vec<_>>().join(" ")
}

/// These fields of an object.
pub(crate) fn only(object: &Value, fields: &[&str]) -> Value {
    fields
        .iter()
        .map(|field| ((*field).to_owned(), object[*field].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The object without these fields, which it must have.
pub(crate) fn without(mut object: Value, fields: &[&str]) -> Value {
    let map = object.as_object_mut().expect("an object");
    for field in fields {
        assert!(map.remove(*field).is_some(), "no {field} in {map:#?}");
    }
    object
}

pub(crate) fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().unwrap_or_else(|| panic!("not a list: {list}")).iter()
}

/// Far above what an answer takes that is due, and far below the minute that a call waits in these tests.
pub(crate) async fn soon(call: JoinHandle<Response>) -> Response {
    tokio::time::timeout(Duration::from_secs(30), call)
        .await
        .expect("a waiting call is answered when there is a reason")
        .expect("a call")
}
