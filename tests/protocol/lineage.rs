//! *Lineage*: weights that a rewind abandoned are refused, although their number exists again.

use serde_json::{Value, json};

use crate::cast::{Worker, finish, ids, only, soon, told, train_batches, until_somebody_waits};
use crate::support::{Ledger, Response, Run, Trainer};

/// A run at version 2, with a worker that has said so.
async fn at_version_2(ledger: &Ledger) -> (Run, Worker) {
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 1 })).await;
    train_batches(&run, &Trainer::first(&run).await, 0..2).await;
    let worker = Worker::of(&run, "rollout-1");
    worker.heartbeat(json!({ "version": 2 })).await.ok();
    (run, worker)
}

/// The same, after a rewind to version 1.
async fn rewound(ledger: &Ledger) -> (Run, Worker, Trainer) {
    let (run, worker) = at_version_2(ledger).await;
    let trainer = Trainer::rewinding(&run, "second", 1).await;
    assert_eq!(run.tables().await, "A1 | .");
    (run, worker, trainer)
}

fn granted(answer: Response) -> usize {
    ids(&answer.ok()["granted"]).len()
}

#[tokio::test]
async fn abandoned_weights_are_refused_although_their_number_exists_again() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, trainer) = rewound(&ledger).await;
    let of = |version: u64, lineage: u64| json!({ "version": version, "lineage": lineage });
    worker.reserve(of(2, 0)).await.problem(409, "version_not_published");

    trainer.trains(1).await;

    assert_eq!(run.get("").await.ok()["policy_version"], 2);
    let refused = worker.reserve(of(2, 0)).await.problem(409, "version_not_published");
    assert_eq!(refused["policy_version"], 2);
    assert_eq!(run.tables().await, ". | .");
    assert_eq!(granted(worker.reserve(of(2, 1)).await), 1);
}

#[tokio::test]
async fn weights_at_or_below_the_point_of_the_rewind_are_as_good_as_before() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker, _) = rewound(&ledger).await;

    let answer = worker.reserve(json!({ "version": 1, "lineage": 0 })).await.ok();

    assert_eq!(
        only(&answer, &["policy_version", "lineage", "next_buffer"]),
        json!({ "policy_version": 1, "lineage": 1, "next_buffer": 1 })
    );
    assert_eq!(run.get("").await.ok()["reserved"], 1);
}

#[tokio::test]
async fn a_session_that_was_open_must_name_the_lineage_of_its_weights_until_it_has_named_the_new_one() {
    let Some(ledger) = Ledger::start().await else { return };
    let (_run, worker, trainer) = rewound(&ledger).await;
    let refused =
        async |body: Value| worker.reserve(body).await.problem(409, "version_not_published")["policy_version"].clone();

    assert_eq!(refused(json!({ "version": 1 })).await, 1);
    // What it said before the rewind is forgotten.
    assert_eq!(refused(json!({})).await, 1);
    assert_eq!(granted(worker.reserve(json!({ "version": 1, "lineage": 0 })).await), 1);
    assert_eq!(refused(json!({ "version": 1 })).await, 1);

    trainer.trains(1).await;
    worker.heartbeat(json!({ "version": 2, "lineage": 1 })).await.ok();
    assert_eq!(granted(worker.reserve(json!({})).await), 1);
    worker.heartbeat(json!({ "version": 2 })).await.ok();
}

#[tokio::test]
async fn a_session_that_opened_after_the_rewind_need_not_name_it() {
    let Some(ledger) = Ledger::start().await else { return };
    let (_run, worker, _) = rewound(&ledger).await;

    let new = worker.restarted();

    assert_eq!(granted(new.reserve(json!({ "version": 1 })).await), 1);
}

#[tokio::test]
async fn a_heartbeat_with_abandoned_weights_succeeds_renews_and_tells_and_takes_nothing_down() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = at_version_2(&ledger).await;
    let held = worker.gets(2, "b").await;
    let trainer = Trainer::rewinding(&run, "second", 1).await;
    trainer.trains(1).await;
    let seq = run.get("").await.seq();

    for body in [
        json!({ "version": 2, "lineage": 0 }),
        json!({ "version": 2 }),
        json!({ "version": 3, "lineage": 1 }),
    ] {
        let beat = worker.heartbeat(body).await;
        assert_eq!(beat.seq(), seq);
        let beat = beat.ok();
        assert_eq!(told(&beat), json!([[held, "rewound"]]));
        assert_eq!(
            only(&beat, &["policy_version", "lineage", "lease_expires_in_ms"]),
            json!({ "policy_version": 2, "lineage": 1, "lease_expires_in_ms": 30_000 })
        );
    }

    worker.reserve(json!({})).await.problem(409, "version_not_published");
}

#[tokio::test]
async fn who_has_an_old_lineage_gets_the_latest_version_at_once() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _, _) = rewound(&ledger).await;

    let latest = run.get("versions/latest?after=2&lineage=0&wait_ms=60000").await.ok();

    assert_eq!(
        only(&latest, &["policy_version", "lineage", "weights"]),
        json!({ "policy_version": 1, "lineage": 1, "weights": "file:///step-1" })
    );
    // And with it, waits for a newer one.
    let none = run.get("versions/latest?after=1&lineage=1&wait_ms=1").await.ok();
    assert_eq!(none["policy_version"], 1);
}

#[tokio::test]
async fn who_waits_for_a_newer_version_is_told_of_a_rewind() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = at_version_2(&ledger).await;
    let latest = {
        let run = run.clone();
        tokio::spawn(async move { run.get("versions/latest?after=2&lineage=0&wait_ms=60000").await })
    };
    let beat = {
        let worker = worker.clone();
        let body = json!({ "version": 2, "lineage": 0, "wait_ms": 60_000 });
        tokio::spawn(async move { worker.heartbeat(body).await })
    };
    until_somebody_waits(&ledger, &run, "version").await;
    until_somebody_waits(&ledger, &run, "cancelled").await;

    Trainer::rewinding(&run, "second", 1).await;

    for call in [latest, beat] {
        assert_eq!(
            only(&soon(call).await.ok(), &["policy_version", "lineage"]),
            json!({ "policy_version": 1, "lineage": 1 })
        );
    }
}

/// Its weights were good when it came to wait.
#[tokio::test]
async fn a_reserve_that_waits_with_weights_that_are_abandoned_meanwhile_is_refused() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, _) = at_version_2(&ledger).await;
    finish(&run, 2, "b c").await;
    let waiting = Worker::of(&run, "rollout-2").waits_for_a_place(&ledger, 2, "d").await;

    Trainer::rewinding(&run, "second", 1).await;

    soon(waiting).await.problem(409, "version_not_published");
    assert_eq!(run.tables().await, "A1 | .");
}

#[tokio::test]
async fn a_lineage_above_the_runs_says_that_the_database_lost_a_rewind() {
    let Some(ledger) = Ledger::start().await else { return };
    let (run, worker) = at_version_2(&ledger).await;
    let held = worker.gets(2, "b").await;
    let seq = run.get("").await.seq();

    let refusals = [
        worker.reserve(json!({ "version": 2, "lineage": 1 })).await,
        worker.heartbeat(json!({ "version": 2, "lineage": 1 })).await,
        worker.occupy(&held, json!({ "lineage": 1 })).await,
    ];

    for refusal in refusals {
        assert_eq!(refusal.seq(), seq);
        refusal.problem(409, "ledger_behind");
    }
    assert_eq!(run.tables().await, ". | b");
    // Whoever said it may be mistaken: nobody else is concerned.
    worker.occupy(&held, json!({ "lineage": 0 })).await.ok();
}

/// A second rewind further back says all that the first one did; one less far back leaves what the first one abandoned.
#[tokio::test]
async fn what_two_rewinds_abandoned_stays_abandoned() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 3 })).await;
    let first = Trainer::first(&run).await;
    train_batches(&run, &first, 0..3).await;
    let second = Trainer::rewinding(&run, "second", 1).await;
    run.names_lineage(1).await;
    second.trains(1).await;
    finish(&run, 2, "a2").await;
    second.trains(2).await;
    assert_eq!(Trainer::rewinding(&run, "third", 2).await.opened["lineage"], 2);
    let worker = Worker::of(&run, "rollout-1");
    let is_good = async |version: u64, lineage: u64| {
        let answer = worker.reserve(json!({ "version": version, "lineage": lineage })).await;
        if answer.status == 409 {
            answer.problem(409, "version_not_published");
            return false;
        }
        let granted = ids(&answer.ok()["granted"]);
        for id in granted {
            worker.discard(&id, "failed").await.ok();
        }
        true
    };

    for (version, lineages) in [
        (0, [true, true, true]),
        (1, [true, true, true]),
        (2, [false, true, true]),
        (3, [false, false, false]),
    ] {
        for (lineage, good) in (0..).zip(lineages) {
            assert_eq!(
                is_good(version, lineage).await,
                good,
                "version {version} of lineage {lineage}"
            );
        }
    }
}

/// Looking takes more than one step, and a rewind may come between them.
#[tokio::test]
async fn the_latest_version_may_be_asked_for_at_any_time_while_the_trainer_goes_back_and_forth() {
    let Some(ledger) = Ledger::start().await else { return };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    finish(&run, 0, "a").await;
    let back_and_forth = async {
        for round in 0..60 {
            let trainer = Trainer::rewinding(&run, &format!("s{round}"), 0).await;
            trainer.trains(0).await;
        }
    };
    let asks = async {
        loop {
            let latest = run.get("versions/latest").await.status(200);
            assert!([json!(0), json!(1)].contains(&latest["policy_version"]), "{latest}");
        }
    };

    tokio::select! {
        () = back_and_forth => {}
        () = asks => {}
    }

    assert_eq!(run.get("").await.ok()["lineage"], 59);
}
