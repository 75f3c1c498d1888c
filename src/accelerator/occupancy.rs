//! Who uses the GPUs right now, and how much: what the NVIDIA driver tells for people who ask.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};

use super::nvidia;

/// The driver and its GPUs at one moment. What the driver does not tell is `None` or empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Occupancy {
    /// The driver's own version, such as "580.65".
    pub(crate) driver: Option<String>,
    /// The newest CUDA that this driver serves, such as "13.0".
    pub(crate) cuda: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
}

/// One GPU as the driver numbers them, whatever CUDA_VISIBLE_DEVICES says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gpu {
    pub(crate) index: u32,
    pub(crate) name: Option<String>,
    /// `00000000:17:00.0`: domain, bus and device on PCI.
    pub(crate) bus_id: Option<String>,
    /// In bytes.
    pub(crate) memory: Option<Memory>,
    /// Percent of the last moment (at most a second) in which it computed.
    pub(crate) busy: Option<u32>,
    /// Processes that have a compute context on it.
    pub(crate) users: Vec<User>,
}

/// A GPU's memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    pub(crate) used: u64,
    pub(crate) total: u64,
}

/// A process on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    /// As the driver's namespace numbers it, which in a container may be another than ours.
    pub(crate) pid: i32,
    /// Bytes of the GPU's memory.
    pub(crate) memory: Option<u64>,
}

/// Asks the driver.
///
/// # Errors
/// There is no driver to ask; the text fits in parentheses.
pub(crate) fn occupancy() -> Result<Occupancy, String> {
    let nvml = nvidia::load()?;
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let gpus = (0..count).map(|index| gpu(&nvml, index));
    Ok(Occupancy {
        driver: nvml.sys_driver_version().ok(),
        // 13010 is CUDA 13.1 (nvmlSystemGetCudaDriverVersion in NVML's reference).
        cuda: cuda.map(|it| format!("{}.{}", it / 1000, it % 1000 / 10)),
        gpus: gpus.collect(),
    })
}

/// A GPU that does not answer is still one that is there.
fn gpu(nvml: &Nvml, index: u32) -> Gpu {
    let Ok(device) = nvml.device_by_index(index) else {
        return Gpu {
            index,
            ..Gpu::default()
        };
    };
    let memory = device.memory_info().ok();
    Gpu {
        index,
        name: device.name().ok(),
        bus_id: device.pci_info().ok().map(|it| it.bus_id),
        memory: memory.map(|it| Memory {
            used: it.used,
            total: it.total,
        }),
        busy: device.utilization_rates().ok().map(|it| it.gpu),
        users: users(&device),
    }
}

fn users(device: &Device<'_>) -> Vec<User> {
    let found = device.running_compute_processes().unwrap_or_default();
    let user = |it: nvml_wrapper::struct_wrappers::device::ProcessInfo| User {
        pid: it.pid as i32,
        memory: match it.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    found.into_iter().map(user).collect()
}
