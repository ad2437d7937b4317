//! What is read when all is over.

use std::collections::BTreeMap;

use berth::protocol::{Event, PromptState};
use hyper::Method;
use serde_json::Value;

use super::{Actor, Play, Stage};
use crate::faults::WORKERS;
use crate::prompts::STATES;
use crate::rehearsal::Rehearsal;
use crate::support::Proxy;

impl Stage {
    pub(super) async fn read(self, rehearsal: &Rehearsal) -> Play {
        let events = self.events().await;
        let log: Vec<_> = events
            .iter()
            .map(|event| serde_json::to_string(event).expect("JSON"))
            .collect();
        std::fs::write(rehearsal.file("events.jsonl"), log.join("\n")).expect("the event log is written down");
        let status = self.run.get("").await.ok();
        let mut batches = Vec::new();
        let next_buffer = status["next_buffer"].as_u64().expect("a number");
        for version in status["oldest_kept"].as_u64().unwrap_or(next_buffer)..next_buffer {
            let path = self.run.path(&format!("batches/{version}"));
            let answer = self
                .run
                .client()
                .attempt(Method::GET, &path, None)
                .await
                .expect("an answer");
            // A number that a forced resume jumped over is none.
            if answer.status != 404 {
                batches.push(answer.ok());
            }
        }
        let prompts = if rehearsal.config.kind.has_queue() {
            self.prompts().await
        } else {
            BTreeMap::new()
        };
        Play {
            workers: self.actors[..WORKERS].iter().flat_map(Actor::diaries).collect(),
            trainer: self.actors[WORKERS].diaries(),
            buffers: self.run.get("buffers?slots=true").await.ok(),
            status,
            events,
            batches,
            prompts,
            faults: self.faults,
            answers_dropped: self.proxies.iter().map(Proxy::cuts).sum(),
        }
    }

    async fn prompts(&self) -> BTreeMap<PromptState, Vec<Value>> {
        let mut prompts: BTreeMap<_, Vec<Value>> = BTreeMap::new();
        for state in STATES {
            let listed = prompts.entry(state).or_default();
            let mut after = String::new();
            loop {
                let page = self.run.get(&format!("prompts?state={state}{after}")).await.ok();
                listed.extend(page["prompts"].as_array().into_iter().flatten().cloned());
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={next}");
            }
        }
        prompts
    }

    async fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut next = Value::from(0);
        while !next.is_null() {
            let mut page = self.run.get(&format!("events?after={next}&limit=1000")).await.ok();
            let read: Vec<Event> = serde_json::from_value(page["events"].take()).expect("events");
            events.extend(read);
            next = page["next"].take();
        }
        events
    }
}
