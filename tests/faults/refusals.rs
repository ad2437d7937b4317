//! What the protocol refuses changes nothing, except that the caller's session is renewed.

use berth::store::script::{self, Script};
use serde_json::{Value, json};

use crate::keys::differing;
use crate::scenarios::granted_to_holder;
use crate::workshop::{
    DISCARDED, NEW, OCCUPIED, RESERVED, TAKEN, Workshop, calls, occupy, occupy_by, outcome, reserve,
};

/// Renewed with a session: its last call, its lease, and the run's clock.
const RENEWED: [&str; 3] = ["run", "sessions", "leases"];
/// A call that names no worker still lets the run's clock go on.
const CLOCK: [&str; 1] = ["run"];

async fn check(script: &Script, args: Value, code: &str, may_change: &[&str]) {
    let Some(mut workshop) = Workshop::open().await else {
        return;
    };
    let before = workshop.dumps().await;

    let reply = workshop.run(script, args).await.expect("an answer");

    // The body of the call, where the script does the calls of many.
    let body = reply["body"]["replies"]
        .get(0)
        .map_or(&reply["body"], |reply| &reply["body"]);
    let told = [
        outcome(&reply),
        body["outcome"].as_str(),
        body["results"][0]["code"].as_str(),
    ];
    assert!(told.contains(&Some(code)), "{reply}");
    for part in differing(&before, &workshop.dumps().await) {
        assert!(
            may_change.contains(&part),
            "{part} was changed by a call that was refused as {code}"
        );
    }
}

macro_rules! refusals {
    ($($name:ident: $script:ident $args:expr => $code:literal, $may_change:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(&script::$script, $args, $code, &$may_change).await;
        })*
    };
}

refusals! {
    a_grant_that_reached_nobody_of_an_unknown_entry: ABANDON granted_to_holder(NEW) => "kept", CLOCK;
    a_grant_that_reached_nobody_of_what_was_finished_meanwhile: ABANDON granted_to_holder(OCCUPIED) => "kept", CLOCK;
    a_grant_that_reached_nobody_of_what_was_trained_meanwhile: ABANDON granted_to_holder(TAKEN) => "kept", CLOCK;
    a_grant_that_reached_nobody_of_what_another_worker_holds:
        ABANDON json!({ "id": RESERVED, "holder": { "worker": "silent" } }) => "kept", CLOCK;
    a_grant_that_reached_nobody_of_what_a_later_session_holds:
        ABANDON json!({ "id": RESERVED, "holder": { "worker": "holder", "session": "old" } }) => "kept", CLOCK;
    a_claim_of_an_unknown_entry: CLAIM json!({ "worker": "holder", "session": "s", "id": NEW }) => "unknown_trajectory", RENEWED;
    a_claim_of_a_discarded_entry:
        CLAIM json!({ "worker": "holder", "session": "s", "id": DISCARDED }) => "trajectory_discarded", RENEWED;
    a_claim_with_older_weights:
        CLAIM json!({ "worker": "stale", "session": "s", "id": RESERVED }) => "version_too_stale", RENEWED;
    a_discard_of_an_unknown_entry:
        DISCARD json!({ "worker": "holder", "session": "s", "id": NEW, "reason": "failed" }) => "unknown_trajectory", RENEWED;
    a_discard_of_a_taken_entry:
        DISCARD json!({ "worker": "holder", "session": "s", "id": TAKEN, "reason": "failed" }) => "trajectory_taken", RENEWED;
    a_discard_of_a_taken_entry_by_nobody_in_particular:
        DISCARD json!({ "id": TAKEN, "reason": "failed" }) => "trajectory_taken", CLOCK;
    an_occupy_of_an_unknown_entry:
        OCCUPY occupy(NEW) => "unknown_trajectory", RENEWED;
    an_occupy_of_a_discarded_entry:
        OCCUPY occupy(DISCARDED) => "trajectory_discarded", RENEWED;
    a_publish_before_its_batch_was_taken: PUBLISH json!({ "version": 3 }) => "publish_out_of_order", CLOCK;
    a_publish_of_a_version_too_far: PUBLISH json!({ "version": 9 }) => "publish_out_of_order", CLOCK;
    a_take_of_another_batch: TAKE json!({ "version": 1 }) => "other_batch", CLOCK;
    a_reserve_of_unknown_weights:
        RESERVE calls(json!({ "worker": "silent", "session": "s", "ids": [NEW] })) => "version_unknown", RENEWED;
    a_reserve_of_unpublished_weights:
        RESERVE reserve(json!({ "version": 3, "ids": [NEW] })) => "version_not_published", RENEWED;
    a_reserve_of_stale_weights: RESERVE reserve(json!({ "version": 0, "ids": [NEW] })) => "version_too_stale", RENEWED;
    a_reserve_under_the_request_id_of_another:
        RESERVE reserve(json!({ "version": 2, "ids": [NEW],
            "request": { "id": "request", "fingerprint": "other", "step": 0 } })) => "request_id_reused", RENEWED;
    a_later_step_of_a_reserve_that_never_began:
        RESERVE reserve(json!({ "version": 2, "ids": [NEW],
            "request": { "id": "unknown", "fingerprint": "body", "step": 1 } })) => "closed", RENEWED;
    a_claim_of_a_fenced_session:
        CLAIM json!({ "worker": "restarted", "session": "old", "id": RESERVED }) => "fenced", [];
    a_discard_of_a_fenced_session:
        DISCARD json!({ "worker": "restarted", "session": "old", "id": RESERVED, "reason": "failed" }) => "fenced", [];
    a_heartbeat_of_a_fenced_session: HEARTBEAT json!({ "worker": "restarted", "session": "old" }) => "fenced", [];
    an_occupy_of_a_fenced_session:
        OCCUPY occupy_by("restarted", "old", RESERVED) => "fenced", CLOCK;
    a_reserve_of_a_fenced_session:
        RESERVE calls(json!({ "worker": "restarted", "session": "old", "version": 2, "ids": [NEW] })) => "fenced", CLOCK;
    the_opening_of_a_fenced_session: OPEN_SESSION json!({ "worker": "restarted", "session": "old" }) => "fenced", [];
    a_heartbeat_of_a_session_that_is_not_open: HEARTBEAT json!({ "worker": "new" }) => "new_session", [];
    a_reserve_of_a_session_that_is_not_open:
        RESERVE calls(json!({ "worker": "new", "version": 2, "ids": [NEW] })) => "new_session", CLOCK;
}
