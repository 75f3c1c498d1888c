//! What a cluster environment says about this launcher: plain data.

use crate::source::Sourced;
use crate::topology::NodeRank;

/// The facts of one cluster environment; `None` where it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The name people know it by, such as "SLURM" or "plain machine".
    pub(crate) name: &'static str,
    pub(crate) num_nodes: Option<Sourced<u32>>,
    pub(crate) node_rank: Option<Sourced<NodeRank>>,
    pub(crate) main_address: Option<Sourced<String>>,
    pub(crate) main_port: Option<Sourced<u16>>,
}

impl Cluster {
    /// A machine without a scheduler: it says nothing.
    pub(crate) fn plain() -> Self {
        Self { name: "plain machine", num_nodes: None, node_rank: None, main_address: None, main_port: None }
    }
}
