//! Detection on the real machine: gives the rules what they may look at, then asks the engine.

use std::fs;
use std::process;

use anyhow::{Context as _, Result};
use nix::unistd::gethostname;

use super::facts::{Asked, Cluster};
use super::surroundings::Surroundings;
use super::{detect, exchange};
use crate::environ::Environ;
use crate::numa::{allowed_cpus, online_cpus};

/// What is around this launcher. May talk to an MPI's process manager, together with the
/// other launchers of the job; so once, and before the process has threads.
///
/// Fails on a `--cluster` or `--cluster-map` that cannot be, and on variables of the engine
/// that contradict each other.
pub(crate) fn discover(environ: &Environ, asked: &Asked) -> Result<Cluster> {
    let hostname = gethostname().context("ask for this host's name")?;
    let hostname = hostname.to_string_lossy();
    let surroundings = Surroundings {
        environ,
        asked,
        hostname: &hostname,
        pid: process::id(),
        cpus: &cpus,
        read: &|path| fs::read_to_string(path).map_err(|it| it.to_string()),
    };
    let mut cluster = detect::detect(&surroundings)?;
    exchange::ask(&mut cluster, environ, &hostname);
    Ok(cluster)
}

/// CPUs this process may run on, and CPUs that are online. Equal where they cannot be told.
fn cpus() -> (usize, usize) {
    allowed_cpus().zip(online_cpus()).unwrap_or((0, 0))
}
