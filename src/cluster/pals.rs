//! HPE Cray PALS: a task of `mpiexec` or `aprun`, usually within a PBS job.
//!
//! Slurm's `mpi/cray_shasta` and Flux set `PALS_*` too, so they are looked for before.

use anyhow::{Context as _, Result};

use super::facts::{Cluster, Seat, Tasks};
use super::hosts::Hosts;
use super::layout::spread;
use super::pbs;
use super::surroundings::Surroundings;
use super::variables::{derived, map, number, required};
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

pub(super) fn matches(s: &Surroundings) -> bool {
    s.text("PALS_RANKID").is_some() && s.text("PALS_NODEID").is_some()
}

/// Nodes and addresses are PBS's: PALS has them in a binary file only.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    let local_world_size = required::<u32>(environ, "PALS_LOCAL_SIZE")?;
    let hosts = pbs::node_file(s).unwrap_or_default();
    let world_size = world_size(s, &hosts, local_world_size.value)?;
    let num_nodes = num_nodes(&world_size, &local_world_size, &hosts)?;
    let (world, local) = (world_size.value, local_world_size.value);
    let (fewest, most) = spread(world, Some(num_nodes.value), local);
    let seat = Seat {
        local_rank: map(required(environ, "PALS_LOCAL_RANKID")?, LocalRank),
        local_world_size,
        global_rank: map(required(environ, "PALS_RANKID")?, GlobalRank),
        world_size,
    };
    seat.check()?;
    let mut cluster = Cluster::named("PALS");
    cluster.tasks = Some(Tasks {
        seat,
        fewest,
        most,
        how: "mpiexec --ppn {n}",
    });
    cluster.num_nodes = Some(num_nodes);
    cluster.node_rank = Some(map(required(environ, "PALS_NODEID")?, NodeRank));
    cluster.main_address = hosts
        .first()
        .map(|it| derived(it.to_owned(), "PBS_NODEFILE"));
    cluster.main_port = pbs::main_port(environ);
    Ok(cluster.settled_on_one_node())
}

fn world_size(s: &Surroundings, hosts: &Hosts, local: u32) -> Result<Sourced<u32>> {
    if let Some(size) = number(s.environ, "PMI_SIZE")? {
        return Ok(size);
    }
    let total = hosts.len().checked_mul(local).filter(|it| *it > 0);
    let total =
        total.context("neither `PMI_SIZE` nor `PBS_NODEFILE` tells how many ranks there are")?;
    Ok(derived(total, "PBS_NODEFILE and PALS_LOCAL_SIZE"))
}

/// A run may use fewer hosts than the job has.
fn num_nodes(world: &Sourced<u32>, local: &Sourced<u32>, hosts: &Hosts) -> Result<Sourced<u32>> {
    if local.value > 0 && world.value.is_multiple_of(local.value) {
        let from = format!("{} and {}", world.source, local.source);
        return Ok(derived(world.value / local.value, from));
    }
    let known = Some(hosts.len()).filter(|it| *it > 0);
    let known = known.context("`PBS_NODEFILE` does not tell how many nodes there are")?;
    Ok(derived(known, "PBS_NODEFILE"))
}
