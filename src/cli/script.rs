//! The one look at the machine that reading the command line needs: is the script there?

use std::ffi::OsStr;

use nix::unistd::{AccessFlags, access};

/// What a path is good for as a script. Directories, FIFOs and devices are as good as files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScriptFile {
    Ok,
    /// stat(2) fails, for whatever reason.
    Missing,
    /// access(2) denies reading.
    Unreadable,
}

/// Looks at a path as `click.Path(exists=True)` does.
pub(crate) fn look_at(path: &OsStr) -> ScriptFile {
    if std::fs::metadata(path).is_err() {
        ScriptFile::Missing
    } else if access(path, AccessFlags::R_OK).is_err() {
        ScriptFile::Unreadable
    } else {
        ScriptFile::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stat_finds_is_a_script() {
        assert_eq!(look_at(OsStr::new(".")), ScriptFile::Ok);
        assert_eq!(look_at(OsStr::new("/dev/null")), ScriptFile::Ok);
        assert_eq!(look_at(OsStr::new("")), ScriptFile::Missing);
        assert_eq!(look_at(OsStr::new("Cargo.toml/")), ScriptFile::Missing);
    }
}
