//! The run's clock where nobody looks at the run for longer than a server ever leaves it alone.

use berth::store::script;
use serde_json::json;

use crate::support::wait_for;
use crate::workshop::Workshop;

/// Longer than what counts of a time in which nobody looked: half a second, with leases of so few.
const GAP_MS: u64 = 700;

/// Of a run that the servers come to seldom, since they have so many, leases run out late. They do run out.
#[tokio::test]
async fn a_lease_runs_out_also_where_the_run_is_looked_at_seldom_and_not_in_one_gap() {
    let Some(workshop) = Workshop::open().await else {
        return;
    };
    let changes = json!({ "changes": { "lease_ms": 1_000 }, "cleared": [] });
    workshop.done(&script::CONFIGURE, changes).await;
    let mut reserved_after = Vec::new();
    let mut last = workshop.now_ms().await;

    while reserved_after.last() != Some(&json!(0)) {
        last = wait_for("nobody looks for a while", async || {
            let now = workshop.now_ms().await;
            (now > last + GAP_MS).then_some(now)
        })
        .await;
        let swept = workshop.run(&script::SWEEP, json!({ "waiting": [] })).await;
        reserved_after.push(swept.expect("a sweep")["body"]["reserved"].clone());
        assert!(reserved_after.len() < 20, "no lease runs out");
    }
    assert_eq!(reserved_after[0], 1, "one gap used a lease up");
}
