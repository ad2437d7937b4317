//! The buffer is stuck: who is out, and what frees it.

use super::*;

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
