//! The meeting place: the key-value store of torch's process groups, hosted by the launcher.
//!
//! The launcher of node 0 takes the port first thing and keeps the store until the run has ended, so
//! there is no port race, no start without a host, and workers are clients only
//! (`TORCHELASTIC_USE_AGENT_STORE`). Every torch from 2.1 to 2.15 speaks with it, also at once.
//!
//! ```text
//!   protocol   the words: requests, answers, limits            pure
//!   parser     bytes -> requests, cut anywhere, both dialects  pure
//!   store      values, queues, who waits, who is woken         pure
//!   socket     where to listen, when a peer counts as gone
//!   connection one client: its requests and unread answers
//!   service    the thread: epoll over clients and orders
//!   server     the launcher's side: bind, serve, set, get, events
//!   holder     who has the port
//! ```

mod protocol;
mod parser;
mod store;
mod socket;
mod connection;
mod service;
mod server;
mod holder;

pub(crate) use holder::holder_of;
pub(crate) use server::Server;
pub(crate) use socket::BindError;
