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
    /// How many of them a worker would see.
    pub(crate) count: u32,
    /// Why there are no more, in words that fit in parentheses.
    pub(crate) note: Option<String>,
    /// The driver's number of each, where devices have numbers.
    pub(crate) physical: Vec<u32>,
    /// They are partitions of GPUs; `physical` then names the GPUs they are cut from.
    pub(crate) partitions: bool,
}

impl Devices {
    pub(crate) fn none(note: impl Into<String>) -> Self {
        Self {
            note: Some(note.into()),
            ..Self::default()
        }
    }
}

/// A GPU that processes compute on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    /// The driver's number.
    pub(crate) gpu: u32,
    pub(crate) users: Vec<User>,
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    /// In the namespace of the driver's choice: that of the host.
    pub(crate) pid: u32,
    /// Memory of the GPU in bytes, where the driver tells.
    pub(crate) memory: Option<u64>,
}

/// All devices, as far as they were asked for; what was not asked for looks absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inventory {
    /// NVIDIA GPUs, or AMD GPUs, which torch's ROCm build calls `cuda` as well.
    pub(crate) cuda: Devices,
    pub(crate) mps: Devices,
}
