//! Checks of the GPUs: which are there, what a worker sees of them, and who is on them already.

use super::facts::{Facts, GpuUser};
use super::finding::Finding;
use crate::accelerator::{Accelerator, Gpu};
use crate::report::bytes;

/// The driver and each GPU.
pub(super) fn gpus(facts: &Facts) -> Vec<Finding> {
    let occupancy = match &facts.gpus {
        Ok(occupancy) => occupancy,
        Err(why) => return vec![Finding::ok("GPUs", format!("none ({why})"))],
    };
    let unknown = || "of unknown version".to_owned();
    let driver = occupancy.driver.clone().unwrap_or_else(unknown);
    let cuda = occupancy.cuda.as_ref();
    let cuda = cuda.map_or_else(String::new, |it| format!(", for CUDA up to {it}"));
    let mut found = vec![Finding::ok("GPU driver", format!("{driver}{cuda}"))];
    let nodes = facts.gpu_nodes.iter().chain(std::iter::repeat(&None));
    let gpus = occupancy.gpus.iter().zip(nodes);
    found.extend(gpus.map(|(gpu, node)| one(gpu, *node, facts)));
    found
}

fn one(gpu: &Gpu, node: Option<u32>, facts: &Facts) -> Finding {
    let mut what = format!("{}: {}", gpu.index, gpu.name.as_deref().unwrap_or("?"));
    if let Some(memory) = gpu.memory {
        let (used, total) = (bytes(memory.used), bytes(memory.total));
        what.push_str(&format!(", {used} of {total} in use"));
    }
    if let Some(node) = node {
        what.push_str(&format!(", on NUMA node {node}"));
    }
    let users = facts.gpu_users.iter().filter(|it| it.gpu == gpu.index);
    let users: Vec<String> = users.map(user).collect();
    if users.is_empty() {
        return Finding::ok("GPU", what);
    }
    what.push_str(&format!(", used by {}", users.join(", ")));
    if facts.accelerator == Some(Accelerator::Cpu) {
        return Finding::ok("GPU", what);
    }
    let way_out = "end that, or choose other GPUs with --devices or CUDA_VISIBLE_DEVICES";
    Finding::warn("GPU", what, way_out)
}

fn user(user: &GpuUser) -> String {
    let memory = user
        .memory
        .map_or_else(String::new, |it| format!(": {}", bytes(it)));
    format!("{}{memory}", user.who)
}

/// What CUDA_VISIBLE_DEVICES and its kin leave of them.
pub(super) fn visible(facts: &Facts) -> Vec<Finding> {
    let (count, note) = &facts.visible_gpus;
    let there = facts.gpus.as_ref().map_or(0, |it| it.gpus.len());
    let note = note
        .as_ref()
        .map_or_else(String::new, |it| format!(" ({it})"));
    let what = format!(
        "a worker sees {count} of {}{note}",
        there.max(*count as usize)
    );
    match (there, *count) {
        (0, 0) => Vec::new(),
        (1.., 0) if facts.accelerator != Some(Accelerator::Cpu) => {
            let way_out = "set or unset the variable so that it lists GPUs that are there";
            vec![Finding::warn("visible GPUs", what, way_out)]
        }
        _ => vec![Finding::ok("visible GPUs", what)],
    }
}
