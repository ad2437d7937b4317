//! A database that lost writes: restored from a copy three versions old, also one in which newer writes have overtaken the lost
//! ones before anybody looks.

use serde_json::{Value, json};

use crate::auditing::audit;
use crate::support::{
    DataCopy, LocalRedis, Proxy, Response, Run, TestServer, Traffic, Trainer, draw, eventually, resume, wait_for,
};

const SESSION: &str = "only";

/// A database whose servers reach it through lines that can be cut, and a run at version 2 of which there is a copy.
struct Restored {
    redis: LocalRedis,
    copy: DataCopy,
    lines: [Proxy; 2],
    servers: [TestServer; 2],
    /// The run through the first server.
    run: Run,
}

impl Restored {
    async fn prepare() -> Self {
        let redis = LocalRedis::start().await;
        let lines = [Proxy::to_redis(&redis.url()).await, Proxy::to_redis(&redis.url()).await];
        let servers = [
            TestServer::start(&lines[0].redis_url()).await,
            TestServer::start(&lines[1].redis_url()).await,
        ];
        let run = Run::create(&servers[0].client(), json!({ "batch_size": 1, "max_staleness": 1 })).await;
        let trainer = Trainer::first(&run).await;
        train(&run, &trainer, 0, 0..2).await;
        let copy = redis.copy();
        Self {
            redis,
            copy,
            lines,
            servers,
            run,
        }
    }

    /// Another trainer session, a rewind and three more versions, all of which will be lost: version 5, epoch 3, lineage 1.
    async fn go_on(&self) -> (Trainer, u64) {
        let second = Trainer::from(&self.run, "second", 2).await;
        train(&self.run, &second, 0, 2..5).await;
        let third = Trainer::rewinding(&self.run, "third", 4).await;
        third.trains(4).await;
        let entry = reserve(&self.run, 5, 1, "lost").await.ok();
        assert_eq!(entry["granted"][0]["buffer"], 6);
        (third, self.run.get("").await.seq())
    }

    /// What the second server acknowledged last is older than what the first one did.
    async fn seen_by_both(&self) {
        let through_second = self.run.through(&self.servers[1].client());
        reserve(&through_second, 2, 0, "seen").await.ok();
        discard(&through_second, "seen").await;
    }

    fn cut(&self) {
        for line in &self.lines {
            line.set(Traffic::Refuse);
        }
    }

    async fn restore(&mut self) {
        self.redis.restore(&self.copy).await;
    }

    /// Mends a server's line; the run through that server, once it reads again.
    async fn reached_by(&self, server: usize) -> Run {
        self.lines[server].set(Traffic::Pass);
        let run = self.run.through(&self.servers[server].client());
        eventually("the server reaches the database", async || {
            run.get("").await.status == 200
        })
        .await;
        run
    }
}

/// Generates and trains these versions, each under its own weights.
async fn train(run: &Run, trainer: &Trainer, lineage: u64, versions: std::ops::Range<u64>) {
    for version in versions {
        let granted = reserve(run, version, lineage, "p").await.ok();
        let id = granted["granted"][0]["id"].as_str().expect("an id").to_owned();
        run.post(&format!("trajectories/{id}/occupy"), by(json!({}))).await.ok();
        trainer.trains(version).await;
    }
}

fn by(mut body: Value) -> Value {
    body["worker"] = json!("w");
    body["session"] = json!(SESSION);
    body
}

async fn reserve(run: &Run, version: u64, lineage: u64, prompt: &str) -> Response {
    let body = by(json!({ "version": version, "lineage": lineage, "prompts": [prompt] }));
    run.post("reservations", body).await
}

async fn discard(run: &Run, prompt: &str) {
    let id = run.id_of(prompt).await;
    let body = by(json!({ "reason": "failed" }));
    run.post(&format!("trajectories/{id}/discard"), body).await.ok();
}

/// Every call that changes something, and not one of them is done.
async fn all_are_refused(run: &Run, trainer: &Trainer) {
    let trainer = trainer.through(run.client());
    let id = "0197b0c2-0000-7000-8000-000000000000";
    let of_entry = |action: &str| format!("trajectories/{id}/{action}");
    let refusals = [
        run.patch("", json!({ "lease_ms": 5_000 })).await,
        reserve(run, 2, 0, "q").await,
        run.post(&of_entry("occupy"), by(json!({}))).await,
        run.post("occupy", by(json!({ "trajectories": [{ "id": id }] }))).await,
        run.post(&of_entry("discard"), by(json!({ "reason": "failed" }))).await,
        run.post(&of_entry("claim"), by(json!({}))).await,
        run.post(&of_entry("members/0"), by(json!({}))).await,
        run.post(&of_entry("segments"), by(json!({ "version": 2, "from_token": 9 })))
            .await,
        run.post("workers/w/heartbeat", json!({ "session": SESSION, "version": 2 }))
            .await,
        trainer.take().await,
        trainer.publish(3).await,
        trainer.checkpoint(2).await,
        run.post("batches/next", json!({ "wait_ms": 60_000 })).await,
    ];
    for refusal in refusals {
        refusal.problem(409, "ledger_behind");
    }
}

/// Reads, and confirms the run, as if nothing were wrong: it is at the version of the copy.
async fn it_can_be_looked_at(run: &Run) {
    let status = run.get("").await.ok();
    assert_eq!(
        json!([status["policy_version"], status["lineage"], status["trainer"]["epoch"]]),
        json!([2, 0, 1])
    );
    assert_eq!(run.get("batches/1").await.ok()["complete"], true);
    run.put("", json!({ "batch_size": 1, "max_staleness": 1 }))
        .await
        .status(200);
}

/// The trainer's checkpoint is of version 5: it is told what is the matter, insists, and everything goes on.
async fn the_trainer_insists(run: &Run, above: u64) -> Trainer {
    let refused = resume(run, "fourth", json!({ "resume_from": 5 })).await;
    assert_eq!(refused.problem(409, "ledger_behind")["policy_version"], 2);
    let forced = json!({ "resume_from": 5, "force": true });
    let opened = resume(run, "fourth", forced.clone()).await;
    assert!(opened.seq() > above, "{} is not above {above}", opened.seq());
    let opened = opened.ok();
    assert_eq!(
        opened,
        json!({ "epoch": 4, "trainer_version": 5, "policy_version": 5, "lineage": 2, "weights": null })
    );
    Trainer::open(run, "fourth", forced).await
}

async fn all_goes_on(run: &Run, trainer: &Trainer, from: u64) {
    let trainer = trainer.through(run.client());
    train(run, &trainer, 2, from..from + 2).await;
    trainer.checkpoint(from + 2).await.ok();
}

#[tokio::test]
async fn restored_from_a_copy_three_versions_old_nothing_goes_on_until_the_trainer_insists() {
    let mut restored = Restored::prepare().await;
    let (trainer, seen) = restored.go_on().await;
    restored.restore().await;
    let run = restored.reached_by(0).await;

    all_are_refused(&run, &trainer).await;
    // It stands in the run's state: a server that has seen nothing refuses too.
    let newcomer = TestServer::start(&restored.redis.url()).await;
    let run_elsewhere = run.through(&newcomer.client());
    all_are_refused(&run_elsewhere, &trainer).await;
    it_can_be_looked_at(&run).await;
    assert_eq!(run.tables().await, ". | .");

    let trainer = the_trainer_insists(&run, seen).await;
    all_goes_on(&run, &trainer, 5).await;
    all_goes_on(&run_elsewhere, &trainer, 7).await;
    let kept = run.get("").await.ok();
    assert_eq!(json!([kept["policy_version"], kept["kept_batches"]]), json!([9, 0]));
    audit(&run).await;
}

/// A client remembers what it was answered, also when no server does.
#[tokio::test]
async fn what_no_server_remembers_a_client_does() {
    let mut restored = Restored::prepare().await;
    let (_, seen) = restored.go_on().await;
    restored.cut();
    restored.restore().await;
    let newcomer = TestServer::start(&restored.redis.url()).await;

    let run = restored.run.through(&newcomer.client().having_seen(&seen));
    reserve(&run, 2, 0, "q").await.problem(409, "ledger_behind");

    let trainer = Trainer::open(&run, "fourth", json!({ "resume_from": 5, "force": true })).await;
    assert_eq!(trainer.opened["policy_version"], 5);
    assert!(run.get("").await.seq() > seen);
    audit(&run).await;
}

/// The trainer's own checkpoint is older than what was lost: it need not insist.
#[tokio::test]
async fn a_trainer_whose_checkpoint_the_database_knows_ends_it_without_force() {
    let mut restored = Restored::prepare().await;
    let (_, seen) = restored.go_on().await;
    restored.restore().await;
    let run = restored.reached_by(0).await;
    reserve(&run, 2, 0, "q").await.problem(409, "ledger_behind");

    let opened = resume(&run, "fourth", json!({ "resume_from": 2 })).await;

    assert!(opened.seq() > seen);
    assert_eq!(
        opened.ok(),
        json!({ "epoch": 4, "trainer_version": 2, "policy_version": 2, "lineage": 2, "weights": "file:///step-2" })
    );
    let trainer = Trainer::from(&run, "fourth", 2).await;
    train(&run, &trainer, 2, 2..3).await;
    // Workers may still hold a version 3 that is not this one.
    for lineage in [0, 1] {
        reserve(&run, 3, lineage, "q")
            .await
            .problem(409, "version_not_published");
    }
    reserve(&run, 3, 2, "q").await.ok();
    audit(&run).await;
}

#[tokio::test]
async fn the_same_goes_for_a_rewind_and_for_a_replay() {
    for (mode, policy_version, trainer_version) in [("rewind", 1, 1), ("replay", 2, 1)] {
        let mut restored = Restored::prepare().await;
        restored.go_on().await;
        restored.restore().await;
        let run = restored.reached_by(0).await;

        let opened = resume(&run, "fourth", json!({ "resume_from": 1, "mode": mode }))
            .await
            .ok();

        assert_eq!(
            json!([
                opened["epoch"],
                opened["trainer_version"],
                opened["policy_version"],
                opened["lineage"]
            ]),
            json!([4, trainer_version, policy_version, 2]),
            "the lineage rises once: {mode}"
        );
        reserve(&run, policy_version, 2, "q").await.ok();
        audit(&run).await;
    }
}

#[tokio::test]
async fn a_run_that_is_behind_can_be_deleted_and_its_name_goes_on_above_all_that_was_seen() {
    let mut restored = Restored::prepare().await;
    let (trainer, seen) = restored.go_on().await;
    restored.restore().await;
    let run = restored.reached_by(0).await;
    reserve(&run, 2, 0, "q").await.problem(409, "ledger_behind");

    run.delete().await.status(204);
    let config = json!({ "batch_size": 1, "max_staleness": 1 });
    let created = run.put("", config).await;

    assert!(created.seq() > seen);
    let created = created.status(201);
    assert_eq!(json!([created["lineage"], created["trainer"]["epoch"]]), json!([2, 3]));
    trainer.take().await.problem(409, "fenced");
    reserve(&run, 0, 1, "q").await.problem(409, "version_not_published");
    reserve(&run, 0, 2, "q").await.ok();
    audit(&run).await;
}

/// The numbers are higher than those that were acknowledged, and it is another history all the same.
#[tokio::test]
async fn a_history_that_has_overtaken_the_lost_one_is_recognised_by_its_marks() {
    let mut restored = Restored::prepare().await;
    restored.seen_by_both().await;
    let (trainer, seen) = restored.go_on().await;
    restored.cut();
    restored.restore().await;
    let stranger = TestServer::start(&restored.redis.url()).await;
    let forked = restored.run.through(&stranger.client());
    let mut seq = forked.get("").await.seq();
    while seq < seen + 20 {
        reserve(&forked, 2, 0, "q").await.ok();
        discard(&forked, "q").await;
        seq = forked.get("").await.seq();
    }

    // A look at the run, the first thing over the new line, does not make the server forget what it knows.
    let run = restored.reached_by(0).await;
    all_are_refused(&run, &trainer).await;
    all_are_refused(&forked, &trainer).await;
    it_can_be_looked_at(&run).await;

    let trainer = the_trainer_insists(&run, seq).await;
    all_goes_on(&run, &trainer, 5).await;
    all_goes_on(&forked, &trainer, 7).await;
    // A server that comes back only now knows of a loss that is settled.
    let late = restored.reached_by(1).await;
    all_goes_on(&late, &trainer, 9).await;
    // Nor is it found again over new lines.
    restored.redis.restart().await;
    for server in [0, 1] {
        let run = restored.reached_by(server).await;
        wait_for("the run goes on", async || {
            let answer = reserve(&run, 11, 2, "q").await;
            (answer.status != 503).then(|| answer.ok())
        })
        .await;
    }
    assert_eq!(draw(&run.get("buffers?slots=true").await.ok()), "q | q");
    audit(&run).await;
}
