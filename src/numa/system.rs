//! The machine's own answers: the files of sysfs and procfs.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::binding::{Binding, bind, homes, spread};
use super::bound::Bound;
use super::cpus::CpuSet;
use super::tree::Tree;

/// Places that workers can be bound near.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Near {
    /// All devices that a worker could use, by their addresses on the PCI bus, such as `0000:3b:00.0`.
    Devices(Vec<String>),
    /// So many places, spread over the machine.
    Everywhere(u32),
}

/// A machine, in the kernel's words.
pub(crate) struct System {
    /// Where sysfs is mounted.
    root: PathBuf,
    /// CPUs that this process may use.
    allowed: CpuSet,
}

impl System {
    /// The CPUs that this process may use.
    pub(crate) fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// The machine we run on.
    ///
    /// # Errors
    /// The kernel does not tell which CPUs this process may use.
    pub(crate) fn here() -> Result<Self, String> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let allowed = lines.find_map(|it| it.strip_prefix("Cpus_allowed_list:"));
        let allowed = allowed.and_then(CpuSet::parse);
        Ok(Self {
            root: "/sys".into(),
            allowed: allowed.ok_or("`/proc/self/status` does not tell the CPUs of this process")?,
        })
    }

    /// The CPUs of each worker, which is named by the number of its place.
    ///
    /// # Errors
    /// A worker gets none, or the kernel does not tell what it takes to know; in words.
    pub(crate) fn bind(
        &self,
        mode: Binding,
        near: &Near,
        workers: &[u32],
    ) -> Result<Bound, String> {
        let tree = Tree {
            read: &|path| read(&self.root, path),
            allowed: &self.allowed,
        };
        let homes = match near {
            Near::Devices(addresses) => homes(addresses, &tree)?,
            Near::Everywhere(places) => spread(*places, &tree)?,
        };
        let cpus = |it: &u32| bind(mode, *it as usize, &homes, &tree);
        Ok(Bound {
            mode,
            cpus: workers.iter().map(cpus).collect::<Result<_, _>>()?,
            allowed: self.allowed.len(),
        })
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

/// How many CPUs this process may run on (sched_getaffinity(2)): cheaper than which. `None` on more than 1,024.
pub(crate) fn allowed_cpus() -> Option<usize> {
    let set = sched::sched_getaffinity(Pid::from_raw(0)).ok()?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Some((0..sched::CpuSet::count()).filter(is_set).count())
}

/// How many CPUs this machine has switched on.
pub(crate) fn online_cpus() -> Option<usize> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok()??;
    usize::try_from(online).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_another_root_are_another_machine() {
        let root = tempfile::tempdir().unwrap();
        let node = |it: u32| root.path().join(format!("devices/system/node/node{it}"));
        for (it, cpus) in [(0, "0-3\n"), (1, "4-7\n")] {
            fs::create_dir_all(node(it)).unwrap();
            fs::write(node(it).join("cpulist"), cpus).unwrap();
        }
        fs::write(node(0).with_file_name("possible"), "0-1\n").unwrap();
        let system = System {
            root: root.path().into(),
            allowed: CpuSet::parse("0-6").unwrap(),
        };
        let bound = system
            .bind(Binding::Node, &Near::Everywhere(4), &[0, 3])
            .unwrap();
        let cpus = bound.cpus.iter().map(ToString::to_string);
        assert_eq!(cpus.collect::<Vec<_>>(), ["0-3", "4-6"]);
        assert_eq!(bound.allowed, 7);
    }

    #[test]
    fn this_machine_tells_its_cpus() {
        let system = System::here().unwrap();
        let bound = system
            .bind(Binding::Node, &Near::Everywhere(1), &[0])
            .unwrap();
        let cpus = &bound.cpus[0];
        assert!(!cpus.is_empty() && cpus.len() <= system.allowed().len());
    }
}
