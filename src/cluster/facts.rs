//! What a cluster environment says about this launcher: plain data.

use std::ffi::OsString;

use crate::source::Sourced;
use crate::topology::NodeRank;

/// The facts of one cluster environment; `None` where it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The name people know it by, such as "SLURM" or "plain machine".
    pub(crate) name: &'static str,
    pub(crate) num_nodes: Option<Sourced<u32>>,
    pub(crate) node_rank: Option<Sourced<NodeRank>>,
    pub(crate) main_address: Option<Sourced<OsString>>,
    pub(crate) main_port: Option<Sourced<u16>>,
}
