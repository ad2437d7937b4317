//! The summary's words, case by case. Buffer 12 is the next one; a batch is of 16 entries, and the bound is 1.

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
                "totals": { "reserved": 0, "occupied": 0, "trained": 0, "discarded": {}, "late": 0 },
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

#[test]
fn one_straggler_behind_a_live_heartbeat_and_nothing_that_frees_it() {
    let explained = Case::one_is_out(52 * MINUTE, 900).explained();

    assert_eq!(
        explained.summary,
        "Buffer 12 has 15 of 16. 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 52 min ago, is still out; \
         its heartbeat is 0.9 s old. Nothing will free it: stuck_timeout_ms is not set."
    );
    assert_eq!(
        serde_json::to_value(&explained.waiting_on).expect("JSON"),
        json!([{ "id": ID, "prompt": "q-17", "slot": 15, "worker": "rollout-3", "version": 11, "attempt": 2,
                 "members_complete": null, "reserved_at_ms": NOW_MS - 52 * MINUTE, "heartbeat_at_ms": NOW_MS - 900,
                 "frees_at_ms": null, "freed_by": null }])
    );
}

#[test]
fn a_dead_worker_whose_lease_frees_it() {
    let case = Case::one_is_out(5 * MINUTE, 19 * SECOND);
    let explained = case.explained();

    assert_eq!(
        explained.summary,
        "Buffer 12 has 15 of 16. 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 5 min ago, is still out; \
         its heartbeat is 19 s old. Its lease will free it in 11 s."
    );
    let waiting = &explained.waiting_on[0];
    assert_eq!(
        (waiting.frees_at_ms, waiting.freed_by),
        (Some(NOW_MS + 11 * SECOND), Some(FreedBy::Lease))
    );
}

#[test]
fn a_lease_frees_nothing_before_half_of_it_passed_in_silence() {
    let freed_by = |silent_ms| Case::one_is_out(MINUTE, silent_ms).explained().waiting_on[0].freed_by;

    assert_eq!(freed_by(14_999), None);
    assert_eq!(freed_by(15_000), Some(FreedBy::Lease));
}

#[test]
fn the_earliest_of_what_frees_it_is_named() {
    let with_timeouts = |silent_ms| {
        Case::one_is_out(50 * SECOND, silent_ms)
            .config("reservation_timeout_ms", json!(MINUTE))
            .config("stuck_timeout_ms", json!(65 * SECOND))
    };
    let first = |case: Case| {
        let waiting = case.explained().waiting_on.remove(0);
        (waiting.frees_at_ms.map(|at| at - NOW_MS), waiting.freed_by)
    };

    assert_eq!(
        first(with_timeouts(0).with("stuck_since", json!(CLOCK - MINUTE))),
        (Some(5 * SECOND), Some(FreedBy::StuckTimeout))
    );
    // It became stuck later than the trainer began to wait.
    assert_eq!(
        first(with_timeouts(0).with("stuck_since", json!(CLOCK - 40 * SECOND))),
        (Some(10 * SECOND), Some(FreedBy::ReservationTimeout))
    );
    assert_eq!(
        first(with_timeouts(29 * SECOND).with("stuck_since", json!(CLOCK - MINUTE))),
        (Some(SECOND), Some(FreedBy::Lease))
    );
}

#[test]
fn a_timeout_that_is_due_frees_it_now() {
    Case::one_is_out(52 * MINUTE, 900)
        .config("reservation_timeout_ms", json!(MINUTE))
        .says(
            "Buffer 12 has 15 of 16. 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 52 min ago, is still \
             out; its heartbeat is 0.9 s old. reservation_timeout_ms frees it now.",
        );
}

#[test]
fn several_stragglers() {
    let waiting = json!([reservation(14, 3 * MINUTE, 900), reservation(15, 52 * MINUTE, 900)]);
    let case = || Case::new(14, 2).with("waiting_on", waiting.clone());
    let said = "Buffer 12 has 14 of 16. 2 are still out, for the longest 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, \
                reserved 52 min ago; its heartbeat is 0.9 s old.";

    case().says(&format!("{said} Nothing will free them: stuck_timeout_ms is not set."));
    case()
        .config("stuck_timeout_ms", json!(90 * SECOND))
        .says(&format!("{said} stuck_timeout_ms will free them in 30 s."));
    case()
        .config("stuck_timeout_ms", json!(90 * SECOND))
        .config("stuck_max_reserved", json!(1))
        .says(&format!(
            "{said} Nothing will free them: stuck_timeout_ms counts only while at most 1 are out (stuck_max_reserved)."
        ));
}

#[test]
fn a_trainer_that_fell_quiet_lets_no_stuck_timeout_count() {
    Case::one_is_out(52 * MINUTE, 900)
        .config("stuck_timeout_ms", json!(90 * SECOND))
        .with("last_call", json!(CLOCK - 5 * MINUTE))
        .state(
            "trainer",
            json!({ "name": "t0", "epoch": 4, "last_call_at_ms": NOW_MS - 5 * MINUTE,
                    "waiting_since_at_ms": NOW_MS - 6 * MINUTE }),
        )
        .says(
            "The trainer does not ask for a batch; its last call was 5 min ago. Buffer 12 has 15 of 16. \
             0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 52 min ago, is still out; its heartbeat is 0.9 s \
             old. Nothing will free it: stuck_timeout_ms counts only while the trainer asks for the batch.",
        );
}

#[test]
fn a_group_without_an_owner_waits_to_be_adopted() {
    let mut orphan = reservation(15, 52 * MINUTE, 0);
    orphan["orphan"] = json!(true);
    orphan["entry"]["complete"] = json!(7);
    orphan["lease_left_ms"] = json!(null);
    let case = Case::new(15, 1)
        .with("waiting_on", json!([orphan]))
        .config("group_candidates", json!(8));
    let explained = case.explained();

    assert_eq!(
        explained.summary,
        "Buffer 12 has 15 of 16. 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21, which waits to be adopted with 7 members complete, \
         reserved 52 min ago, is still out. Nothing will free it: stuck_timeout_ms is not set."
    );
    let waiting = &explained.waiting_on[0];
    assert_eq!((&waiting.worker, waiting.members_complete), (&None, Some(7)));
}

#[test]
fn the_lease_of_a_dead_worker_does_not_free_a_group_that_will_be_adopted() {
    let mut group = reservation(15, 52 * MINUTE, 29 * SECOND);
    group["entry"]["complete"] = json!(7);
    let freed_by = |adopts: bool| {
        let case = Case::new(15, 1).with("waiting_on", json!([group]));
        case.config("adopt_groups", json!(adopts)).explained().waiting_on[0].freed_by
    };

    assert_eq!(freed_by(true), None);
    assert_eq!(freed_by(false), Some(FreedBy::Lease));
}

/// Buffer 12 has three finished entries, five that are out, and eight empty slots.
fn pending() -> Case {
    Case::new(3, 5).with("waiting_on", json!([reservation(15, 20 * MINUTE, 900)]))
}

#[test]
fn pending_because_max_concurrency_is_used_up() {
    let case = || pending().config("max_concurrency", json!(21));
    let admission = case().explained().admission;

    assert_eq!(
        serde_json::to_value(admission).expect("JSON"),
        json!({ "blocked_by": "concurrency", "free_slots": 8, "reserved": 21 })
    );
    case().says(
        "Buffer 12 has 3 of 16, 5 are still out and 8 slots are empty: 21 trajectories are being generated, and \
         max_concurrency is 21. The longest of them is 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 20 min \
         ago; its heartbeat is 0.9 s old. Nothing will free them: stuck_timeout_ms is not set. 16 more are still out with \
         places in later buffers, and come here as they finish.",
    );
}

#[test]
fn pending_with_all_that_generates_in_later_buffers() {
    let mut oldest = reservation(3, 20 * MINUTE, 900);
    oldest["buffer"] = json!(13);
    let case = || {
        let pending = Case::new(3, 0).config("max_concurrency", json!(16));
        pending.with("oldest", oldest.clone())
    };
    let said = "Buffer 12 has 3 of 16, and 13 slots are empty: 16 trajectories are being generated, and max_concurrency is \
                16. 16 are still out with places in later buffers, and come here as they finish. The oldest reservation of all is 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 20 min ago.";

    case().says(&format!("{said} Nothing will free it: stuck_timeout_ms is not set."));
    case()
        .config("stuck_timeout_ms", json!(90 * SECOND))
        .with("last_admission", json!(CLOCK - 50 * SECOND))
        .says(&format!("{said} stuck_timeout_ms will free it in 40 s."));
}

#[test]
fn pending_because_no_worker_has_weights_that_are_new_enough() {
    let mut case = Case::new(3, 5);
    case.workers = vec![workers(9, 3, Some("version_too_stale")), workers(10, 1, None)];
    let explained = case.explained();

    assert_eq!(explained.admission.blocked_by, Some(AdmissionBlock::Staleness));
    assert_eq!(
        explained.summary,
        "Buffer 12 has 3 of 16, 5 are still out and 8 slots are empty: it admits no weights below version 11, the \
         newest that a worker has are 10, and version 12 is published. 16 more are still out with places in later buffers, \
         and come here as they finish."
    );
    assert_eq!(
        serde_json::to_value(&explained.workers).expect("JSON"),
        json!([{ "version": 9, "workers": 3, "last_refusal": "version_too_stale" },
               { "version": 10, "workers": 1, "last_refusal": null }])
    );
}

#[test]
fn pending_because_no_prompt_is_queued() {
    Case::new(3, 0).config("prompt_queue", json!(true)).says(
        "Buffer 12 has 3 of 16, and 13 slots are empty: no prompt is queued. 16 are still out with places in later buffers, \
         and come here as they finish.",
    );
}

#[test]
fn pending_because_the_run_is_draining() {
    let case = |queue: &str, queued: u64| {
        let case = Case::new(3, 1).with("waiting_on", json!([reservation(15, 20 * MINUTE, 900)]));
        let case = case.config("prompt_queue", json!(true)).with("queued", json!(queued));
        case.with("draining", json!(queue))
    };
    let said = "Buffer 12 has 3 of 16, 1 is still out and 12 slots are empty: the run is draining, and admits nothing more. \
                It is 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 20 min ago; its heartbeat is 0.9 s old. \
                Nothing will free it: stuck_timeout_ms is not set. 16 more are still out with places in later buffers, and \
                come here as they finish.";

    case("finish", 0).says(said);
    case("keep", 7).says(said);
    // What is queued is still handed out.
    assert_eq!(case("finish", 7).explained().admission.blocked_by, None);
}

#[test]
fn pending_and_nobody_reserves() {
    let said = |why: &str, then: &str| {
        format!(
            "Buffer 12 has 3 of 16, 5 are still out and 8 slots are empty: {why}.{then} 16 more are still out with places in \
             later buffers, and come here as they finish."
        )
    };
    let longest = " The longest of them is 0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 20 min ago; its \
                   heartbeat is 0.9 s old. Nothing will free them: stuck_timeout_ms is not set.";

    pending().says(&said("they can be had, and the last Reserve was 2.0 s ago", ""));
    pending()
        .with("last_reserve_at_ms", json!(NOW_MS - 4 * MINUTE))
        .says(&said(
            "4 workers are there, and none has asked for a place for 4 min",
            longest,
        ));
    pending().with("last_reserve_at_ms", json!(null)).says(&said(
        "4 workers are there, and none has ever asked for a place",
        longest,
    ));
    let mut alone = pending();
    alone.workers = Vec::new();
    alone.says(&said("no worker has a lease", longest));
}

#[test]
fn one_that_hangs_in_a_later_buffer_while_nobody_reserves() {
    let mut oldest = reservation(3, 20 * MINUTE, 900);
    oldest["buffer"] = json!(13);
    Case::new(15, 0)
        .state("buffers", json!([[15, 0], [0, 1]]))
        .with("oldest", oldest)
        .config("stuck_timeout_ms", json!(MINUTE))
        .with("last_reserve_at_ms", json!(NOW_MS - 4 * MINUTE))
        .says(
            "Buffer 12 has 15 of 16, and 1 slot is empty: 4 workers are there, and none has asked for a place for 4 min. 1 is \
             still out with a place in a later buffer, and comes here if it finishes. The oldest reservation of all is \
             0197f3c2-7a51-7c44-9d1e-5b0c2f7d8e21 on rollout-3, reserved 20 min ago. Nothing will free it: stuck_timeout_ms \
             counts only while the buffer is stuck, or nothing can be admitted.",
        );
}

#[test]
fn the_trainer_trains() {
    let explained = Case::new(0, 0).training(json!([[5, 11]])).explained();

    assert_eq!(
        explained.summary,
        "The trainer has had batch 12 for 3 min, and has not published version 13; its last call was 3 min ago. Buffer 13 \
         has 5 of 16."
    );
    assert_eq!((explained.buffer, explained.occupied), (Some(BufferId(13)), 5));
}

#[test]
fn the_trainer_trains_and_no_buffer_is_open() {
    let explained = Case::new(0, 0)
        .config("max_staleness", json!(0))
        .training(json!([]))
        .explained();

    assert_eq!(
        explained.summary,
        "The trainer has had batch 12 for 3 min, and has not published version 13; its last call was 3 min ago. No buffer is \
         open until then."
    );
    assert_eq!((explained.buffer, explained.buffer_state), (None, None));
    assert_eq!(explained.admission.blocked_by, Some(AdmissionBlock::Staleness));
}

#[test]
fn no_trainer_was_ever_seen() {
    Case::new(16, 0)
        .no_trainer()
        .says("Buffer 12 is ready to be taken. No trainer has ever called.");
    Case::new(3, 0).no_trainer().says(
        "No trainer has ever called. Buffer 12 has 3 of 16, and 13 slots are empty: they can be had, and the last Reserve \
         was 2.0 s ago. 16 are still out with places in later buffers, and come here as they finish.",
    );
}

#[test]
fn a_batch_is_ready_and_not_taken() {
    let trainer = json!({ "name": "t0", "epoch": 4, "last_call_at_ms": NOW_MS - 4 * MINUTE });
    Case::new(16, 0)
        .state("trainer", trainer)
        .with("waiting_since", json!(null))
        .says("Buffer 12 is ready to be taken. The trainer does not ask for a batch; its last call was 4 min ago.");
}

#[test]
fn kept_batches_are_trained_again() {
    Case::new(3, 0).state("trainer_version", json!(7)).says(
        "The trainer trains again what is kept: it stands at version 7, and batches 7 to 11 are there for it. Nothing is \
         waited for.",
    );
}

#[test]
fn the_last_batch_of_a_drained_run() {
    let case = |occupied: u32| {
        let case = Case::new(occupied, 0).state("buffers", json!([[occupied, 0], [0, 0]]));
        case.with("draining", json!("finish"))
    };

    case(5).says(
        "The run is draining, and nothing more will come: buffer 12 with its 5 entries is the last batch, and can be taken.",
    );
    case(1).config("final_batch", json!("discard")).says(
        "The run is draining, and nothing more will come: buffer 12 with its 1 entry is discarded when the trainer asks for \
         a batch.",
    );
}

#[test]
fn a_batch_that_is_streamed_says_how_much_of_it_is_taken() {
    let case = Case::one_is_out(52 * MINUTE, 900).with("streamed", json!(12));

    let said = "Buffer 12 has 15 of 16, 12 of them taken. 0197f3c2";
    assert!(case.explained().summary.starts_with(said));
}

#[test]
fn a_finished_run() {
    Case::new(0, 0)
        .state("buffers", json!([[0, 0], [0, 0]]))
        .with("draining", json!("finish"))
        .says("The run is finished: version 12 is its last, and every process may exit.");
}

#[test]
fn workers_are_counted_by_the_version_that_they_said() {
    let worker = |version: Option<u64>, last_refusal: Option<&str>| Worker {
        worker: "w".to_owned(),
        session: "s".to_owned(),
        version: version.map(Version),
        heartbeat_at_ms: NOW_MS,
        lease_expires_in_ms: 1,
        reserved: 0,
        finished: 0,
        cancelled_pending: 0,
        last_refusal: last_refusal.map(str::to_owned),
    };
    let all = [
        worker(Some(11), None),
        worker(Some(9), None),
        worker(Some(9), Some("version_too_stale")),
        worker(None, Some("version_unknown")),
    ];

    let unknown = WorkersOfVersion {
        version: None,
        ..workers(0, 1, Some("version_unknown"))
    };
    assert_eq!(
        by_version(&all),
        [unknown, workers(9, 2, Some("version_too_stale")), workers(11, 1, None)]
    );
}
