//! Everything about WHAT to launch, decided before anything is launched.
//!
//! ```text
//! Request + Cluster + Selection + Machine --resolve--> Plan --exports--> environment of each worker
//!                                                       |
//!                                                       +---display--> --dry-run
//! ```
//! A plan is plain data. What only the meeting of the nodes can tell (global ranks, the port that was free)
//! is a [`World`] and comes later.

mod interpreter;
mod machine;
mod own_device;
mod worker;
mod exports;
mod resolve;
mod display;
mod consolidate;
#[cfg(test)]
pub(crate) mod sample;

pub(crate) use consolidate::consolidate;
pub(crate) use display::{describe, facts};
pub(crate) use exports::{Variable, error_file};
pub(crate) use machine::{Machine, interpreter, program};
pub(crate) use resolve::{Given, resolve};
pub(crate) use worker::{Plan, Settings, World};
