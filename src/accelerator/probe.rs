//! Asks the machine for the devices that a request needs to know of, and for no others.

use super::inventory::{Busy, Devices, Inventory, Needs};
use super::visible::{Gpus, Visible};
use super::{amd, nvidia};
use crate::environ::Environ;

/// What was asked, kept so that more can be asked of the devices that a launch is about.
#[derive(Default)]
pub(crate) enum Driver {
    /// Nobody, or nobody who knows of devices.
    #[default]
    None,
    Nvidia(nvidia::Library),
    Amd,
}

/// What is here. Nothing fails: where a driver is missing there are no devices, and a note why.
pub(crate) fn probe(needs: Needs, environ: &Environ) -> (Inventory, Driver) {
    let (mut inventory, mut driver) = (Inventory::default(), Driver::None);
    if needs.cuda {
        (inventory.cuda, driver) = cuda(environ);
    }
    if needs.mps {
        inventory.mps = mps(environ);
    }
    (inventory, driver)
}

/// NVIDIA GPUs; where there are none, AMD GPUs. Which of them the worker's torch is built for
/// cannot be seen from here, and machines with both are rare.
fn cuda(environ: &Environ) -> (Devices, Driver) {
    let visible = Visible::nvidia(environ);
    let by_name = visible.as_ref().is_ok_and(Visible::by_name);
    let reason = match nvidia::gpus(by_name) {
        Ok((gpus, library)) if gpus.count > 0 => {
            return (seen(visible, &gpus), Driver::Nvidia(library));
        }
        Ok(_) => "the NVIDIA driver finds no GPU".to_owned(),
        Err(reason) => reason,
    };
    match amd::gpus() {
        none if none.count == 0 => (Devices::none(reason), Driver::None),
        gpus => (seen(Visible::amd(environ), &gpus), Driver::Amd),
    }
}

impl Driver {
    /// The addresses of devices on the PCI bus, such as `0000:3b:00.0`, by the driver's numbers; `None` for one that does not
    /// tell.
    pub(crate) fn addresses(&self, physical: &[u32]) -> Vec<Option<String>> {
        let address = |it: &u32| match self {
            Self::None => None,
            Self::Nvidia(library) => library.address(*it),
            Self::Amd => amd::address(*it),
        };
        physical.iter().map(address).collect()
    }

    /// Those of the devices that processes compute on already, by the driver's numbers. Only NVIDIA's driver tells.
    pub(crate) fn busy(&self, physical: &[u32]) -> Vec<Busy> {
        let Self::Nvidia(library) = self else {
            return Vec::new();
        };
        let busy = physical.iter().map(|gpu| Busy {
            gpu: *gpu,
            users: library.users(*gpu),
        });
        busy.filter(|it| !it.users.is_empty()).collect()
    }
}

/// A setting that torch cannot read hides all.
fn seen(visible: Result<Visible, String>, gpus: &Gpus) -> Devices {
    visible.map_or_else(Devices::none, |visible| visible.devices(gpus))
}

/// Apple silicon has one device, and DISABLE_MPS=1 turns it off (Lightning 2.6, `MPSAccelerator`).
fn mps(environ: &Environ) -> Devices {
    if !cfg!(all(target_os = "macos", target_arch = "aarch64")) {
        return Devices::none("this is no Mac with Apple silicon");
    }
    if environ.text("DISABLE_MPS") == Some("1") {
        return Devices::none("`DISABLE_MPS=1`");
    }
    Devices {
        count: 1,
        ..Devices::default()
    }
}
