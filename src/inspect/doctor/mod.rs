//! `fabric doctor`: what a launch would meet on this machine, each thing ok, warn or bad with the way out.

mod finding;
mod facts;
mod cgroup;
mod system;
mod python;
mod network;
mod gather;
mod launch;
mod devices;
mod machine;
mod meeting;
mod examine;
mod render;

pub(crate) use examine::examine;
pub(crate) use finding::Level;
pub(crate) use gather::{Case, gather};
pub(crate) use render::{count, json, text};
