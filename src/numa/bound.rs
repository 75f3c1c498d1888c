//! The outcome of a binding: which worker keeps to which CPUs.

use super::binding::Binding;
use super::cpus::CpuSet;

/// The CPUs of each worker of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    pub(crate) mode: Binding,
    /// By local rank; none of them is empty.
    pub(crate) cpus: Vec<CpuSet>,
    /// How many CPUs this process may use in all.
    pub(crate) allowed: usize,
}

impl Bound {
    /// How many threads a worker has CPUs for: its own ones, divided by the workers that are bound to the same. `cpus` is how
    /// many this process can keep busy at a time: where a cgroup's quota makes that fewer than it may use, its share of them counts.
    pub(crate) fn threads(&self, worker: u32, cpus: usize) -> usize {
        let mine = &self.cpus[worker as usize];
        let sharing = self.cpus.iter().filter(|it| *it == mine).count();
        let threads = mine.len() / sharing;
        let quota = (cpus < self.allowed).then(|| cpus / self.cpus.len());
        threads.min(quota.unwrap_or(threads)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lists: [&str; 4], cpus: usize, expected: [usize; 4]) {
        let bound = Bound {
            mode: Binding::Node,
            cpus: lists.map(|it| CpuSet::parse(it).unwrap()).to_vec(),
            allowed: 32,
        };
        let threads = [0, 1, 2, 3].map(|it| bound.threads(it, cpus));
        assert_eq!(threads, expected, "{lists:?}");
    }

    #[test]
    fn cpus_are_shared_by_those_that_are_bound_to_them() {
        check(["0-15", "0-15", "16-31", "16-31"], 32, [8, 8, 8, 8]);
        check(["0-15", "0-15", "0-15", "16-31"], 32, [5, 5, 5, 16]);
        check(["0-3", "4-7", "8-9", "10"], 32, [4, 4, 2, 1]);
        check(["0", "0", "0", "0"], 32, [1, 1, 1, 1]);
    }

    #[test]
    fn a_quota_counts_if_it_is_less() {
        check(["0-15", "0-15", "16-31", "16-31"], 8, [2, 2, 2, 2]);
        check(["0", "1", "2", "3"], 16, [1, 1, 1, 1]);
    }
}
