//! What scripts can be asked to do on the workshop's run of groups, beside what they do with single trajectories.

use berth::store::script;
use serde_json::{Value, json};

use crate::scenarios::{Command, Run, Scenario, after, at_once, granted_to_holder, let_a_lease_pass};
use crate::workshop::{NEW, OCCUPIED, ORPHAN, RESERVED, calls, occupy_whole, reserve};

/// All that is known of a script. In each of them it does, or shows, something.
pub(crate) fn of(script: &str) -> Vec<Scenario> {
    let by_holder = |mut fields: Value| {
        fields["worker"] = "holder".into();
        fields["session"] = "s".into();
        fields
    };
    let member = |id: &str, report: Value| json!({ "worker": "holder", "session": "s", "id": id, "report": report });
    let complete = |index: u32| json!({ "index": index, "reward": 0, "payload": "file:///1" });
    let new_is_reserved = || {
        Run(
            &script::RESERVE,
            reserve(json!({ "version": 2, "adopt": false, "ids": [NEW] })),
        )
    };
    let new_is_abandoned = || [new_is_reserved(), Run(&script::ABANDON, granted_to_holder(NEW))];
    match script {
        "abandon" => vec![
            at_once(granted_to_holder(RESERVED)),
            after([new_is_reserved()], granted_to_holder(NEW)),
        ],
        "claim" => vec![at_once(json!({ "worker": "silent", "session": "s", "id": ORPHAN }))],
        "discard" => vec![
            at_once(json!({ "worker": "silent", "session": "s", "id": ORPHAN, "reason": "failed" })),
            at_once(json!({ "id": OCCUPIED, "reason": "filtered" })),
        ],
        "heartbeat" => vec![
            after([let_a_lease_pass()], by_holder(json!({ "holding": [] }))),
            // It is told that the group was filled.
            after(
                [Run(&script::MEMBER, member(RESERVED, complete(1)))],
                by_holder(json!({ "version": 2 })),
            ),
        ],
        "member" => vec![
            at_once(member(RESERVED, complete(1))),
            at_once(member(ORPHAN, complete(2))),
            at_once(member(
                RESERVED,
                json!({ "index": 1, "failed": true, "note": "a note" }),
            )),
            after(
                [Run(
                    &script::MEMBER,
                    member(RESERVED, json!({ "index": 1, "failed": true })),
                )],
                member(RESERVED, json!({ "index": 2, "failed": true })),
            ),
            after(new_is_abandoned(), member(NEW, complete(0))),
            after(
                new_is_abandoned()
                    .into_iter()
                    .chain([Run(&script::MEMBER, member(NEW, complete(0)))]),
                member(NEW, complete(1)),
            ),
        ],
        "occupy" => vec![
            at_once(occupy_whole(RESERVED)),
            at_once(occupy_whole(ORPHAN)),
            at_once(calls(by_holder(
                json!({ "items": [{ "id": RESERVED, "finish": {}, "members": [{ "index": 1, "failed": true }] }] }),
            ))),
            after(new_is_abandoned(), occupy_whole(NEW)),
        ],
        "open_session" => vec![at_once(json!({ "worker": "holder", "session": "next" }))],
        "reserve" => vec![
            at_once(reserve(json!({ "version": 2, "ids": [NEW] }))),
            at_once(reserve(
                json!({ "version": 2, "ids": [NEW], "request": { "id": "new", "fingerprint": "body", "step": 0 } }),
            )),
            at_once(reserve(json!({ "version": 2, "adopt": false, "ids": [NEW] }))),
        ],
        "resume" => vec![at_once(
            json!({ "even_behind": true, "trainer": "t0", "session": "s", "resume_from": 1, "mode": "rewind", "force": false }),
        )],
        "segment" => {
            let segment = |member: u32, from_token: u64| {
                by_holder(json!({ "id": RESERVED, "member": member,
                                  "segment": { "version": 2, "from_token": from_token } }))
            };
            vec![at_once(segment(1, 0)), at_once(segment(0, 0))]
        }
        "sweep" => {
            let sweep = || json!({ "waiting": [] });
            let keep_one = json!({ "changes": { "keep_batches": 1 }, "cleared": [] });
            vec![
                after([Command("ZADD", "leases", &["-9000000000000", "holder\0s"])], sweep()),
                after([Run(&script::CONFIGURE, keep_one)], sweep()),
            ]
        }
        "view_held" => vec![
            at_once(json!({ "limit": 100 })),
            at_once(json!({ "after": RESERVED, "limit": 1 })),
        ],
        _ => Vec::new(),
    }
}
