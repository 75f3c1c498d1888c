//! The PBS family: a task that `pbsdsh` started through the task manager (OpenPBS, Torque).

use anyhow::{Context as _, Result, ensure};

use super::facts::Cluster;
use super::hosts::Hosts;
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, number};
use crate::environ::Environ;
use crate::source::Sourced;
use crate::topology::NodeRank;

/// The job's own script is task 1. OpenPBS writes the others in hexadecimal (`%8.8X`,
/// `start_exec.c`), Torque in decimal; for this question it is the same.
pub(super) fn is_task(s: &Surroundings) -> bool {
    let task = s
        .text("PBS_TASKNUM")
        .and_then(|it| u64::from_str_radix(it, 16).ok());
    s.text("PBS_JOBID").is_some() && task.is_some_and(|it| it > 1)
}

/// `pbsdsh` starts one task per line of the node file and numbers nodes, not tasks.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let hosts = node_file(s)?;
    ensure!(
        hosts.one_slot_each(),
        "`PBS_NODEFILE` has several lines for a host, so PBS started several launchers there and \
         does not number them: ask for `mpiprocs=1` (Torque: `ppn=1`), or start by `mpiexec`"
    );
    let mut cluster = Cluster::named("PBS");
    cluster.node_rank = Some(node_rank(s, &hosts)?);
    cluster.num_nodes = Some(derived(hosts.len(), "PBS_NODEFILE"));
    cluster.main_address = hosts
        .first()
        .map(|it| derived(it.to_owned(), "PBS_NODEFILE"));
    cluster.main_port = main_port(s.environ);
    Ok(cluster.settled_on_one_node())
}

/// This host's line, else PBS_NODENUM: that counts the job's servers, in the same order.
fn node_rank(s: &Surroundings, hosts: &Hosts) -> Result<Sourced<NodeRank>> {
    if let Some(place) = hosts.position(s.hostname) {
        return Ok(derived(NodeRank(place), "this host's line of PBS_NODEFILE"));
    }
    let number: Option<Sourced<u32>> = number(s.environ, "PBS_NODENUM")?;
    let number = number.filter(|it| it.value < hosts.len());
    let number = number.with_context(|| format!("`PBS_NODEFILE` has no host `{}`", s.hostname))?;
    Ok(Sourced::new(NodeRank(number.value), number.source))
}

/// The job's hosts; the file may not exist on nodes other than the first.
pub(super) fn node_file(s: &Surroundings) -> Result<Hosts> {
    let path = s
        .text("PBS_NODEFILE")
        .context("`PBS_NODEFILE` is not set")?;
    let read = (s.read)(path.as_ref()).map_err(anyhow::Error::msg);
    let text = read.with_context(|| format!("`PBS_NODEFILE` is `{path}`"))?;
    let hosts = Hosts::from_lines(&text);
    ensure!(
        !hosts.is_empty(),
        "`PBS_NODEFILE` is `{path}`, which names no host"
    );
    Ok(hosts)
}

/// From ids such as `1234.server` and `1234[5].server`.
pub(super) fn main_port(environ: &Environ) -> Option<Sourced<u16>> {
    let id = environ.text("PBS_JOBID")?;
    let digits = id.split(['.', '[']).next()?;
    let element = environ
        .text("PBS_ARRAY_INDEX")
        .and_then(|it| it.parse().ok());
    let port = port::of_job(digits.parse().ok()?, element.unwrap_or(0));
    Some(derived(port, "PBS_JOBID"))
}
