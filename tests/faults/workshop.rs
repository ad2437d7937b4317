//! The scripts without a server around them: a run in which each of its keys holds something, and nobody sweeps it.

use berth::store::keys::{PARTS, RunKeys};
use berth::store::script::{self, Script};
use berth::store::{Store, StoreError, migrations};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::keys::{Dumps, dumps, keep_dumps_alike};
use crate::support::Database;

/// Entries of the run, by what became of them.
pub(crate) const TAKEN: &str = "00000000-0000-7000-8000-000000000000";
pub(crate) const TAKEN_LATER: &str = "00000000-0000-7000-8000-000000000001";
pub(crate) const RESERVED: &str = "00000000-0000-7000-8000-000000000002";
pub(crate) const DISCARDED: &str = "00000000-0000-7000-8000-000000000003";
pub(crate) const OCCUPIED: &str = "00000000-0000-7000-8000-000000000004";
/// In a run of groups, the one that has lost its owner.
pub(crate) const ORPHAN: &str = "00000000-0000-7000-8000-000000000005";
/// An id that no entry has.
pub(crate) const NEW: &str = "00000000-0000-7000-8000-00000000000f";

/// A Redis with one run at version 2: two batches were trained, and of three more entries one is reserved, one is discarded
/// and one is occupied.
pub(crate) struct Workshop {
    pub(crate) keys: RunKeys,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) store: Store,
    _database: Database,
}

impl Workshop {
    /// `None` as from [`Database::start`].
    pub(crate) async fn open() -> Option<Self> {
        let workshop = Self::empty().await?;
        workshop.fill(json!({ "group_size": 1, "group_candidates": 1 })).await;
        Some(workshop)
    }

    /// The same, but that the entries are groups of 2 of 3 candidates. Of the reserved one a member is complete, and there is
    /// one more such group, that has lost its owner.
    pub(crate) async fn open_with_groups() -> Option<Self> {
        let workshop = Self::empty().await?;
        workshop
            .fill(json!({ "group_size": 2, "group_candidates": 3, "auto_occupy": true, "adopt_groups": true }))
            .await;
        let lost = |session| json!({ "worker": "lost", "session": session });
        workshop.done(&script::OPEN_SESSION, lost("old")).await;
        let mut reserve = lost("old");
        reserve["version"] = 2.into();
        reserve["ids"] = json!([ORPHAN]);
        workshop.done(&script::RESERVE, calls(reserve)).await;
        for id in [RESERVED, ORPHAN] {
            let report = json!({ "index": 0, "version": 2, "reward": 1, "payload": "file:///0" });
            workshop
                .done(&script::MEMBER, json!({ "id": id, "report": report }))
                .await;
        }
        workshop.done(&script::OPEN_SESSION, lost("new")).await;
        Some(workshop)
    }

    async fn empty() -> Option<Self> {
        let database = Database::start().await?;
        let store = Store::new(&database.url().parse().expect("an address")).expect("a store");
        let mut connection = database.connection().await;
        keep_dumps_alike(&mut connection).await;
        Some(Self {
            keys: RunKeys::new("run"),
            connection,
            store,
            _database: database,
        })
    }

    /// Runs a script once on the run.
    pub(crate) async fn run(&self, script: &Script, args: Value) -> Result<Value, StoreError> {
        self.run_on(&self.keys, script, args).await
    }

    /// Runs a script once on a run that may be another one.
    pub(crate) async fn run_on(&self, keys: &RunKeys, script: &Script, mut args: Value) -> Result<Value, StoreError> {
        args["layout"] = migrations::CURRENT.into();
        args["mark"] = "mark".into();
        self.store.run(script, keys, &args).await
    }

    /// The database's time.
    pub(crate) async fn now_ms(&self) -> u64 {
        let mut connection = self.connection.clone();
        let time = redis::cmd("TIME").query_async(&mut connection).await;
        let (seconds, micros): (u64, u64) = time.expect("the database's clock");
        seconds * 1_000 + micros / 1_000
    }

    pub(crate) async fn dumps(&mut self) -> Dumps {
        dumps(&mut self.connection, &self.keys).await
    }

    /// Sends one command to the Redis.
    pub(crate) async fn command<const WORDS: usize>(&mut self, words: [&str; WORDS]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let _: redis::Value = command.query_async(&mut self.connection).await.expect("a command");
    }

    /// Gives every key back what it held.
    pub(crate) async fn restore(&mut self, dumps: &Dumps) {
        let mut commands = redis::pipe();
        for (part, dump) in dumps {
            let key = self.keys.part(part);
            match dump {
                Some(dump) => commands.cmd("RESTORE").arg(key).arg(0).arg(dump).arg("REPLACE"),
                None => commands.cmd("DEL").arg(key),
            };
        }
        let _: redis::Value = commands.query_async(&mut self.connection).await.expect("a restore");
    }

    async fn fill(&self, groups: Value) {
        let mut config = json!({ "batch_size": 1, "max_staleness": 1, "slots_per_buffer": 2, "lease_ms": 3_600_000,
                                 "keep_batches": 1_000, "initial_version": 0, "prompt_queue": true, "order": "longest_first",
                                 "order_window": 4, "max_attempts": 3, "drop_on": [], "final_batch": "short" });
        let occupy = if groups["group_size"] == 1 {
            occupy
        } else {
            occupy_whole
        };
        for (field, value) in groups.as_object().expect("fields") {
            config[field] = value.clone();
        }
        let create = json!({ "creating": true, "config": config });
        migrations::climb(&self.store, &self.keys, &migrations::LADDER, 0)
            .await
            .expect("a layout");
        self.done(&script::CREATE, create).await;
        let prompts: Vec<_> = (0..9)
            .map(|number| json!({ "id": "q", "data": "{}", "expected_tokens": number }))
            .collect();
        self.done(&script::FEED, json!({ "offset": 0, "prompts": prompts }))
            .await;
        for (worker, session) in [
            ("silent", "s"),
            ("restarted", "old"),
            ("restarted", "new"),
            ("stale", "s"),
            ("holder", "s"),
        ] {
            self.done(&script::OPEN_SESSION, json!({ "worker": worker, "session": session }))
                .await;
        }
        self.done(
            &script::HEARTBEAT,
            json!({ "worker": "stale", "session": "s", "version": 0 }),
        )
        .await;
        for (version, id) in [TAKEN, TAKEN_LATER].into_iter().enumerate() {
            self.done(&script::RESERVE, reserve(json!({ "version": version, "ids": [id] })))
                .await;
            self.done(&script::OCCUPY, occupy(id)).await;
            self.done(&script::TAKE, json!({})).await;
            self.done(&script::PUBLISH, json!({ "version": version + 1 })).await;
        }
        let request = json!({ "id": "request", "fingerprint": "body", "step": 0 });
        let ids = [RESERVED, DISCARDED, OCCUPIED];
        self.done(
            &script::RESERVE,
            reserve(json!({ "version": 2, "ids": ids, "request": request })),
        )
        .await;
        self.done(&script::DISCARD, json!({ "id": DISCARDED, "reason": "failed" }))
            .await;
        self.done(&script::OCCUPY, occupy(OCCUPIED)).await;
    }

    /// Runs a script that must do something.
    pub(crate) async fn done(&self, script: &Script, args: Value) {
        let reply = self.run(script, args).await.expect("a script that runs");
        assert_eq!(outcome(&reply), None, "{}: {reply}", script.name());
    }
}

/// Why a script, or the one call that it was sent, was not done.
pub(crate) fn outcome(reply: &Value) -> Option<&str> {
    let of_the_call = &reply["body"]["replies"][0]["stop"]["outcome"];
    reply["stop"]["outcome"].as_str().or(of_the_call.as_str())
}

/// The arguments of a script that does the calls of many clients.
pub(crate) fn calls(mut call: Value) -> Value {
    call["mark"] = "mark".into();
    json!({ "calls": [call] })
}

/// The arguments of a Reserve of the worker that holds the run's entries.
pub(crate) fn reserve(mut call: Value) -> Value {
    call["worker"] = "holder".into();
    call["session"] = "s".into();
    calls(call)
}

/// The arguments of an Occupy by that worker.
pub(crate) fn occupy(id: &str) -> Value {
    occupy_by("holder", "s", id)
}

/// The arguments of an Occupy.
pub(crate) fn occupy_by(worker: &str, session: &str, id: &str) -> Value {
    let item = json!({ "id": id, "finish": { "reward": 1, "payload": "file:///payload" } });
    calls(json!({ "worker": worker, "session": session, "items": [item] }))
}

/// The arguments of an Occupy of a group with all that it needs.
pub(crate) fn occupy_whole(id: &str) -> Value {
    let members = [0, 1].map(|index| json!({ "index": index, "reward": index, "payload": "file:///0" }));
    let mut call = json!({ "worker": "holder", "session": "s" });
    call["items"] = json!([{ "id": id, "finish": {}, "members": members }]);
    calls(call)
}

/// Parts that only runs with groups fill.
const SPECIAL: [&str; 2] = ["members", "orphans"];

/// Whether each key of the run holds something.
pub(crate) fn is_full(dumps: &Dumps) -> bool {
    let mut ordinary = PARTS.iter().filter(|part| !SPECIAL.contains(part));
    ordinary.all(|part| dumps[part].is_some())
}
