//! What was asked for on the command line: plain data, nothing about the machine.

use std::ffi::OsString;
use std::time::Duration;

use crate::accelerator::Accelerator;
use crate::integer::Integer;
use crate::source::Sourced;
use crate::status::Signal;

/// `--isolate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Isolation {
    /// Workers live in a PID namespace of their own.
    Pid,
}

/// A `fabric run` command line, parsed. The default holds no defaults of options: the table of options has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Request {
    pub(crate) accelerator: Option<Accelerator>,
    pub(crate) strategy: Option<&'static str>,
    /// Verbatim text; "1" when not given.
    pub(crate) devices: Sourced<OsString>,
    pub(crate) num_nodes: Option<Integer>,
    pub(crate) node_rank: Option<Integer>,
    pub(crate) main_address: Option<OsString>,
    pub(crate) main_port: Option<Integer>,
    pub(crate) precision: Option<&'static str>,
    /// As typed; it existed and was readable when it was looked at.
    pub(crate) script: OsString,
    /// Byte for byte as typed.
    pub(crate) script_args: Vec<OsString>,
    /// From here on: options of our own, recognised only before the script.
    pub(crate) dry_run: bool,
    pub(crate) python: Option<Sourced<OsString>>,
    /// The grace period between the polite and the hard stop.
    pub(crate) shutdown_timeout: Sourced<Duration>,
    /// How long what workers left behind may live on after success.
    pub(crate) linger: Sourced<Duration>,
    pub(crate) keep_daemons: bool,
    pub(crate) isolate: Option<Isolation>,
    /// Workers write to our own streams instead of through us.
    pub(crate) direct_output: bool,
    /// How long to wait for all nodes to come.
    pub(crate) join_timeout: Sourced<Duration>,
    /// How long a node may be silent before it counts as lost.
    pub(crate) node_timeout: Sourced<Duration>,
    /// A name of the cluster environment, checked where the environments are known.
    pub(crate) cluster: Option<Sourced<OsString>>,
    pub(crate) cluster_map: Option<Sourced<OsString>>,
    /// Signals that end the run in order; never empty, no signal twice.
    pub(crate) signals_to_handle: Sourced<Vec<Signal>>,
    /// `-v` raises, `-q` lowers.
    pub(crate) verbosity: i8,
}
