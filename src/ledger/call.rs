//! How a script is called: the envelope of its arguments and of its answer, and the outcomes that every script may have.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::coalescing::{Coalescer, Shared};
use super::memory::{Acked, At, Memory};
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::store::keys::RunKeys;
use crate::store::script::{self, Script};
use crate::store::{Store, StoreError, migrations};

#[derive(Serialize)]
struct Envelope<'a, A> {
    layout: u32,
    /// The random word of the event that the script may append: the scripts have no randomness of their own.
    mark: &'a str,
    acked: Option<&'a Acked>,
    seen: Option<u64>,
    #[serde(flatten)]
    args: &'a A,
}

/// Who is sent what is called.
#[derive(Clone, Copy)]
pub(super) struct Via<'a> {
    pub(super) store: &'a Store,
    pub(super) memory: &'a Memory,
    /// What the client has seen, where the call is one client's alone.
    pub(super) seen: Option<u64>,
}

/// What a script, or one of the calls that it did, replies.
#[derive(Deserialize)]
pub(super) struct Reply<T> {
    at: Option<At>,
    stop: Option<Stop>,
    body: Option<T>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Stop {
    UnknownRun,
    /// The caller's session must be opened first.
    NewSession(SessionArgs),
    Layout {
        found: u32,
    },
    Fenced,
    LedgerBehind,
}

/// What sending a call once came to. In all but the first case it was not done, and may be sent again.
pub(super) enum Sent<T> {
    Done(Seen<T>),
    NewSession(SessionArgs),
    OldLayout { found: u32 },
}

/// The session to open, as the script was told of it.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionArgs {
    worker: String,
    session: Option<String>,
}

#[derive(Deserialize)]
struct OpenedSession {
    more: bool,
}

/// The empty set of arguments.
#[derive(Serialize)]
pub(super) struct NoArgs {}

/// A random word for the event that a step may append: the scripts have no randomness of their own.
pub(super) fn mark() -> String {
    format!("{:08x}", rand::random::<u32>())
}

impl<T: DeserializeOwned> Reply<T> {
    /// Sends a script once.
    pub(super) async fn of(
        via: Via<'_>,
        script: &Script,
        keys: &RunKeys,
        args: &impl Serialize,
    ) -> Result<Sent<T>, LedgerError> {
        let line = via.store.line().await?;
        let on = line.generation();
        let acked = via.memory.of(keys.run(), on);
        let envelope = Envelope {
            layout: migrations::CURRENT,
            mark: &mark(),
            acked: acked.as_ref(),
            seen: via.seen,
            args,
        };
        let reply: Self = line.run(script, keys, &envelope).await?;
        if let Some(at) = &reply.at {
            via.memory.note(keys.run(), acked.as_ref(), at, on);
        }
        reply.judge()
    }
}

impl<T> Reply<T> {
    pub(super) fn judge(self) -> Result<Sent<T>, LedgerError> {
        let seq = self.at.map(|at| at.seq);
        let refused = |refusal| Err(LedgerError::Refused { seq, refusal });
        match (self.body, self.stop) {
            (Some(value), _) => Ok(Sent::Done(Seen { seq, value })),
            (None, Some(Stop::NewSession(session))) => Ok(Sent::NewSession(session)),
            (None, Some(Stop::Layout { found })) if found < migrations::CURRENT => Ok(Sent::OldLayout { found }),
            (None, Some(Stop::Layout { found })) => Err(LedgerError::NewerLayout { found }),
            (None, Some(Stop::Fenced)) => refused(Refusal::Fenced),
            (None, Some(Stop::LedgerBehind)) => refused(Refusal::LedgerBehind),
            (None, Some(Stop::UnknownRun)) => refused(Refusal::UnknownRun),
            (None, None) => Err(StoreError::Broken("a script answered neither a body nor a stop".to_owned()).into()),
        }
    }
}

impl Ledger {
    fn via(&self) -> Via<'_> {
        Via {
            store: &self.parts.store,
            memory: &self.parts.memory,
            seen: self.seen,
        }
    }

    /// Does a call on a run with a script of its own. What it wrote is on as many replicas as demanded when this returns.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        script: &Script,
        run: &RunName,
        args: &impl Serialize,
    ) -> Result<Seen<T>, LedgerError> {
        let writing = self.parts.store.writing(script).await?;
        let seen = self.unacknowledged_call(script, run, args).await?;
        self.parts.store.replicated(writing).await?;
        Ok(seen)
    }

    /// Does a call on a run that nobody is told of, so that no replica is waited for.
    pub(super) async fn unacknowledged_call<T: DeserializeOwned>(
        &self,
        script: &Script,
        run: &RunName,
        args: &impl Serialize,
    ) -> Result<Seen<T>, LedgerError> {
        self.parts.attention.call(run);
        let keys = Self::keys(run);
        loop {
            let sent = Reply::of(self.via(), script, &keys, args).await?;
            if let Some(seen) = self.done(&keys, sent).await? {
                return Ok(seen);
            }
        }
    }

    /// Does a call on a run that may share its script with others'.
    pub(super) async fn shared_call<C, T>(
        &self,
        coalescer: &Arc<Coalescer<C, T>>,
        run: &RunName,
        call: &C,
        entries: usize,
    ) -> Result<Seen<T>, LedgerError>
    where
        C: Serialize + Clone + Send + Sync + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        self.parts.attention.call(run);
        let keys = Self::keys(run);
        let writing = self.parts.store.writing(coalescer.script()).await?;
        loop {
            let shared = Shared {
                call: call.clone(),
                seen: self.seen,
                entries,
            };
            let sent = coalescer
                .send(&self.parts.store, &self.parts.memory, run, shared)
                .await?;
            if let Some(seen) = self.done(&keys, sent).await? {
                self.parts.store.replicated(writing).await?;
                return Ok(seen);
            }
        }
    }

    /// The answer to a call, or `None` after what had to be done before it, when it is to be sent again.
    ///
    /// It is sent again only when it said that it was not done (the session was not open, or the layout not up to date): never
    /// after an error, when it may have been.
    async fn done<T>(&self, keys: &RunKeys, sent: Sent<T>) -> Result<Option<Seen<T>>, LedgerError> {
        match sent {
            Sent::Done(seen) => return Ok(Some(seen)),
            Sent::NewSession(session) => self.open_session(keys, &session).await?,
            Sent::OldLayout { found } => migrations::climb(&self.parts.store, keys, &migrations::LADDER, found).await?,
        }
        Ok(None)
    }

    /// Opens a session, and discards what its predecessor held, in steps.
    async fn open_session(&self, keys: &RunKeys, session: &SessionArgs) -> Result<(), LedgerError> {
        loop {
            match Reply::<OpenedSession>::of(self.via(), &script::OPEN_SESSION, keys, session).await? {
                Sent::Done(Seen {
                    value: OpenedSession { more: true },
                    ..
                }) => {}
                // Whatever else there is to say, the call that wants the session will be told.
                _ => return Ok(()),
            }
        }
    }
}
