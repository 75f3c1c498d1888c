//! Gathers what the kernel tells of this machine and of our limits.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::cgroup;
use super::facts::{Limit, OnPath, System};
use crate::environ::Environ;

/// A look at the machine.
pub(super) fn look() -> System {
    let (memory, available_memory) = memory();
    System {
        cpus: line("/sys/devices/system/cpu/online"),
        allowed_cpus: allowed_cpus(&line("/proc/self/status")),
        cpu_quota: cgroup::cpu(),
        numa: numa(),
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

/// The field of /proc/self/status (proc(5)).
fn allowed_cpus(status: &str) -> String {
    let mut fields = status.lines().filter_map(|it| it.split_once(':'));
    let allowed = fields.find(|(name, _)| *name == "Cpus_allowed_list");
    allowed.map_or_else(String::new, |(_, list)| list.trim().to_owned())
}

fn memory() -> (u64, u64) {
    let Ok(mut system) = sysinfo::System::new() else {
        return (0, 0);
    };
    system.refresh_memory();
    (system.total_memory(), system.available_memory())
}

fn numa() -> Vec<(u32, String)> {
    const NODES: &str = "/sys/devices/system/node";
    let numbers = names(NODES);
    let numbers = numbers
        .iter()
        .filter_map(|it| it.strip_prefix("node")?.parse().ok());
    let mut nodes: Vec<(u32, String)> = numbers
        .map(|it| (it, line(&format!("{NODES}/node{it}/cpulist"))))
        .collect();
    nodes.sort_unstable();
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

/// The NUMA node that a PCI device such as `00000000:17:00.0` is nearest to; the kernel writes its domain with
/// four digits, and -1 where there is none.
pub(super) fn numa_of(bus_id: &str) -> Option<u32> {
    let short = bus_id.get(4..)?.to_lowercase();
    line(&format!("/sys/bus/pci/devices/{short}/numa_node"))
        .parse()
        .ok()
}

/// What a shell would start as `fabric`.
pub(super) fn on_path(environ: &Environ) -> OnPath {
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
