//! The buffer is pending: why nobody takes the empty slots.

use super::*;

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
