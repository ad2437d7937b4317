//! The transitions of the protocol as typed asynchronous calls. Each is one script, sent once; what a call may be answered is
//! a type, and so is every refusal. Knows no HTTP.

pub mod archive;
pub mod batches;
mod call;
mod coalescing;
pub mod distribution;
pub mod draining;
mod error;
pub mod events;
pub mod explain;
pub mod finishing;
pub mod looking;
pub mod members;
mod memory;
pub mod names;
pub mod prompts;
mod refusing;
pub mod reserving;
pub mod resuming;
pub mod retention;
pub mod runs;
pub mod segments;
pub mod sessions;
pub mod state;
pub mod sweeping;
pub mod training;
pub mod trajectories;

use std::sync::Arc;

pub use error::{LedgerError, Refusal};
pub use names::RunName;

use coalescing::Coalescer;
use memory::Memory;

use crate::store::wakes::Wakes;
use crate::store::{Store, script};

/// The ledger of all runs in one database. Cheap to clone; any number of them, in any number of processes, behave as one.
#[derive(Clone)]
pub struct Ledger {
    parts: Arc<Parts>,
    /// The highest sequence number that the client has seen for whom this ledger is used.
    seen: Option<u64>,
}

/// What all clones of a ledger share.
struct Parts {
    store: Arc<Store>,
    wakes: Wakes,
    attention: Arc<sweeping::Attention>,
    reserves: Arc<reserving::Reserves>,
    occupies: Arc<finishing::Occupies>,
    memory: Arc<Memory>,
    counted: distribution::Counted,
}

/// An answer about a run, with the run's sequence number after (or at) the call.
#[derive(Debug, Clone)]
pub struct Seen<T> {
    /// The run's sequence number; `None` where the name was never a run's.
    pub seq: Option<u64>,
    /// The answer.
    pub value: T,
}

impl<T> Seen<T> {
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Seen<U> {
        Seen {
            seq: self.seq,
            value: convert(self.value),
        }
    }
}

impl Ledger {
    /// The ledger in a store.
    ///
    /// Must be called within a Tokio runtime: a task listens for what wakes waiting calls.
    pub fn new(store: Store) -> Self {
        let store = Arc::new(store);
        let parts = Parts {
            wakes: Wakes::listen(Arc::clone(&store)),
            store,
            attention: Arc::default(),
            reserves: Arc::new(Coalescer::new(&script::RESERVE)),
            occupies: Arc::new(Coalescer::new(&script::OCCUPY)),
            memory: Arc::default(),
            counted: distribution::Counted::default(),
        };
        Self {
            parts: Arc::new(parts),
            seen: None,
        }
    }

    /// The same ledger for a client that has seen the run at `seq`: its calls are refused as `ledger_behind` where the run is
    /// below that.
    #[must_use]
    pub fn for_client(&self, seq: Option<u64>) -> Self {
        Self {
            seen: seq,
            ..self.clone()
        }
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), LedgerError> {
        Ok(self.parts.store.ping().await?)
    }

    /// What wakes calls that wait.
    pub fn wakes(&self) -> &Wakes {
        &self.parts.wakes
    }
}
