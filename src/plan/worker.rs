//! The plan itself: what every worker of this node runs, and how the run is to be ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::machine::Machine;
use super::own_device::OwnDevices;
use crate::accelerator::Busy;
use crate::cli::{Entry, Isolation, Output};
use crate::cluster::Seat;
use crate::environ::Environ;
use crate::numa::Bound;
use crate::source::Sourced;
use crate::status::Signal;
use crate::topology::{LocalRank, NodeRank};

/// What this node shall do, completely decided.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What is executed: the Python interpreter, or what `--no-python` names.
    pub(crate) program: OsString,
    /// Where it was found, in words.
    pub(crate) program_source: String,
    /// The worker's argument list, its name for itself included.
    pub(crate) arguments: Vec<OsString>,
    /// As typed: also what reports call the run.
    pub(crate) script: OsString,
    pub(crate) entry: Entry,
    /// Where workers run, if not where we do.
    pub(crate) cwd: Option<OsString>,
    /// What the user's environment was, with what `--env` adds.
    pub(crate) environ: Environ,
    pub(crate) machine: Machine,
    /// The cluster environment around us, by name.
    pub(crate) cluster: &'static str,
    /// Where the engine started one launcher for each worker: the one that this launcher is.
    pub(crate) seat: Option<Seat>,
    /// Workers on this node, of all its launchers.
    pub(crate) local_world_size: Sourced<u32>,
    /// This launcher among those that meet.
    pub(crate) place: Place,
    pub(crate) num_nodes: Sourced<u32>,
    pub(crate) node_rank: Sourced<NodeRank>,
    /// As typed, but for the brackets of an IPv6 address.
    pub(crate) main_address: Sourced<String>,
    /// 0 means a free one; so does a default that is taken, on a single node.
    pub(crate) main_port: Sourced<u16>,
    /// Name of the run, the same on all nodes.
    pub(crate) run_id: Sourced<String>,
    /// Name of the workers' part in it.
    pub(crate) role: Sourced<String>,
    /// What the workers of this node train on, in words; `None` where each finds out for itself.
    pub(crate) hardware: Option<String>,
    /// The `--devices` text, verbatim, unless it lists devices that workers see under other numbers.
    pub(crate) devices: OsString,
    /// `--virtual-local-rank`.
    pub(crate) own_devices: Option<OwnDevices>,
    /// `--numa-binding`.
    pub(crate) bound: Option<Bound>,
    pub(crate) accelerator: Option<&'static str>,
    pub(crate) strategy: Option<&'static str>,
    pub(crate) precision: Option<&'static str>,
    pub(crate) settings: Settings,
    /// How often all workers of all nodes are started again after a failure.
    pub(crate) max_restarts: u16,
    /// How long to wait for all nodes to come.
    pub(crate) join_timeout: Duration,
    /// How long a node may be silent before it counts as lost.
    pub(crate) node_timeout: Duration,
    pub(crate) isolate: Option<Isolation>,
    /// What becomes of what workers write.
    pub(crate) output: Output,
    /// Advice that costs nothing to follow, one line each.
    pub(crate) hints: Vec<String>,
    /// Devices of our workers that somebody computes on already.
    pub(crate) busy: Vec<Busy>,
    /// Variables that ask for what we do not do.
    pub(crate) ignored: Vec<&'static str>,
}

/// A launcher among the launchers of a run: one per node, or one per worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) count: u32,
    /// It is where the main address points to, and serves the store there.
    pub(crate) leads: bool,
}

impl Plan {
    /// How many workers this launcher starts.
    pub(crate) fn workers(&self) -> u32 {
        if self.seat.is_some() {
            1
        } else {
            self.local_world_size.value
        }
    }

    /// The global rank of our first worker and the size of the world, if every launcher has as many.
    pub(crate) fn even_world(&self) -> (u32, u32) {
        let workers = self.workers();
        (
            workers.saturating_mul(self.place.index),
            workers.saturating_mul(self.place.count),
        )
    }

    /// What the node calls the worker with this index among ours.
    pub(crate) fn local_rank(&self, index: LocalRank) -> LocalRank {
        self.seat.as_ref().map_or(index, |it| it.local_rank.value)
    }
}

/// How a run is ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Between the polite and the hard stop.
    pub(crate) grace: Duration,
    /// How long leftovers may live after success.
    pub(crate) linger: Duration,
    /// How long the run may take.
    pub(crate) limit: Option<Duration>,
    /// Leave what workers left behind after success alone.
    pub(crate) keep_daemons: bool,
    /// Signals that end the run in order; all others are passed on.
    pub(crate) handled: Vec<Signal>,
}

/// What is known only once every node is there and the port is ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct World {
    /// Global rank of this node's first worker.
    pub(crate) first_rank: u32,
    pub(crate) world_size: u32,
    /// The same two, counted among the workers of the same role.
    pub(crate) first_role_rank: u32,
    pub(crate) role_world_size: u32,
    /// How often workers have been started before.
    pub(crate) attempt: u16,
    /// The port that workers meet at.
    pub(crate) port: u16,
    /// Where each worker may write its error file; `None` where no directory could be made.
    pub(crate) error_dir: Option<PathBuf>,
}
