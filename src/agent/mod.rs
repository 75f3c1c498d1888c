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
//!
//! A single node waits for nobody, so its guardian is born with the command to begin, and the launcher gives way to
//! it. What the launcher needs besides, it sets up while the first program is loaded; what only a longer run needs
//! (threads, the store's meeting, an entry for `fabric ps`), after 20 ms or when somebody asks for it.
//!
//! # What is Linux's
//!
//! `policy`, `outcome`, `message` and what they decide are plain computation. The rest rests on Linux in a few
//! places, each in a file of its own. This is what would take their place on another Unix; nothing of it is
//! written, since nothing of it could be tried here.
//!
//! | file | rests on | elsewhere |
//! |---|---|---|
//! | `linux` | child subreaper | process groups and sessions only: who leaves them is not found |
//! | | parent-death signal | a pipe that the guardian holds; workers of a killed guardian live on |
//! | | pidfd | kill(2) after a look at the start time |
//! | | close_range | one by one |
//! | `descendants` | /proc | `sysctl` with KERN_PROC |
//! | `signals` | signalfd | a handler that writes to a pipe |
//! | `spawn` | clone with VM and VFORK | posix_spawn(3) with POSIX_SPAWN_SETSID |
//! | `guardian`, `uplink`, `ward` | SOCK_SEQPACKET, ppoll | SOCK_STREAM, for records have one size; poll(2) |
//! | `isolate`, `cgroup` | namespaces, cgroups | refused; no clue |

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
mod uplink;
mod guardian;
mod isolate;
mod polling;
mod ward;
mod company;
mod told;
mod telling;
mod takeover;
mod launcher;
mod host;
mod run;

pub(crate) use cgroup::Cgroup;
pub(crate) use descendants::look_up;
pub(crate) use error_file::parse as parse_error_file;
pub(crate) use event::{Event, Pid, Step, Why};
pub(crate) use host::{Hosted, host};
pub(crate) use limits::explained;
pub(crate) use linux::{PidFd, nameless_file};
pub(crate) use message::Stamped;
pub(crate) use outcome::{End, Exit, Outcome, Record, Refusal};
pub(crate) use run::{Start, run};
pub(crate) use signals::{Inherited, die_by};
pub(crate) use told::Told;
