//! Which CPUs a worker shall keep to, so that it stays near its GPU and its memory.
//!
//! The modes and their arithmetic are those of torch 2.15 (`torch/numa/binding.py`), which has the CPUs set by numactl(8); here the
//! launcher does it itself. The kernel's files are read only for a launch that asks for a binding.

mod cpus;
mod tree;
mod binding;
mod bound;
mod system;
#[cfg(test)]
mod original;

pub(crate) use binding::Binding;
pub(crate) use bound::Bound;
pub(crate) use cpus::CpuSet;
pub(crate) use system::{Near, System, allowed_cpus, online_cpus};
