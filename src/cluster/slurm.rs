//! Slurm: a task of a step that `srun` started.
//!
//! All facts are the step's (`SLURM_STEP_*`): a step may be smaller than its job, and
//! `SLURM_NTASKS` or `SLURM_NODELIST` may be the job's (Slurm 22.05 to 26.05, `env.c`).

use anyhow::{Context as _, Result};

use super::body;
use super::counts::Counts;
use super::facts::{Cluster, Seat, Tasks};
use super::hostlist::HostList;
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, first, map, number, required, text};
use crate::environ::Environ;
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

/// Ids from here on are not of `srun`'s steps: batch scripts, `salloc`'s own shell, pending
/// ones (`slurm.h`). One path of `env.c` prints them as signed numbers, so below 0.
const RESERVED_STEPS: i64 = 0xffff_fff0;

/// A batch script has SLURM_PROCID=0 too; only a step has an id.
pub(super) fn is_step(s: &Surroundings) -> bool {
    let id = s.text("SLURM_STEP_ID").and_then(|it| it.parse().ok());
    id.is_some_and(|it| (0..RESERVED_STEPS).contains(&it)) && s.text("SLURM_PROCID").is_some()
}

/// What was typed into the shell of `srun --pty bash` runs once, whatever the step's size.
/// Lightning goes by the job's name alone, which every `srun` within `salloc` inherits; so
/// whether this process is itself the task decides.
fn is_typed_into_a_shell(s: &Surroundings) -> bool {
    let name = s.text("SLURM_JOB_NAME");
    let task = s.text("SLURM_TASK_PID").and_then(|it| it.parse().ok());
    s.has("SLURM_PTY_PORT") && matches!(name, Some("bash" | "interactive")) && task != Some(s.pid)
}

/// The facts of this task's step.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    if is_typed_into_a_shell(s) {
        return Ok(body::slurm(s));
    }
    let num_nodes = first(environ, &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"])?
        .context("`SLURM_STEP_NUM_NODES` is not set")?;
    let node_rank: Sourced<u32> = required(environ, "SLURM_NODEID")?;
    let mut cluster = Cluster::named("Slurm");
    cluster.tasks = Some(tasks(environ, node_rank.value)?);
    cluster.main_port = Some(main_port(environ)?);
    if num_nodes.value > 1 {
        cluster.main_address = Some(main_address(environ)?);
    }
    cluster.num_nodes = Some(num_nodes);
    cluster.node_rank = Some(map(node_rank, NodeRank));
    Ok(cluster.settled_on_one_node())
}

/// Ranks of a node need not follow each other (`--distribution=cyclic`), nor need nodes have
/// equal numbers of tasks.
fn tasks(environ: &Environ, node: u32) -> Result<Tasks> {
    let names = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
    let listed = names.iter().find_map(|it| text(environ, it));
    let listed = listed.context("`SLURM_STEP_TASKS_PER_NODE` is not set")?;
    let wrong = || format!("`{}` is `{}`", listed.source, listed.value);
    let counts = Counts::parse(&listed.value).with_context(wrong)?;
    let local = counts
        .of(node)
        .with_context(|| format!("{}, which has no node {node} (`SLURM_NODEID`)", wrong()))?;
    let seat = Seat {
        local_rank: map(required(environ, "SLURM_LOCALID")?, LocalRank),
        local_world_size: map(listed, |_| local),
        global_rank: map(required(environ, "SLURM_PROCID")?, GlobalRank),
        world_size: first(environ, &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"])?
            .context("`SLURM_STEP_NUM_TASKS` is not set")?,
    };
    seat.check()?;
    Ok(Tasks {
        seat,
        fewest: counts.fewest(),
        most: counts.most(),
        how: "srun --ntasks-per-node={n}",
    })
}

/// The user's MASTER_ADDR, as Lightning has it; else the step's first node, which is always
/// node 0 (rank 0 may be elsewhere: `--distribution=arbitrary`).
fn main_address(environ: &Environ) -> Result<Sourced<String>> {
    if let Some(given) = text(environ, "MASTER_ADDR") {
        return Ok(given);
    }
    let names = ["SLURM_STEP_NODELIST", "SLURM_NODELIST"];
    let listed = names.iter().find_map(|it| text(environ, it));
    let listed = listed.context("`SLURM_STEP_NODELIST` is not set")?;
    let hosts = HostList::parse(&listed.value)
        .with_context(|| format!("`{}` is `{}`", listed.source, listed.value))?;
    Ok(map(listed, |_| hosts.first()))
}

fn main_port(environ: &Environ) -> Result<Sourced<u16>> {
    if let Some(given) = number(environ, "MASTER_PORT")? {
        return Ok(given);
    }
    let job = required::<u64>(environ, "SLURM_JOB_ID")?.value;
    let step = required::<u64>(environ, "SLURM_STEP_ID")?.value;
    Ok(derived(
        port::of_job(job, step),
        "SLURM_JOB_ID and SLURM_STEP_ID",
    ))
}
