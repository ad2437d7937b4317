//! The trainer process: it goes on from its checkpoint file, trains, saves, publishes, and now and then dies between two
//! of these.

mod feeding;
mod streaming;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write as _;
use std::process;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::caller::{Answer, Caller};
use crate::chance::Chance;
use crate::diary::{Diary, Entry, Opened, Trained, TrainedEntry};
use crate::orders::{Orders, told_to_finish};
use crate::support::signal;
use crate::worker::reference;

/// How long a training step takes, in milliseconds.
const TRAINING: std::ops::RangeInclusive<u64> = 20..=200;
/// Once in so many checkpoints it saves one; once in so many gaps between two acts it dies there.
const CHECKPOINTS: u64 = 4;
const DEATHS: u64 = 12;
/// Once in so many starts from an older checkpoint it abandons the weights after it.
const REWINDS: u64 = 4;

/// How this process takes its batches.
#[derive(Clone, Copy)]
enum Takes {
    Whole,
    /// In pieces: each of so many entries, or of what there is.
    Pieces(Option<u64>),
}

struct Trainer {
    orders: Orders,
    diary: Rc<Diary>,
    caller: Caller,
    chance: Chance,
    /// Once told, it does not die by its own hand any more.
    finish: watch::Receiver<bool>,
    epoch: Cell<u64>,
    takes: Takes,
    /// Whether a page of prompts was refused, as no more are to come.
    is_drained: Cell<bool>,
}

#[tokio::test]
#[ignore = "not a test: a process that the chaos test kills"]
async fn is_a_trainer() {
    let Some(orders) = Orders::received() else { return };
    let diary = Rc::new(Diary::open(&orders.diary));
    let chance = Chance::new(orders.seed);
    let takes = match chance.between(1..=4) {
        1..=2 => Takes::Whole,
        3 => Takes::Pieces(None),
        _ => Takes::Pieces(Some(chance.between(1..=3))),
    };
    let trainer = Trainer {
        takes,
        is_drained: Cell::new(false),
        caller: Caller::new(&orders, &diary),
        chance,
        finish: told_to_finish(),
        epoch: Cell::new(0),
        diary,
        orders,
    };
    if trainer.orders.kind.has_queue() {
        tokio::select! {
            () = trainer.train() => {}
            () = trainer.feed() => {}
        }
    } else {
        trainer.train().await;
    }
}

impl Trainer {
    async fn train(&self) {
        let mut version = self.open().await;
        // What it resumed from may have been published for it, without a reference.
        self.publish(version).await;
        while let Some(batch) = self.take(version).await {
            self.diary.write(Entry::Trained(batch));
            // As a trainer that lost what it was given asks for it again.
            if self.chance.once_in(10) {
                continue;
            }
            self.chance.pause(TRAINING).await;
            let next = version + 1;
            let saves = self.chance.once_in(CHECKPOINTS);
            let saves_first = self.chance.once_in(2);
            if saves && saves_first {
                self.save(next);
                self.may_die("checkpoint and publish");
            }
            self.publish(next).await;
            if saves && !saves_first {
                self.may_die("publish and checkpoint");
                self.save(next);
            }
            if saves {
                self.may_die("checkpoint and telling of it");
                self.cover(next).await;
            }
            version = next;
        }
    }

    /// Opens a session, which goes on from the checkpoint file. Returns the version that it is to train.
    async fn open(&self) -> u64 {
        let mut resume_from = self.saved();
        let mode = if self.chance.once_in(REWINDS) {
            "rewind"
        } else {
            "replay"
        };
        let mut force = false;
        loop {
            let mut call = json!({ "trainer": "t", "session": self.orders.session, "mode": mode, "force": force });
            if let Some(version) = resume_from {
                call["resume_from"] = version.into();
            }
            match self.caller.post("trainer", &call).await {
                Answer::Done(answer) => {
                    if self.chance.once_in(4) {
                        self.repeat_open(&call, &answer).await;
                    }
                    return self.opened(Opened {
                        resume_from,
                        mode: mode.to_owned(),
                        force,
                        epoch: number(&answer["epoch"]),
                        trainer_version: number(&answer["trainer_version"]),
                        policy_version: number(&answer["policy_version"]),
                        lineage: number(&answer["lineage"]),
                    });
                }
                // No checkpoint yet, and something is published: it begins where the run began.
                Answer::Refused { code, .. } if code == "invalid_request" && resume_from.is_none() => {
                    resume_from = Some(0);
                }
                // A predecessor's Resume that a stopped server had kept arrived after its death and after newer checkpoints, and
                // rewound the run to before them. What the checkpoint holds is trained.
                Answer::Refused { code, body } if code == "ledger_behind" && !force => {
                    self.refused("trainer", &code, body, &["ledger_behind"]);
                    force = true;
                }
                Answer::Refused { code, body } => self.refused("trainer", &code, body, &[]),
            }
        }
    }

    fn opened(&self, opened: Opened) -> u64 {
        self.epoch.set(opened.epoch);
        let version = opened.trainer_version;
        self.diary.write(Entry::Opened(opened));
        version
    }

    async fn repeat_open(&self, call: &Value, first: &Value) {
        self.caller.change_server();
        let alike = match self.caller.post("trainer", call).await {
            Answer::Done(again) => again == *first,
            Answer::Refused { code, body } => return self.refused("trainer", &code, body, &[]),
        };
        self.diary.write(Entry::Repeated {
            call: "trainer".to_owned(),
            alike,
        });
    }

    /// The batch of this version; `None` when the run is finished.
    async fn take(&self, version: u64) -> Option<Trained> {
        match self.takes {
            Takes::Whole => self.take_whole(version).await,
            Takes::Pieces(size) => self.stream(version, size).await,
        }
    }

    async fn take_whole(&self, version: u64) -> Option<Trained> {
        loop {
            let mut call = json!({ "epoch": self.epoch.get(), "wait_ms": 500 });
            if self.chance.once_in(2) {
                call["version"] = version.into();
            }
            let mut answer = match self.caller.post("batches/next", &call).await {
                Answer::Done(answer) => answer,
                Answer::Refused { code, body } => {
                    self.refused("take", &code, body, &[]);
                    return None;
                }
            };
            let batch = answer["batch"].take();
            if batch.is_null() {
                if answer["finished"] == true {
                    return None;
                }
                continue;
            }
            if batch["version"] != version || batch["complete"] != true || batch["offset"] != 0 {
                self.unexpected("take", batch);
                return None;
            }
            return Some(Trained {
                epoch: self.epoch.get(),
                version,
                redelivered: batch["redelivered"] == true,
                replayed: batch["replayed"] == true,
                entries: TrainedEntry::shown(&batch),
            });
        }
    }

    async fn publish(&self, version: u64) {
        let epoch = self.epoch.get();
        let call = json!({ "version": version, "epoch": epoch, "weights": reference(version) });
        match self.caller.post("versions", &call).await {
            Answer::Done(answer) if answer["trainer_version"] == version => self.diary.write(Entry::Published {
                epoch,
                version,
                policy_version: number(&answer["policy_version"]),
                lineage: number(&answer["lineage"]),
            }),
            Answer::Done(body) => self.unexpected("publish", body),
            Answer::Refused { code, body } => self.refused("publish", &code, body, &[]),
        }
    }

    async fn cover(&self, version: u64) {
        match self
            .caller
            .post("checkpoints", &json!({ "version": version, "epoch": self.epoch.get() }))
            .await
        {
            Answer::Done(_) => self.diary.write(Entry::Covered { version }),
            Answer::Refused { code, body } => self.refused("checkpoint", &code, body, &[]),
        }
    }

    fn saved(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.orders.checkpoint).ok()?;
        Some(text.parse().expect("the checkpoint file holds a version"))
    }

    /// Whole or not at all, whenever it is killed.
    fn save(&self, version: u64) {
        let draft = self.orders.checkpoint.with_extension("draft");
        let mut file = File::create(&draft).expect("a checkpoint file");
        file.write_all(version.to_string().as_bytes())
            .expect("a checkpoint is written");
        file.sync_all().expect("a checkpoint is durable");
        fs::rename(&draft, &self.orders.checkpoint).expect("a checkpoint takes the place of the last");
        self.diary.write(Entry::Saved { version });
    }

    fn may_die(&self, between: &str) {
        if self.chance.once_in(DEATHS) && !*self.finish.borrow() {
            self.diary.write(Entry::Dies {
                between: between.to_owned(),
            });
            signal(process::id(), "KILL");
        }
    }

    /// Ends the process if it is fenced, as it should: there is a newer session.
    fn refused(&self, call: &str, code: &str, body: Value, passing: &[&str]) {
        if code != "fenced" && !passing.contains(&code) {
            return self.unexpected(call, body);
        }
        self.diary.write(Entry::Refused {
            call: call.to_owned(),
            id: None,
            code: code.to_owned(),
        });
        if code == "fenced" {
            process::exit(0);
        }
    }

    /// Ends the process: there is no sense in going on, and the test fails.
    fn unexpected(&self, call: &str, answer: Value) {
        self.diary.unexpected(call, answer);
        process::exit(1);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}
