//! A worker process: it fetches weights, keeps its lease, and in several lanes reserves, generates and reports.

mod members;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process;
use std::rc::Rc;

use berth::protocol::TrajectoryId;
use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::caller::{Answer, Caller};
use crate::chance::Chance;
use crate::diary::{Diary, Entry, Grant, payload};
use crate::orders::{Orders, told_to_finish};
use crate::rehearsal::Kind;

const LANES: u64 = 3;
/// How long weights take to load, in milliseconds.
const LOADING: std::ops::RangeInclusive<u64> = 5..=80;
/// How long most trajectories take to generate, and how long the stragglers do.
const GENERATING: std::ops::RangeInclusive<u64> = 20..=250;
const STRAGGLING: std::ops::RangeInclusive<u64> = 300..=900;
/// The pause of a lane that was refused: newer weights are on their way.
const REFUSED: std::ops::RangeInclusive<u64> = 20..=150;

/// Weights that it really holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Weights {
    version: u64,
    lineage: u64,
}

/// An entry that it was granted.
struct Work {
    id: TrajectoryId,
    /// Of the weights that it was reserved under.
    lineage: u64,
    /// The members of an adopted group that others have reported.
    reported: Vec<u32>,
}

struct Worker {
    orders: Orders,
    diary: Rc<Diary>,
    caller: Caller,
    chance: Chance,
    weights: watch::Sender<Option<Weights>>,
    /// What it lists in its heartbeats.
    holding: RefCell<BTreeSet<TrajectoryId>>,
    /// What it was told was cancelled.
    cancelled: RefCell<BTreeSet<TrajectoryId>>,
    /// Of those, what it has not acknowledged yet.
    unacknowledged: RefCell<BTreeSet<TrajectoryId>>,
    /// Whether it was told to finish, by whoever started it.
    finish: watch::Receiver<bool>,
    /// Whether it heard that the run is finished.
    is_finished: Cell<bool>,
    /// Lanes that still work.
    lanes: Cell<u64>,
}

#[tokio::test]
#[ignore = "not a test: a process that the chaos test kills"]
async fn is_a_worker() {
    let Some(orders) = Orders::received() else { return };
    let diary = Rc::new(Diary::open(&orders.diary));
    let worker = Worker {
        caller: Caller::new(&orders, &diary),
        chance: Chance::new(orders.seed),
        weights: watch::Sender::new(None),
        holding: RefCell::default(),
        cancelled: RefCell::default(),
        unacknowledged: RefCell::default(),
        finish: told_to_finish(),
        is_finished: Cell::new(false),
        lanes: Cell::new(LANES),
        diary,
        orders,
    };
    tokio::join!(
        worker.fetch_weights(),
        worker.keep_lease(),
        join_all((0..LANES).map(|_| worker.work()))
    );
}

impl Worker {
    fn works(&self) -> bool {
        self.lanes.get() > 0
    }

    /// Takes down from any answer whether the run is finished.
    fn hears(&self, answer: &Value) {
        if answer["finished"] == true {
            self.is_finished.set(true);
        }
    }

    fn me(&self, mut fields: Value) -> Value {
        fields["worker"] = self.orders.name.clone().into();
        fields["session"] = self.orders.session.clone().into();
        fields
    }

    /// Waits for newer weights, or those of another lineage, and loads them, which takes its time.
    async fn fetch_weights(&self) {
        while self.works() {
            let held = *self.weights.borrow();
            let news = held.map_or(String::new(), |held| {
                format!("after={}&lineage={}&", held.version, held.lineage)
            });
            let path = format!("versions/latest?{news}wait_ms=500");
            let answer = match self.caller.try_once(Method::GET, &path, None).await {
                Ok(Answer::Done(answer)) => answer,
                Ok(Answer::Refused { body, .. }) => {
                    self.diary.unexpected("versions/latest", body);
                    return;
                }
                Err(why) => {
                    self.caller.again("versions/latest", why).await;
                    continue;
                }
            };
            let (version, lineage) = (number(&answer["policy_version"]), number(&answer["lineage"]));
            if answer["weights"]
                .as_str()
                .is_some_and(|weights| weights != reference(version))
            {
                self.diary.unexpected("versions/latest", answer);
            }
            let newest = Some(Weights { version, lineage });
            if newest != held {
                self.chance.pause(LOADING).await;
                self.weights.send_replace(newest);
            }
        }
    }

    /// Heartbeats. A list of what is held grows old, so one that was not answered is made anew.
    async fn keep_lease(&self) {
        while self.works() {
            let mut beat = json!({
                "session": self.orders.session,
                "holding": *self.holding.borrow(),
                "acknowledged": *self.unacknowledged.borrow(),
                "wait_ms": self.orders.lease_ms / 4,
            });
            if let Some(weights) = *self.weights.borrow() {
                beat["version"] = weights.version.into();
                beat["lineage"] = weights.lineage.into();
            }
            let acknowledged = self.unacknowledged.borrow().clone();
            let path = format!("workers/{}/heartbeat", self.orders.name);
            match self.caller.try_once(Method::POST, &path, Some(&beat)).await {
                Ok(Answer::Done(answer)) => {
                    self.hears(&answer);
                    self.unacknowledged.borrow_mut().retain(|id| !acknowledged.contains(id));
                    for cancelled in answer["cancelled"].as_array().into_iter().flatten() {
                        let id = id(&cancelled["id"]);
                        self.cancelled.borrow_mut().insert(id);
                        self.unacknowledged.borrow_mut().insert(id);
                    }
                }
                Ok(Answer::Refused { code, body }) => self.refused("heartbeat", None, &code, body, &[]),
                Err(why) => self.caller.again("heartbeat", why).await,
            }
            self.chance
                .pause(self.orders.lease_ms / 20..=self.orders.lease_ms / 8)
                .await;
        }
    }

    /// One lane: it reserves a few entries, and finishes them one after another.
    async fn work(&self) {
        let mut loaded = self.weights.subscribe();
        let mut finish = self.finish.clone();
        tokio::select! {
            _ = loaded.wait_for(Option::is_some) => {}
            _ = finish.wait_for(|finish| *finish) => {}
        }
        while !*self.finish.borrow() && !self.is_finished.get() {
            for work in self.reserve().await {
                if self.orders.kind == Kind::Groups {
                    self.generate_group(&work).await;
                } else {
                    self.generate(work.id, work.lineage).await;
                }
            }
        }
        self.lanes.set(self.lanes.get() - 1);
    }

    /// Reserves, and now and then sends the request again although it was answered: what was granted stays granted.
    async fn reserve(&self) -> Vec<Work> {
        let Some(weights) = *self.weights.borrow() else {
            return Vec::new();
        };
        let request = Uuid::new_v4().to_string();
        let mut call = self.me(json!({ "count": self.chance.between(1..=3), "wait_ms": 400, "request_id": request }));
        // Left out, it is what a heartbeat said, if one did.
        let says_version = !self.chance.once_in(10);
        if says_version {
            call["version"] = weights.version.into();
            call["lineage"] = weights.lineage.into();
        }
        let answer = match self.caller.post("reservations", &call).await {
            Answer::Done(answer) => answer,
            Answer::Refused { code, body } => {
                let silent: &[_] = if says_version { &[] } else { &["invalid_request"] };
                let passing = [silent, &["version_too_stale", "version_not_published"]].concat();
                self.refused("reserve", None, &code, body, &passing);
                self.chance.pause(REFUSED).await;
                return Vec::new();
            }
        };
        self.hears(&answer);
        let ids: Vec<_> = entries(&answer).iter().map(|entry| id(&entry["id"])).collect();
        if ids.is_empty() {
            return Vec::new();
        }
        // Now and then one is not listed, as if its grant had never arrived: it will be abandoned, and reported late.
        let is_listed = !self.chance.once_in(40);
        if is_listed {
            self.holding.borrow_mut().extend(&ids);
        }
        self.diary.write(Entry::Granted {
            request,
            lineage: weights.lineage,
            entries: entries(&answer).iter().map(grant).collect(),
        });
        if self.chance.once_in(20) {
            self.repeat_reserve(&call, &answer).await;
        }
        if !is_listed {
            self.chance
                .pause(self.orders.lease_ms + 100..=self.orders.lease_ms + 500)
                .await;
        }
        let work = |entry| work(entry, weights.lineage);
        entries(&answer).iter().map(work).collect()
    }

    async fn repeat_reserve(&self, call: &Value, first: &Value) {
        self.caller.change_server();
        let alike = match self.caller.post("reservations", call).await {
            Answer::Done(again) => again["granted"] == first["granted"],
            Answer::Refused { code, body } => return self.refused("reserve", None, &code, body, &[]),
        };
        self.diary.write(Entry::Repeated {
            call: "reserve".to_owned(),
            alike,
        });
    }

    /// Generates one entry and reports it; what was cancelled meanwhile is dropped, or reported late.
    async fn generate(&self, id: TrajectoryId, lineage: u64) {
        self.chance
            .pause(if self.chance.once_in(25) {
                STRAGGLING
            } else {
                GENERATING
            })
            .await;
        let is_cancelled = self.cancelled.borrow_mut().remove(&id);
        if !is_cancelled || self.chance.once_in(2) {
            if self.chance.once_in(20) {
                self.discard(id, self.chance.one_of(&["failed", "filtered"])).await;
            } else if self.occupy(id, lineage).await && self.chance.once_in(30) {
                self.discard(id, "filtered").await;
            }
        }
        self.holding.borrow_mut().remove(&id);
    }

    async fn occupy(&self, id: TrajectoryId, lineage: u64) -> bool {
        let payload = payload(id, None);
        let finish = self.me(json!({ "lineage": lineage, "reward": 1.0, "tokens": 100, "payload": payload }));
        match self.caller.post(&format!("trajectories/{id}/occupy"), &finish).await {
            Answer::Done(place) => {
                self.diary.write(Entry::Occupied {
                    id,
                    late: place["late"] == true,
                });
                true
            }
            Answer::Refused { code, body } => {
                self.refused(
                    "occupy",
                    Some(id),
                    &code,
                    body,
                    &["trajectory_discarded", "superseded", "unknown_trajectory"],
                );
                false
            }
        }
    }

    async fn discard(&self, id: TrajectoryId, reason: &str) {
        let mut call = self.me(json!({ "reason": reason }));
        if self.orders.kind.has_queue() {
            call["requeue"] = self.chance.once_in(3).into();
        }
        match self.caller.post(&format!("trajectories/{id}/discard"), &call).await {
            Answer::Done(_) => self.diary.write(Entry::Discarded {
                id,
                reason: reason.to_owned(),
            }),
            Answer::Refused { code, body } => {
                self.refused(
                    "discard",
                    Some(id),
                    &code,
                    body,
                    &["trajectory_taken", "unknown_trajectory"],
                );
            }
        }
    }

    /// Goes on after a refusal that may be. A fenced process ends: its successor is met already.
    fn refused(&self, call: &str, id: Option<TrajectoryId>, code: &str, body: Value, passing: &[&str]) {
        if code != "fenced" && !passing.contains(&code) {
            return self.diary.unexpected(call, body);
        }
        let (call, code) = (call.to_owned(), code.to_owned());
        let is_fenced = code == "fenced";
        self.diary.write(Entry::Refused { call, id, code });
        if is_fenced {
            process::exit(0);
        }
    }
}

/// Where the weights of a version are. It names no lineage: that weights exist in several is what the ledger must tell.
pub(crate) fn reference(version: u64) -> String {
    format!("file:///weights/{version}")
}

fn entries(answer: &Value) -> &[Value] {
    answer["granted"].as_array().map_or(&[], Vec::as_slice)
}

fn grant(entry: &Value) -> Grant {
    Grant {
        id: id(&entry["id"]),
        version: number(&entry["version"]),
        prompt: entry["prompt"].as_str().map(str::to_owned),
        adopted: entry["adopted"] == true,
    }
}

fn work(entry: &Value, lineage: u64) -> Work {
    let reported = ["members_done", "members_failed"].map(|field| entry[field].as_array().into_iter().flatten());
    let index = |index| u32::try_from(number(index)).expect("an index");
    Work {
        id: id(&entry["id"]),
        lineage,
        reported: reported.into_iter().flatten().map(index).collect(),
    }
}

fn id(value: &Value) -> TrajectoryId {
    let id = value.as_str().and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("not an id: {value}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}
