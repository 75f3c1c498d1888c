//! The files of a run's output.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::treatment::wants_files;
use crate::plan::Plan;

/// Makes the folder of this run and its `launcher.log`, if any output goes to files. As torchrun does, a
/// folder with a name of its own within the one that was named, or else a temporary one; it stays.
///
/// # Errors
/// It cannot be made; the text says where and who asked for it.
pub(crate) fn make(plan: &Plan) -> Result<Option<(PathBuf, File)>> {
    if !wants_files(&plan.output) {
        return Ok(None);
    }
    let base = match &plan.output.log_dir {
        Some(named) => PathBuf::from(&named.value),
        None => plan.machine.temp.clone(),
    };
    let what = || match &plan.output.log_dir {
        Some(named) => format!(
            "failed to make a folder for logs in `{}` ({})",
            base.display(),
            named.source
        ),
        None => format!(
            "failed to make a folder for logs in {} (see --log-dir)",
            base.display()
        ),
    };
    std::fs::create_dir_all(&base).with_context(what)?;
    let base = std::path::absolute(&base).with_context(what)?;
    let prefix = match &plan.output.log_dir {
        Some(_) => safe(&plan.run_id.value),
        None => "torchelastic".to_owned(),
    };
    let folder = nix::unistd::mkdtemp(&base.join(format!("{prefix}_XXXXXX"))).with_context(what)?;
    let log = File::create_new(folder.join("launcher.log")).with_context(what)?;
    Ok(Some((folder, log)))
}

/// A run's name without what has a meaning in paths.
fn safe(name: &str) -> String {
    let harmless = |it: char| it.is_alphanumeric() || "._-".contains(it);
    name.chars()
        .map(|it| if harmless(it) { it } else { '_' })
        .collect()
}

/// A file that a stream is copied to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// `None` once it could not be made or written, which was said.
    file: Option<File>,
}

impl Log {
    /// Makes the file and the folders it is in.
    pub(crate) fn make(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        let folder = path.parent().unwrap_or(path);
        let file = std::fs::create_dir_all(folder).and_then(|()| options.open(path));
        let mut log = Self {
            path: path.to_owned(),
            file: None,
        };
        match file {
            Ok(file) => log.file = Some(file),
            Err(error) => log.give_up(&error),
        }
        log
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(bytes) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &std::io::Error) {
        self.file = None;
        tracing::warn!(
            "cannot write {}, its rest is lost: {error}",
            self.path.display()
        );
    }
}
