//! Asks the machine for the devices that a request needs to know of, and for no others.

use super::inventory::{Devices, Inventory, Needs};
use super::visible::{Gpus, Visible};
use super::{amd, nvidia};
use crate::environ::Environ;

/// What is here. Nothing fails: where a driver is missing there are no devices, and a note why.
pub(crate) fn probe(needs: Needs, environ: &Environ) -> Inventory {
    let mut inventory = Inventory::default();
    if needs.cuda {
        inventory.cuda = cuda(environ);
    }
    if needs.mps {
        inventory.mps = mps(environ);
    }
    inventory
}

/// NVIDIA GPUs; where there are none, AMD GPUs. Which of them the worker's torch is built for
/// cannot be seen from here, and machines with both are rare.
fn cuda(environ: &Environ) -> Devices {
    let visible = Visible::nvidia(environ);
    let by_name = visible.as_ref().is_ok_and(Visible::by_name);
    let reason = match nvidia::gpus(by_name) {
        Ok(gpus) if gpus.count > 0 => return seen(visible, &gpus),
        Ok(_) => "the NVIDIA driver finds no GPU".to_owned(),
        Err(reason) => reason,
    };
    match amd::gpus() {
        none if none.count == 0 => Devices::none(reason),
        gpus => seen(Visible::amd(environ), &gpus),
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
        physical: vec![0],
        note: None,
    }
}
