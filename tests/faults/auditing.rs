//! A run held against its event log.

use berth::protocol::Event;
use berth::protocol::audit::{Auditor, Report};
use serde_json::Value;

use crate::support::Run;

/// The whole event log.
pub(crate) async fn events(run: &Run) -> Vec<Event> {
    let mut events = Vec::new();
    let mut next = Value::from(0);
    while !next.is_null() {
        let mut page = run.get(&format!("events?after={next}&limit=1000")).await.ok();
        let read: Vec<Event> = serde_json::from_value(page["events"].take()).expect("events");
        events.extend(read);
        next = page["next"].take();
    }
    events
}

/// The figures of the log, in which nothing may be wrong.
pub(crate) async fn audit(run: &Run) -> Report {
    let mut auditor = Auditor::new();
    for event in events(run).await {
        auditor.apply(&event);
    }
    assert_eq!(auditor.violations(), []);
    auditor.report().clone()
}
