//! Reading a log event by event. No more than a page or a line of it is held at a time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LogError;
use crate::client::{ClientError, RunClient};
use crate::ledger::archive::chunks;
use crate::protocol::Event;

/// How far a reader has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::commands) struct Progress {
    /// The `seq` of the last event that was read; 0 before the first.
    pub(in crate::commands) last: u64,
}

/// Reads what a server has, behind `progress`, to its end.
pub(in crate::commands) async fn read_live(
    run: &RunClient,
    progress: &mut Progress,
    each: &mut impl FnMut(Event) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut next = Some(progress.last);
    while let Some(after) = next {
        let page = run.events::<Event>(after, Duration::ZERO).await?;
        for event in page.events {
            progress.last = event.seq;
            each(event)?;
        }
        next = page.next;
    }
    Ok(())
}

/// Reads the whole log of a run: what its server no longer has from the archives, and the rest from the server.
///
/// The server's word counts more than an archive's, which may hold what the database has lost since.
pub(in crate::commands) async fn read_run(
    run: &RunClient,
    archives: &[PathBuf],
    each: &mut impl FnMut(Event) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut progress = Progress::default();
    loop {
        // The server may trim what is not read yet, at any time: then that is in the archive.
        let first = match read_live(run, &mut progress, each).await {
            Err(LogError::Client(ClientError::Refused {
                first_seq: Some(first), ..
            })) => first.get(),
            read => return read,
        };
        let mut found = Vec::new();
        for archive in archives {
            found.extend(chunks(archive)?);
        }
        found.sort_unstable();
        for (_, chunk) in found.iter().filter(|(begins, _)| *begins < first) {
            read_part(chunk, &mut progress, first, each)?;
        }
        if progress.last == 0 {
            return Err(LogError::BeginsLate { seq: first });
        }
        // Whatever is missing before it, a gap is for the checker to find.
        progress.last = first - 1;
    }
}

/// Reads files, in their order; of a directory, the chunks in it; `-` is standard input.
///
/// A file may begin with events that the one before it ended with.
pub(in crate::commands) fn read_files(
    paths: &[PathBuf],
    each: &mut impl FnMut(Event) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut progress = Progress::default();
    for path in paths {
        if path.is_dir() {
            for (_, chunk) in chunks(path)? {
                read_part(&chunk, &mut progress, u64::MAX, each)?;
            }
        } else {
            read_part(path, &mut progress, u64::MAX, each)?;
        }
    }
    Ok(())
}

/// Reads of a file the events behind `progress` and before `end`. Within the file every event counts, so that a doubled one
/// is found.
fn read_part(
    path: &Path,
    progress: &mut Progress,
    end: u64,
    each: &mut impl FnMut(Event) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let known = progress.last;
    let mut is_new = false;
    let file_error = |source| LogError::File {
        path: path.to_owned(),
        source,
    };
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(file_error)?))
    };
    for (index, line) in input.lines().enumerate() {
        let line = line.map_err(file_error)?;
        if line.trim().is_empty() {
            continue;
        }
        let event: Event = serde_json::from_str(&line).map_err(|source| LogError::NotAnEvent {
            path: path.to_owned(),
            line: index + 1,
            source,
        })?;
        is_new |= event.seq > known;
        if !is_new {
            continue;
        }
        if event.seq >= end {
            return Ok(());
        }
        progress.last = event.seq;
        each(event)?;
    }
    Ok(())
}
