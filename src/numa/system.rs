//! The machine's own answers: the files of sysfs and procfs.

use std::fs;
use std::path::{Path, PathBuf};

use super::binding::{Binding, bind, homes, spread};
use super::bound::Bound;
use super::cpus::CpuSet;
use super::tree::Tree;

/// What workers are to be bound near.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Near<'a> {
    /// Devices by their addresses on the PCI bus, such as `0000:3b:00.0`, all that a worker could use; and which of
    /// them each worker has.
    Devices {
        addresses: &'a [String],
        of_workers: &'a [u32],
    },
    /// No device: so many workers are spread over the machine.
    Nothing { workers: u32 },
}

/// A machine, in the kernel's words.
pub(crate) struct System {
    /// Where sysfs is mounted.
    root: PathBuf,
    /// CPUs that this process may use.
    allowed: CpuSet,
}

impl System {
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

    /// The CPUs of each worker.
    ///
    /// # Errors
    /// A worker gets none, or the kernel does not tell what takes to know; in words.
    pub(crate) fn bind(&self, mode: Binding, near: Near) -> Result<Bound, String> {
        let tree = Tree {
            read: &|path| read(&self.root, path),
            allowed: &self.allowed,
        };
        let (homes, devices) = match near {
            Near::Devices {
                addresses,
                of_workers,
            } => (homes(addresses, &tree)?, of_workers.to_vec()),
            Near::Nothing { workers } => (spread(workers, &tree)?, (0..workers).collect()),
        };
        let cpus = |it: &u32| bind(mode, *it as usize, &homes, &tree);
        Ok(Bound {
            mode,
            cpus: devices.iter().map(cpus).collect::<Result<_, _>>()?,
            allowed: self.allowed.len(),
        })
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}
