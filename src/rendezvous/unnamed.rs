//! Agents of torch that do not say which node they are.

use super::members::Members;
use super::store::ClientId;
use crate::topology::NodeRank;

/// Agents of torch that have come and do not say which node they are, with their addresses; one of each machine, for
/// they start their workers before others have come, and those look alike.
#[derive(Default)]
pub(crate) struct Unnamed(Vec<(ClientId, String)>);

impl Unnamed {
    /// A client has come that may be one.
    pub(crate) fn add(&mut self, client: ClientId, peer: &str) {
        if self.0.iter().all(|(_, it)| it != peer) {
            self.0.push((client, peer.to_owned()));
        }
    }

    /// A client has gone.
    pub(crate) fn remove(&mut self, client: ClientId) {
        self.0.retain(|(it, _)| *it != client);
    }

    /// All of them, once they are as many as the places that are free, in the order in which they came: nothing tells
    /// more about their ranks.
    pub(crate) fn fill(&mut self, members: &Members) -> Vec<(NodeRank, ClientId, String)> {
        // As nearly always; asked whenever a node comes.
        if self.0.is_empty() {
            return Vec::new();
        }
        let free: Vec<NodeRank> = members.free().collect();
        if free.len() > self.0.len() {
            return Vec::new();
        }
        let clients = self.0.drain(..);
        let seats = free.into_iter().zip(clients);
        seats
            .map(|(rank, (client, peer))| (rank, client, peer))
            .collect()
    }
}
