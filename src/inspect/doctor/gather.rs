//! Gathers all facts, each once.

use std::os::unix::fs::MetadataExt;

use nix::unistd::{Uid, User};

use super::facts::{Facts, GpuUser};
use super::{network, python, system};
use crate::accelerator::{Accelerator, DeviceRequest, Occupancy, occupancy, probe};
use crate::agent::Pid;
use crate::cli::Request;
use crate::environ::Environ;
use crate::plan::Plan;
use crate::report::described;
use crate::source::{Source, Sourced};

/// The launch that is examined.
pub(crate) struct Case<'a> {
    pub(crate) request: &'a Request,
    pub(crate) environ: Environ,
    /// As of [`Facts::refusal`] and [`Facts::plan`].
    pub(crate) refusal: Option<String>,
    pub(crate) plan: Option<Plan>,
}

/// Asks the machine, the driver, the interpreter and the network; the slowest of them sets the time.
pub(crate) fn gather(case: Case<'_>) -> Facts {
    let gpus = occupancy();
    let plan = case.plan;
    Facts {
        refusal: case.refusal,
        accelerator: case.request.accelerator,
        python: plan.as_ref().map(|it| python::ask(&it.program)),
        gpu_users: gpus.as_ref().map(gpu_users).unwrap_or_default(),
        gpu_nodes: gpus.as_ref().map(gpu_nodes).unwrap_or_default(),
        gpus,
        visible_gpus: visible_gpus(&case.environ),
        system: system::look(),
        network: plan.as_ref().map(network::look),
        on_path: system::on_path(&case.environ),
        environ: case.environ,
        plan,
    }
}

fn gpu_users(occupancy: &Occupancy) -> Vec<GpuUser> {
    let users = occupancy.gpus.iter().flat_map(|gpu| {
        gpu.users.iter().map(|user| GpuUser {
            gpu: gpu.index,
            who: who(user.pid),
            memory: user.memory,
        })
    });
    users.collect()
}

/// `pid 71 (python train.py) of alice`, as far as it can be seen.
fn who(pid: Pid) -> String {
    let process = described(&[pid]).concat();
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok();
    let owner = owner.and_then(|it| User::from_uid(Uid::from_raw(it.uid())).ok()?);
    owner.map_or_else(|| process.clone(), |it| format!("{process} of {}", it.name))
}

/// The NUMA node of each GPU, in their order.
fn gpu_nodes(occupancy: &Occupancy) -> Vec<Option<u32>> {
    let gpus = occupancy.gpus.iter();
    gpus.map(|it| system::numa_of(it.bus_id.as_ref()?))
        .collect()
}

/// How many a worker would count, and why no more.
fn visible_gpus(environ: &Environ) -> (u32, Option<String>) {
    let all = DeviceRequest {
        accelerator: Some(Accelerator::Cuda),
        data_parallel: false,
        devices: &Sourced::new("-1".into(), Source::Default),
    };
    let found = probe(all.needs(), environ).cuda;
    (found.count, found.note)
}
