//! Looks at launches that run and at machines that shall run one: `fabric ps`, `stop` and `doctor`.
//!
//! ```text
//!   launcher --board: a file without a name that it holds open--> ps, stop     same user, same machine
//!                                         meter: /proc, NVML ---> ps
//!   doctor: facts, gathered once --> a table of checks, each pure --> findings
//! ```

mod launch;
mod reading;
mod listing;
mod board;
mod meter;
mod ps;
mod stop;
pub(crate) mod doctor;

pub(crate) use board::Board;
pub(crate) use ps::ps;
pub(crate) use stop::stop;
