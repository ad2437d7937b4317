//! The trainer waits for nobody, or there is none; and who the workers are.

use super::*;

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
