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
//!
//! # Ten thousand nodes
//!
//! `tests/bench/scale` measures what node 0 carries: a real launcher, and as many guests as asked for that run a launcher's
//! own code for the meeting. On one machine of 2 CPUs (Linux 6.18), which the guests share:
//!
//! | nodes | all there | CPU of node 0 | its peak RSS | received | sent | last node told of a failure |
//! |---|---|---|---|---|---|---|
//! | 100 | 20 ms | 14 ms | 4.5 MiB | 65 KB | 11 KB | after 6 ms |
//! | 1,000 | 0.16 s | 0.11 s | 7.3 MiB | 656 KB | 118 KB | after 48 ms |
//! | 10,000 | 1.3 to 2.7 s | 1.0 s | 35 MiB | 6.6 MB | 1.2 MB | after 0.4 s |
//!
//! Time, CPU and bytes grow linearly, dropped calls apart. A node costs node 0 one connection, eight requests (660 bytes)
//! and their answers (120 bytes), 0.1 ms of CPU and 3.2 KiB; a failure costs one answer of some 150 bytes to each. What
//! everybody reads must therefore say nothing about everybody: while the news that all are there listed all nodes, 5,000
//! nodes took 18 s and 1.5 GB, and each doubling four times that. In silence nothing runs: the keepalive probes (one for
//! each connection in 5 s) are the kernel's.
//!
//! To these connections come those of the workers. Each opens torch's store once, so 10,000 nodes with 8 workers are
//! 90,000 connections to one thread, for which this machine has not enough descriptors: if each costs what a node does, 9 s
//! of CPU and 290 MiB. What gives way first:
//!
//! - Open files. A connection is a descriptor, and the launcher raises its own limit no further than `ulimit -Hn`. systemd
//!   gives 524,288, which is enough; 4,096, as on old systems, ends at 450 nodes with 8 workers. Who finds no
//!   descriptor left waits in the kernel's queue until one is free; a client that never said a word is dropped for it.
//! - The kernel's queue of connections that nobody has accepted yet (`net.core.somaxconn`, 4,096). Whom it drops when it is
//!   full comes again after 1 s, then 2 s. Of 10,000 guests that call within a moment it dropped none in the quickest of
//!   these runs and 1,800 in the slowest. Half-open ones beyond `net.ipv4.tcp_max_syn_backlog` get SYN cookies where the
//!   system has them on, and are dropped like those where not.
//! - The goodbye. After a failure node 0 stays for 2 s at most. Those who have not read the cause by then see their connection
//!   close: they stop all the same, but say that node 0 was lost. At the rate above that is beyond 30,000 nodes.
//! - What workers ask of the store, which depends on the backend: every rank that reads every other rank's address is a square
//!   that no server can make linear.
//!
//! What would come next is a tree. Every launcher has the code of a host already, so node 0 could name 100 guests that
//! host 100 each: they would gather hellos and mail, pass on the news, and answer for keys that never change. Node 0
//! would keep 100 connections of launchers and decide as now; the price is a second hop, and 100 launchers that take
//! 99 others' connections with them when they die.

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
mod secret;
mod hosting;
mod alone;
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
