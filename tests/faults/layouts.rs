//! Layouts of a run's keys: a newer one is left alone, an older one is brought up step by step.

use berth::store::Store;
use berth::store::keys::RunKeys;
use berth::store::migrations::{self, Migration};
use berth::store::script::Script;
use hyper::Method;
use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::keys::{differing, dumps, keep_dumps_alike};
use crate::support::{Database, Ledger};

#[tokio::test]
async fn a_run_of_a_newer_layout_is_refused_by_every_call_and_left_as_it_is() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let mut connection = ledger.database.connection().await;
    keep_dumps_alike(&mut connection).await;
    let run = ledger.run(json!({ "batch_size": 2, "max_staleness": 1 })).await;
    run.reserve(0, "a b c").await.ok();
    run.occupy("a").await.ok();
    let id = run.id_of("b").await;
    let keys = RunKeys::new(run.name());
    let _: () = connection.hset(keys.part("run"), "layout", 99).await.expect("a write");
    let before = dumps(&mut connection, &keys).await;

    let calls = [
        (
            Method::PUT,
            String::new(),
            Some(json!({ "batch_size": 2, "max_staleness": 1 })),
        ),
        (Method::GET, String::new(), None),
        (Method::PATCH, String::new(), Some(json!({ "lease_ms": 5_000 }))),
        (Method::DELETE, String::new(), None),
        (
            Method::POST,
            "reservations".into(),
            Some(json!({ "worker": "w", "version": 0, "wait_ms": 60_000 })),
        ),
        (Method::POST, format!("trajectories/{id}/occupy"), Some(json!({}))),
        (
            Method::POST,
            "occupy".into(),
            Some(json!({ "trajectories": [{ "id": id }] })),
        ),
        (
            Method::POST,
            format!("trajectories/{id}/discard"),
            Some(json!({ "reason": "failed" })),
        ),
        (
            Method::POST,
            format!("trajectories/{id}/claim"),
            Some(json!({ "worker": "w" })),
        ),
        (
            Method::POST,
            format!("trajectories/{id}/members/0"),
            Some(json!({ "failed": true })),
        ),
        (
            Method::POST,
            format!("trajectories/{id}/segments"),
            Some(json!({ "version": 0, "from_token": 0 })),
        ),
        (
            Method::POST,
            "workers/w/heartbeat".into(),
            Some(json!({ "wait_ms": 60_000 })),
        ),
        (Method::POST, "batches/next".into(), Some(json!({ "wait_ms": 60_000 }))),
        (Method::POST, "versions".into(), Some(json!({ "version": 1 }))),
        (
            Method::POST,
            "trainer".into(),
            Some(json!({ "trainer": "t0", "resume_from": 0 })),
        ),
        (Method::POST, "checkpoints".into(), Some(json!({ "version": 0 }))),
        (Method::GET, "versions/latest?after=0&wait_ms=60000".into(), None),
        (Method::GET, "buffers".into(), None),
        (Method::GET, "buffers?slots=true".into(), None),
        (Method::GET, format!("trajectories/{id}"), None),
        (Method::GET, "trajectories".into(), None),
        (Method::GET, "trajectories?state=occupied".into(), None),
        (Method::GET, "batches".into(), None),
        (Method::GET, "batches/0".into(), None),
        (Method::GET, "workers".into(), None),
        (Method::GET, "events?wait_ms=60000".into(), None),
    ];
    for (method, path, body) in calls {
        let answer = ledger.client().attempt(method, &run.path(&path), body).await;
        answer.expect("an answer").problem(503, "newer_layout");
    }

    assert_eq!(differing(&before, &dumps(&mut connection, &keys).await), [""; 0]);
    // It spoils no other run, and not the list of all.
    let other = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    let listed: Vec<Value> = ledger.client().get("/v1/runs").await.ok()["runs"]
        .as_array()
        .expect("a list")
        .clone();
    assert_eq!(listed.iter().map(|run| &run["run"]).collect::<Vec<_>>(), [other.name()]);
}

/// A server is replaced by one of this program while the trainer trains: it need not take its batch again.
#[tokio::test]
async fn a_batch_that_was_in_training_under_layout_1_is_published_under_layout_2() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger.run(json!({ "batch_size": 1, "max_staleness": 0 })).await;
    run.reserve(0, "a").await.ok();
    run.occupy("a").await.ok();
    run.take().await.ok();
    let as_it_was = redis::Script::new(
        "local state = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'state'))
        state.trainer_version, state.trainer.delivered = nil, nil
        return redis.call('HSET', KEYS[1], 'state', cmsgpack.pack(state), 'layout', 1)",
    );
    let mut connection = ledger.database.connection().await;
    let _: () = as_it_was
        .key(RunKeys::new(run.name()).part("run"))
        .invoke_async(&mut connection)
        .await
        .expect("a run of layout 1");

    run.publish(1).await.ok();

    let status = run.get("").await.ok();
    assert_eq!(
        json!([status["policy_version"], status["trainer_version"]]),
        json!([1, 1])
    );
}

#[tokio::test]
async fn what_was_generating_under_layout_2_still_is_under_layout_3() {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let run = ledger
        .run(json!({ "batch_size": 2, "max_staleness": 1, "max_concurrency": 3 }))
        .await;
    run.reserve(0, "a b c").await.ok();
    run.occupy("a").await.ok();
    let as_it_was = redis::Script::new(
        "local config = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'config'))
        for _, field in ipairs({ 'group_size', 'group_candidates', 'auto_occupy', 'drop_zero_variance', 'adopt_groups' }) do
          config[field] = nil
        end
        local state = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'state'))
        state.generating, state.totals.adopted = nil, nil
        redis.call('HSET', KEYS[1], 'config', cmsgpack.pack(config), 'state', cmsgpack.pack(state), 'layout', 2)",
    );
    let keys = RunKeys::new(run.name());
    let mut connection = ledger.database.connection().await;
    let _: () = as_it_was
        .key(keys.part("run"))
        .invoke_async(&mut connection)
        .await
        .expect("a run of layout 2");

    let status = run.get("").await.ok();
    assert_eq!(
        (&status["generating"], &status["totals"]["adopted"]),
        (&json!(2), &json!(0))
    );
    let granted = run.reserve(0, "d e").await.ok();
    assert_eq!(granted["granted"].as_array().map(Vec::len), Some(1));
    assert_eq!(granted["blocked_by"], "concurrency");
    assert_eq!(run.get("").await.ok()["generating"], 3);
}

#[tokio::test]
async fn a_run_of_an_older_layout_is_brought_up_one_step_after_another() {
    let Some(mut tower) = Tower::build().await else {
        return;
    };

    tower.climb(1).await;

    assert_eq!(tower.record().await, (5, "2345".to_owned()));
}

#[tokio::test]
async fn a_run_in_the_middle_of_the_ladder_takes_only_the_steps_above_it() {
    let Some(mut tower) = Tower::build().await else {
        return;
    };
    let _: () = tower
        .connection
        .hset(tower.keys.part("run"), "layout", 3)
        .await
        .expect("a write");

    tower.climb(3).await;

    assert_eq!(tower.record().await, (5, "45".to_owned()));
}

#[tokio::test]
async fn climbing_twice_is_climbing_once() {
    let Some(mut tower) = Tower::build().await else {
        return;
    };

    tower.climb(1).await;
    tower.climb(1).await;

    assert_eq!(tower.record().await, (5, "2345".to_owned()));
}

#[tokio::test]
async fn two_servers_that_climb_at_once_take_each_step_once() {
    let Some(mut tower) = Tower::build().await else {
        return;
    };
    let other = Store::new(tower.store.address()).expect("a store");
    let ladder = ladder();

    let (one, two) = tokio::join!(
        migrations::climb(&tower.store, &tower.keys, &ladder, 1),
        migrations::climb(&other, &tower.keys, &ladder, 1),
    );

    one.expect("a climb");
    two.expect("a climb");
    assert_eq!(tower.record().await, (5, "2345".to_owned()));
}

#[tokio::test]
async fn the_ladder_of_this_program_ends_at_its_layout_and_may_be_climbed_again() {
    let Some(mut tower) = Tower::build().await else {
        return;
    };
    let keys = RunKeys::new("new");
    for _ in 0..2 {
        migrations::climb(&tower.store, &keys, &migrations::LADDER, 0)
            .await
            .expect("a climb");
        let layout: u32 = tower
            .connection
            .hget(keys.part("run"), "layout")
            .await
            .expect("a layout");
        assert_eq!(layout, migrations::CURRENT);
    }
    let layouts: Vec<_> = migrations::LADDER.iter().map(|step| step.layout).collect();
    assert_eq!(layouts, (1..=migrations::CURRENT).collect::<Vec<_>>());
}

/// A run at layout 1 that takes down which steps it took.
struct Tower {
    connection: redis::aio::MultiplexedConnection,
    keys: RunKeys,
    store: Store,
    _database: Database,
}

impl Tower {
    async fn build() -> Option<Self> {
        let database = Database::start().await?;
        let mut connection = database.connection().await;
        let keys = RunKeys::new("old");
        let _: () = connection.hset(keys.part("run"), "layout", 1).await.expect("a write");
        Some(Self {
            connection,
            keys,
            store: Store::new(&database.url().parse().expect("an address")).expect("a store"),
            _database: database,
        })
    }

    async fn climb(&self, found: u32) {
        migrations::climb(&self.store, &self.keys, &ladder(), found)
            .await
            .expect("a climb");
    }

    /// The layout, and the steps taken.
    async fn record(&mut self) -> (u32, String) {
        let run = self.keys.part("run");
        self.connection
            .hmget(run, &["layout", "steps"])
            .await
            .expect("a record")
    }
}

/// A ladder of layouts to come, each step of which may be sent twice, as the steps of the real one.
fn ladder() -> Vec<Migration> {
    let step = |layout: u32, name| Migration {
        layout,
        script: Script::new(
            name,
            &format!(
                "#!lua
                local layout = tonumber(redis.call('HGET', KEYS[1], 'layout'))
                if layout >= {layout} then
                  return layout
                end
                local steps = redis.call('HGET', KEYS[1], 'steps') or ''
                redis.call('HSET', KEYS[1], 'layout', {layout}, 'steps', steps .. {layout})
                return {layout}"
            ),
        ),
    };
    vec![step(2, "second"), step(3, "third"), step(4, "fourth"), step(5, "fifth")]
}
