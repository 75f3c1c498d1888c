//! A plain machine: no engine around.
//!
//! `fabric run` has always ignored the variables that other launchers leave in a shell and
//! taken its options' defaults: one node, number 0, 127.0.0.1. A left-over `MASTER_ADDR`,
//! `RANK` or `WORLD_SIZE` must not turn that into a job that waits for others, so they are
//! read only where the command line itself asks for several nodes; then Lightning's own
//! variables fill in what it leaves open. `RANK`, `WORLD_SIZE` and `LOCAL_RANK` count
//! workers, which are ours to number, and are never read.

use anyhow::Result;

use super::facts::Cluster;
use super::surroundings::Surroundings;
use super::variables::{first, map, text};
use crate::topology::NodeRank;

/// Lightning's LightningEnvironment (2.6), for jobs of several nodes.
pub(super) fn read(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = ignore(s)?;
    if s.asked.num_nodes.is_some_and(|it| it > 1) {
        let node = first(s.environ, &["NODE_RANK", "GROUP_RANK"])?;
        cluster.node_rank = node.map(|it| map(it, NodeRank));
        cluster.main_address = text(s.environ, "MASTER_ADDR").filter(|_| !s.asked.main_address);
        // A port by itself, or beside an address of the command line, is a left-over.
        if cluster.main_address.is_some() {
            cluster.main_port = first(s.environ, &["MASTER_PORT", "STANDALONE_PORT"])?;
        }
    }
    Ok(cluster)
}

/// `--cluster none`: options and their defaults, nothing else.
pub(super) fn ignore(_: &Surroundings) -> Result<Cluster> {
    Ok(Cluster::plain())
}
