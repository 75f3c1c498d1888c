//! The modes of `--numa-binding`, and the CPUs that each worker gets.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::cpus::CpuSet;
use super::tree::Tree;

/// Which CPUs near its device a worker gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    /// Those of the device's NUMA node.
    Node,
    /// Those of all NUMA nodes in the socket of the device's.
    Socket,
    /// The NUMA node's cores, divided among its devices.
    Exclusive,
    /// One group of cores of the NUMA node that share their largest cache; another one for each device, if there are enough.
    CoreComplex,
}

impl Binding {
    /// What `--numa-binding` takes, as torchrun's option of that name.
    pub(crate) const NAMES: &'static [&'static str] =
        &["node", "socket", "exclusive", "core-complex"];

    /// The mode of a name, exactly as the option takes it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let modes = [Self::Node, Self::Socket, Self::Exclusive, Self::CoreComplex];
        modes.into_iter().find(|it| it.name() == name)
    }

    /// The name that the option takes.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The NUMA node of each device.
///
/// # Errors
/// A device that the kernel does not know, in words.
pub(super) fn homes(addresses: &[String], tree: &Tree) -> Result<Vec<u32>, String> {
    addresses.iter().map(|it| tree.home_of(it)).collect()
}

/// The NUMA nodes of workers that have no device: neighbours together, and all nodes in use if there are enough workers.
pub(super) fn spread(places: u32, tree: &Tree) -> Result<Vec<u32>, String> {
    let nodes = tree.nodes()?;
    let node = |place| place as usize * nodes.len() / places as usize;
    Ok((0..places).map(|it| nodes[node(it)]).collect())
}

/// The CPUs for a worker on one of the devices, whose NUMA nodes are `homes`.
///
/// # Errors
/// There are none, or too few for all devices of the NUMA node; or the kernel does not tell. In words.
pub(super) fn bind(
    mode: Binding,
    device: usize,
    homes: &[u32],
    tree: &Tree,
) -> Result<CpuSet, String> {
    let Some(&node) = homes.get(device) else {
        return Err(format!("there is no device {device}, only {}", homes.len()));
    };
    let cpus = match mode {
        Binding::Node => tree.cpus_of(node)?,
        Binding::Socket => socket(node, tree)?,
        Binding::Exclusive => exclusive(Place::of(device, homes), tree)?,
        Binding::CoreComplex => core_complex(Place::of(device, homes), tree)?,
    };
    match cpus.is_empty() {
        true => Err(none_allowed(node, tree)),
        false => Ok(cpus),
    }
}

fn none_allowed(node: u32, tree: &Tree) -> String {
    let allowed = tree.allowed;
    format!("this process may use CPUs {allowed}, and NUMA node {node} has none of them")
}

/// A device among those of its NUMA node.
struct Place {
    node: u32,
    /// Which of them it is, counted from 0.
    index: usize,
    devices: usize,
}

impl Place {
    fn of(device: usize, homes: &[u32]) -> Self {
        let node = homes[device];
        let here = |homes: &[u32]| homes.iter().filter(|it| **it == node).count();
        Self {
            node,
            index: here(&homes[..device]),
            devices: here(homes),
        }
    }
}

fn socket(node: u32, tree: &Tree) -> Result<CpuSet, String> {
    let socket_of = |cpus: &CpuSet| cpus.first().map(|it| tree.socket_of(it)).transpose();
    let home = socket_of(&tree.cpus_of(node)?)?;
    let mut found = Vec::new();
    for node in tree.nodes()? {
        let cpus = tree.cpus_of(node)?;
        if socket_of(&cpus)? == home {
            found.extend(cpus.iter());
        }
    }
    Ok(found.into_iter().collect())
}

/// Whole cores, as evenly as it goes: the first devices get one more.
fn exclusive(place: Place, tree: &Tree) -> Result<CpuSet, String> {
    let cores = grouped(&tree.cpus_of(place.node)?, |cpu| tree.core_of(cpu))?;
    let (each, extra) = (cores.len() / place.devices, cores.len() % place.devices);
    if each == 0 && !cores.is_empty() {
        return Err(format!(
            "NUMA node {} has fewer cores ({}) for this process than devices ({})",
            place.node,
            cores.len(),
            place.devices
        ));
    }
    let start = place.index * each + place.index.min(extra);
    let count = each + usize::from(place.index < extra);
    let mine = cores.into_values().skip(start).take(count);
    Ok(mine.flatten().collect())
}

/// The groups with the most CPUs first; devices beyond their number share.
fn core_complex(place: Place, tree: &Tree) -> Result<CpuSet, String> {
    let groups = grouped(&tree.cpus_of(place.node)?, |cpu| tree.cache_of(cpu))?;
    let mut groups: Vec<Vec<u32>> = groups.into_values().collect();
    groups.sort_by_key(|it| Reverse(it.len()));
    let mine = groups.get(place.index % groups.len().max(1));
    Ok(mine.into_iter().flatten().copied().collect())
}

/// CPUs with the same key together, in the order of the keys.
fn grouped(
    cpus: &CpuSet,
    key: impl Fn(u32) -> Result<u32, String>,
) -> Result<BTreeMap<u32, Vec<u32>>, String> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus.iter() {
        groups.entry(key(cpu)?).or_default().push(cpu);
    }
    Ok(groups)
}
