//! Where the workers of this launcher sit: their GPUs, who computes on those already, and the CPUs near them.

use anyhow::{Result, anyhow};

use crate::accelerator::{Busy, Driver, Inventory, Selection};
use crate::cluster::Share;
use crate::numa::{Binding, Bound, Near, System};
use crate::plan::Machine;

/// What is known of the workers' places before there is a plan.
pub(crate) struct Placement<'a> {
    pub(crate) share: &'a Share,
    pub(crate) selection: &'a Selection,
    pub(crate) inventory: &'a Inventory,
    pub(crate) driver: &'a Driver,
}

impl Placement<'_> {
    /// Who computes on our workers' GPUs already. On partitions of a GPU somebody else always may.
    pub(crate) fn busy(&self) -> Vec<Busy> {
        let cuda = &self.inventory.cuda;
        let gpus = self.gpus().unwrap_or_default();
        let gpus = gpus.iter().filter(|_| !cuda.partitions);
        let numbers = gpus.filter_map(|it| cuda.physical.get(*it as usize).copied());
        self.driver.busy(&numbers.collect::<Vec<_>>())
    }

    /// The CPUs near each worker's GPU, or for workers without any a part of the machine.
    ///
    /// # Errors
    /// There are none for a worker, or nobody tells.
    pub(crate) fn bind(&self, mode: Binding, machine: &Machine) -> Result<Bound> {
        let bind = || {
            let system = System::here()?;
            let (near, places) = match self.gpus() {
                Some(gpus) => (Near::Devices(self.addresses()?), gpus),
                None => self.spread(machine.online_cpus > system.allowed().len()),
            };
            system.bind(mode, &near, &places)
        };
        bind().map_err(|it: String| {
            let name = mode.name();
            anyhow!("`--numa-binding {name}` cannot be done: {it}\nhint: leave it out")
        })
    }

    /// The GPU of each of our workers by its place among the visible ones; `None` where they use none.
    fn gpus(&self) -> Option<Vec<u32>> {
        let selected = self.selection.gpus(self.inventory)?;
        let ranks = self.share.local_ranks(self.selection.workers).into_iter();
        let gpu = |rank: u32| match self.inventory.cuda.count {
            // An engine has chosen.
            1 => 0,
            _ => selected.get(rank as usize).copied().unwrap_or(rank),
        };
        Some(ranks.map(|it| gpu(it.0)).collect())
    }

    fn addresses(&self) -> Result<Vec<String>, String> {
        let physical = &self.inventory.cuda.physical;
        let addresses = self.driver.addresses(physical).into_iter().zip(physical);
        let known = addresses.map(|(address, gpu)| {
            let unknown = || format!("the driver does not tell where GPU {gpu} is on the PCI bus");
            address.ok_or_else(unknown)
        });
        known.collect()
    }

    /// As many places as the node has workers, and which of them are ours. One of several launchers of an engine that
    /// gave each its own CPUs has only those to choose from.
    fn spread(&self, confined: bool) -> (Near, Vec<u32>) {
        match self.share {
            Share::Node => {
                let workers = self.selection.workers;
                (Near::Everywhere(workers), (0..workers).collect())
            }
            Share::Rank { .. } if confined => (Near::Everywhere(1), vec![0]),
            Share::Rank { seat, .. } => {
                let (rank, size) = (&seat.local_rank, &seat.local_world_size);
                (Near::Everywhere(size.value), vec![rank.value.0])
            }
        }
    }
}
