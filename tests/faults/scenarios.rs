//! What each script can be asked to do on the run of the workshop: so many ways as it has through its keys.

use berth::store::script::{self, Script};
use serde_json::{Value, json};

use crate::workshop::{DISCARDED, NEW, OCCUPIED, RESERVED, Workshop, calls, occupy, occupy_by, reserve};

/// One way: what is done before, and the arguments.
pub(crate) struct Scenario {
    before: Vec<Before>,
    pub(crate) args: Value,
}

pub(crate) enum Before {
    Run(&'static Script, Value),
    /// A command on one of the run's keys.
    Command(&'static str, &'static str, &'static [&'static str]),
}

pub(crate) use Before::{Command, Run};

impl Scenario {
    /// Does what is done before.
    pub(crate) async fn prepare(&self, workshop: &mut Workshop) {
        for step in &self.before {
            match step {
                Run(script, args) => workshop.done(script, args.clone()).await,
                Command(name, part, arguments) => {
                    let key = workshop.keys.part(part);
                    let mut command = redis::cmd(name);
                    command.arg(key).arg(*arguments);
                    let sent = command.query_async::<redis::Value>(&mut workshop.connection).await;
                    sent.expect("a command");
                }
            }
        }
    }
}

pub(crate) fn at_once(args: Value) -> Scenario {
    Scenario {
        before: Vec::new(),
        args,
    }
}

pub(crate) fn after(before: impl IntoIterator<Item = Before>, args: Value) -> Scenario {
    Scenario {
        before: before.into_iter().collect(),
        args,
    }
}

/// All that is known of a script. In each of them it does, or shows, something.
pub(crate) fn of(script: &str) -> Vec<Scenario> {
    match script {
        "claim" => vec![at_once(json!({ "worker": "silent", "session": "s", "id": RESERVED }))],
        "configure" => vec![at_once(
            json!({ "changes": { "lease_ms": 5_000 }, "cleared": ["max_concurrency"] }),
        )],
        "abandon" => vec![at_once(granted_to_holder(RESERVED))],
        "create" => {
            let create = || json!({ "creating": true, "even_behind": true, "config": { "max_staleness": 1, "initial_version": 0 } });
            vec![at_once(create()), after([Run(&script::DELETE, json!({}))], create())]
        }
        "discard" => vec![
            at_once(json!({ "worker": "silent", "session": "s", "id": RESERVED, "reason": "failed" })),
            at_once(json!({ "id": OCCUPIED, "reason": "filtered", "note": "a note" })),
            at_once(json!({ "id": OCCUPIED, "reason": "filtered", "requeue": true })),
            at_once(json!({ "id": RESERVED, "reason": "timed_out" })),
        ],
        "heartbeat" => {
            let by_holder = |fields: Value| {
                let mut fields = fields;
                fields["worker"] = "holder".into();
                fields["session"] = "s".into();
                fields
            };
            vec![
                at_once(json!({ "worker": "silent", "session": "s", "version": 2 })),
                at_once(by_holder(json!({ "acknowledged": [DISCARDED] }))),
                after([let_a_lease_pass()], by_holder(json!({ "holding": [] }))),
            ]
        }
        // Only groups have members.
        "member" => Vec::new(),
        "segment" => vec![
            segment(None),
            segment(Some(RESERVED)),
            at_once(json!({ "id": RESERVED, "segment": { "version": 2, "from_token": 0 } })),
        ],
        "occupy" => vec![
            at_once(occupy(RESERVED)),
            at_once(occupy_by("silent", "s", RESERVED)),
            at_once(calls(json!({ "items": [{ "id": RESERVED, "finish": {} }] }))),
            after([Run(&script::ABANDON, granted_to_holder(RESERVED))], occupy(RESERVED)),
            // The slots of its buffer are full, and another's reservation makes room.
            after(
                [Run(&script::RESERVE, reserve(json!({ "version": 2, "ids": [NEW] })))],
                occupy(RESERVED),
            ),
        ],
        "open_session" => vec![
            at_once(json!({ "worker": "new", "session": "s" })),
            at_once(json!({ "worker": "holder", "session": "next" })),
        ],
        "reserve" => {
            let request = |id| json!({ "id": id, "fingerprint": "body", "step": 0 });
            vec![
                at_once(reserve(json!({ "version": 2, "ids": [NEW] }))),
                at_once(reserve(
                    json!({ "version": 2, "ids": [NEW], "request": request("new") }),
                )),
                at_once(reserve(
                    json!({ "version": 2, "ids": [NEW], "request": request("request") }),
                )),
                at_once(calls(
                    json!({ "worker": "silent", "session": "s", "version": 2, "ids": [NEW] }),
                )),
            ]
        }
        "sweep" => of_the_sweep(),
        "trim" => {
            // A log of a few events counts as a long one.
            let trim = |archiving| json!({ "keep": -1_000, "archiving": archiving, "through": 7 });
            vec![at_once(trim(false)), at_once(trim(true))]
        }
        "view_entry" => vec![at_once(json!({ "id": RESERVED })), at_once(json!({ "id": OCCUPIED }))],
        "view_explain" => vec![at_once(json!({ "most": 100 }))],
        "view_held" => vec![
            at_once(json!({ "limit": 100 })),
            at_once(json!({ "worker": "holder", "after": DISCARDED, "limit": 1 })),
        ],
        "view_workers" => vec![
            at_once(json!({ "limit": 100 })),
            at_once(json!({ "after": "r", "limit": 1 })),
        ],
        "delete" | "view_distribution" | "view_run" | "view_slots" => vec![at_once(json!({}))],
        "drain" | "feed" | "view_prompts" => of_a_queue(script),
        trainers => of_a_trainer(trainers),
    }
}

/// One for each thing that may be due.
fn of_the_sweep() -> Vec<Scenario> {
    let sweep = || json!({ "waiting": [{ "worker": "silent" }] });
    let keep_one = json!({ "changes": { "keep_batches": 1 }, "cleared": [] });
    vec![
        at_once(sweep()),
        after([Command("ZADD", "leases", &["-9000000000000", "holder\0s"])], sweep()),
        after(
            [Command("ZADD", "forget", &["-1", "request:holder\0s\0request"])],
            sweep(),
        ),
        after([Command("ZADD", "forget", &["-1", "session:restarted\0old"])], sweep()),
        after([Run(&script::CONFIGURE, keep_one)], sweep()),
        after([set(&json!({ "reservation_timeout_ms": -1 }))], sweep()),
        // The trainer waits, and nobody can be admitted.
        after(
            [
                Run(&script::DISCARD, json!({ "id": OCCUPIED, "reason": "filtered" })),
                Run(&script::TAKE, json!({})),
                set(&json!({ "stuck_timeout_ms": -1, "max_concurrency": 1 })),
            ],
            sweep(),
        ),
    ]
}

/// Those of the prompt queue, and of the end of a run.
fn of_a_queue(script: &str) -> Vec<Scenario> {
    match script {
        "drain" => {
            let drain = |begins: bool| json!({ "drain": begins, "queue": "finish" });
            vec![
                at_once(drain(true)),
                after([Run(&script::DRAIN, drain(true))], drain(false)),
            ]
        }
        "feed" => {
            let page = |offset: Option<u64>| json!({ "offset": offset, "prompts": [{ "id": "q" }, { "id": "r" }] });
            vec![at_once(page(Some(8))), at_once(page(None))]
        }
        "view_prompts" => vec![
            at_once(json!({ "limit": 100 })),
            at_once(json!({ "state": "queued", "limit": 1, "after_queued": { "score": "0", "member": "" } })),
            at_once(json!({ "state": "failed", "limit": 100 })),
        ],
        unknown => panic!("no scenario for {unknown}"),
    }
}

/// Those of the scripts that trainers call.
fn of_a_trainer(script: &str) -> Vec<Scenario> {
    match script {
        "checkpoint" => vec![at_once(json!({ "version": 1 }))],
        "publish" => vec![
            at_once(json!({ "version": 2, "weights": "file:///weights" })),
            after([Run(&script::TAKE, json!({}))], json!({ "version": 3 })),
        ],
        "resume" => {
            let resume = |checkpoint: u64, mode: &str, force: bool| {
                json!({ "even_behind": true, "trainer": "t0", "session": "s", "resume_from": checkpoint, "mode": mode,
                        "force": force })
            };
            let reserve = || Run(&script::RESERVE, reserve(json!({ "version": 2, "ids": [NEW] })));
            vec![
                at_once(resume(2, "replay", false)),
                at_once(resume(0, "replay", false)),
                after([reserve()], resume(1, "rewind", false)),
                after([reserve()], resume(5, "replay", true)),
                after([Run(&script::TAKE, json!({}))], resume(3, "replay", false)),
            ]
        }
        "stream" => {
            let piece = || json!({ "from": 0, "min_entries": 1, "max_entries": 1 });
            vec![
                at_once(piece()),
                after([Run(&script::TAKE, json!({}))], piece()),
                after(
                    [Run(&script::DISCARD, json!({ "id": OCCUPIED, "reason": "filtered" }))],
                    piece(),
                ),
            ]
        }
        "take" => vec![
            at_once(json!({})),
            after([Run(&script::TAKE, json!({}))], json!({})),
            after(
                [Run(&script::DISCARD, json!({ "id": OCCUPIED, "reason": "filtered" }))],
                json!({}),
            ),
        ],
        unknown => panic!("no scenario for {unknown}"),
    }
}

/// A segment of the reserved entry under the version that comes next. An entry that is named is given up before, for a reason
/// after which it may still be finished.
fn segment(discarded: Option<&'static str>) -> Scenario {
    let give_up = discarded.map(|id| Run(&script::ABANDON, granted_to_holder(id)));
    let train = [
        Run(&script::TAKE, json!({})),
        Run(&script::PUBLISH, json!({ "version": 3 })),
    ];
    after(
        give_up.into_iter().chain(train),
        json!({ "worker": "holder", "session": "s", "id": RESERVED, "segment": { "version": 3, "from_token": 9 } }),
    )
}

/// To who holds all that there is.
pub(crate) fn granted_to_holder(id: &str) -> Value {
    json!({ "id": id, "holder": { "worker": "holder", "session": "s" } })
}

/// The shortest lease that a script takes: what was granted before is older.
pub(crate) fn let_a_lease_pass() -> Before {
    set(&json!({ "lease_ms": -1 }))
}

fn set(changes: &Value) -> Before {
    Run(&script::CONFIGURE, json!({ "changes": changes, "cleared": [] }))
}
