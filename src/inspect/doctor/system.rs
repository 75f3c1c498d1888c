//! Gathers what the kernel tells of this machine and of our limits.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::cgroup;
use super::facts::{Limit, OnPath, System};
use crate::environ::Environ;
use crate::link;
use crate::numa::{self, CpuSet};

/// A look at the machine.
pub(super) fn look() -> System {
    let (memory, available_memory) = memory();
    System {
        cpus: cpus("/sys/devices/system/cpu/online"),
        allowed_cpus: numa::System::here()
            .map_or_else(|_| CpuSet::default(), |it| it.allowed().clone()),
        cpu_quota: cgroup::cpu(),
        numa: nodes(),
        memory,
        available_memory,
        memory_limit: cgroup::memory(),
        pids_limit: cgroup::pids(),
        shared_memory: shared_memory(),
        open_files: limit(Resource::RLIMIT_NOFILE),
        processes: limit(Resource::RLIMIT_NPROC),
        locked_memory: limit(Resource::RLIMIT_MEMLOCK),
        infiniband: names("/sys/class/infiniband"),
    }
}

fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// What a file lists; nothing where it cannot be read.
fn cpus(path: &str) -> CpuSet {
    CpuSet::parse(&line(path)).unwrap_or_default()
}

fn memory() -> (u64, u64) {
    let Ok(mut system) = sysinfo::System::new() else {
        return (0, 0);
    };
    system.refresh_memory();
    (system.total_memory(), system.available_memory())
}

fn nodes() -> Vec<(u32, CpuSet)> {
    const NODES: &str = "/sys/devices/system/node";
    let numbers = names(NODES);
    let numbers = numbers
        .iter()
        .filter_map(|it| it.strip_prefix("node")?.parse().ok());
    let mut nodes: Vec<(u32, CpuSet)> = numbers
        .map(|it| (it, cpus(&format!("{NODES}/node{it}/cpulist"))))
        .collect();
    nodes.sort_unstable_by_key(|(node, _)| *node);
    nodes
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|it| it.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn shared_memory() -> Option<(u64, u64)> {
    let found = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    let size = found.fragment_size();
    Some((found.blocks_available() * size, found.blocks() * size))
}

fn limit(resource: Resource) -> Option<Limit> {
    let (soft, hard) = getrlimit(resource).ok()?;
    let finite = |it: u64| (it != RLIM_INFINITY).then_some(it);
    Some(Limit {
        soft: finite(soft),
        hard: finite(hard),
    })
}

/// The NUMA node that a PCI device such as `0000:17:00.0` is nearest to; the kernel writes -1 where there is
/// none.
pub(super) fn numa_of(address: &str) -> Option<u32> {
    line(&format!("/sys/bus/pci/devices/{address}/numa_node"))
        .parse()
        .ok()
}

/// What a shell would start as `fabric`.
pub(super) fn on_path(environ: &Environ) -> OnPath {
    if let Some(said) = link::overwritten() {
        return OnPath::Overwritten(said);
    }
    let path = environ.get("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(path).map(|it| it.join("fabric"));
    let access = nix::unistd::AccessFlags::X_OK;
    let mut programs =
        candidates.filter(|it| it.is_file() && nix::unistd::access(it, access).is_ok());
    let Some(path) = programs.next() else {
        return OnPath::Nothing;
    };
    let us = std::env::current_exe().ok();
    if us
        .and_then(|it| identity(&it))
        .is_some_and(|it| Some(it) == identity(&path))
    {
        return OnPath::Us(path);
    }
    let python = fs::read(&path).is_ok_and(|it| it.starts_with(b"#!"));
    OnPath::Another { path, python }
}

/// Device and inode: two paths of one file have the same.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
