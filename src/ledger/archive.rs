//! The archive of event logs: what was trimmed from the database, as JSON lines in a directory (*Retention* in
//! `docs/operations.md`).
//!
//! A chunk is a file `DIR/<run>/<its first seq>.jsonl`. Its bounds are multiples of [`CHUNK`], whoever writes it, so servers
//! that share a directory write the same files. A chunk that exists is whole: it gets its name when it is on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::RunName;

/// How many sequence numbers one chunk covers. It may hold fewer events, where numbers were passed over.
pub const CHUNK: u64 = 1_000;

/// The number that a chunk begins with which holds `seq`.
pub fn chunk_of(seq: u64) -> u64 {
    seq.saturating_sub(1) / CHUNK * CHUNK + 1
}

/// A directory of chunks that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ArchiveError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError { path, source }
}

/// A directory that event logs are archived in.
#[derive(Debug, Clone)]
pub struct Archive {
    dir: PathBuf,
}

/// Numbers that were passed over, because the database had lost the events that had them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) after: u64,
    pub(super) before: u64,
}

impl Archive {
    /// The archive in `dir`, which is made if it is not there.
    pub fn open(dir: PathBuf) -> Result<Self, ArchiveError> {
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(Self { dir })
    }

    /// Where the chunks of a run are.
    pub fn of_run(&self, run: &RunName) -> PathBuf {
        self.dir.join(run.as_str())
    }

    /// Puts the chunk that begins with `first` in its place, and returns when it is on disk.
    ///
    /// Written again, it is replaced: by the same, or, when the database was set back and has another history now, by that.
    pub(super) fn write(&self, run: &RunName, first: u64, lines: &[u8]) -> Result<(), ArchiveError> {
        let dir = self.of_run(run);
        if !dir.is_dir() {
            fs::create_dir_all(&dir).map_err(at(&dir))?;
            sync_dir(&self.dir)?;
        }
        let path = dir.join(file_name(first));
        let mark: u32 = rand::random();
        let unfinished = dir.join(format!(".{first:016}-{mark:08x}.unfinished"));
        let written = write_whole(&unfinished, lines).and_then(|()| fs::rename(&unfinished, &path).map_err(at(&path)));
        if written.is_err() {
            // Whatever it takes up of a disk that may be full. That it was not written is what is told.
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        sync_dir(&dir)
    }

    /// Renames the chunks that hold nothing but events that the database has lost since, so that nobody reads them as part
    /// of the log.
    pub(super) fn set_aside(&self, run: &RunName, lost: Lost) -> Result<(), ArchiveError> {
        let dir = self.of_run(run);
        for (first, path) in chunks(&dir)? {
            if first > chunk_of(lost.after) && first < chunk_of(lost.before) {
                let aside = dir.join(format!("{}.lost", file_name(first)));
                fs::rename(&path, &aside).map_err(at(&path))?;
            }
        }
        Ok(())
    }
}

/// The chunks in a directory, in the order of their first numbers; none if there is no such directory.
pub fn chunks(dir: &Path) -> Result<Vec<(u64, PathBuf)>, ArchiveError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(dir)(error)),
    };
    let mut chunks = Vec::new();
    for entry in entries {
        let name = entry.map_err(at(dir))?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(first) = stem.and_then(|stem| stem.parse().ok()) {
            chunks.push((first, dir.join(name)));
        }
    }
    chunks.sort_unstable();
    Ok(chunks)
}

fn file_name(first: u64) -> String {
    format!("{first:016}.jsonl")
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(at(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at(path))
}

/// A name is on disk when its directory is.
fn sync_dir(dir: &Path) -> Result<(), ArchiveError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_ends_with_a_multiple_of_its_length() {
        let firsts: Vec<_> = [1, 999, 1_000, 1_001, 2_000, 2_001].map(chunk_of).into();
        assert_eq!(firsts, [1, 1, 1, 1_001, 1_001, 2_001]);
    }

    #[test]
    fn chunks_are_listed_in_their_order_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive::open(dir.path().join("archive")).unwrap();
        let run: RunName = "run".parse().unwrap();
        assert_eq!(chunks(&archive.of_run(&run)).unwrap(), []);

        for first in [2_001, 1, 1_001] {
            archive.write(&run, first, b"{}\n").unwrap();
        }
        fs::write(archive.of_run(&run).join(".0000000000003001-0.unfinished"), "{").unwrap();

        let found = chunks(&archive.of_run(&run)).unwrap();
        let names: Vec<_> = found.iter().map(|(_, path)| path.file_name().unwrap()).collect();
        assert_eq!(
            names,
            [
                "0000000000000001.jsonl",
                "0000000000001001.jsonl",
                "0000000000002001.jsonl"
            ]
        );
    }

    #[test]
    fn chunks_of_a_history_that_the_database_lost_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive::open(dir.path().to_owned()).unwrap();
        let run: RunName = "run".parse().unwrap();
        for first in [1, 1_001, 2_001, 3_001] {
            archive.write(&run, first, b"{}\n").unwrap();
        }

        let lost = Lost {
            after: 700,
            before: 3_500,
        };
        archive.set_aside(&run, lost).unwrap();

        let found = chunks(&archive.of_run(&run)).unwrap();
        assert_eq!(found.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, 3_001]);
        assert!(dir.path().join("run/0000000000001001.jsonl.lost").exists());
    }
}
