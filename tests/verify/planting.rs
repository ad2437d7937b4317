//! Faults planted into a log, and found.

use serde_json::{Value, json};

use crate::logs::{LogFile, verify};

/// The `nth` event of a type, from 0.
pub(crate) fn position(log: &[Value], kind: &str, nth: usize) -> usize {
    let of_kind = log.iter().enumerate().filter(|(_, event)| event["type"] == kind);
    of_kind.map(|(index, _)| index).nth(nth).expect("such an event")
}

pub(crate) fn renumber(log: &mut [Value]) {
    for (index, event) in log.iter_mut().enumerate() {
        event["seq"] = json!(index + 1);
    }
}

/// The log is found out: the invariant is named, first at this event, with the events around it.
pub(crate) async fn is_found(log: &[Value], invariant: &str, seq: u64) {
    let file = LogFile::of(log);
    let (status, found) = verify(&["--events", &file.name()]).await;

    assert_eq!(status, Some(1), "{found:#}");
    assert_eq!(found["ok"], false);
    let run = &found["runs"][0];
    assert!(run["invariants"][invariant].as_u64() > Some(0), "{found:#}");
    let violations = run["violations"].as_array().expect("a list");
    let violation = violations.iter().find(|each| each["invariant"] == invariant);
    let violation = violation.unwrap_or_else(|| panic!("{found:#}"));
    assert_eq!(violation["seq"], seq, "{violation:#}");
    let around: Vec<_> = violation["around"].as_array().expect("a list").iter().collect();
    let at = around
        .iter()
        .rposition(|event| event["seq"] == seq)
        .expect("the event itself");
    assert!(at >= 1, "an event before it: {around:?}");
    assert!(
        around.len() > at + 1 || log.last().expect("an event")["seq"] == seq,
        "one after it: {around:?}"
    );
}
