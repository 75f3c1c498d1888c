//! Passes on what workers write, whole line by whole line.
//!
//! ```text
//!   worker 0 --pipe or pty--\
//!   worker 1 --pipe or pty--->  pump (a thread of the launcher): lines -> our stdout
//!   worker N --pipe or pty--/                                     |
//!                                                                 +---> tail of each worker, for the report
//! ```
//! The guardian makes each channel when it starts the worker and hands our end to the launcher; it never sees
//! a byte of it. Each of our streams has a pump of its own, and only pumps wait for its reader, so a terminal
//! that stands still or a full pipe delays neither a signal nor the end of a failed run. A pump reads only
//! what it could pass on: a slow reader slows the workers down, as if they wrote to it themselves, and memory
//! stays bounded. While nobody writes nothing runs, and until somebody does there is no thread.
//!
//! Bytes are not changed. Lines of different workers are never mixed, but for two kinds: one longer than
//! [`lines::LONGEST`], and one whose end takes more than [`pump::PATIENCE`], such as a prompt or a bar.

mod lines;
mod tail;
mod prefix;
mod filter;
mod treatment;
mod logs;
mod output;
mod channel;
mod source;
mod pump;
mod voice;
mod lane;
mod relaying;

pub(crate) use channel::{Ends, Wiring};
pub(crate) use relaying::{Relay, Relaying};
pub(crate) use tail::{Tail, Words};
pub(crate) use voice::Voice;
