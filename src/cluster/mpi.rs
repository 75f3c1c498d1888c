//! MPI's launchers: Open MPI, MVAPICH, the Hydra family, Fujitsu's.
//!
//! Each numbers its tasks under names of its own, and none says on which host rank 0 runs;
//! that is asked of the engine itself (see `exchange`). Nothing is linked or loaded for it
//! here, and a prefix such as `OMPI_MCA_` proves nothing: Slurm sets some of those.

use std::time::Duration;

use anyhow::Result;

use super::facts::{Cluster, Inquiry, Seat, Tasks};
use super::layout::spread;
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, map, number, required, text};
use crate::environ::Environ;
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

/// The names under which one launcher numbers its tasks.
pub(super) struct Names {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    how: &'static str,
}

/// Also PRRTE and IBM Spectrum MPI.
pub(super) const OPEN_MPI: Names = Names {
    name: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    how: "mpirun --map-by ppr:{n}:node",
};

/// Up to version 2.
pub(super) const MVAPICH2: Names = Names {
    name: "MVAPICH",
    rank: "MV2_COMM_WORLD_RANK",
    size: "MV2_COMM_WORLD_SIZE",
    local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
    local_size: "MV2_COMM_WORLD_LOCAL_SIZE",
    how: "mpirun -ppn {n}",
};

/// From version 3.
pub(super) const MVAPICH: Names = Names {
    name: "MVAPICH",
    rank: "MVP_COMM_WORLD_RANK",
    size: "MVP_COMM_WORLD_SIZE",
    local_rank: "MVP_COMM_WORLD_LOCAL_RANK",
    local_size: "MVP_COMM_WORLD_LOCAL_SIZE",
    how: "mpirun -ppn {n}",
};

/// MPICH, Intel MPI, ParaStation. `srun --mpi=pmi2` sets PMI_RANK too, but not the local one.
pub(super) const HYDRA: Names = Names {
    name: "MPICH",
    rank: "PMI_RANK",
    size: "PMI_SIZE",
    local_rank: "MPI_LOCALRANKID",
    local_size: "MPI_LOCALNRANKS",
    how: "mpirun -ppn {n}",
};

/// Fugaku and FX1000.
pub(super) const FUJITSU: Names = Names {
    name: "Fujitsu TCS",
    rank: "PMIX_RANK",
    size: "PJM_MPI_PROC",
    local_rank: "PLE_RANK_ON_NODE",
    local_size: "FLIB_NUM_PROCESS_ON_NODE",
    how: "mpiexec --mca plm_ple_proc_per_node {n}",
};

impl Names {
    /// Rank and size together; snapshots of Open MPI 5 had a size of 0.
    pub(super) fn rank_and_size(&self, s: &Surroundings) -> bool {
        s.text(self.rank).is_some() && s.text(self.size).is_some_and(|it| it != "0")
    }

    /// Rank and local rank together.
    pub(super) fn rank_and_local_rank(&self, s: &Surroundings) -> bool {
        s.text(self.rank).is_some() && s.text(self.local_rank).is_some()
    }

    /// The facts of this task. What Open MPI 4 alone says is how many nodes there are.
    pub(super) fn read(&self, s: &Surroundings) -> Result<Cluster> {
        let seat = self.seat(s.environ)?;
        let mut cluster = Cluster::named(self.name);
        let nodes = number(s.environ, "OMPI_MCA_orte_num_nodes")?;
        place(&mut cluster, &seat, nodes);
        let nodes = cluster.num_nodes.as_ref().map(|it| it.value);
        let (fewest, most) = spread(seat.world_size.value, nodes, seat.local_world_size.value);
        cluster.main_address = azure_main_address(s.environ);
        cluster.tasks = Some(Tasks {
            seat,
            fewest,
            most,
            how: self.how,
        });
        Ok(cluster.settled_on_one_node())
    }

    fn seat(&self, environ: &Environ) -> Result<Seat> {
        let seat = Seat {
            local_rank: map(required(environ, self.local_rank)?, LocalRank),
            local_world_size: required(environ, self.local_size)?,
            global_rank: map(required(environ, self.rank)?, GlobalRank),
            world_size: required(environ, self.size)?,
        };
        seat.check()?;
        Ok(seat)
    }
}

/// What the sizes tell about the nodes. Where they do not tell, ranks are taken to fill node
/// after node, each with as many as this one; the engine's own answer replaces that.
fn place(cluster: &mut Cluster, seat: &Seat, nodes: Option<Sourced<u32>>) {
    let (world, local) = (seat.world_size.value, seat.local_world_size.value);
    let rank = seat.global_rank.value.0;
    let sizes = format!(
        "{} and {}",
        seat.world_size.source, seat.local_world_size.source
    );
    let even = world.is_multiple_of(local);
    cluster.num_nodes = match nodes {
        _ if world == local => Some(derived(1, sizes)),
        Some(nodes) => Some(nodes),
        None => even.then(|| derived(world / local, sizes)),
    };
    let fits = cluster
        .num_nodes
        .as_ref()
        .is_some_and(|it| even && it.value == world / local);
    let from = format!("{}, filling node after node", seat.global_rank.source);
    cluster.node_rank = fits.then(|| derived(NodeRank(rank / local), from));
}

/// Open MPI, whose `mpirun` waits 1 s between SIGTERM and SIGKILL (4.1, `odls_base_kill`).
pub(super) fn read_open_mpi(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = OPEN_MPI.read(s)?;
    cluster.kill_after = Some(Duration::from_secs(1));
    cluster.main_port = main_port(s.environ);
    let several = cluster.main_address.is_none();
    cluster.inquiry = several.then_some(Inquiry::Pmix);
    let lone = cluster.tasks.as_ref().is_some_and(|it| it.most == 1);
    let (allowed, present) = if lone { (s.cpus)() } else { (0, 0) };
    if allowed < present {
        cluster.notes.push(format!(
            "Open MPI bound this launcher, and so its workers, to {allowed} of {present} CPUs: \
             `mpirun --bind-to none` leaves all of them"
        ));
    }
    Ok(cluster)
}

/// The Hydra family. Even on one node it is asked: only so two jobs there get two ports.
pub(super) fn read_hydra(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = HYDRA.read(s)?;
    cluster.inquiry = pmi(s.environ)?;
    Ok(cluster)
}

/// The question that PMI_FD makes possible.
pub(super) fn pmi(environ: &Environ) -> Result<Option<Inquiry>> {
    let descriptor: Option<Sourced<i32>> = number(environ, "PMI_FD")?;
    let descriptor = descriptor.map(|it| it.value).filter(|it| *it >= 0);
    Ok(descriptor.map(|descriptor| Inquiry::Pmi { descriptor }))
}

fn main_port(environ: &Environ) -> Option<Sourced<u16>> {
    let namespace = text(environ, "PMIX_NAMESPACE")?;
    Some(derived(port::of_name(&namespace.value), "PMIX_NAMESPACE"))
}

/// Azure's batch service tells the address of rank 0's node, with a port or without; for a
/// job of one node it says `localhost`.
fn azure_main_address(environ: &Environ) -> Option<Sourced<String>> {
    let names = ["AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_MPI_MASTER_NODE"];
    let found = names.iter().filter_map(|it| text(environ, it));
    let host = |it: &str| it.split(':').next().unwrap_or(it).to_owned();
    let mut found = found.map(|it| map(it, |value| host(&value)));
    found.find(|it| it.value != "localhost")
}

/// The host of `mpirun` itself, the usual but not certain place of rank 0: Open MPI 4 gives
/// its address, Open MPI 5 its name.
pub(super) fn mpirun_host(environ: &Environ) -> Option<Sourced<String>> {
    if let Some(uri) = environ.text("OMPI_MCA_orte_hnp_uri") {
        let address = uri.split_once("://")?.1;
        let first = address.split([',', ';']).next()?;
        let host = first
            .rsplit_once(':')
            .map_or(first, |it| it.0)
            .trim_matches(['[', ']']);
        return Some(derived(
            host.to_owned(),
            "OMPI_MCA_orte_hnp_uri, mpirun's host",
        ));
    }
    let namespace = environ.text("PMIX_NAMESPACE")?.strip_prefix("prterun-")?;
    let host = namespace.rsplit_once('-')?.0;
    Some(derived(host.to_owned(), "PMIX_NAMESPACE, mpirun's host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpirun_is_found_in_both_generations() {
        let old = (
            "OMPI_MCA_orte_hnp_uri",
            "693239808.0;tcp://10.81.0.1,10.9.0.1:38729",
        );
        let address = mpirun_host(&[old].into_iter().collect()).map(|it| it.value);
        assert_eq!(address.as_deref(), Some("10.81.0.1"));
        let old = ("OMPI_MCA_orte_hnp_uri", "693239808.0;tcp://10.81.0.1:38729");
        let address = mpirun_host(&[old].into_iter().collect()).map(|it| it.value);
        assert_eq!(address.as_deref(), Some("10.81.0.1"));
        let new = ("PMIX_NAMESPACE", "prterun-gpu-01-12345@1");
        let host = mpirun_host(&[new].into_iter().collect()).map(|it| it.value);
        assert_eq!(host.as_deref(), Some("gpu-01"));
        let srun = ("PMIX_NAMESPACE", "slurm.pmix.7.0");
        assert_eq!(mpirun_host(&[srun].into_iter().collect()), None);
    }

    #[test]
    fn azure_gives_rank_0s_address() {
        let check = |pairs: &[(&str, &str)], expected: Option<&str>| {
            let environ = pairs.iter().copied().collect();
            let found = azure_main_address(&environ).map(|it| it.value);
            assert_eq!(found.as_deref(), expected);
        };
        check(
            &[("AZ_BATCH_MASTER_NODE", "10.0.0.5:6000")],
            Some("10.0.0.5"),
        );
        check(&[("AZ_BATCH_MASTER_NODE", "10.0.0.5")], Some("10.0.0.5"));
        check(&[("AZ_BATCHAI_MPI_MASTER_NODE", "localhost")], None);
    }
}
