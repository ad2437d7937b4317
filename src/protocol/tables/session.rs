//! The trainer's session, and the fence that its epoch is.

use super::SlotTables;
use crate::protocol::{Epoch, Version};

/// What the tables know of the trainer's sessions. Before the first, one without a name is open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// The last one that was opened, here or in the deleted run that this one goes on from; 0 if there was none.
    pub(super) epoch: Epoch,
    /// Whether it was opened in this run.
    pub(super) is_open: bool,
    /// The batch that was delivered to it last.
    pub(super) delivered: Option<Version>,
}

/// Why a call of the trainer is refused before anything else is looked at. Nothing is changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    /// The call is of an older session, or of none although there was one.
    #[error("the call is not of the trainer session that is open: the last one was {epoch}")]
    Fenced {
        /// The last session.
        epoch: Epoch,
    },
    /// The call is of a session that the run does not know: the database lost writes.
    #[error("the run knows no trainer session after {epoch}")]
    LedgerBehind {
        /// The last session that is known.
        epoch: Epoch,
    },
}

impl SlotTables {
    /// Refuses a call of any but the open session; `None` is a call that names none.
    pub(super) fn refuse_session(&self, named: Option<Epoch>) -> Result<(), SessionRefusal> {
        let epoch = self.session.epoch;
        let named = named.unwrap_or_default();
        if named > epoch {
            return Err(SessionRefusal::LedgerBehind { epoch });
        }
        let there_was_none = epoch == Epoch::default();
        if there_was_none || (named == epoch && self.session.is_open) {
            return Ok(());
        }
        Err(SessionRefusal::Fenced { epoch })
    }
}
