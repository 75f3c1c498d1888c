//! Checks of the machine: CPUs, memory, limits.

use super::facts::{Facts, Limit, System};
use super::finding::Finding;
use crate::report::bytes;

/// What a process that has imported torch takes before it does anything, in bytes.
const TORCH: u64 = 1 << 30;
/// Containers have 64 MiB of shared memory unless told otherwise; a batch of images is larger.
const SHARED_MEMORY: u64 = 1 << 30;
/// What every distribution gives, and threads and files of a worker with data loaders fit into.
const OPEN_FILES: u64 = 1024;
/// Threads of one worker: those of its libraries and its data loaders.
const THREADS: u64 = 128;

/// CPUs for the workers.
pub(super) fn cpus(facts: &Facts) -> Vec<Finding> {
    let system = &facts.system;
    let (there, allowed) = (system.cpus.len(), system.allowed_cpus.len());
    let mut what = format!(
        "may use {allowed} of {there} (CPUs {})",
        system.allowed_cpus
    );
    if let Some(quota) = system.cpu_quota {
        what.push_str(&format!(", time of {quota:.1} by control group"));
    }
    let quota = system.cpu_quota.map_or(allowed, |it| it.max(1.0) as usize);
    let (workers, usable) = (workers(facts), allowed.min(quota) as u64);
    if workers <= usable.max(1) {
        return vec![Finding::ok("CPUs", what)];
    }
    what.push_str(&format!("; {workers} workers share them"));
    let way_out = "fewer workers with --devices, or ask the scheduler for more CPUs";
    vec![Finding::warn("CPUs", what, way_out)]
}

/// NUMA nodes, and whether those of the GPUs are among the ones that the workers may run on.
pub(super) fn numa(facts: &Facts) -> Vec<Finding> {
    let nodes = &facts.system.numa;
    let list = nodes
        .iter()
        .map(|(node, cpus)| format!("{node} (CPUs {cpus})"));
    let list: Vec<String> = list.collect();
    if list.is_empty() {
        return Vec::new();
    }
    let mut found = vec![Finding::ok("NUMA nodes", list.join(", "))];
    let allowed = &facts.system.allowed_cpus;
    let far = nodes.iter().filter(|(node, cpus)| {
        facts.gpu_nodes.contains(&Some(*node)) && cpus.shared_with(allowed).is_empty()
    });
    found.extend(far.map(|(node, _)| {
        let what = format!("GPUs are on node {node}, where no worker may run");
        Finding::warn(
            "NUMA nodes",
            what,
            "ask the scheduler for CPUs near the GPUs",
        )
    }));
    found
}

/// Memory for the workers.
pub(super) fn memory(facts: &Facts) -> Vec<Finding> {
    let System {
        memory,
        available_memory: free,
        memory_limit,
        ..
    } = facts.system;
    let mut what = format!("{} of {} free", bytes(free), bytes(memory));
    let limit = memory_limit.filter(|it| *it < memory);
    if let Some(limit) = limit {
        what.push_str(&format!(", control group limited to {}", bytes(limit)));
    }
    let workers = workers(facts);
    vec![if free.min(limit.unwrap_or(free)) < workers * TORCH {
        what.push_str(&format!(
            "; torch alone takes about 1 GiB in each of {workers} workers"
        ));
        let way_out = "end other programs, or ask for more memory";
        Finding::warn("memory", what, way_out)
    } else {
        Finding::ok("memory", what)
    }]
}

/// /dev/shm, through which data loaders and NCCL pass data between processes.
pub(super) fn shared_memory(facts: &Facts) -> Vec<Finding> {
    let Some((free, total)) = facts.system.shared_memory else {
        let way_out = "mount one: mount -t tmpfs tmpfs /dev/shm";
        return vec![Finding::bad(
            "/dev/shm",
            "not there; data loaders need it",
            way_out,
        )];
    };
    let what = format!("{} of {} free", bytes(free), bytes(total));
    let way_out = if total < SHARED_MEMORY {
        "start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir of medium Memory)"
    } else {
        "remove what programs that have ended left there"
    };
    vec![match free < SHARED_MEMORY {
        true => Finding::warn(
            "/dev/shm",
            format!("{what}; data loaders may need more"),
            way_out,
        ),
        false => Finding::ok("/dev/shm", what),
    }]
}

/// Limits of files, processes and locked memory.
pub(super) fn limits(facts: &Facts) -> Vec<Finding> {
    let system = &facts.system;
    let mut found = Vec::new();
    let mut check = |subject, flag: &str, limit: Option<Limit>, needed: u64, show: Show| {
        found.extend(limit.map(|it| limit_of(subject, flag, it, needed, show)));
    };
    let plain: Show = |it| it.to_string();
    let threads = workers(facts).saturating_mul(THREADS);
    check("open files", "-n", system.open_files, OPEN_FILES, plain);
    check("processes", "-u", system.processes, threads, plain);
    // RDMA pins what it sends from and receives into.
    let pinned = match (&system.infiniband[..], several_nodes(facts)) {
        ([_, ..], true) => u64::MAX,
        _ => 0,
    };
    check("locked memory", "-l", system.locked_memory, pinned, bytes);
    if let Some(pids) = system.pids_limit {
        let what = format!("{pids} by control group");
        found.push(match pids < threads {
            true => Finding::warn(
                "processes",
                what,
                "ask for a larger pids limit of the container",
            ),
            false => Finding::ok("processes", what),
        });
    }
    found
}

/// How a number is written.
type Show = fn(u64) -> String;

/// `needed` is the least that does; only "unlimited" is at least [`u64::MAX`].
fn limit_of(subject: &'static str, flag: &str, limit: Limit, needed: u64, show: Show) -> Finding {
    let text = |it: Option<u64>| it.map_or_else(|| "unlimited".to_owned(), show);
    let (soft, hard) = (text(limit.soft), text(limit.hard));
    if limit.soft.is_none_or(|it| it >= needed) {
        let what = match soft == hard {
            true => soft,
            false => format!("{soft}, can be raised to {hard}"),
        };
        return Finding::ok(subject, what);
    }
    let wanted = if needed == u64::MAX {
        "unlimited".to_owned()
    } else {
        needed.to_string()
    };
    let what = format!("{soft}, {wanted} is advisable");
    let way_out = if limit.hard.is_none_or(|it| it >= needed) {
        format!("ulimit -S {flag} {wanted}")
    } else {
        format!("ask the administrator to raise `ulimit {flag}` beyond {hard}")
    };
    Finding::warn(subject, what, way_out)
}

fn workers(facts: &Facts) -> u64 {
    facts
        .plan
        .as_ref()
        .map_or(1, |it| it.local_world_size.value.into())
}

fn several_nodes(facts: &Facts) -> bool {
    facts.plan.as_ref().is_some_and(|it| it.num_nodes.value > 1)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[track_caller]
    fn check(soft: Option<u64>, hard: Option<u64>, needed: u64, level: Level, says: &str) {
        let found = limit_of("open files", "-n", Limit { soft, hard }, needed, |it| {
            it.to_string()
        });
        assert_eq!(found.level, level);
        let text = format!("{}; {}", found.what, found.way_out.unwrap_or_default());
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn a_limit_that_is_too_low_comes_with_the_way_out_that_is_open() {
        check(
            Some(1024),
            Some(4096),
            1024,
            Level::Ok,
            "1024, can be raised to 4096",
        );
        check(None, None, u64::MAX, Level::Ok, "unlimited;");
        check(
            Some(256),
            Some(4096),
            1024,
            Level::Warn,
            "ulimit -S -n 1024",
        );
        check(Some(256), Some(512), 1024, Level::Warn, "beyond 512");
        check(
            Some(256),
            None,
            u64::MAX,
            Level::Warn,
            "ulimit -S -n unlimited",
        );
    }
}
