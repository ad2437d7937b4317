//! How a script is called: the envelope of its arguments and of its answer, and the outcomes that every script may have.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::store::keys::RunKeys;
use crate::store::migrations;
use crate::store::script::Script;

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
    /// A bounded step was done first, and there may be more: the call itself is still to do.
    Again,
    Layout {
        found: u32,
    },
    Fenced,
}

/// The empty set of arguments.
#[derive(Serialize)]
pub(super) struct NoArgs {}

impl Ledger {
    /// Calls a script on a run until it has done its own step.
    ///
    /// The script is sent again only when it said that it was not done (`again`, or a layout that has been brought up to
    /// date since): never after an error, when it may have run.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        script: &Script,
        run: &RunName,
        args: &impl Serialize,
    ) -> Result<Seen<T>, LedgerError> {
        self.attention.call(run);
        let keys = RunKeys::new(run.as_str());
        loop {
            let mark = format!("{:08x}", Uuid::new_v4().as_fields().0);
            let envelope = Envelope {
                layout: migrations::CURRENT,
                mark: &mark,
                args,
            };
            let reply: Reply<T> = self.store.run(script, &keys, &envelope).await?;
            match (reply.body, reply.stop) {
                (Some(value), None) => return Ok(Seen { seq: reply.seq, value }),
                (_, Some(Stop::Again)) => {}
                (_, Some(Stop::Layout { found })) if found < migrations::CURRENT => {
                    migrations::climb(&self.store, &keys, &migrations::LADDER, found).await?;
                }
                (_, Some(Stop::Layout { found })) => return Err(LedgerError::NewerLayout { found }),
                (_, Some(Stop::Fenced)) => return Err(refusal(reply.seq, Refusal::Fenced)),
                (_, Some(Stop::UnknownRun)) => return Err(refusal(reply.seq, Refusal::UnknownRun)),
                (None, None) => {
                    let empty = format!("script {} answered neither a body nor a stop", script.name());
                    return Err(crate::store::StoreError::Broken(empty).into());
                }
            }
        }
    }
}

fn refusal(seq: Option<u64>, refusal: Refusal) -> LedgerError {
    LedgerError::Refused { seq, refusal }
}
