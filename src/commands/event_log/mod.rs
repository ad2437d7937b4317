//! Event logs as the commands read and check them: from a server, from files, from an archive.

mod checker;
mod invariant;
mod reading;
mod words;

use std::path::PathBuf;

use crate::client::ClientError;
use crate::ledger::archive::ArchiveError;

pub(super) use checker::{Checked, Checker, Violation};
pub(super) use invariant::Invariant;
pub(super) use reading::{Progress, read_files, read_live, read_run};
pub(super) use words::in_words;

/// Why a log could not be read, and so could not be checked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// The server could not be asked, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line of a file is not an event.
    #[error("{}: line {line} is not an event: {source}", path.display())]
    NotAnEvent {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There is nothing to check.
    #[error("there is no event in it")]
    Empty,
    /// What came before the first event is not there: nothing can be said of the run.
    #[error(
        "the log begins with event {seq} and not with the creation of the run: what came before it was trimmed; if the \
         servers have an --archive-dir, it is there (verify --run NAME --archive DIR)"
    )]
    BeginsLate {
        /// The first event that there is.
        seq: u64,
    },
}
