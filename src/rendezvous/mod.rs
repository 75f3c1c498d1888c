//! The meeting of all launchers of a run, and the store of torch's process groups on which they meet.
//!
//! The launcher of node 0 takes the port first thing and keeps the store until the run has ended, so
//! there is no port race, no start without a host, and workers are clients only
//! (`TORCHELASTIC_USE_AGENT_STORE`). Every torch from 2.1 to 2.15 speaks with it, also at once.
//!
//! ```text
//!   node 0                                                  node k
//!   Meeting::host --> Hosting --> Roster*                   Meeting::join --> Joining --> Guest*
//!                        |  decisions                                            |  words
//!                     Running (set, activities)                                Link (one connection)
//!                        |                                                       |
//!            thread:  Service --> Store* <-- Parser* <== TCP, c10d protocol ==> Caller*
//!                        |                           <== workers of all nodes, agents of torch
//!                     Connection (one each)                            * without any effect
//! ```
//!
//! Launchers speak through keys of that store, as torchrun's agents do. Each of ours has one connection and
//! always waits on it for the next piece of *news*, a numbered sequence that the host writes: who is
//! missing, the ranks, the root cause, the end. What a node has to say it sets under a key of its own.
//! The host decides alone and everybody reads the same, so that all nodes tell the same story and exit
//! alike. An end that nobody announces shows as a connection that closes; a host or a network that
//! falls silent, by TCP keepalive after `Limits::node`, on both sides of the cut. No thread beats, and
//! without anything to tell nobody wakes up.
//!
//! Agents of torch (the Python original) may be on either side: then the exchange is theirs, and there is
//! no way to tell each other to stop. What is protected: nobody who connects by accident can join, end or
//! garble a run of ours, because the keys that can are under a secret token, and are believed only from
//! the connection that joined. What is not: torch's protocol has no authentication; whoever can reach the
//! port and means harm can read and change the keys of the workers.

#[cfg(test)]
mod testing;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod live;
#[cfg(test)]
mod town;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod torch_stories;
mod protocol;
mod parser;
mod store;
mod event;
mod limits;
mod reminder;
mod trouble;
mod detour;
mod keys;
mod message;
mod members;
mod unnamed;
mod admission;
mod retry;
mod decision;
mod roster;
mod absent;
mod caller;
mod stage;
mod guest;
mod thread;
mod socket;
mod connection;
mod service;
mod server;
mod hosting;
mod link;
mod joining;
mod meeting;
mod holder;

pub(crate) use detour::Surroundings;
pub(crate) use event::{Cause, Event, Party, Ready};
pub(crate) use holder::holder_of;
pub(crate) use limits::Limits;
pub(crate) use meeting::Meeting;
pub(crate) use server::Server;
pub(crate) use socket::BindError;
