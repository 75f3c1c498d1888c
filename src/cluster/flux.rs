//! Flux: a task of `flux run` (flux-core, `flux-environment(7)`).
//!
//! It names neither nodes nor addresses in variables, but speaks PMI to its tasks.

use anyhow::{Result, ensure};

use super::facts::{Cluster, Seat, Tasks};
use super::layout::spread;
use super::mpi::pmi;
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, map, required, text};
use crate::topology::{GlobalRank, LocalRank, NodeRank};

pub(super) fn matches(s: &Surroundings) -> bool {
    s.text("FLUX_TASK_RANK").is_some() && s.text("FLUX_JOB_SIZE").is_some()
}

/// The job's id is no number (`ƒD2e73NP`), so the port is made of its text.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    let world_size = required::<u32>(environ, "FLUX_JOB_SIZE")?;
    let nodes = required::<u32>(environ, "FLUX_JOB_NNODES")?;
    let rank = required::<u32>(environ, "FLUX_TASK_RANK")?;
    let inquiry = pmi(environ)?;
    let even = nodes.value > 0 && world_size.value.is_multiple_of(nodes.value);
    ensure!(
        even || inquiry.is_some(),
        "`FLUX_JOB_SIZE` is {} on {} nodes (`FLUX_JOB_NNODES`) and there is no `PMI_FD` to ask \
         for each node's number of tasks",
        world_size.value,
        nodes.value
    );
    let local = world_size.value.div_ceil(nodes.value.max(1));
    let sizes = "FLUX_JOB_SIZE and FLUX_JOB_NNODES";
    let (fewest, most) = spread(world_size.value, Some(nodes.value), local);
    let mut cluster = Cluster::named("Flux");
    cluster.node_rank = (most == 1).then(|| derived(NodeRank(rank.value), "FLUX_TASK_RANK"));
    cluster.main_port =
        text(environ, "FLUX_JOB_ID").map(|it| derived(port::of_name(&it.value), "FLUX_JOB_ID"));
    let seat = Seat {
        local_rank: map(required(environ, "FLUX_TASK_LOCAL_ID")?, LocalRank),
        local_world_size: derived(local, sizes),
        global_rank: map(rank, GlobalRank),
        world_size,
    };
    seat.check()?;
    cluster.tasks = Some(Tasks {
        seat,
        fewest,
        most,
        how: "flux run --tasks-per-node={n}",
    });
    cluster.num_nodes = Some(nodes);
    cluster.inquiry = inquiry;
    if cluster.num_nodes.as_ref().is_some_and(|it| it.value == 1) {
        cluster.node_rank = Some(derived(NodeRank(0), "FLUX_JOB_NNODES"));
    }
    Ok(cluster.settled_on_one_node())
}
