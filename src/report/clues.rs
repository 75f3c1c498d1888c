//! Looks for what else may explain a failure: the out-of-memory killer's traces, a full /dev/shm, no core dump.

use nix::sys::resource::{Resource, getrlimit};

use super::cause::{Clues, Memory, bytes};
use crate::agent::Cgroup;

/// How often the out-of-memory killer had struck in our cgroup when the workers started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    group: Option<Cgroup>,
    kills: u64,
}

impl Baseline {
    pub(crate) fn take() -> Self {
        let group = Cgroup::of_this_process("memory");
        let kills = group.as_ref().map_or(0, kills);
        Self { group, kills }
    }

    /// What has changed since, for the summary. `shared_memory` is what it was when the failure was seen.
    pub(crate) fn compare(&self, shared_memory: Option<Memory>) -> Clues {
        let struck = self.group.as_ref().filter(|it| kills(it) > self.kills);
        Clues {
            out_of_memory: struck.map(limit),
            shared_memory,
            no_cores: getrlimit(Resource::RLIMIT_CORE).is_ok_and(|(soft, _)| soft == 0),
        }
    }
}

/// A line `oom_kill N`; version 2 counts groups inside as well.
fn kills(group: &Cgroup) -> u64 {
    let file = if group.unified {
        "memory.events"
    } else {
        "memory.oom_control"
    };
    let events = group.read(file).unwrap_or_default();
    let count = events
        .lines()
        .find_map(|it| it.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

fn limit(group: &Cgroup) -> String {
    let file = if group.unified {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    match group.least(file) {
        Some(limit) => format!("cgroup limit {}", bytes(limit)),
        None => "the whole machine ran out of memory".to_owned(),
    }
}

/// How full /dev/shm is now.
pub(crate) fn shared_memory() -> Option<Memory> {
    let found = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    let size = found.fragment_size();
    Some(Memory {
        free: found.blocks_available() * size,
        total: found.blocks() * size,
    })
}
