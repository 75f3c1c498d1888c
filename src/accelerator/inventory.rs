//! The devices of this machine that a worker would see: plain data.

/// Which of the machine's devices a request depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    pub(crate) cuda: bool,
    pub(crate) mps: bool,
}

/// The devices of one kind, as far as they were asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Devices {
    /// The machine's own index of each device that a worker sees, in the worker's order: device
    /// `cuda:1` of a worker is `physical[1]` of the machine.
    pub(crate) physical: Vec<u32>,
    /// Why there are no more, in words that fit in parentheses.
    pub(crate) note: Option<String>,
}

impl Devices {
    pub(crate) fn none(note: impl Into<String>) -> Self {
        Self {
            physical: Vec::new(),
            note: Some(note.into()),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.physical.len() as u32
    }
}

/// All devices, as far as they were asked for; what was not asked for looks absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inventory {
    /// NVIDIA GPUs, or AMD GPUs, which torch's ROCm build calls `cuda` as well.
    pub(crate) cuda: Devices,
    pub(crate) mps: Devices,
}
