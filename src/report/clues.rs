//! Looks for what else may explain a failure: the out-of-memory killer's traces, a full /dev/shm.

use std::fs;
use std::path::{Path, PathBuf};

use super::cause::{Clues, bytes};

/// How often the out-of-memory killer had struck in our cgroup when the workers started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    group: Option<Group>,
    kills: u64,
}

/// Our memory cgroup.
#[derive(Clone, Debug)]
struct Group {
    folder: PathBuf,
    /// File with a line `oom_kill N`, and the file with the limit in bytes: their names differ by version.
    events: &'static str,
    limit: &'static str,
}

impl Baseline {
    pub(crate) fn take() -> Self {
        let group = Group::of_this_process();
        let kills = group.as_ref().map_or(0, Group::kills);
        Self { group, kills }
    }

    /// What has changed since, for the summary.
    pub(crate) fn compare(&self) -> Clues {
        let struck = self.group.as_ref().filter(|it| it.kills() > self.kills);
        Clues { out_of_memory: struck.map(Group::limit), shared_memory: shared_memory() }
    }
}

impl Group {
    /// /proc/self/cgroup names the group (cgroups(7)): `0::/path` for version 2, `N:memory:/path` for 1.
    fn of_this_process() -> Option<Self> {
        let lines = fs::read_to_string("/proc/self/cgroup").ok()?;
        let parts = lines.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        });
        let mut candidates: Vec<Self> = Vec::new();
        for (controllers, path) in parts {
            let path = path.trim_start_matches('/');
            let memory = controllers.split(',').any(|it| it == "memory");
            let (root, events, limit) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.events", "memory.max"),
                _ if memory => ("/sys/fs/cgroup/memory", "memory.oom_control", "memory.limit_in_bytes"),
                _ => continue,
            };
            // In a container the path is the host's, and the group itself is mounted at the root.
            for folder in [Path::new(root).join(path), root.into()] {
                candidates.push(Self { folder, events, limit });
            }
        }
        candidates.into_iter().find(|it| it.folder.join(it.events).exists())
    }

    fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.folder.join(self.events)).unwrap_or_default();
        let count = events.lines().find_map(|it| it.strip_prefix("oom_kill ")?.trim().parse().ok());
        count.unwrap_or(0)
    }

    /// The nearest limit at or above our group.
    fn limit(&self) -> String {
        let limits = self.folder.ancestors().take_while(|it| it.starts_with("/sys/fs/cgroup"));
        let limit = limits.filter_map(|folder| {
            let text = fs::read_to_string(folder.join(self.limit)).ok()?;
            text.trim().parse::<u64>().ok().filter(|it| *it < 1 << 62)
        });
        match limit.min() {
            Some(limit) => format!("cgroup limit {}", bytes(limit)),
            None => "the whole machine ran out of memory".to_owned(),
        }
    }
}

fn shared_memory() -> Option<(u64, u64)> {
    let found = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    let size = found.fragment_size();
    Some((found.blocks_available() * size, found.blocks() * size))
}
