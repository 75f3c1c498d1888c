//! TPU pods: variables of GKE and of torch_xla's containers. (`--accelerator tpu` is refused
//! later; a TPU host may still train on its CPUs.)

use anyhow::{Context as _, Result, ensure};

use super::facts::Cluster;
use super::surroundings::Surroundings;
use super::variables::{derived, number, required};
use crate::environ::Environ;
use crate::source::Sourced;
use crate::topology::NodeRank;

pub(super) fn matches(s: &Surroundings) -> bool {
    s.text("TPU_WORKER_ID").is_some() && s.text("TPU_WORKER_HOSTNAMES").is_some()
}

/// One entry, `localhost`, is a single host. Several slices have the same number of hosts
/// each, slice after slice.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    let listed = environ.text("TPU_WORKER_HOSTNAMES").unwrap_or_default();
    let hosts: Vec<_> = listed
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let first = hosts
        .first()
        .context("`TPU_WORKER_HOSTNAMES` names no host")?;
    let worker: Sourced<u32> = required(environ, "TPU_WORKER_ID")?;
    let per_slice = hosts.len() as u32;
    ensure!(
        worker.value < per_slice,
        "`TPU_WORKER_ID` is {} of {per_slice} hosts (`TPU_WORKER_HOSTNAMES`)",
        worker.value
    );
    let mut cluster = Cluster::named("TPU pod");
    let (slices, slice) = slices(environ)?;
    let from = "TPU_WORKER_ID and TPU_WORKER_HOSTNAMES";
    cluster.num_nodes = Some(derived(slices * per_slice, from));
    cluster.node_rank = Some(derived(NodeRank(slice * per_slice + worker.value), from));
    let coordinator = environ
        .text("MEGASCALE_COORDINATOR_ADDRESS")
        .filter(|_| slices > 1);
    let address = coordinator.map_or(*first, |it| it.split(':').next().unwrap_or(it));
    cluster.main_address = Some(derived(address.to_owned(), from));
    Ok(cluster.settled_on_one_node())
}

/// How many slices, and which one this is.
fn slices(environ: &Environ) -> Result<(u32, u32)> {
    let number = |name| number::<u32>(environ, name).map(|it| it.map(|it| it.value));
    let slices = number("MEGASCALE_NUM_SLICES")?.unwrap_or(1);
    Ok((slices, number("MEGASCALE_SLICE_ID")?.unwrap_or(0)))
}
