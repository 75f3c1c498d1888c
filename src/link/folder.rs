//! Looks at the bin folder that this program lies in, and makes the change.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::change::{self, Change, Entry, KEPT, NAME, Names};

/// A console script is a few lines; more is not read.
const SCRIPT_BYTES: u64 = 4096;

/// The bin folder and what this program is called there.
struct Folder {
    path: PathBuf,
    own: PathBuf,
}

/// Makes `fabric` in this program's folder start this program; what was done, for the user.
///
/// # Errors
/// A file there is not understood, or the folder cannot be written to.
pub(crate) fn link() -> Result<String> {
    apply(change::link).context("failed to link")
}

/// Brings back what `fabric` was before `link`; what was done, for the user.
///
/// # Errors
/// As for `link`.
pub(crate) fn unlink() -> Result<String> {
    apply(change::unlink).context("failed to unlink")
}

/// What to tell the user whose link was overwritten by `pip install -U lightning`.
pub(crate) fn overwritten() -> Option<String> {
    let folder = Folder::of_this_program().ok()?;
    let fabric = folder.path.join(NAME);
    folder.look().overwritten().then(|| {
        format!(
            "`{}` was linked to this program, and Lightning was installed over it\nhint: `{} link` links it again",
            fabric.display(),
            folder.own.display()
        )
    })
}

fn apply(decide: fn(Names) -> Result<(Change, &'static str), String>) -> Result<String> {
    let folder = Folder::of_this_program()?;
    let (change, words) = decide(folder.look()).map_err(|it| anyhow!(it))?;
    let path = folder.path.display();
    folder
        .make(change)
        .with_context(|| format!("cannot change `{path}`"))?;
    Ok(format!("`{path}/{NAME}` {words}\n"))
}

impl Folder {
    /// Where the program's file lies, whatever it was called by.
    fn of_this_program() -> Result<Self> {
        let own_binary = std::env::current_exe().context("cannot find this program's own file")?;
        let (Some(path), Some(own)) = (own_binary.parent(), own_binary.file_name()) else {
            bail!("`{}` is no path of a program", own_binary.display());
        };
        if own == NAME {
            bail!(
                "this program is itself `{}`, so there is nothing to link",
                own_binary.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            own: own.into(),
        })
    }

    fn look(&self) -> Names {
        Names {
            fabric: self.entry(NAME),
            kept: self.entry(KEPT),
        }
    }

    fn entry(&self, name: &str) -> Entry {
        let path = self.path.join(name);
        if fs::symlink_metadata(&path).is_err_and(|it| it.kind() == io::ErrorKind::NotFound) {
            return Entry::Nothing;
        }
        let leads_to = |it: &Path| fs::canonicalize(it).ok();
        if path.is_symlink() && leads_to(&path) == leads_to(&self.path.join(&self.own)) {
            return Entry::OurLink;
        }
        match is_lightnings(&path) {
            true => Entry::Lightnings,
            false => Entry::Unknown,
        }
    }

    /// At every instant there is a `fabric`, if there was one and is to be one, but for two renames in a row.
    fn make(&self, change: Change) -> io::Result<()> {
        let (fabric, kept) = (self.path.join(NAME), self.path.join(KEPT));
        match change {
            Change::Nothing => Ok(()),
            // Relative, so that it stays right when the whole environment is moved.
            Change::Link => symlink(&self.own, fabric),
            Change::KeepAndLink => {
                // First what can fail.
                let new = self.path.join(".fabric.new");
                let _ = fs::remove_file(&new);
                symlink(&self.own, &new)?;
                fs::rename(&fabric, kept)?;
                fs::rename(new, fabric)
            }
            Change::Restore => fs::rename(kept, fabric),
            Change::RemoveLink => fs::remove_file(fabric),
            Change::RemoveKept => fs::remove_file(kept),
        }
    }
}

/// Whether a file is the script that pip, uv and conda make of the entry point of `lightning` 2 (`lightning.fabric.cli`)
/// or of the older `lightning_fabric`.
fn is_lightnings(path: &Path) -> bool {
    let mut text = Vec::new();
    let file = path.is_file().then(|| fs::File::open(path));
    let read = file.map(|it| it.and_then(|it| it.take(SCRIPT_BYTES).read_to_end(&mut text)));
    let text = String::from_utf8_lossy(&text);
    let has = |it: &str| text.contains(&format!("from {it} import"));
    matches!(read, Some(Ok(_)))
        && text.starts_with("#!")
        && (has("lightning.fabric.cli") || has("lightning_fabric.cli"))
}
