//! Started by torchrun as one of its workers (`torchrun --no-python ... fabric run train.py`).

use anyhow::Result;

use super::facts::{Cluster, Seat, Tasks};
use super::layout::spread;
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, map, number, required, text};
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

const MARKS: [&str; 5] = [
    "TORCHELASTIC_RUN_ID",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
];

/// All that torchrun's agent sets (torch 2.15, `local_elastic_agent.py`); a part of it, or
/// empty values, may be a leftover in somebody's shell.
pub(super) fn matches(s: &Surroundings) -> bool {
    MARKS.iter().all(|it| s.text(it).is_some())
}

/// A worker of `fabric run` finds the same variables, and `LT_CLI_USED` with them.
pub(super) fn inside_fabric(s: &Surroundings) -> bool {
    matches(s) && s.text("LT_CLI_USED").is_some_and(|it| it != "0")
}

/// The script of one `fabric run` started another: that one is on its own, as it always was.
pub(super) fn read_inside_fabric(_: &Surroundings) -> Result<Cluster> {
    let mut cluster = Cluster::named("a worker of another `fabric run`");
    cluster.notes.push(
        "started inside a worker of another `fabric run` (`LT_CLI_USED`): the variables of its \
         cluster are not used; `--cluster NAME` uses them"
            .to_owned(),
    );
    Ok(cluster)
}

/// The rank is torchrun's.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    let seat = Seat {
        local_rank: map(required(environ, "LOCAL_RANK")?, LocalRank),
        local_world_size: required(environ, "LOCAL_WORLD_SIZE")?,
        global_rank: map(required(environ, "RANK")?, GlobalRank),
        world_size: required(environ, "WORLD_SIZE")?,
    };
    seat.check()?;
    let mut cluster = Cluster::named("torchelastic");
    cluster.num_nodes = number(environ, "GROUP_WORLD_SIZE")?;
    cluster.node_rank = number(environ, "GROUP_RANK")?.map(|it| map(it, NodeRank));
    cluster.main_address = text(environ, "MASTER_ADDR");
    cluster.main_port = main_port(s)?;
    let nodes = cluster.num_nodes.as_ref().map(|it| it.value);
    let (fewest, most) = spread(seat.world_size.value, nodes, seat.local_world_size.value);
    let how = "torchrun --nproc-per-node {n} --no-python fabric run";
    cluster.tasks = Some(Tasks {
        seat,
        fewest,
        most,
        how,
    });
    Ok(cluster.settled_on_one_node())
}

/// Where torchrun's agent serves a store on MASTER_PORT, ours needs another port, and a new
/// one after each of torchrun's restarts.
fn main_port(s: &Surroundings) -> Result<Option<Sourced<u16>>> {
    let given: Option<Sourced<u16>> = number(s.environ, "MASTER_PORT")?;
    if s.text("TORCHELASTIC_USE_AGENT_STORE") != Some("True") {
        return Ok(given);
    }
    let restarts = number(s.environ, "TORCHELASTIC_RESTART_COUNT")?.map_or(0, |it| it.value);
    let port = |theirs: u16| port::of_job(u64::from(theirs), 1 + restarts);
    Ok(given.map(|it| derived(port(it.value), "MASTER_PORT, which is torchrun's own")))
}
