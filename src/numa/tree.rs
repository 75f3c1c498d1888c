//! What the kernel tells of CPUs, caches, NUMA nodes and devices, question by question.

use super::cpus::CpuSet;

/// Answers from the files of /sys, as far as this process may use the CPUs.
pub(super) struct Tree<'a> {
    /// The text of a file, by its path below /sys.
    pub(super) read: &'a dyn Fn(&str) -> Option<String>,
    /// The CPUs that this process may use.
    pub(super) allowed: &'a CpuSet,
}

/// Deeper hierarchies of caches do not exist.
const CACHES: u32 = 16;

impl Tree<'_> {
    /// The NUMA nodes that have CPUs for us.
    pub(super) fn nodes(&self) -> Result<Vec<u32>, String> {
        let possible = self.list("devices/system/node/possible")?;
        let usable = |node: &u32| self.cpus_of(*node).is_ok_and(|it| !it.is_empty());
        let nodes: Vec<u32> = possible.iter().filter(usable).collect();
        match nodes.is_empty() {
            true => Err("no NUMA node has CPUs that this process may use".to_owned()),
            false => Ok(nodes),
        }
    }

    /// The CPUs of a node that this process may use; perhaps none.
    pub(super) fn cpus_of(&self, node: u32) -> Result<CpuSet, String> {
        let all = self.list(&format!("devices/system/node/node{node}/cpulist"))?;
        Ok(all.shared_with(self.allowed))
    }

    /// The number of the socket that a CPU sits in.
    pub(super) fn socket_of(&self, cpu: u32) -> Result<i64, String> {
        let path = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        self.number(&path)
    }

    /// A core, by the first of its CPUs.
    pub(super) fn core_of(&self, cpu: u32) -> Result<u32, String> {
        let path = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        self.first(&path)
    }

    /// The largest cache that a CPU uses, by the first of the CPUs that share it.
    pub(super) fn cache_of(&self, cpu: u32) -> Result<u32, String> {
        let mut largest = None;
        for index in 0..CACHES {
            let file = |name| format!("devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            let kind = (self.read)(&file("type"));
            let holds_data = kind.is_some_and(|it| ["Unified", "Data"].contains(&it.trim()));
            if holds_data {
                largest = largest.max(Some((self.number(&file("level"))?, index)));
            }
        }
        let Some((_, index)) = largest else {
            return Err(format!("the kernel does not tell the caches of CPU {cpu}"));
        };
        let path = format!("devices/system/cpu/cpu{cpu}/cache/index{index}/shared_cpu_list");
        self.first(&path)
    }

    /// The NUMA node of a device on the PCI bus. Where there is only one, the kernel often says -1.
    pub(super) fn home_of(&self, address: &str) -> Result<u32, String> {
        let node = self.number(&format!("bus/pci/devices/{address}/numa_node"))?;
        Ok(u32::try_from(node).unwrap_or(0))
    }

    fn first(&self, path: &str) -> Result<u32, String> {
        let first = self.list(path)?.first();
        first.ok_or_else(|| format!("`/sys/{path}` is empty"))
    }

    fn list(&self, path: &str) -> Result<CpuSet, String> {
        let text = self.text(path)?;
        CpuSet::parse(&text).ok_or_else(|| format!("`/sys/{path}` is no list: `{}`", text.trim()))
    }

    fn number(&self, path: &str) -> Result<i64, String> {
        let text = self.text(path)?;
        let number = text.trim().parse();
        number.map_err(|_| format!("`/sys/{path}` is no number: `{}`", text.trim()))
    }

    fn text(&self, path: &str) -> Result<String, String> {
        (self.read)(path).ok_or_else(|| format!("`/sys/{path}` cannot be read"))
    }
}
