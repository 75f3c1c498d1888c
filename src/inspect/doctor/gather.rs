//! Gathers all facts, each once.

use super::facts::{Facts, GpuUser};
use super::{network, python, system};
use crate::accelerator::{Accelerator, DeviceRequest, Occupancy, occupancy, probe};
use crate::agent::Pid;
use crate::cli::{Entry, Request};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::report::owned;
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
    let environ = case.environ.clone().with(&case.request.env);
    let python = plan.as_ref().filter(|it| it.entry != Entry::Program);
    Facts {
        refusal: case.refusal,
        accelerator: case.request.accelerator,
        python: python.map(|it| python::ask(&it.program)),
        gpu_users: gpus.as_ref().map(gpu_users).unwrap_or_default(),
        gpu_nodes: gpus.as_ref().map(gpu_nodes).unwrap_or_default(),
        gpus,
        visible_gpus: visible_gpus(&environ),
        system: system::look(),
        network: plan.as_ref().map(network::look),
        on_path: system::on_path(&case.environ),
        environ,
        plan,
    }
}

fn gpu_users(occupancy: &Occupancy) -> Vec<GpuUser> {
    let users = occupancy.gpus.iter().flat_map(|gpu| {
        gpu.users.iter().map(|user| GpuUser {
            gpu: gpu.index,
            who: owned(user.pid as Pid),
            memory: user.memory,
        })
    });
    users.collect()
}

/// The NUMA node of each GPU, in their order.
fn gpu_nodes(occupancy: &Occupancy) -> Vec<Option<u32>> {
    let gpus = occupancy.gpus.iter();
    gpus.map(|it| system::numa_of(it.address.as_ref()?))
        .collect()
}

/// How many a worker would count, and why no more.
fn visible_gpus(environ: &Environ) -> (u32, Option<String>) {
    let all = DeviceRequest {
        accelerator: Some(Accelerator::Cuda),
        data_parallel: false,
        devices: &Sourced::new("-1".into(), Source::Default),
    };
    let found = probe(all.needs(), environ).0.cuda;
    (found.count, found.note)
}
