//! One test for each script: whatever it is refused for, it leaves every key as it was. Redis keeps what a script wrote
//! before it failed.

use berth::store::StoreError;
use berth::store::keys::{PARTS, RunKeys};
use berth::store::script::{self, Script};
use serde_json::json;

use crate::keys::{Dumps, differing, dumps};
use crate::scenarios::{self, Scenario};
use crate::scenarios_of_groups;
use crate::workshop::{Workshop, is_full, outcome};

macro_rules! every_key_is_left_as_it_was_by {
    ($($script:ident)*) => {
        mod every_key_is_left_as_it_was_by {
            $(#[tokio::test]
            async fn $script() {
                super::refused_for_any_reason(stringify!($script)).await;
            })*
        }

        const TESTED: &[&str] = &[$(stringify!($script)),*];
    };
}

every_key_is_left_as_it_was_by! {
    abandon checkpoint claim configure create delete discard drain feed heartbeat member occupy open_session publish reserve resume
    segment stream sweep take trim
    view_distribution view_entry view_explain view_held view_prompts view_run view_slots view_workers
}

#[test]
fn every_script_is_tested() {
    let names: Vec<_> = script::all().into_iter().map(Script::name).collect();
    assert_eq!(names, TESTED);
}

/// These are done also when there is none.
const MAKE_ROOM: [&str; 4] = ["checkpoint", "delete", "sweep", "trim"];

async fn refused_for_any_reason(name: &str) {
    let Some(workshop) = Workshop::open().await else {
        return;
    };
    refused_in(workshop, name, scenarios::of(name)).await;
    if let Some(workshop) = Workshop::open_with_groups().await {
        refused_in(workshop, name, scenarios_of_groups::of(name)).await;
    }
}

async fn refused_in(mut workshop: Workshop, name: &str, scenarios: Vec<Scenario>) {
    let script = script::all()
        .into_iter()
        .find(|script| script.name() == name)
        .expect("a script of this name");
    let first = workshop.dumps().await;
    assert!(is_full(&first), "every key of the run holds something");

    for scenario in scenarios {
        scenario.prepare(&mut workshop).await;
        let before = workshop.dumps().await;
        for part in PARTS {
            meets_a_key_of_the_wrong_type(&mut workshop, script, &scenario, part, &before).await;
        }
        meets_an_unknown_run(&mut workshop, script, &scenario).await;
        meets_a_newer_layout(&mut workshop, script, &scenario, &before).await;
        if !name.starts_with("view_") {
            if !MAKE_ROOM.contains(&name) {
                let full = ["CONFIG", "SET", "maxmemory", "1"];
                meets_a_database_that_refuses(&mut workshop, script, &scenario, full, "maxmemory").await;
                workshop.command(["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            let replica = ["REPLICAOF", "127.0.0.1", "1"];
            meets_a_database_that_refuses(&mut workshop, script, &scenario, replica, "read only replica").await;
            workshop.command(["REPLICAOF", "NO", "ONE"]).await;
        }

        // After all that it does what it is for.
        workshop.done(script, scenario.args.clone()).await;
        workshop.restore(&first).await;
    }
}

/// It fails and has changed nothing, or it has no use for that key.
async fn meets_a_key_of_the_wrong_type(
    workshop: &mut Workshop,
    script: &Script,
    scenario: &Scenario,
    part: &'static str,
    whole: &Dumps,
) {
    let key = workshop.keys.part(part);
    for fill in [["SET", &key, "wrong"], ["RPUSH", &key, "wrong"]] {
        workshop.command(["DEL", &key]).await;
        workshop.command(fill).await;
        let before = workshop.dumps().await;

        let reply = workshop.run(script, scenario.args.clone()).await;

        let after = workshop.dumps().await;
        let met = format!(
            "{} with {} and {part} made by {fill:?}: {reply:?}",
            script.name(),
            scenario.args
        );
        match reply {
            Err(StoreError::Broken(reason)) => {
                assert!(reason.contains("WRONGTYPE"), "{met}");
                assert_eq!(differing(&before, &after), [""; 0], "{met}");
            }
            Err(other) => panic!("{met}: {other}"),
            Ok(_) => {
                // Where every key may be written, every key is looked at.
                assert!(
                    ["occupy", "reserve"].contains(&script.name()) || script.name().starts_with("view_"),
                    "{met}"
                );
                assert_eq!(before[part], after[part], "{met}");
            }
        }
        workshop.restore(whole).await;
    }
}

async fn meets_an_unknown_run(workshop: &mut Workshop, script: &Script, scenario: &Scenario) {
    let keys = RunKeys::new("unknown");

    let reply = workshop
        .run_on(&keys, script, scenario.args.clone())
        .await
        .expect("an answer");

    // A run that is to be created needs a layout first.
    let expected = if script.name() == "create" {
        "layout"
    } else {
        "unknown_run"
    };
    assert_eq!(outcome(&reply), Some(expected), "{reply}");
    let after = dumps(&mut workshop.connection, &keys).await;
    assert!(after.values().all(Option::is_none), "{} made a key", script.name());
}

async fn meets_a_newer_layout(workshop: &mut Workshop, script: &Script, scenario: &Scenario, whole: &Dumps) {
    let run = workshop.keys.part("run");
    workshop.command(["HSET", &run, "layout", "99"]).await;
    let before = workshop.dumps().await;

    let reply = workshop.run(script, scenario.args.clone()).await.expect("an answer");

    assert_eq!(reply["stop"], json!({ "outcome": "layout", "found": 99 }));
    assert_eq!(differing(&before, &workshop.dumps().await), [""; 0]);
    workshop.restore(whole).await;
}

/// The database is brought into a state in which it refuses to write, and says so before the script begins.
async fn meets_a_database_that_refuses<const WORDS: usize>(
    workshop: &mut Workshop,
    script: &Script,
    scenario: &Scenario,
    spoil: [&str; WORDS],
    words: &str,
) {
    let before = workshop.dumps().await;
    workshop.command(spoil).await;

    let reply = workshop.run(script, scenario.args.clone()).await;

    let Err(StoreError::Refusing(reason)) = reply else {
        panic!("{} after {spoil:?}: {reply:?}", script.name());
    };
    assert!(reason.contains(words), "{reason}");
    assert_eq!(differing(&before, &workshop.dumps().await), [""; 0], "{spoil:?}");
}
