//! What a meeting tells its launcher, in plain data.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::topology::{GlobalRank, NodeRank};

/// What one launcher brings to the meeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub(crate) node: NodeRank,
    pub(crate) num_nodes: u32,
    /// How many workers this node will start.
    pub(crate) local_world_size: u32,
    /// The name of this machine.
    pub(crate) host: String,
    /// Torchelastic's role name, `default` unless somebody changed it.
    pub(crate) role: String,
    /// Torchelastic's run id, `none` unless somebody changed it.
    pub(crate) run_id: String,
    /// The version of this launcher.
    pub(crate) launcher: String,
    /// How often all workers of all nodes may be started again.
    pub(crate) max_restarts: u16,
    /// What is run, as people know it; has to be the same text on every node.
    pub(crate) script: String,
    /// All nodes have as many workers, and the agents of torch among them will not say how many.
    pub(crate) identical: bool,
    /// A secret that the environment gave to every node of this run, if it did.
    pub(crate) token: Option<String>,
}

impl Party {
    /// What the others get to know of it.
    pub(crate) fn as_node(&self) -> Node {
        Node {
            host: self.host.clone(),
            local_world_size: self.local_world_size,
            role: self.role.clone(),
        }
    }
}

/// What happens at the meeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Nothing goes on yet; a sentence that says why.
    Waiting(String),
    /// Something that people should know, once.
    Notice(String),
    /// End the workers and say `renew` when they have: all begins anew after this failure.
    Restarting(Cause),
    /// Every node is there: start the workers.
    Ready(Ready),
    /// End the workers: this is the root cause, the same on every node.
    Aborted(Cause),
    /// The meeting has failed and no worker may start; reads after "failed to".
    Failed(String),
    /// Nothing more will come, and nobody needs the store any more.
    Over,
}

/// The place of this node's workers in the world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The global rank of local rank 0.
    pub(crate) base: GlobalRank,
    pub(crate) world_size: u32,
    /// The same, counted among the workers of the same role.
    pub(crate) role_base: u32,
    pub(crate) role_world_size: u32,
}

/// One node of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Its name, or its address where it runs the Python original.
    pub(crate) host: String,
    pub(crate) local_world_size: u32,
    pub(crate) role: String,
}

/// Why a run ends before its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    pub(crate) node: NodeRank,
    pub(crate) host: String,
    /// The worker that failed; none where it was the launcher or the whole node.
    pub(crate) rank: Option<GlobalRank>,
    /// What every launcher of the run exits with.
    pub(crate) exit_code: u8,
    pub(crate) message: String,
    /// For how long the worker had run, where one failed by itself.
    pub(crate) lived: Option<Duration>,
}

/// How a launcher was lost, as the message of a cause; `error` where its connection did not simply close.
pub(crate) fn lost(error: Option<&str>) -> String {
    match error {
        Some(error) => format!("the connection to its launcher was lost: {error}"),
        None => "its launcher ended before its workers had finished".into(),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "rank {rank} on ")?;
        }
        write!(f, "node {} ({}): {}", self.node, self.host, self.message)
    }
}

/// The ranks of each node, running sums of the real local counts: the global rank of its first worker, the
/// world size, and the same counted within its role.
pub(crate) fn ranks(nodes: &[Node]) -> Vec<[u32; 4]> {
    let (mut base, mut bases) = (0, HashMap::new());
    let mut firsts = Vec::with_capacity(nodes.len());
    for node in nodes {
        let role_base = bases.entry(&node.role).or_insert(0);
        firsts.push((base, *role_base));
        base += node.local_world_size;
        *role_base += node.local_world_size;
    }
    // By now they have counted everybody.
    let all = nodes.iter().zip(firsts);
    all.map(|(node, (first, role_first))| [first, base, role_first, bases[&node.role]])
        .collect()
}

impl Ready {
    /// From what `ranks` gives.
    pub(crate) fn new([base, world_size, role_base, role_world_size]: [u32; 4]) -> Self {
        let base = GlobalRank(base);
        Self {
            base,
            world_size,
            role_base,
            role_world_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(local_world_size: u32, role: &str) -> Node {
        let (host, role) = ("h".into(), role.into());
        Node {
            host,
            local_world_size,
            role,
        }
    }

    #[track_caller]
    fn check(nodes: &[(u32, &str)], expected: &[[u32; 4]]) {
        let nodes = nodes.iter().map(|(count, role)| node(*count, role));
        assert_eq!(ranks(&nodes.collect::<Vec<_>>()), expected);
    }

    #[test]
    fn ranks_are_sums_of_the_real_counts() {
        check(&[(2, "a"), (1, "a")], &[[0, 3, 0, 3], [2, 3, 2, 3]]);
        check(
            &[(2, "a"), (1, "b"), (4, "a")],
            &[[0, 7, 0, 6], [2, 7, 0, 1], [3, 7, 2, 6]],
        );
        check(&[], &[]);
    }

    #[test]
    fn a_cause_reads_like_a_sentence() {
        let mut cause = Cause {
            node: NodeRank(1),
            host: "gpu-002".into(),
            rank: Some(GlobalRank(3)),
            exit_code: 7,
            message: "exit code 7".into(),
            lived: None,
        };
        assert_eq!(cause.to_string(), "rank 3 on node 1 (gpu-002): exit code 7");
        cause.rank = None;
        assert_eq!(cause.to_string(), "node 1 (gpu-002): exit code 7");
    }
}
