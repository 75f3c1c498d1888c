//! A directory for this run alone, in which workers may leave word of what made them fail.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More of an error file than this is not read: it is shown to a person.
const ENOUGH: u64 = 1 << 20;

/// Removed with what is in it when dropped.
#[derive(Debug)]
pub(crate) struct PrivateDir(PathBuf);

impl PrivateDir {
    /// Makes one below `temp`, with the prefix that torch's own launcher uses. `None` where that cannot be
    /// done: a full disk or a missing /tmp is no reason not to train.
    pub(crate) fn make(temp: &Path) -> Option<Self> {
        match nix::unistd::mkdtemp(&temp.join("torchelastic_XXXXXX")) {
            Ok(path) => Some(Self(path)),
            Err(errno) => {
                tracing::warn!(
                    "no directory for error files below {}: {errno}",
                    temp.display()
                );
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes such a directory; also the guardian's way when the launcher has gone. Mostly it is empty.
pub(crate) fn remove(path: &Path) {
    if fs::remove_dir(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

/// Best effort: the failure itself is what counts.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    if let Err(error) = fs::write(path, bytes) {
        tracing::warn!("cannot write the error file {}: {error}", path.display());
    }
}

/// The bytes of an error file, if the worker wrote one. A FIFO or a device in its place is not opened.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    fs::symlink_metadata(path)
        .ok()
        .filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(ENOUGH)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}
