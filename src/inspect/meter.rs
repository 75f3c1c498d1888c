//! Measures what running launches use: CPU and memory from the kernel, GPUs from their driver.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use sysinfo::{Process, ProcessRefreshKind, ProcessesToUpdate, System};

use super::launch::{Launch, Worker};
use super::reading::{Reading, Seen, Share, State};
use crate::accelerator::{Gpu, occupancy};
use crate::agent::{Pid, look_up};

/// Measures between one look and the next.
pub(crate) struct Meter(System);

impl Meter {
    /// The first look, which tells nothing yet: the next should come after [`Meter::PAUSE`] or later.
    pub(crate) fn new() -> Result<Self> {
        let system = System::new().context("failed to read /proc")?;
        let mut meter = Self(system);
        meter.refresh();
        Ok(meter)
    }

    /// The kernel counts CPU time in steps of 10 ms, so a shorter one would show little but noise.
    pub(crate) const PAUSE: Duration = Duration::from_millis(300);

    /// What these launches have used since the last look, and hold now.
    pub(crate) fn look(&mut self, launches: Vec<Launch>) -> Vec<Seen> {
        self.refresh();
        let gpus = match launches.as_slice() {
            [] => Vec::new(),
            _ => occupancy().map_or_else(|_| Vec::new(), |it| it.gpus),
        };
        let seen = launches.into_iter().map(|launch| {
            let age = self.process(launch.id).map_or(0, Process::run_time);
            let trees = self.trees(&launch.workers);
            let readings = launch.workers.iter();
            let readings = readings.map(|it| self.reading(it, &trees, &gpus)).collect();
            Seen {
                launch,
                age: Duration::from_secs(age),
                readings,
            }
        });
        seen.collect()
    }

    fn refresh(&mut self) {
        let what = ProcessRefreshKind::nothing().with_cpu().with_memory();
        self.0
            .refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    }

    fn process(&self, pid: Pid) -> Option<&Process> {
        self.0.process(sysinfo::Pid::from_u32(pid as u32))
    }

    /// Whose process is which: each that is a worker or below one, with that worker.
    fn trees(&self, workers: &[Worker]) -> HashMap<Pid, Pid> {
        let all = self.0.processes().values();
        let owned = all.filter_map(|process| {
            let mut at = process;
            loop {
                let pid = at.pid().as_u32() as Pid;
                if workers.iter().any(|it| it.pid == pid) {
                    return Some((process.pid().as_u32() as Pid, pid));
                }
                at = self.0.process(at.parent()?)?;
            }
        });
        owned.collect()
    }

    fn reading(&self, worker: &Worker, trees: &HashMap<Pid, Pid>, gpus: &[Gpu]) -> Reading {
        let now = look_up(worker.pid).filter(|it| it.born == worker.born);
        let state = now.map_or(State::Ended, |it| State::of_letter(it.state));
        if state == State::Ended {
            let (cpu, memory, gpus) = (0.0, 0, Vec::new());
            return Reading {
                state,
                cpu,
                memory,
                gpus,
            };
        }
        let is_its = |pid: Pid| trees.get(&pid) == Some(&worker.pid);
        let processes = self.0.processes().values();
        let its = processes.filter(|it| is_its(it.pid().as_u32() as Pid));
        Reading {
            state,
            cpu: its.map(Process::cpu_usage).sum(),
            memory: self.process(worker.pid).map_or(0, Process::memory),
            gpus: gpus.iter().filter_map(|it| share(it, &is_its)).collect(),
        }
    }
}

fn share(gpu: &Gpu, is_its: &dyn Fn(Pid) -> bool) -> Option<Share> {
    let mut users = gpu
        .users
        .iter()
        .filter(|it| is_its(it.pid as Pid))
        .peekable();
    users.peek()?;
    Some(Share {
        gpu: gpu.index,
        memory: users.map(|it| it.memory).sum(),
        busy: gpu.busy,
    })
}
