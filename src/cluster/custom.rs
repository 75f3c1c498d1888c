//! A scheduler nobody told us about: the user names its variables.
//!
//! `--cluster-map 'num_nodes=MY_NODES,node_rank=MY_ID,main_address=MY_HEAD'` is what a
//! ClusterEnvironment class is to Lightning.

use anyhow::{Context as _, Result, bail, ensure};

use super::facts::{Cluster, Seat, Tasks};
use super::hostlist::HostList;
use super::layout::spread;
use super::surroundings::Surroundings;
use super::variables::{derived, map, required, text};
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

/// The facts that can be mapped, in the order in which messages list them. With the last
/// four the scheduler starts one launcher per worker.
const FACTS: [&str; 8] = [
    "num_nodes",
    "node_rank",
    "main_address",
    "main_port",
    "world_size",
    "global_rank",
    "local_rank",
    "local_world_size",
];

/// Reads every mapped variable; each must be set. A main address may be a list of hosts in
/// Slurm's notation: the first is meant.
pub(super) fn read(s: &Surroundings, mapping: &str) -> Result<Cluster> {
    let names = parse(mapping)?;
    let variable = |fact: &str| names.iter().find(|it| it.0 == fact).map(|it| it.1);
    let number = |fact: &str| -> Result<Option<Sourced<u32>>> {
        let found = variable(fact).map(|it| required(s.environ, it));
        found
            .transpose()
            .with_context(|| format!("the map's `{fact}`"))
    };
    let mut cluster = Cluster::named("custom cluster");
    cluster.num_nodes = number("num_nodes")?;
    cluster.node_rank = number("node_rank")?.map(|it| map(it, NodeRank));
    if let Some(name) = variable("main_address") {
        let missing = || format!("the map's `main_address`: `{name}` is not set");
        let listed = text(s.environ, name).with_context(missing)?;
        let hosts = HostList::parse(&listed.value)
            .with_context(|| format!("the map's `main_address`: `{name}` is `{}`", listed.value))?;
        cluster.main_address = Some(map(listed, |_| hosts.first()));
    }
    if let Some(name) = variable("main_port") {
        let found = required(s.environ, name).context("the map's `main_port`")?;
        cluster.main_port = Some(found);
    }
    let ranks = (
        number("global_rank")?,
        number("world_size")?,
        number("local_rank")?,
    );
    let local = number("local_world_size")?;
    cluster.tasks = match (ranks, local) {
        ((None, None, None), None) => None,
        ((Some(global), Some(world), Some(local_rank)), local) => {
            Some(tasks(&cluster, global, world, local_rank, local)?)
        }
        _ => bail!(
            "a map for one launcher per worker needs `global_rank`, `world_size` and \
             `local_rank`, and `local_world_size` where nodes differ"
        ),
    };
    Ok(cluster)
}

fn tasks(
    cluster: &Cluster,
    global: Sourced<u32>,
    world: Sourced<u32>,
    local_rank: Sourced<u32>,
    local: Option<Sourced<u32>>,
) -> Result<Tasks> {
    let nodes = cluster.num_nodes.as_ref().map(|it| it.value);
    let share = nodes.filter(|it| *it > 0 && world.value.is_multiple_of(*it));
    let share = share.map(|it| derived(world.value / it, "world_size and num_nodes"));
    let local = local
        .or(share)
        .context("the map needs `local_world_size`")?;
    let (fewest, most) = spread(world.value, nodes, local.value);
    let seat = Seat {
        local_rank: map(local_rank, LocalRank),
        local_world_size: local,
        global_rank: map(global, GlobalRank),
        world_size: world,
    };
    seat.check()?;
    Ok(Tasks {
        seat,
        fewest,
        most,
        how: "{n} launchers on each node",
    })
}

/// `fact=VARIABLE` pairs, each fact once.
fn parse(mapping: &str) -> Result<Vec<(&str, &str)>> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for pair in mapping
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty())
    {
        let parts = pair.split_once('=').map(|it| (it.0.trim(), it.1.trim()));
        let parts = parts.filter(|it| !it.1.is_empty());
        let parts = parts.with_context(|| format!("`{pair}` in the map is not `fact=VARIABLE`"))?;
        ensure!(
            FACTS.contains(&parts.0),
            "`{}` in the map is none of {}",
            parts.0,
            FACTS.join(", ")
        );
        let again = names.iter().any(|it| it.0 == parts.0);
        ensure!(!again, "`{}` is in the map twice", parts.0);
        names.push(parts);
    }
    ensure!(
        !names.is_empty(),
        "the map is empty: it needs pairs such as `num_nodes=MY_NODES`"
    );
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::facts::Asked;
    use super::*;
    use crate::environ::Environ;

    fn read_from(mapping: &str) -> Result<Cluster> {
        let environ: Environ = [
            ("N", "2"),
            ("K", "1"),
            ("H", "n[07-08]"),
            ("P", "4000"),
            ("L", "0"),
            ("BAD", "x"),
        ]
        .into_iter()
        .collect();
        let surroundings = Surroundings {
            environ: &environ,
            asked: &Asked::default(),
            hostname: "here",
            pid: 1,
            cpus: &|| (1, 1),
            read: &|_| Err("no files".to_owned()),
        };
        read(&surroundings, mapping)
    }

    #[track_caller]
    fn refused(mapping: &str, why: &str) {
        assert_eq!(format!("{:#}", read_from(mapping).unwrap_err()), why);
    }

    #[test]
    fn a_launcher_per_node() {
        let map = "num_nodes=N, node_rank=K,main_address=H,main_port=P";
        let cluster = read_from(map).unwrap();
        assert_eq!(cluster.num_nodes.unwrap().value, 2);
        assert_eq!(cluster.node_rank.unwrap().value, NodeRank(1));
        assert_eq!(cluster.main_address.unwrap().value, "n07");
        assert_eq!(cluster.main_port.unwrap().value, 4000);
        assert_eq!(cluster.tasks, None);
    }

    #[test]
    fn a_launcher_per_worker() {
        let map = "num_nodes=N,node_rank=K,main_address=H,world_size=N,global_rank=K,local_rank=L";
        let tasks = read_from(map).unwrap().tasks.unwrap();
        assert_eq!(tasks.seat.local_world_size.value, 1);
        let map = "world_size=N,global_rank=K,local_rank=K,local_world_size=N";
        let tasks = read_from(map).unwrap().tasks.unwrap();
        assert_eq!(tasks.most, 2);
        let why = "a map for one launcher per worker needs `global_rank`, `world_size` and \
                   `local_rank`, and `local_world_size` where nodes differ";
        refused("global_rank=K", why);
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused(
            "num_nodes=N,node_rank=ID",
            "the map's `node_rank`: `ID` is not set",
        );
        let why = "the map's `num_nodes`: `BAD` is `x`, not a number it could be";
        refused("num_nodes=BAD", why);
        refused("num_nodes", "`num_nodes` in the map is not `fact=VARIABLE`");
        refused("num_nodes=N,num_nodes=K", "`num_nodes` is in the map twice");
        refused(
            "",
            "the map is empty: it needs pairs such as `num_nodes=MY_NODES`",
        );
        let why = "`rank` in the map is none of num_nodes, node_rank, main_address, main_port, \
                   world_size, global_rank, local_rank, local_world_size";
        refused("rank=K", why);
    }
}
