//! One run of the ledger, and its tables as the protocol draws them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::http::{Client, Response};

/// The worker that the short forms below speak for.
const WORKER: &str = "rollout-0";
const SESSION: &str = "session-0";

/// A run under a name of its own. Paths are relative to it: `get("buffers")` is `GET /v1/runs/{run}/buffers`.
#[derive(Clone)]
pub(crate) struct Run {
    client: Client,
    name: String,
}

impl Run {
    /// Creates a run with this configuration.
    pub(crate) async fn create(client: &Client, config: Value) -> Self {
        let run = Self {
            client: client.clone(),
            name: format!("test-{}", Uuid::new_v4().simple()),
        };
        run.put("", config).await.status(201);
        run
    }

    /// The same run through another server.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            client: client.clone(),
            name: self.name.clone(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// `/v1/runs/{run}/{path}`; the run itself for an empty path.
    pub(crate) fn path(&self, path: &str) -> String {
        match path {
            "" => format!("/v1/runs/{}", self.name),
            path => format!("/v1/runs/{}/{path}", self.name),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(&self.path(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.client.post(&self.path(path), body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Response {
        self.client.put(&self.path(path), body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Response {
        self.client.patch(&self.path(path), body).await
    }

    pub(crate) async fn delete(&self) -> Response {
        self.client.delete(&self.path("")).await
    }

    /// Reserves for the prompts (`"a b c"`) under `version`, as one worker that is always the same.
    pub(crate) async fn reserve(&self, version: u64, prompts: &str) -> Response {
        let prompts: Vec<_> = prompts.split_whitespace().collect();
        let body = json!({ "worker": WORKER, "session": SESSION, "version": version, "prompts": prompts });
        self.post("reservations", body).await
    }

    /// That worker says that its weights are of this lineage from now on.
    pub(crate) async fn names_lineage(&self, lineage: u64) {
        let body = json!({ "session": SESSION, "lineage": lineage });
        self.post(&format!("workers/{WORKER}/heartbeat"), body).await.ok();
    }

    /// Finishes the entry of `prompt`.
    pub(crate) async fn occupy(&self, prompt: &str) -> Response {
        let id = self.id_of(prompt).await;
        self.post(
            &format!("trajectories/{id}/occupy"),
            json!({ "worker": WORKER, "session": SESSION }),
        )
        .await
    }

    /// Discards the entry of `prompt`.
    pub(crate) async fn discard(&self, prompt: &str, reason: &str) -> Response {
        let id = self.id_of(prompt).await;
        let body = json!({ "worker": WORKER, "session": SESSION, "reason": reason });
        self.post(&format!("trajectories/{id}/discard"), body).await
    }

    /// Takes the next batch, without waiting.
    pub(crate) async fn take(&self) -> Response {
        self.post("batches/next", json!({})).await
    }

    pub(crate) async fn publish(&self, version: u64) -> Response {
        self.post("versions", json!({ "version": version })).await
    }

    /// The id of the entry of `prompt`, which must be in an open buffer.
    pub(crate) async fn id_of(&self, prompt: &str) -> String {
        let answer = self.buffers().await;
        let slots = each(&answer["buffers"]).flat_map(|buffer| each(&buffer["slots"]));
        let mut found = slots.filter(|slot| slot["prompt"] == prompt);
        let slot = found
            .next()
            .unwrap_or_else(|| panic!("no entry of prompt {prompt} in {answer:#}"));
        assert!(
            found.next().is_none(),
            "several entries of prompt {prompt} in {answer:#}"
        );
        slot["id"].as_str().expect("an entry has an id").to_owned()
    }

    /// The open buffers as the protocol draws them, each entry by its prompt: `.` empty, lower case reserved, upper
    /// case occupied, with a star if it was streamed, as in `A* . g e | d c b f`.
    pub(crate) async fn tables(&self) -> String {
        draw(&self.buffers().await)
    }

    async fn buffers(&self) -> Value {
        self.get("buffers?slots=true").await.ok()
    }
}

/// Draws an answer of `GET …/buffers?slots=true`.
pub(crate) fn draw(answer: &Value) -> String {
    let buffer = |buffer: &Value| each(&buffer["slots"]).map(draw_slot).collect::<Vec<_>>().join(" ");
    each(&answer["buffers"]).map(buffer).collect::<Vec<_>>().join(" | ")
}

fn draw_slot(slot: &Value) -> String {
    let prompt = || {
        slot["prompt"]
            .as_str()
            .unwrap_or_else(|| panic!("an entry without a prompt: {slot}"))
    };
    match slot["state"].as_str() {
        Some("empty") => String::from("."),
        Some("reserved") => prompt().to_lowercase(),
        Some("occupied") => prompt().to_uppercase(),
        Some("taken") => format!("{}*", prompt().to_uppercase()),
        _ => panic!("a slot in no state that can be drawn: {slot}"),
    }
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().unwrap_or_else(|| panic!("not a list: {list}")).iter()
}
