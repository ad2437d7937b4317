//! The trainer's checkpoint: of a real one, what the ledger is told of it, which is the version of its weights.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::protocol::Version;

/// A file that always holds one whole checkpoint, or does not exist.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    path: PathBuf,
}

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint {
    version: Version,
}

/// Why there is no checkpoint to go on from, or to rely on.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    #[error("the checkpoint {} can't be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a checkpoint: {source}", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("the checkpoint {} can't be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl CheckpointFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The version that was saved last; `None` if none ever was.
    pub(super) fn load(&self) -> Result<Option<Version>, CheckpointError> {
        let path = || self.path.clone();
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CheckpointError::Unreadable { path: path(), source }),
        };
        match serde_json::from_slice::<Checkpoint>(&text) {
            Ok(checkpoint) => Ok(Some(checkpoint.version)),
            Err(source) => Err(CheckpointError::Malformed { path: path(), source }),
        }
    }

    /// Saves a version. When this returns it is on disk: only then may the ledger let go of what it was trained by.
    pub(super) fn save(&self, version: Version) -> Result<(), CheckpointError> {
        self.write(version).map_err(|source| CheckpointError::Unwritable {
            path: self.path.clone(),
            source,
        })
    }

    /// A temporary file takes the place of the old one in one step: whatever happens on the way, one of them is whole.
    fn write(&self, version: Version) -> io::Result<()> {
        let temporary = self.path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(&Checkpoint { version })?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // The new name is durable once its directory is.
        let directory = self.path.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_saved_version_is_loaded_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let file = CheckpointFile::new(directory.path().join("checkpoint.json"));
        assert_eq!(file.load().unwrap(), None);
        for version in [0, 8].map(Version) {
            file.save(version).unwrap();
            assert_eq!(file.load().unwrap(), Some(version));
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_checkpoint_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint.json");
        fs::write(&path, "{").unwrap();
        let error = CheckpointFile::new(path).load().unwrap_err().to_string();
        assert!(error.contains("checkpoint.json is not a checkpoint: "), "{error}");
    }

    #[test]
    fn a_checkpoint_that_can_not_be_written_is_an_error() {
        let error = CheckpointFile::new("/nowhere/checkpoint.json".into())
            .save(Version(1))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the checkpoint /nowhere/checkpoint.json can't be written: "),
            "{error}"
        );
    }
}
