//! `--accelerator`, and the kind of device that it comes down to.

use std::fmt;

use super::inventory::Inventory;

/// `--accelerator` as given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accelerator {
    Cpu,
    Gpu,
    Cuda,
    Mps,
    Tpu,
    Auto,
}

impl Accelerator {
    /// In the order in which the original lists them.
    const ALL: [Self; 6] = [Self::Cpu, Self::Gpu, Self::Cuda, Self::Mps, Self::Tpu, Self::Auto];

    /// The accelerator of a name, exactly as the option takes it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The name that the option takes and LT_ACCELERATOR carries.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Cuda => "cuda",
            Self::Mps => "mps",
            Self::Tpu => "tpu",
            Self::Auto => "auto",
        }
    }
}

/// The kind of device a worker trains on, by torch's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cpu,
    Cuda,
    Mps,
}

impl Kind {
    /// What a worker takes when nothing is said: the order of Lightning 2.6's
    /// `_select_auto_accelerator`, but for TPUs, which the launcher can only refuse.
    pub(super) fn best(inventory: &Inventory) -> Self {
        match (inventory.mps.count(), inventory.cuda.count()) {
            (1.., _) => Self::Mps,
            (0, 1..) => Self::Cuda,
            (0, 0) => Self::Cpu,
        }
    }

    /// What `--accelerator gpu` means to a worker (Lightning 2.6, `_choose_gpu_accelerator_backend`).
    pub(super) fn best_gpu(inventory: &Inventory) -> Self {
        match Self::best(inventory) {
            Self::Mps => Self::Mps,
            Self::Cuda | Self::Cpu => Self::Cuda,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Mps => "mps",
        })
    }
}
