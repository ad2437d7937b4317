//! Calls of many clients that go to the database as one script.
//!
//! Most of what a script costs is the way into it and out of it. So while a script runs for a run, the calls of the same kind
//! that come meanwhile gather, and go together in the next one. A call that comes alone goes at once; nobody waits for company.
//! Two scripts of a kind may be on their way at once, so that one is there when the database has done the other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use super::call::{Reply, Sent, Via, mark};
use super::memory::Memory;
use super::{LedgerError, RunName};
use crate::store::keys::RunKeys;
use crate::store::script::Script;
use crate::store::{Store, StoreError};

/// The most entries that the calls of one script treat: it is to take well below a millisecond. A call of more goes alone.
const MOST_ENTRIES: usize = 8;
/// The most scripts of one kind that are on their way for a run.
const MOST_SCRIPTS: usize = 2;

/// The calls of one kind that have not been sent yet, by run.
pub(super) struct Coalescer<C, T> {
    script: &'static LazyLock<Script>,
    lanes: Mutex<HashMap<RunName, Lane<C, T>>>,
}

struct Lane<C, T> {
    pending: VecDeque<Pending<C, T>>,
    /// Tasks that send them.
    servers: usize,
}

/// A call that may share its script.
pub(super) struct Shared<C> {
    pub(super) call: C,
    /// What its client has seen.
    pub(super) seen: Option<u64>,
    /// How many entries it treats.
    pub(super) entries: usize,
}

struct Pending<C, T> {
    shared: Shared<C>,
    reply: oneshot::Sender<Result<Sent<T>, LedgerError>>,
}

#[derive(Serialize)]
struct Calls<'a, C> {
    calls: Vec<Marked<'a, C>>,
}

#[derive(Serialize)]
struct Marked<'a, C> {
    mark: String,
    seen: Option<u64>,
    #[serde(flatten)]
    call: &'a C,
}

#[derive(Deserialize)]
struct Replies<T> {
    replies: Vec<Reply<T>>,
}

impl<C, T> Coalescer<C, T>
where
    C: Serialize + Send + Sync + 'static,
    T: DeserializeOwned + Send + 'static,
{
    pub(super) fn new(script: &'static LazyLock<Script>) -> Self {
        Self {
            script,
            lanes: Mutex::default(),
        }
    }

    /// The script that the calls share.
    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    /// Sends a call, alone or with others, once.
    pub(super) async fn send(
        self: &Arc<Self>,
        store: &Arc<Store>,
        memory: &Arc<Memory>,
        run: &RunName,
        shared: Shared<C>,
    ) -> Result<Sent<T>, LedgerError> {
        let (reply, answer) = oneshot::channel();
        if self.enqueue(run, Pending { shared, reply }) {
            // A task of its own: the caller that happens to start it may hang up.
            tokio::spawn(Arc::clone(self).serve(Arc::clone(store), Arc::clone(memory), run.clone()));
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Broken("the task that sends calls ended".to_owned()).into()))
    }

    /// Returns whether a further task is to send what is pending.
    fn enqueue(&self, run: &RunName, pending: Pending<C, T>) -> bool {
        let mut lanes = self.lock();
        let lane = lanes.entry(run.clone()).or_insert_with(|| Lane {
            pending: VecDeque::new(),
            servers: 0,
        });
        lane.pending.push_back(pending);
        let is_wanted = lane.servers < MOST_SCRIPTS;
        lane.servers += usize::from(is_wanted);
        is_wanted
    }

    /// Sends what has gathered until nothing has.
    async fn serve(self: Arc<Self>, store: Arc<Store>, memory: Arc<Memory>, run: RunName) {
        let keys = RunKeys::new(run.as_str());
        let via = Via {
            store: &store,
            memory: &memory,
            seen: None,
        };
        while let Some(batch) = self.next_batch(&run) {
            let calls = batch
                .iter()
                .map(|Pending { shared, .. }| Marked {
                    mark: mark(),
                    seen: shared.seen,
                    call: &shared.call,
                })
                .collect();
            let sent = Reply::<Replies<T>>::of(via, self.script, &keys, &Calls { calls }).await;
            hand_out(batch, sent);
        }
    }

    /// The calls that go next, or `None`, and then the task that asked ends.
    fn next_batch(&self, run: &RunName) -> Option<Vec<Pending<C, T>>> {
        let mut lanes = self.lock();
        let lane = lanes.get_mut(run)?;
        let mut batch = Vec::new();
        let mut entries = 0;
        while let Some(pending) = lane.pending.front() {
            entries += pending.shared.entries;
            if !batch.is_empty() && entries > MOST_ENTRIES {
                break;
            }
            batch.extend(lane.pending.pop_front());
        }
        if !batch.is_empty() {
            return Some(batch);
        }
        lane.servers -= 1;
        if lane.servers == 0 {
            lanes.remove(run);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunName, Lane<C, T>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives each call its own answer, or the one reason why none was done.
fn hand_out<C, T>(batch: Vec<Pending<C, T>>, sent: Result<Sent<Replies<T>>, LedgerError>) {
    let mut replies = match sent {
        Ok(Sent::Done(seen)) => seen.value.replies.into_iter(),
        Ok(Sent::OldLayout { found }) => {
            for pending in batch {
                let _ = pending.reply.send(Ok(Sent::OldLayout { found }));
            }
            return;
        }
        Ok(Sent::NewSession(_)) => Vec::new().into_iter(),
        Err(error) => {
            for pending in batch {
                let _ = pending.reply.send(Err(error.clone()));
            }
            return;
        }
    };
    for pending in batch {
        let reply = replies.next().map_or_else(
            || Err(StoreError::Broken("a script answered fewer calls than it was sent".to_owned()).into()),
            Reply::judge,
        );
        let _ = pending.reply.send(reply);
    }
}
