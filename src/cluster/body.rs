//! Allocations whose engine did not start this launcher: batch scripts, interactive shells.
//!
//! Such a launcher is alone, so it trains on its own node as on a plain machine.

use super::facts::Cluster;
use super::hosts::Hosts;
use super::share::nodes;
use super::surroundings::Surroundings;

/// A lone launcher in an allocation of `number` nodes, with a line on how to start all.
fn lone(name: &'static str, number: Option<u32>, how: &str) -> Cluster {
    let mut cluster = Cluster::named(name);
    cluster.body = true;
    let given = match number {
        Some(1) => return cluster,
        Some(number) => format!("gave this job {}", nodes(number)),
        None => "may have given this job several nodes".to_owned(),
    };
    cluster.notes.push(format!(
        "{name} {given}, but started no launcher on each: only this one will train; `{how}` \
         starts all"
    ));
    cluster
}

/// Slurm: the script of `sbatch`, the shell of `salloc`.
pub(super) fn slurm(s: &Surroundings) -> Cluster {
    let number = slurm_nodes(s);
    let mut cluster = lone("Slurm", number, "srun --ntasks-per-node=1 fabric run ...");
    // salloc's shell may run where salloc was called; on a node of the job this is set.
    if !s.has("SLURM_NODEID") {
        cluster.notes = vec![format!(
            "this is a shell of `salloc` on `{}`, which is no node of the job: only this host \
             will train; `srun --ntasks-per-node=1 fabric run ...` starts on the job's nodes",
            s.hostname
        )];
    }
    cluster
}

/// Of a job of several components (`#SBATCH hetjob`) all together.
fn slurm_nodes(s: &Surroundings) -> Option<u32> {
    let number = |name: &str| s.text(name)?.parse().ok();
    let Some(components) = number("SLURM_HET_SIZE").filter(|it| *it > 1) else {
        return number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES"));
    };
    (0..components)
        .map(|it| number(&format!("SLURM_JOB_NUM_NODES_HET_GROUP_{it}")))
        .sum()
}

/// LSF: the script of `bsub`. On machines with jsrun (CSM) it runs on a launch node, which
/// the lists name first.
pub(super) fn lsf(s: &Surroundings) -> Cluster {
    let hosts = s.text("LSB_MCPU_HOSTS").map(Hosts::from_pairs);
    let jsrun = s.has("CSM_ALLOCATION_ID");
    let number = hosts.map(|it| it.len().saturating_sub(u32::from(jsrun)));
    let how = if jsrun {
        "jsrun -r1 -a1 -cALL_CPUS -gALL_GPUS fabric run ..."
    } else {
        "blaunch fabric run ..."
    };
    lone("LSF", number, how)
}

/// PBS: the job's script or interactive shell.
pub(super) fn pbs(s: &Surroundings) -> Cluster {
    let file = s.text("PBS_NODEFILE");
    let text = file.and_then(|it| (s.read)(it.as_ref()).ok());
    let number = text.map(|it| Hosts::from_lines(&it).len());
    lone("PBS", number, "pbsdsh -- fabric run ...")
}

/// Grid Engine: it starts the script and leaves the other hosts to it.
pub(super) fn grid_engine(s: &Surroundings) -> Cluster {
    let number = s.text("NHOSTS").and_then(|it| it.parse().ok());
    let how = "fabric run --num-nodes N --node-rank K --main-address HOST ...";
    lone("Grid Engine", number, how)
}

/// Flux: the script of `flux batch`, the shell of `flux alloc`.
pub(super) fn flux(_: &Surroundings) -> Cluster {
    lone("Flux", None, "flux run -N NODES -n NODES fabric run ...")
}

/// Fujitsu's Technical Computing Suite.
pub(super) fn fujitsu(_: &Surroundings) -> Cluster {
    lone("Fujitsu TCS", None, "mpiexec fabric run ...")
}
