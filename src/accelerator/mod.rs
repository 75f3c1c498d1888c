//! Which devices are here, and how many workers `--devices` asks for.
//!
//! Strictly lazy: a request says what it [`Needs`], `probe` asks the machine for that and nothing
//! else, and the rest is arithmetic on the [`Inventory`] it brings back.

mod inventory;
mod choice;
mod refusal;
mod selection;
mod visible;
mod nvidia;
mod occupancy;
mod amd;
mod probe;
#[cfg(test)]
mod original;

pub(crate) use choice::Accelerator;
pub(crate) use inventory::{Busy, Inventory};
pub(crate) use occupancy::{Gpu, Occupancy, occupancy};
pub(crate) use probe::{Driver, probe};
pub(crate) use selection::{DeviceRequest, Selection};
