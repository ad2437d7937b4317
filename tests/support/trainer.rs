//! A trainer process, in the protocol's words.

use serde_json::{Value, json};

use super::{
    http::{Client, Response},
    run::Run,
};

/// A trainer whose session is open. It says its epoch in every call.
#[derive(Clone)]
pub(crate) struct Trainer {
    run: Run,
    /// What it was answered when its session opened.
    pub(crate) opened: Value,
}

/// Asks for a trainer session under this token; `body` says what it goes on from.
pub(crate) async fn resume(run: &Run, session: &str, mut body: Value) -> Response {
    body["trainer"] = json!("t0");
    body["session"] = json!(session);
    run.post("trainer", body).await
}

impl Trainer {
    /// The first trainer of a run, which has no checkpoint yet.
    pub(crate) async fn first(run: &Run) -> Self {
        Self::open(run, "first", json!({})).await
    }

    /// A process with this token, whose session opens.
    pub(crate) async fn open(run: &Run, session: &str, body: Value) -> Self {
        Self {
            run: run.clone(),
            opened: resume(run, session, body).await.status(200),
        }
    }

    /// A process whose checkpoint is of this version; what it has not trained is trained again as it was.
    pub(crate) async fn from(run: &Run, session: &str, checkpoint: u64) -> Self {
        Self::open(run, session, json!({ "resume_from": checkpoint })).await
    }

    /// A process that abandons the weights after its checkpoint.
    pub(crate) async fn rewinding(run: &Run, session: &str, checkpoint: u64) -> Self {
        Self::open(run, session, json!({ "resume_from": checkpoint, "mode": "rewind" })).await
    }

    /// The same process, calling another server.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            run: self.run.through(client),
            ..self.clone()
        }
    }

    /// `body` with its epoch.
    pub(crate) fn says(&self, mut body: Value) -> Value {
        body["epoch"] = self.opened["epoch"].clone();
        body
    }

    /// Takes the next batch, without waiting.
    pub(crate) async fn take(&self) -> Response {
        self.run.post("batches/next", self.says(json!({}))).await
    }

    /// The batch that it is given, as in `0: a b, redelivered`.
    pub(crate) async fn is_given(&self) -> String {
        delivery(&self.take().await.ok())
    }

    pub(crate) async fn publish(&self, version: u64) -> Response {
        self.run
            .post("versions", self.says(json!({ "version": version })))
            .await
    }

    pub(crate) async fn checkpoint(&self, version: u64) -> Response {
        let body = self.says(json!({ "version": version }));
        self.run.post("checkpoints", body).await
    }

    /// Takes the batch of `version` and publishes what it trained it into, with a reference to the weights.
    pub(crate) async fn trains(&self, version: u64) {
        let answer = self.take().await.ok();
        assert_eq!(answer["batch"]["version"], version, "{answer:#}");
        let trained = version + 1;
        let body = json!({ "version": trained, "weights": format!("file:///step-{trained}") });
        self.run.post("versions", self.says(body)).await.ok();
    }
}

/// An answer to a Take, as in `0: a b, redelivered`: the batch, its prompts in order, and its marks.
pub(crate) fn delivery(answer: &Value) -> String {
    let batch = &answer["batch"];
    let Some(entries) = batch["trajectories"].as_array() else {
        return String::from("nothing");
    };
    let prompts: Vec<_> = entries.iter().filter_map(|entry| entry["prompt"].as_str()).collect();
    let mut text = format!("{}: {}", batch["version"], prompts.join(" "));
    for mark in ["replayed", "redelivered"] {
        if batch[mark] == true {
            text = format!("{text}, {mark}");
        }
    }
    text
}
