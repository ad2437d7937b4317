//! How a script is called: the envelope of its arguments and of its answer, and the outcomes that every script may have.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::store::keys::RunKeys;
use crate::store::script::{self, Script};
use crate::store::{StoreError, migrations};

#[derive(Serialize)]
struct Envelope<'a, A> {
    layout: u32,
    /// The random word of the event that the script may append: the scripts have no randomness of their own.
    mark: &'a str,
    #[serde(flatten)]
    args: &'a A,
}

#[derive(Deserialize)]
struct Reply<T> {
    seq: Option<u64>,
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
}

/// The session to open, as the script was told of it.
#[derive(Serialize, Deserialize)]
struct SessionArgs {
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

impl Ledger {
    /// Calls a script on a run until it has done its own step.
    ///
    /// The script is sent again only when it said that it was not done (the session was not open, or the layout not up to
    /// date): never after an error, when it may have run.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        script: &Script,
        run: &RunName,
        args: &impl Serialize,
    ) -> Result<Seen<T>, LedgerError> {
        self.attention.call(run);
        let keys = Self::keys(run);
        loop {
            match self.send(script, &keys, args).await? {
                Sent::Done(seen) => return Ok(seen),
                Sent::NewSession(session) => self.open_session(&keys, &session).await?,
                Sent::OldLayout { found } => {
                    migrations::climb(&self.store, &keys, &migrations::LADDER, found).await?;
                }
            }
        }
    }

    /// Opens a session, and discards what its predecessor held, in steps.
    async fn open_session(&self, keys: &RunKeys, session: &SessionArgs) -> Result<(), LedgerError> {
        loop {
            match self.send::<OpenedSession>(&script::OPEN_SESSION, keys, session).await? {
                Sent::Done(Seen {
                    value: OpenedSession { more: true },
                    ..
                }) => {}
                // Whatever else there is to say, the call that wants the session will be told.
                _ => return Ok(()),
            }
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        script: &Script,
        keys: &RunKeys,
        args: &impl Serialize,
    ) -> Result<Sent<T>, LedgerError> {
        let mark = format!("{:08x}", Uuid::new_v4().as_fields().0);
        let envelope = Envelope {
            layout: migrations::CURRENT,
            mark: &mark,
            args,
        };
        let reply: Reply<T> = self.store.run(script, keys, &envelope).await?;
        let refused = |refusal| {
            Err(LedgerError::Refused {
                seq: reply.seq,
                refusal,
            })
        };
        match (reply.body, reply.stop) {
            (Some(value), _) => Ok(Sent::Done(Seen { seq: reply.seq, value })),
            (None, Some(Stop::NewSession(session))) => Ok(Sent::NewSession(session)),
            (None, Some(Stop::Layout { found })) if found < migrations::CURRENT => Ok(Sent::OldLayout { found }),
            (None, Some(Stop::Layout { found })) => Err(LedgerError::NewerLayout { found }),
            (None, Some(Stop::Fenced)) => refused(Refusal::Fenced),
            (None, Some(Stop::UnknownRun)) => refused(Refusal::UnknownRun),
            (None, None) => {
                let empty = format!("script {} answered neither a body nor a stop", script.name());
                Err(StoreError::Broken(empty).into())
            }
        }
    }
}

/// What sending a script once came to.
enum Sent<T> {
    Done(Seen<T>),
    NewSession(SessionArgs),
    OldLayout { found: u32 },
}
