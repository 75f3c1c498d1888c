//! How the ranks of a job lie on its nodes.

use super::facts::Cluster;
use super::variables::derived;
use crate::topology::NodeRank;

/// Which nodes there are, as one rank needs to know them. Nodes are numbered in the order of
/// the lowest rank on each, so rank 0 is always on node 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    num_nodes: u32,
    node_rank: NodeRank,
    /// Ranks on this rank's own node.
    local: u32,
    fewest: u32,
    most: u32,
}

impl Layout {
    /// `places[rank]` is what tells one node from another: a host's name, or a number.
    pub(super) fn of<T: PartialEq>(places: &[T], own_rank: u32) -> Option<Self> {
        let mut nodes: Vec<(&T, u32)> = Vec::new();
        for place in places {
            match nodes.iter_mut().find(|it| it.0 == place) {
                Some(node) => node.1 += 1,
                None => nodes.push((place, 1)),
            }
        }
        let own = places.get(own_rank as usize)?;
        let node = nodes.iter().position(|it| it.0 == own)?;
        Some(Self {
            num_nodes: nodes.len() as u32,
            node_rank: NodeRank(node as u32),
            local: nodes[node].1,
            fewest: nodes.iter().map(|it| it.1).min()?,
            most: nodes.iter().map(|it| it.1).max()?,
        })
    }
}

impl Cluster {
    /// Replaces what was assumed about the nodes by what the engine answered.
    pub(super) fn learn(&mut self, layout: &Layout, from: &str) {
        self.num_nodes = Some(derived(layout.num_nodes, from));
        self.node_rank = Some(derived(layout.node_rank, from));
        if let Some(tasks) = &mut self.tasks {
            (tasks.fewest, tasks.most) = (layout.fewest, layout.most);
            if tasks.seat.local_world_size.value != layout.local {
                tasks.seat.local_world_size = derived(layout.local, from);
            }
        }
    }
}

/// The fewest and the most tasks that a node can have, of `world` on `nodes`, if this one has
/// `local`: equal only where all nodes may have the same number.
pub(super) fn spread(world: u32, nodes: Option<u32>, local: u32) -> (u32, u32) {
    let nodes = nodes.unwrap_or_else(|| world.div_ceil(local.max(1))).max(1);
    (local.min(world / nodes), local.max(world.div_ceil(nodes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_lowest_rank() {
        let layout = Layout::of(&["b", "a", "b", "c"], 1).unwrap();
        assert_eq!((layout.num_nodes, layout.node_rank), (3, NodeRank(1)));
        assert_eq!((layout.local, layout.fewest, layout.most), (1, 1, 2));
        assert_eq!(Layout::of(&[7, 7], 2), None);
    }

    #[test]
    fn uneven_numbers_spread() {
        assert_eq!(spread(4, Some(2), 2), (2, 2));
        assert_eq!(spread(3, Some(2), 1), (1, 2));
        assert_eq!(spread(3, Some(2), 2), (1, 2));
        assert_eq!(spread(4, None, 2), (2, 2));
        assert_eq!(spread(4, None, 1), (1, 1));
    }
}
