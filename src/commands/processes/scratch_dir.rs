//! A directory that is gone when it is no longer needed.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// A new directory under the system's temporary one, readable for its owner only, removed with all it holds on drop.
#[derive(Debug)]
pub(in crate::commands) struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// Makes the directory. Its name begins with `prefix`, and is short: Unix socket paths end at about 100 bytes.
    pub(in crate::commands) fn new(prefix: &str) -> io::Result<Self> {
        let tag = Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("{prefix}-{}", &tag[..8]));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(in crate::commands) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the system clears its temporary directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
