//! The limits of our control group and of those above it: the tightest counts.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// Of one resource: its controller in version 1, its file in version 2, and its file in version 1.
pub(super) struct Resource {
    controller: &'static str,
    unified: &'static str,
    legacy: &'static str,
}

pub(super) const MEMORY: Resource = Resource {
    controller: "memory",
    unified: "memory.max",
    legacy: "memory.limit_in_bytes",
};
pub(super) const PIDS: Resource = Resource {
    controller: "pids",
    unified: "pids.max",
    legacy: "pids.max",
};

/// A limit in the resource's own unit; `None` where there is none.
pub(super) fn limit(resource: &Resource) -> Option<u64> {
    let files = folders(resource.controller)
        .into_iter()
        .map(|(folder, unified)| {
            folder.join(if unified {
                resource.unified
            } else {
                resource.legacy
            })
        });
    let limits = files.filter_map(|it| fs::read_to_string(it).ok()?.trim().parse::<u64>().ok());
    // Version 1 writes its largest page-aligned number for "none".
    limits.filter(|it| *it < 1 << 62).min()
}

/// CPUs' worth of time per period.
pub(super) fn cpu_quota() -> Option<f64> {
    let quotas = folders("cpu").into_iter().filter_map(|(folder, unified)| {
        if unified {
            return share(&fs::read_to_string(folder.join("cpu.max")).ok()?);
        }
        let read = |name| fs::read_to_string(folder.join(name));
        let quota = read("cpu.cfs_quota_us").ok()?;
        share(&format!("{quota} {}", read("cpu.cfs_period_us").ok()?))
    });
    quotas.min_by(f64::total_cmp)
}

/// `QUOTA PERIOD`; the quota is `max` (version 2) or -1 (version 1) for none.
fn share(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace().map(str::parse::<f64>);
    let (quota, period) = (words.next()?.ok()?, words.next()?.ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Our group and those above it, each with whether it is of version 2.
fn folders(controller: &str) -> Vec<(PathBuf, bool)> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for (root, path, unified) in groups(&text, controller) {
        let own = root.join(path.trim_start_matches('/'));
        // In a container the path may be the host's, and the group itself is mounted at the root.
        let above = own.ancestors().take_while(|it| it.starts_with(&root));
        found.extend(above.map(|it| (it.to_owned(), unified)));
    }
    found
}

/// /proc/self/cgroup has lines `0::/path` for version 2 and `N:cpu,cpuacct:/path` for version 1 (cgroups(7)).
fn groups<'t>(text: &'t str, controller: &str) -> Vec<(PathBuf, &'t str, bool)> {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        if controllers.is_empty() {
            return Some((ROOT.into(), path, true));
        }
        let ours = controllers.split(',').any(|it| it == controller);
        ours.then(|| (Path::new(ROOT).join(controller), path, false))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_share_of_its_period() {
        assert_eq!(share("150000 100000\n"), Some(1.5));
        assert_eq!(share("max 100000\n"), None);
        assert_eq!(share("-1\n 100000\n"), None);
        assert_eq!(share(""), None);
    }

    #[test]
    fn both_versions_name_our_group() {
        let text = "5:cpu,cpuacct:/job\n4:memory:/m\n0::/user.slice/x\n";
        let found = groups(text, "cpu");
        let expected = [
            (PathBuf::from("/sys/fs/cgroup/cpu"), "/job", false),
            (PathBuf::from("/sys/fs/cgroup"), "/user.slice/x", true),
        ];
        assert_eq!(found, expected);
    }
}
