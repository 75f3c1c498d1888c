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
}

impl Devices {
    pub(crate) fn none(note: impl Into<String>) -> Self {
        let (count, note) = (0, Some(note.into()));
        Self { count, note }
    }
}

/// All devices, as far as they were asked for; what was not asked for looks absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inventory {
    /// NVIDIA GPUs, or AMD GPUs, which torch's ROCm build calls `cuda` as well.
    pub(crate) cuda: Devices,
    pub(crate) mps: Devices,
}
