//! Starts the workers of this node, watches them, and ends them: with nothing left behind.
//!
//! ```text
//!   launcher (the process that was started)            guardian (its child)               workers
//!   terminal, signals, report, exit code               starts, sees deaths, ends
//!        |                                                  |
//!        |---- Command: begin, signal N ------------------->|---- clone, exec ------------> rank 0..N
//!        |                                                  |<--- SIGCHLD ------------------- |
//!        |<--- Event: started, exited, stopping, done ------|---- TERM, grace, KILL --------->|
//!        |                                                  |
//!   dies: the socket closes, the guardian kills all    dies: workers die by their parent-death
//!                                                      signal, the launcher kills what is left
//! ```
//! What to do is decided in [`policy`], a pure function; the guardian feeds it and obeys. The launcher may
//! wait for a terminal or a network, the guardian never waits for either, so a failed worker's siblings hear
//! of it within a fraction of a millisecond whatever the launcher is doing.

mod event;
mod notice;
mod policy;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod orders;
mod message;
mod error_file;
mod outcome;
mod cgroup;
mod limits;
mod wait;
mod linux;
mod descendants;
mod signals;
mod private;
mod spawn;
mod guardian;
mod isolate;
mod ward;
mod company;
mod told;
mod launcher;
mod host;
mod run;

pub(crate) use cgroup::Cgroup;
pub(crate) use descendants::look_up;
pub(crate) use error_file::parse as parse_error_file;
pub(crate) use event::{Event, Pid, Step, Why};
pub(crate) use host::{Hosted, host};
pub(crate) use limits::explained;
pub(crate) use linux::PidFd;
pub(crate) use message::Stamped;
pub(crate) use outcome::{End, Exit, Outcome, Record, Refusal};
pub(crate) use run::{Start, run};
pub(crate) use signals::{Inherited, die_by};
pub(crate) use told::Told;
