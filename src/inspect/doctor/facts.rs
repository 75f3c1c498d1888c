//! Everything that the checks look at, gathered once: plain data.

use core::net::IpAddr;
use std::path::PathBuf;

use crate::accelerator::{Accelerator, Occupancy};
use crate::environ::Environ;
use crate::numa::CpuSet;
use crate::plan::Plan;

/// The facts.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Why the launch as it was asked for would be refused.
    pub(crate) refusal: Option<String>,
    /// The launch; where it would be refused for its devices, the same on one CPU, so that the rest can be
    /// looked at all the same.
    pub(crate) plan: Option<Plan>,
    pub(crate) accelerator: Option<Accelerator>,
    pub(crate) environ: Environ,
    /// Where there is an interpreter: what it has, or why it does not tell.
    pub(crate) python: Option<Result<Python, String>>,
    pub(crate) gpus: Result<Occupancy, String>,
    /// The NUMA node of each of them, in their order.
    pub(crate) gpu_nodes: Vec<Option<u32>>,
    pub(crate) gpu_users: Vec<GpuUser>,
    /// How many GPUs a worker would see, and why no more.
    pub(crate) visible_gpus: (u32, Option<String>),
    pub(crate) system: System,
    pub(crate) network: Option<Network>,
    pub(crate) on_path: OnPath,
}

/// Who uses a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GpuUser {
    pub(crate) gpu: u32,
    /// Such as `pid 71 (python train.py) of alice`.
    pub(crate) who: String,
    pub(crate) memory: Option<u64>,
}

/// What an interpreter says of itself; versions as text, `None` for what is not installed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Python {
    pub(crate) version: String,
    pub(crate) torch: Option<String>,
    /// Of whichever of its packages is there: `lightning 2.6.6`, `lightning-fabric 2.5.0`.
    pub(crate) lightning: Option<String>,
}

/// The machine. Sizes are in bytes; `None` stands for no limit, or for what the kernel does not tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct System {
    /// CPUs of the machine.
    pub(crate) cpus: CpuSet,
    /// Those on which this process may run.
    pub(crate) allowed_cpus: CpuSet,
    /// CPUs' worth of time that the cgroup grants.
    pub(crate) cpu_quota: Option<f64>,
    /// Number and CPUs of each NUMA node.
    pub(crate) numa: Vec<(u32, CpuSet)>,
    pub(crate) memory: u64,
    pub(crate) available_memory: u64,
    pub(crate) memory_limit: Option<u64>,
    /// Processes and threads that the cgroup grants.
    pub(crate) pids_limit: Option<u64>,
    /// Free and total space in /dev/shm.
    pub(crate) shared_memory: Option<(u64, u64)>,
    pub(crate) open_files: Option<Limit>,
    pub(crate) processes: Option<Limit>,
    pub(crate) locked_memory: Option<Limit>,
    /// Names of InfiniBand or RoCE adapters.
    pub(crate) infiniband: Vec<String>,
}

/// A limit of this process (getrlimit(2)); `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// The way to the main address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    pub(crate) interfaces: Vec<Interface>,
    /// What the main address stands for, or why it stands for nothing.
    pub(crate) addresses: Result<Vec<IpAddr>, String>,
    /// The line of /etc/hosts that says so, if one does.
    pub(crate) hosts_line: Option<String>,
    /// What this machine's own name stands for.
    pub(crate) own_addresses: Vec<IpAddr>,
    /// Our end of the way there.
    pub(crate) local_end: Option<IpAddr>,
    /// Our end of the way out of this network, where there is one.
    pub(crate) outer_end: Option<IpAddr>,
    pub(crate) port: Port,
}

/// A network interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) loopback: bool,
}

/// The main port, as seen from this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    /// Node 0 can have it.
    Free,
    /// Taken, by this process if that can be seen, and another would do as well.
    Another(Option<String>),
    /// Node 0 cannot have it: the launcher's own words.
    Refused(String),
    /// On another node, where something listens already.
    Answers,
    /// The other node is there and says that nothing listens.
    NobodyYet,
    /// No sign of the other node; the system's words.
    Silent(String),
    /// The main address stands for nothing, so nobody could be asked.
    Unknown,
}

/// What `fabric` means in a shell with our PATH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnPath {
    Us(PathBuf),
    /// `python`: the Python original, by its first line.
    Another {
        path: PathBuf,
        python: bool,
    },
    /// It was linked to us, and an installation of Lightning has replaced the link: what to say, and the way
    /// out behind `hint: `.
    Overwritten(String),
    Nothing,
}
