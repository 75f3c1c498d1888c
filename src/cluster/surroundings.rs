//! Everything a rule may look at, so that rules are functions of it and of nothing else.

use std::path::Path;

use super::facts::Asked;
use crate::environ::Environ;

/// Reads a small text file; the error says why not.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

/// The launcher's surroundings.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) environ: &'a Environ,
    pub(crate) asked: &'a Asked<'a>,
    /// uname(2)'s name. `HOSTNAME` is often that of the host where a job was submitted.
    pub(crate) hostname: &'a str,
    /// This process.
    pub(crate) pid: u32,
    /// CPUs this process may run on, and CPUs the machine has; asked for by the rules that want them.
    pub(crate) cpus: &'a dyn Fn() -> (usize, usize),
    pub(crate) read: ReadFile<'a>,
}

impl Surroundings<'_> {
    /// Shorthand of the environment's.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.environ.text(name)
    }

    /// Whether the variable is set, be it to nothing.
    pub(super) fn has(&self, name: &str) -> bool {
        self.environ.get(name).is_some()
    }
}
