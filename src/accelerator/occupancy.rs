//! Who uses the GPUs right now, and how much: what the NVIDIA driver tells for people who ask.

use super::inventory::User;
use super::nvidia::{self, Library};

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
    /// Where it is on the PCI bus, such as `0000:17:00.0`.
    pub(crate) address: Option<String>,
    /// In bytes.
    pub(crate) memory: Option<Memory>,
    /// Percent of the last moment (at most a second) in which it computed.
    pub(crate) busy: Option<u32>,
    /// Processes that compute on it.
    pub(crate) users: Vec<User>,
}

/// A GPU's memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    pub(crate) used: u64,
    pub(crate) total: u64,
}

/// Asks the driver.
///
/// # Errors
/// There is no driver to ask; the text fits in parentheses.
pub(crate) fn occupancy() -> Result<Occupancy, String> {
    let library = nvidia::load()?;
    let gpus = (0..library.count()?).map(|index| gpu(&library, index));
    let cuda = library.cuda_version();
    Ok(Occupancy {
        driver: library.version(),
        cuda: cuda.map(|it| format!("{}.{}", it / 1000, it % 1000 / 10)),
        gpus: gpus.collect(),
    })
}

/// A GPU that does not answer is still one that is there.
fn gpu(library: &Library, index: u32) -> Gpu {
    let Some(device) = library.device(index) else {
        return Gpu {
            index,
            ..Gpu::default()
        };
    };
    let memory = device.memory_info().ok();
    Gpu {
        index,
        name: device.name().ok(),
        address: library.address(index),
        memory: memory.map(|it| Memory {
            used: it.used,
            total: it.total,
        }),
        busy: device.utilization_rates().ok().map(|it| it.gpu),
        users: library.users(index),
    }
}
