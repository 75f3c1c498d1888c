//! IBM LSF: a task of `jsrun`, or of `blaunch`.

use anyhow::{Context as _, Result, bail, ensure};

use super::facts::{Cluster, Seat, Tasks};
use super::hosts::{Hosts, first_words, same_host};
use super::layout::{Layout, spread};
use super::port;
use super::surroundings::Surroundings;
use super::variables::{derived, map, number, required, text};
use crate::environ::Environ;
use crate::source::Sourced;
use crate::topology::{GlobalRank, LocalRank, NodeRank};

pub(super) fn is_jsrun(s: &Surroundings) -> bool {
    s.text("JSM_NAMESPACE_RANK").is_some() && s.text("JSM_NAMESPACE_SIZE").is_some()
}

pub(super) fn is_blaunch(s: &Surroundings) -> bool {
    s.text("LSB_JOBID").is_some() && s.text("LSF_PM_TASKID").is_some()
}

/// A task of `jsrun`, which numbers tasks but not nodes. As Lightning has it, the main
/// address is the rank file's first host after the launch node. (Lightning fails where the
/// file is missing, names hosts in full, or has slots beside them.)
pub(super) fn read_jsrun(s: &Surroundings) -> Result<Cluster> {
    let environ = s.environ;
    let listed = slots(s, true);
    let hosts = Hosts::from_names(
        listed
            .iter()
            .flat_map(|it| it.value.iter().map(String::as_str)),
    );
    let world_size = required::<u32>(environ, "JSM_NAMESPACE_SIZE")?;
    let local_world_size = local_size(environ, &world_size, &hosts)?;
    let (world, local) = (world_size.value, local_world_size.value);
    let seat = Seat {
        local_rank: map(required(environ, "JSM_NAMESPACE_LOCAL_RANK")?, LocalRank),
        local_world_size,
        global_rank: map(required(environ, "JSM_NAMESPACE_RANK")?, GlobalRank),
        world_size,
    };
    seat.check()?;
    let mut cluster = Cluster::named("LSF");
    let sizes = "JSM_NAMESPACE_SIZE and JSM_NAMESPACE_LOCAL_SIZE";
    cluster.num_nodes = Some(match world % local {
        0 => derived(world / local, sizes),
        _ => derived(hosts.len().max(1), "the job's hosts"),
    });
    cluster.node_rank = jsrun_node_rank(s, &seat, &hosts);
    cluster.main_address =
        listed.and_then(|it| Some(Sourced::new(hosts.first()?.to_owned(), it.source)));
    cluster.main_port = main_port(environ);
    let nodes = cluster.num_nodes.as_ref().map(|it| it.value);
    let (fewest, most) = spread(world, nodes, local);
    cluster.tasks = Some(Tasks {
        seat,
        fewest,
        most,
        how: "jsrun -r{n} -a1",
    });
    Ok(cluster.settled_on_one_node())
}

/// JSM_NAMESPACE_LOCAL_SIZE, else an even share of the hosts.
fn local_size(environ: &Environ, world: &Sourced<u32>, hosts: &Hosts) -> Result<Sourced<u32>> {
    if let Some(size) = number(environ, "JSM_NAMESPACE_LOCAL_SIZE")? {
        return Ok(size);
    }
    ensure!(
        !hosts.is_empty() && world.value.is_multiple_of(hosts.len()),
        "`JSM_NAMESPACE_LOCAL_SIZE` is not set, and {} tasks do not share {} hosts evenly",
        world.value,
        hosts.len()
    );
    Ok(derived(
        world.value / hosts.len(),
        "JSM_NAMESPACE_SIZE and the job's hosts",
    ))
}

/// One task a node: nodes are numbered as ranks are. Else by this host's place among the
/// hosts, and where it has none, as if ranks filled node after node.
fn jsrun_node_rank(s: &Surroundings, seat: &Seat, hosts: &Hosts) -> Option<Sourced<NodeRank>> {
    let (rank, local) = (seat.global_rank.value.0, seat.local_world_size.value);
    let filled = derived(NodeRank(rank / local), "JSM_NAMESPACE_RANK");
    if local == 1 {
        return Some(filled);
    }
    let nodes = seat.world_size.value.div_ceil(local);
    let place = hosts.position(s.hostname).filter(|it| *it < nodes);
    Some(place.map_or(filled, |it| {
        derived(NodeRank(it), "this host's place in the rank file")
    }))
}

/// A task of `blaunch`, which starts one per slot and numbers them from 1.
pub(super) fn read_blaunch(s: &Surroundings) -> Result<Cluster> {
    let listed =
        slots(s, false).context("neither `LSB_DJOB_HOSTFILE` nor `LSB_HOSTS` lists hosts")?;
    let (slots, source) = (listed.value, listed.source);
    let task: u32 = required(s.environ, "LSF_PM_TASKID")?.value;
    let rank = task
        .checked_sub(1)
        .context("`LSF_PM_TASKID` is 0, and it counts from 1")?;
    let Some(host) = slots.get(rank as usize) else {
        bail!(
            "`LSF_PM_TASKID` is {task}, but {source} has {} slots",
            slots.len()
        );
    };
    ensure!(
        same_host(host, s.hostname),
        "slot {task} (`LSF_PM_TASKID`) is of `{host}` ({source}), but this is `{}`: with hosts \
         of your own choice give `--num-nodes`, `--node-rank` and `--main-address` too",
        s.hostname
    );
    let mut cluster = Cluster::named("LSF");
    let layout = Layout::of(&slots, rank).context("no slots")?;
    let before = slots[..rank as usize]
        .iter()
        .filter(|it| *it == host)
        .count();
    let local = slots.iter().filter(|it| *it == host).count();
    let seat = Seat {
        local_rank: derived(LocalRank(before as u32), "LSF_PM_TASKID"),
        local_world_size: Sourced::new(local as u32, source.clone()),
        global_rank: derived(GlobalRank(rank), "LSF_PM_TASKID"),
        world_size: Sourced::new(slots.len() as u32, source.clone()),
    };
    let how = "bsub -R span[ptile={n}] ... blaunch";
    cluster.tasks = Some(Tasks {
        seat,
        fewest: 1,
        most: 1,
        how,
    });
    cluster.learn(&layout, &source.to_string());
    cluster.main_address = Some(Sourced::new(slots[0].clone(), source));
    cluster.main_port = main_port(s.environ);
    Ok(cluster.settled_on_one_node())
}

/// The job's hosts, one per slot: from the rank file or host file, else from the variables
/// (LSF leaves `LSB_HOSTS` out where it would be long). On machines with jsrun the first is
/// the launch node, which runs no tasks.
fn slots(s: &Surroundings, jsrun: bool) -> Option<Sourced<Vec<String>>> {
    let mut listed = listed_slots(s)?;
    let launch_node = (jsrun || s.has("CSM_ALLOCATION_ID")) && listed.value.len() > 1;
    if launch_node {
        listed.value.remove(0);
    }
    Some(listed)
}

fn listed_slots(s: &Surroundings) -> Option<Sourced<Vec<String>>> {
    for name in ["LSB_DJOB_RANKFILE", "LSB_DJOB_HOSTFILE"] {
        let read = s.text(name).and_then(|it| (s.read)(it.as_ref()).ok());
        let names: Vec<_> = read
            .iter()
            .flat_map(|it| first_words(it))
            .map(str::to_owned)
            .collect();
        if !names.is_empty() {
            return Some(derived(names, name));
        }
    }
    if let Some(listed) = text(s.environ, "LSB_HOSTS") {
        return Some(map(listed, |it| {
            it.split_whitespace().map(str::to_owned).collect()
        }));
    }
    let pairs = text(s.environ, "LSB_MCPU_HOSTS")?;
    let each = |(name, slots): (String, u32)| std::iter::repeat_n(name, slots as usize);
    Some(map(pairs, |it| {
        Hosts::from_pairs(&it)
            .0
            .into_iter()
            .flat_map(each)
            .collect()
    }))
}

/// An element of an array may have the id `12[3]`; its own number is LSB_JOBINDEX.
fn main_port(environ: &Environ) -> Option<Sourced<u16>> {
    if let Ok(Some(given)) = number(environ, "MASTER_PORT") {
        return Some(given);
    }
    let id = environ.text("LSB_JOBID")?;
    let number: u64 = id.split('[').next()?.trim().parse().ok()?;
    let element = environ.text("LSB_JOBINDEX").and_then(|it| it.parse().ok());
    Some(derived(
        port::of_job(number, element.unwrap_or(0)),
        "LSB_JOBID",
    ))
}
