//! The summary's words, case by case. Buffer 12 is the next one; a batch is of 16 entries, and the bound is 1.

mod elsewhere;
mod freeing;
mod pending;

use serde_json::{Value, json};

use super::*;
use crate::protocol::RunConfig;

/// Now, by the database and on the run's clock.
const NOW_MS: u64 = 1_700_000_000_000;
const CLOCK: u64 = 100_000_000;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60_000;

const ID: &str = "0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21";

/// A run whose next buffer has so many occupied and reserved entries, all slots of the one behind it being reserved; its
/// trainer has waited for a minute, and last called a second ago.
struct Case {
    view: Value,
    workers: Vec<WorkersOfVersion>,
}

fn workers(version: u64, workers: u64, last_refusal: Option<&str>) -> WorkersOfVersion {
    WorkersOfVersion {
        version: Some(Version(version)),
        workers,
        last_refusal: last_refusal.map(str::to_owned),
    }
}

/// A reservation of an age, whose worker was last heard of so long ago.
fn reservation(slot: u32, age_ms: u64, silent_ms: u64) -> Value {
    json!({
        "id": ID,
        "entry": { "state": "reserved", "prompt": "q-17", "worker": "rollout-3", "session": "s", "version": 11, "attempt": 2,
                   "reserved_at_ms": NOW_MS - age_ms },
        "buffer": 12, "slot": slot, "granted_at": CLOCK - age_ms, "orphan": false,
        "lease_left_ms": 30_000_u64.saturating_sub(silent_ms), "heartbeat_at_ms": NOW_MS - silent_ms,
    })
}

impl Case {
    fn new(occupied: u32, reserved: u32) -> Self {
        let config = serde_json::to_value(RunConfig::new(16, 1)).expect("a configuration");
        let view = json!({
            "config": config,
            "state": {
                "policy_version": 12, "next_buffer": 12, "trainer_version": 12, "lineage": 0, "epoch": 4, "seq": 4711,
                "oldest_kept": 0, "buffers": [[occupied, reserved], [0, 16]],
                "totals": { "reserved": 0, "occupied": 0, "trained": 0, "discarded": {}, "late": 0, "adopted": 0 },
                "generating": reserved + 16,
                "trainer": { "name": "t0", "epoch": 4, "last_call_at_ms": NOW_MS - SECOND,
                             "waiting_since_at_ms": NOW_MS - MINUTE },
            },
            "now_ms": NOW_MS, "clock": CLOCK,
            "waiting_since": CLOCK - MINUTE, "last_call": CLOCK - SECOND,
            "streamed": 0, "generating": reserved + 16, "queued": 0,
            "last_reserve_at_ms": NOW_MS - 2 * SECOND,
            "waiting_on": [],
        });
        Self {
            view,
            workers: vec![workers(12, 4, None)],
        }
    }

    /// One entry short, with one reservation out.
    fn one_is_out(age_ms: u64, silent_ms: u64) -> Self {
        Self::new(15, 1).with("waiting_on", json!([reservation(15, age_ms, silent_ms)]))
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.view[field] = value;
        self
    }

    fn config(mut self, field: &str, value: Value) -> Self {
        self.view["config"][field] = value;
        self
    }

    fn state(mut self, field: &str, value: Value) -> Self {
        self.view["state"][field] = value;
        self
    }

    /// The trainer has the batch of version 12, and buffer 13 is the next one.
    fn training(self, buffers: Value) -> Self {
        let trainer = json!({ "name": "t0", "epoch": 4, "last_call_at_ms": NOW_MS - 3 * MINUTE,
                              "training_since_at_ms": NOW_MS - 3 * MINUTE });
        let taken = self.state("next_buffer", json!(13)).state("buffers", buffers);
        taken.state("trainer", trainer).with("waiting_since", json!(null))
    }

    fn no_trainer(self) -> Self {
        self.state("trainer", json!(null))
            .with("waiting_since", json!(null))
            .with("last_call", json!(null))
    }

    fn explained(self) -> Explanation {
        let view: View = serde_json::from_value(self.view).expect("a view");
        explanation(&view, self.workers)
    }

    #[track_caller]
    fn says(self, summary: &str) {
        assert_eq!(self.explained().summary, summary);
    }
}
