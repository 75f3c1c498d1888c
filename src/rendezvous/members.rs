//! The table of nodes: who has come, who has finished, and how to say so.

use std::collections::HashMap;

use super::event::{Cause, Node};
use super::store::ClientId;
use crate::topology::NodeRank;

/// A node that has come.
pub(crate) struct Member {
    pub(crate) node: Node,
    /// Its connection; none for the host itself.
    pub(crate) client: Option<ClientId>,
    /// Whether it runs this launcher and not the Python original.
    pub(crate) ours: bool,
    /// All its workers have ended well.
    pub(crate) finished: bool,
    /// All its workers of the attempt that has failed have ended.
    pub(crate) cleared: bool,
    /// Its connection has ended.
    pub(crate) gone: bool,
}

impl Member {
    /// A node that has just come.
    pub(crate) fn new(node: Node, client: Option<ClientId>, ours: bool) -> Self {
        let (finished, cleared, gone) = (false, false, false);
        Self {
            node,
            client,
            ours,
            finished,
            cleared,
            gone,
        }
    }
}

/// One place for each node rank.
pub(crate) struct Members {
    places: Vec<Option<Member>>,
    /// Whose connection is whose: asked for each word that a client says.
    ranks: HashMap<ClientId, NodeRank>,
    /// How many places are taken.
    taken: usize,
}

impl Members {
    /// Places for so many nodes, all free.
    pub(crate) fn expecting(num_nodes: u32) -> Self {
        Self {
            places: (0..num_nodes).map(|_| None).collect(),
            ranks: HashMap::new(),
            taken: 0,
        }
    }

    /// The place of a rank, taken or not; none where the rank is out of range.
    pub(crate) fn place(&self, rank: NodeRank) -> Option<&Option<Member>> {
        self.places.get(rank.0 as usize)
    }

    /// Gives a place to a node, or frees it.
    pub(crate) fn put(&mut self, rank: NodeRank, member: Option<Member>) {
        let Some(place) = self.places.get_mut(rank.0 as usize) else {
            return;
        };
        let client = |it: &Option<Member>| it.as_ref().and_then(|it| it.client);
        if let Some(client) = client(place) {
            self.ranks.remove(&client);
        }
        self.ranks.extend(client(&member).map(|it| (it, rank)));
        self.taken -= usize::from(place.is_some());
        self.taken += usize::from(member.is_some());
        *place = member;
    }

    /// The node of that rank, where it has come.
    pub(crate) fn member(&self, rank: NodeRank) -> Option<&Member> {
        self.place(rank)?.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn member_mut(&mut self, rank: NodeRank) -> Option<&mut Member> {
        self.places.get_mut(rank.0 as usize)?.as_mut()
    }

    /// Those who are there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().flatten()
    }

    /// All begins anew.
    pub(crate) fn renew(&mut self) {
        for member in self.places.iter_mut().flatten() {
            (member.finished, member.cleared) = (false, false);
        }
    }

    /// Which node a connection belongs to.
    pub(crate) fn rank_of(&self, client: ClientId) -> Option<NodeRank> {
        self.ranks.get(&client).copied()
    }

    /// A cause that lies with a whole node.
    pub(crate) fn cause(&self, node: NodeRank, message: String) -> Cause {
        Cause {
            node,
            host: self
                .member(node)
                .map_or_else(String::new, |it| it.node.host.clone()),
            rank: None,
            exit_code: 1,
            message,
            lived: None,
        }
    }

    /// Whether every place is taken.
    pub(crate) fn complete(&self) -> bool {
        self.taken == self.places.len()
    }

    /// The ranks of those who are missing.
    pub(crate) fn free(&self) -> impl Iterator<Item = NodeRank> {
        let places = (0..).map(NodeRank).zip(&self.places);
        places.filter(|(_, it)| it.is_none()).map(|(rank, _)| rank)
    }

    /// Which nodes are missing, and who is there: "nodes 1, 3 of 4 (joined: 0 gpu-001, 2 gpu-003)".
    pub(crate) fn missing(&self) -> String {
        let missing = self.such(|it| it.is_none());
        let joined = self.places.iter().enumerate();
        let joined =
            joined.filter_map(|(rank, it)| Some(format!("{rank} {}", it.as_ref()?.node.host)));
        format!("{missing} (joined: {})", shortened(joined.collect()))
    }

    /// Whose workers run: "node 1 of 2".
    pub(crate) fn unfinished(&self) -> String {
        self.such(|it| it.as_ref().is_some_and(|it| !it.finished))
    }

    fn such(&self, wanted: impl Fn(&Option<Member>) -> bool) -> String {
        let all = self.places.iter().enumerate();
        let ranks: Vec<usize> = all
            .filter(|(_, it)| wanted(it))
            .map(|(rank, _)| rank)
            .collect();
        let word = if ranks.len() == 1 { "node" } else { "nodes" };
        format!("{word} {} of {}", ranges(&ranks), self.places.len())
    }
}

/// Ascending numbers with runs drawn together: "1, 3-5".
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        few => few.iter().map(ToString::to_string).collect(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// The first few of many.
fn shortened(mut items: Vec<String>) -> String {
    const MOST: usize = 8;
    let more = items.len().saturating_sub(MOST);
    items.truncate(MOST);
    if more > 0 {
        items.push(format!("{more} more"));
    }
    items.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(there: &[u32], num_nodes: u32, expected: &str) {
        let mut members = Members::expecting(num_nodes);
        for rank in there {
            let (host, role) = (format!("gpu-{rank:03}"), "default".into());
            let node = Node {
                host,
                local_world_size: 1,
                role,
            };
            members.put(NodeRank(*rank), Some(Member::new(node, None, true)));
        }
        assert_eq!(members.missing(), expected);
    }

    #[test]
    fn lists_are_short_and_say_all() {
        check(&[0, 2], 4, "nodes 1, 3 of 4 (joined: 0 gpu-000, 2 gpu-002)");
        check(&[0], 2, "node 1 of 2 (joined: 0 gpu-000)");
        check(&[0], 8, "nodes 1-7 of 8 (joined: 0 gpu-000)");
        check(
            &[0, 3],
            6,
            "nodes 1-2, 4-5 of 6 (joined: 0 gpu-000, 3 gpu-003)",
        );
        let eight = "0 gpu-000, 1 gpu-001, 2 gpu-002, 3 gpu-003, 4 gpu-004, 5 gpu-005, 6 gpu-006, 7 gpu-007";
        let there: Vec<u32> = (0..10).collect();
        check(
            &there,
            12,
            &format!("nodes 10-11 of 12 (joined: {eight}, 2 more)"),
        );
    }
}
