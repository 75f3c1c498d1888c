//! Which engine started us: a table, the first match wins.
//!
//! Engines nest - `mpirun` within a Slurm job, torchrun within a task of `mpirun` - and what
//! the outer one set stays in the environment of what the inner one starts. So what can only
//! be inside of something else stands above it; an allocation that started nothing is last.

use anyhow::{Context as _, Result, bail};

use super::facts::Cluster;
use super::surroundings::Surroundings;
use super::{
    body, cloud, custom, flux, kubeflow, local, lsf, mpi, pals, pbs, slurm, torchelastic, tpu,
};

/// One engine, or one of the ways in which it starts things.
struct Engine {
    /// What `--cluster` calls it.
    choice: &'static str,
    /// The variables it is known by.
    marks: &'static str,
    matches: fn(&Surroundings) -> bool,
    read: fn(&Surroundings) -> Result<Cluster>,
}

const ENGINES: &[Engine] = &[
    Engine {
        choice: "torchelastic",
        marks: "TORCHELASTIC_RUN_ID, RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE",
        matches: torchelastic::matches,
        read: torchelastic::read,
    },
    Engine {
        choice: "openmpi",
        marks: "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE",
        matches: |s| mpi::OPEN_MPI.rank_and_size(s),
        read: mpi::read_open_mpi,
    },
    Engine {
        choice: "mvapich",
        marks: "MVP_COMM_WORLD_RANK and MVP_COMM_WORLD_SIZE",
        matches: |s| mpi::MVAPICH.rank_and_size(s),
        read: |s| mpi::MVAPICH.read(s),
    },
    Engine {
        choice: "mvapich",
        marks: "MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE",
        matches: |s| mpi::MVAPICH2.rank_and_size(s),
        read: |s| mpi::MVAPICH2.read(s),
    },
    Engine {
        choice: "lsf",
        marks: "JSM_NAMESPACE_RANK and JSM_NAMESPACE_SIZE",
        matches: lsf::is_jsrun,
        read: lsf::read_jsrun,
    },
    Engine {
        choice: "mpich",
        marks: "PMI_RANK and MPI_LOCALRANKID",
        matches: |s| mpi::HYDRA.rank_and_local_rank(s),
        read: mpi::read_hydra,
    },
    Engine {
        choice: "fujitsu",
        marks: "PJM_JOBID, PMIX_RANK and PLE_RANK_ON_NODE",
        matches: |s| s.has("PJM_JOBID") && mpi::FUJITSU.rank_and_local_rank(s),
        read: |s| mpi::FUJITSU.read(s),
    },
    Engine {
        choice: "flux",
        marks: "FLUX_TASK_RANK and FLUX_JOB_SIZE",
        matches: flux::matches,
        read: flux::read,
    },
    Engine {
        choice: "slurm",
        marks: "SLURM_STEP_ID and SLURM_PROCID",
        matches: slurm::is_step,
        read: slurm::read,
    },
    Engine {
        choice: "pals",
        marks: "PALS_RANKID and PALS_NODEID",
        matches: pals::matches,
        read: pals::read,
    },
    Engine {
        choice: "lsf",
        marks: "LSB_JOBID and LSF_PM_TASKID",
        matches: lsf::is_blaunch,
        read: lsf::read_blaunch,
    },
    Engine {
        choice: "pbs",
        marks: "PBS_JOBID and a PBS_TASKNUM other than 1",
        matches: pbs::is_task,
        read: pbs::read,
    },
    Engine {
        choice: "kubeflow",
        marks: "PET_NNODES and PET_NODE_RANK",
        matches: kubeflow::is_numbered,
        read: kubeflow::read_numbered,
    },
    Engine {
        choice: "kubeflow",
        marks: "KUBERNETES_SERVICE_HOST, PET_NNODES and PET_RDZV_ENDPOINT",
        matches: kubeflow::is_elastic,
        read: kubeflow::read_elastic,
    },
    Engine {
        choice: "kubeflow",
        marks: "KUBERNETES_SERVICE_HOST, RANK, WORLD_SIZE and MASTER_ADDR",
        matches: kubeflow::is_early,
        read: kubeflow::read_early,
    },
    Engine {
        choice: "sagemaker",
        marks: "SM_HOSTS and SM_CURRENT_HOST",
        matches: cloud::is_sagemaker,
        read: cloud::read_sagemaker,
    },
    Engine {
        choice: "vertex",
        marks: "CLUSTER_SPEC",
        matches: cloud::is_vertex,
        read: cloud::read_vertex,
    },
    Engine {
        choice: "tpu",
        marks: "TPU_WORKER_ID and TPU_WORKER_HOSTNAMES",
        matches: tpu::matches,
        read: tpu::read,
    },
    Engine {
        choice: "kubernetes",
        marks: "KUBERNETES_SERVICE_HOST, JOB_COMPLETION_INDEX and `--num-nodes`",
        matches: kubeflow::is_indexed,
        read: kubeflow::read_indexed,
    },
    Engine {
        choice: "slurm",
        marks: "SLURM_JOB_ID",
        matches: |s| s.text("SLURM_JOB_ID").is_some(),
        read: |s| Ok(body::slurm(s)),
    },
    Engine {
        choice: "lsf",
        marks: "LSB_JOBID",
        matches: |s| s.text("LSB_JOBID").is_some(),
        read: |s| Ok(body::lsf(s)),
    },
    Engine {
        choice: "pbs",
        marks: "PBS_JOBID and PBS_ENVIRONMENT",
        matches: |s| s.text("PBS_JOBID").is_some() && s.has("PBS_ENVIRONMENT"),
        read: |s| Ok(body::pbs(s)),
    },
    Engine {
        choice: "sge",
        marks: "SGE_ROOT, JOB_ID and PE_HOSTFILE",
        matches: |s| {
            ["SGE_ROOT", "JOB_ID", "PE_HOSTFILE"]
                .iter()
                .all(|it| s.has(it))
        },
        read: |s| Ok(body::grid_engine(s)),
    },
    Engine {
        choice: "flux",
        marks: "FLUX_URI and FLUX_ENCLOSING_ID",
        matches: |s| s.has("FLUX_URI") && s.has("FLUX_ENCLOSING_ID"),
        read: |s| Ok(body::flux(s)),
    },
    Engine {
        choice: "fujitsu",
        marks: "PJM_JOBID",
        matches: |s| s.has("PJM_JOBID"),
        read: |s| Ok(body::fujitsu(s)),
    },
];

/// What `--cluster` takes, beside `auto` and `none`; each once.
pub(crate) fn choices() -> Vec<&'static str> {
    let mut choices: Vec<_> = ENGINES.iter().map(|it| it.choice).collect();
    choices.sort_unstable();
    choices.dedup();
    choices
}

/// The facts of the engine that started us: that of `--cluster`, of the user's map, or the
/// first that matches; else those of a plain machine.
pub(super) fn detect(s: &Surroundings) -> Result<Cluster> {
    let map = s.asked.cluster_map.map(|it| (it, "--cluster-map"));
    let map = map.or_else(|| Some((s.text("FABRIC_CLUSTER_MAP")?, "FABRIC_CLUSTER_MAP")));
    match (s.asked.cluster, map) {
        (None | Some("auto"), Some((map, source))) => {
            custom::read(s, map).with_context(|| format!("use `{source}`"))
        }
        (None | Some("auto"), None) => recognise(s),
        (Some("none"), _) => local::ignore(s),
        (Some(choice), _) => chosen(s, choice),
    }
}

fn recognise(s: &Surroundings) -> Result<Cluster> {
    if torchelastic::inside_fabric(s) {
        return torchelastic::read_inside_fabric(s);
    }
    let engine = ENGINES.iter().find(|it| (it.matches)(s));
    match engine.map(|it| read(it, s)) {
        Some(found) if s.asked.node_rank => described_by_hand(s, found),
        Some(found) => found,
        None => local::read(s),
    }
}

/// Who numbers the nodes on the command line may start each of them by an engine of its own
/// (`srun -w NODE ... &`, once per node), so nothing an engine says is about all of them.
fn described_by_hand(s: &Surroundings, found: Result<Cluster>) -> Result<Cluster> {
    let mut cluster = local::read(s)?;
    cluster.kill_after = found.ok().and_then(|it| it.kill_after);
    Ok(cluster)
}

fn chosen(s: &Surroundings, choice: &str) -> Result<Cluster> {
    let mut engines = ENGINES.iter().filter(|it| it.choice == choice).peekable();
    let Some(first) = engines.peek() else {
        bail!(
            "`--cluster` is `{choice}`, none of auto, none, {}",
            choices().join(", ")
        );
    };
    let marks = first.marks;
    match engines.find(|it| (it.matches)(s)) {
        Some(engine) => read(engine, s),
        None => bail!("`--cluster` is `{choice}`, but its variables are not set: {marks}"),
    }
}

fn read(engine: &Engine, s: &Surroundings) -> Result<Cluster> {
    (engine.read)(s).with_context(|| {
        let choice = engine.choice;
        format!("use the variables of `--cluster {choice}` (`--cluster none` ignores them)")
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::Asked;
    use super::*;
    use crate::environ::Environ;

    const STEP: [(&str, &str); 9] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("FABRIC_CLUSTER_MAP", "num_nodes=N"),
    ];

    fn found(choice: Option<&str>, map: Option<&str>, environ: &[(&str, &str)]) -> String {
        let environ: Environ = environ.iter().copied().collect();
        let asked = Asked {
            cluster: choice,
            cluster_map: map,
            ..Asked::default()
        };
        let found = detect(&Surroundings {
            environ: &environ,
            asked: &asked,
            hostname: "here",
            pid: 1,
            cpus: &|| (1, 1),
            read: &|_| Err("no files".to_owned()),
        });
        found.map_or_else(|it| format!("{it:#}"), |it| it.name.to_owned())
    }

    #[test]
    fn a_choice_wins_over_a_map_and_a_map_over_the_engine() {
        assert_eq!(found(None, None, &STEP[..8]), "Slurm");
        assert_eq!(found(Some("auto"), None, &STEP[..8]), "Slurm");
        assert_eq!(found(Some("none"), Some("x"), &STEP), "plain machine");
        assert_eq!(found(Some("slurm"), None, &STEP), "Slurm");
        let map = "num_nodes=SLURM_STEP_NUM_NODES";
        assert_eq!(found(None, Some(map), &STEP), "custom cluster");
        let missing = "use `FABRIC_CLUSTER_MAP`: the map's `num_nodes`: `N` is not set";
        assert_eq!(found(None, None, &STEP), missing);
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        let why = found(Some("slrum"), None, &STEP);
        assert!(
            why.starts_with("`--cluster` is `slrum`, none of auto, none, flux, "),
            "{why}"
        );
        let why = "`--cluster` is `pals`, but its variables are not set: \
                   PALS_RANKID and PALS_NODEID";
        assert_eq!(found(Some("pals"), None, &STEP), why);
    }
}
