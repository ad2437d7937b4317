//! Who plays: the processes, how they are started, stopped, killed and restarted, and the play itself.

mod reading;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use berth::protocol::{Event, PromptState};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::chance::Chance;
use crate::diary::{self, Entry, Line};
use crate::faults::{Act, Fault, Target, WORKERS};
use crate::orders::Orders;
use crate::rehearsal::Rehearsal;
use crate::support::{Client, LocalRedis, Proxy, Run, TestServer, Traffic, eventually, lives, signal};

/// How often the stage looks whether somebody ended or a fault is over.
const TICK: Duration = Duration::from_millis(20);
/// Versions that must be published after the last fault.
const AFTERWARDS: usize = 4;

/// All that plays.
pub(crate) struct Stage {
    /// The workers, and the trainer last.
    actors: Vec<Actor>,
    posts: [Post; 2],
    proxies: [Proxy; 2],
    redis: LocalRedis,
    /// Whoever suffers is not given another fault at the same time.
    troubled: Vec<Target>,
    /// What was done, and when it was over.
    faults: Vec<(&'static str, u64)>,
    run: Run,
}

/// What came of it.
pub(crate) struct Play {
    /// The diaries of the workers, one after another.
    pub(crate) workers: Vec<Line>,
    pub(crate) trainer: Vec<Line>,
    pub(crate) events: Vec<Event>,
    pub(crate) status: Value,
    pub(crate) buffers: Value,
    /// The batches that the ledger still keeps, with their entries.
    pub(crate) batches: Vec<Value>,
    /// The prompts in each state.
    pub(crate) prompts: BTreeMap<PromptState, Vec<Value>>,
    pub(crate) faults: Vec<(&'static str, u64)>,
    pub(crate) answers_dropped: usize,
}

/// A worker or the trainer: one process after another.
struct Actor {
    orders: Orders,
    /// The hidden test that it is.
    test: &'static str,
    chance: Chance,
    starts: u64,
    process: Option<Child>,
    directory: PathBuf,
}

/// A server, or the place of one that was killed.
struct Post {
    server: Option<TestServer>,
    /// It starts beside the play: a Redis that is stopped may keep it waiting.
    starting: Option<JoinHandle<TestServer>>,
}

impl Stage {
    pub(crate) async fn set(rehearsal: &Rehearsal) -> Self {
        let redis = LocalRedis::start().await;
        let posts = [Post::begin(&redis.url()).await, Post::begin(&redis.url()).await];
        let urls = posts.each_ref().map(|post| post.server().url().to_owned());
        let proxies = [Proxy::to_http(&urls[0]).await, Proxy::to_http(&urls[1]).await];
        let run = Run::create(&Client::new(&urls[0]), rehearsal.config.as_json()).await;
        let chance = Chance::new(rehearsal.seed);
        let names = (0..WORKERS).map(|index| format!("w{index}")).chain(["t".to_owned()]);
        let actors = names.map(|name| Actor {
            test: if name == "t" {
                "trainer::is_a_trainer"
            } else {
                "worker::is_a_worker"
            },
            orders: Orders {
                servers: proxies.each_ref().map(Proxy::http_url),
                run: run.path(""),
                name,
                session: String::new(),
                seed: 0,
                kind: rehearsal.config.kind,
                lease_ms: rehearsal.config.lease_ms,
                diary: PathBuf::new(),
                checkpoint: rehearsal.file("checkpoint"),
            },
            chance: Chance::new(chance.seed()),
            starts: 0,
            process: None,
            directory: rehearsal.directory().to_owned(),
        });
        let mut actors: Vec<_> = actors.collect();
        actors.iter_mut().for_each(Actor::start);
        Self {
            actors,
            posts,
            proxies,
            redis,
            troubled: Vec::new(),
            faults: Vec::new(),
            run,
        }
    }

    /// The faults, and then the end: everything finishes, and is read.
    pub(crate) async fn play(mut self, rehearsal: &Rehearsal) -> Play {
        self.suffer(rehearsal).await;
        self.recover().await;
        self.finish(rehearsal).await;
        self.read(rehearsal).await
    }

    async fn suffer(&mut self, rehearsal: &Rehearsal) {
        let chance = Chance::new(rehearsal.seed ^ 0xFA_0175);
        let end = Instant::now() + rehearsal.length;
        let mut next = Instant::now() + Fault::gap(&chance);
        let mut going_on: Vec<(Instant, Fault)> = Vec::new();
        while Instant::now() < end {
            sleep_until(next.min(Instant::now() + TICK)).await;
            self.tend().await;
            let now = Instant::now();
            for (_, fault) in going_on.extract_if(.., |(until, _)| *until <= now) {
                self.end(fault).await;
            }
            if now >= next {
                let fault = Fault::draw(&chance, rehearsal.config.lease_ms);
                if self.begin(fault).await {
                    going_on.push((now + fault.lasts, fault));
                }
                next = now + Fault::gap(&chance);
            }
        }
        for (_, fault) in going_on {
            self.end(fault).await;
        }
    }

    /// Begins a fault, unless its target suffers already.
    async fn begin(&mut self, fault: Fault) -> bool {
        let is_there = match fault.target {
            Target::Actor(place) => self.actors[place].pid().is_some(),
            Target::Server(side) => self.posts[side].server.is_some(),
            Target::Redis | Target::Line(_) => true,
        };
        if !is_there || self.troubled.contains(&fault.target) {
            return false;
        }
        self.troubled.push(fault.target);
        let Fault {
            kind, target, lasts, ..
        } = fault;
        println!("chaos: {} {kind} for {lasts:?} ({target:?})", diary::now_ms());
        match (fault.target, fault.act) {
            (Target::Actor(place), Act::Kill) => self.actors[place].kill().await,
            (Target::Actor(place), _) => self.actors[place].signal("STOP"),
            (Target::Server(side), Act::Kill) => self.posts[side].kill().await,
            (Target::Server(side), _) => self.posts[side].server().pause(),
            (Target::Redis, Act::Kill) => self.redis.kill().await,
            (Target::Redis, _) => self.redis.pause(),
            (Target::Line(side), _) => self.proxies[side].set(Traffic::CutAnswers),
        }
        true
    }

    async fn end(&mut self, fault: Fault) {
        match (fault.target, fault.act) {
            (Target::Actor(place), Act::Kill) => self.actors[place].start(),
            (Target::Actor(place), _) => self.actors[place].signal("CONT"),
            (Target::Server(side), Act::Kill) => self.posts[side].start(self.redis.url()),
            (Target::Server(side), _) => self.posts[side].server().resume(),
            (Target::Redis, Act::Kill) => self.redis.restart().await,
            (Target::Redis, _) => self.redis.resume(),
            (Target::Line(side), _) => self.proxies[side].set(Traffic::Pass),
        }
        self.troubled.retain(|target| *target != fault.target);
        self.faults.push((fault.kind, diary::now_ms()));
    }

    /// Starts again who ended without being killed here: who was fenced, and a trainer that died by its own hand.
    async fn tend(&mut self) {
        for (place, actor) in self.actors.iter_mut().enumerate() {
            if !self.troubled.contains(&Target::Actor(place)) && actor.has_ended() {
                actor.start();
            }
        }
        for (post, proxy) in self.posts.iter_mut().zip(&self.proxies) {
            if post.starting.as_ref().is_some_and(JoinHandle::is_finished) {
                let starting = post.starting.take().expect("it was there a moment ago");
                let server = starting.await.expect("a server that was killed starts again");
                proxy.lead_to_http(server.url());
                post.server = Some(server);
            }
        }
    }

    /// Training goes on now that nothing is wrong any more.
    async fn recover(&mut self) {
        let over = diary::now_ms();
        eventually("training goes on after the last fault", async || {
            self.tend().await;
            let lines = self.actors[WORKERS].diaries();
            let published = |line: &&Line| line.at_ms > over && matches!(line.entry, Entry::Published { .. });
            self.posts.iter().all(|post| post.server.is_some()) && lines.iter().filter(published).count() >= AFTERWARDS
        })
        .await;
    }

    /// The run is drained: the workers finish what there is, and what was left behind; the trainer takes it to the last entry;
    /// and each ends when it hears that the run is finished.
    async fn finish(&mut self, rehearsal: &Rehearsal) {
        // A trainer that ended now could rewind a finished run, with nobody left to work on it.
        eventually("the trainer stays", async || {
            let trainer = &mut self.actors[WORKERS];
            if trainer.has_ended() {
                trainer.start();
            }
            trainer.tell_to_finish();
            let lines = diary::read(&trainer.file(trainer.starts));
            lines.iter().any(|line| matches!(line.entry, Entry::Opened(_))) && !trainer.has_ended()
        })
        .await;
        self.run = self.run.through(&self.posts[1].server().client());
        let call = json!({ "drain": true, "queue": rehearsal.config.queue_in_the_end });
        self.run.post("drain", call).await.ok();
        if rehearsal.config.hands_out_all() {
            self.hand_out_all().await;
        }
        eventually("everybody ends", async || self.actors.iter_mut().all(Actor::has_ended)).await;
        for post in &self.posts {
            post.server().client().get("/readyz").await.ok();
        }
    }

    /// Waits until no prompt is queued, however many there are: for each to go.
    async fn hand_out_all(&self) {
        let queued = async || {
            self.run.get("").await.ok()["prompts"]["queued"]
                .as_u64()
                .expect("a number")
        };
        let mut left = queued().await;
        while left > 0 {
            eventually("the queue grows shorter", async || queued().await < left).await;
            left = queued().await;
        }
    }
}

impl Actor {
    fn start(&mut self) {
        self.starts += 1;
        self.orders.session = format!("{}-{}", self.orders.name, self.starts);
        self.orders.seed = self.chance.seed();
        self.orders.diary = self.file(self.starts);
        let errors = self.directory.join(format!("{}.errors", self.orders.name));
        self.process = Some(self.orders.start(self.test, &errors));
    }

    fn file(&self, start: u64) -> PathBuf {
        self.directory.join(format!("{}-{start}.jsonl", self.orders.name))
    }

    /// What all its processes wrote.
    fn diaries(&self) -> Vec<Line> {
        (1..=self.starts)
            .flat_map(|start| diary::read(&self.file(start)))
            .collect()
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await.expect("a process can be killed");
        }
    }

    fn signal(&self, name: &str) {
        if let Some(pid) = self.pid() {
            signal(pid, name);
        }
    }

    fn tell_to_finish(&mut self) {
        if let Some(process) = &mut self.process {
            process.stdin.take();
        }
    }

    /// Whether it ended, as it may: fenced, by its own hand, or because it was told to.
    fn has_ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return true };
        let Some(status) = process.try_wait().expect("the state of a child") else {
            return false;
        };
        let may_be = status.code().is_none_or(|code| code == 0);
        let last = self.diaries().pop();
        let errors = self.directory.join(format!("{}.errors", self.orders.name));
        assert!(
            may_be,
            "{} ended with {status}: {last:?}; see {}",
            self.orders.session,
            errors.display()
        );
        true
    }
}

impl Post {
    async fn begin(redis_url: &str) -> Self {
        Self {
            server: Some(serve(redis_url).await),
            starting: None,
        }
    }

    #[track_caller]
    fn server(&self) -> &TestServer {
        self.server.as_ref().expect("the server runs")
    }

    async fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        assert!(lives(server.pid()), "the server ended before it was killed");
        server.kill().await;
    }

    fn start(&mut self, redis_url: String) {
        self.starting = Some(tokio::spawn(async move { serve(&redis_url).await }));
    }
}

/// A server that trims nothing of the log, however long the test runs: all of it is checked in the end.
async fn serve(redis_url: &str) -> TestServer {
    TestServer::start_with(&["--redis", redis_url, "--event-retention", "1000000000"]).await
}
