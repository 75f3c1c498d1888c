//! What was asked for on the command line: plain data, nothing about the machine.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use crate::accelerator::Accelerator;
use crate::integer::Integer;
use crate::numa::Binding;
use crate::source::{Source, Sourced};
use crate::status::Signal;

use super::output::Output;

/// `--isolate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Isolation {
    /// Workers live in a PID namespace of their own.
    Pid,
}

/// What SCRIPT is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// The path of a Python script.
    Script,
    /// The name of a Python module: `--module`.
    Module,
    /// A program of its own: `--no-python`.
    Program,
}

/// An option of our own that somebody has set, and who.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    /// Its long name with dashes.
    pub(crate) flag: &'static str,
    /// The text as it was read; `1` for a flag.
    pub(crate) text: OsString,
    pub(crate) source: Source,
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
    pub(crate) output: Output,
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
    /// SCRIPT is a module, or a program; never both.
    pub(crate) module: bool,
    pub(crate) no_python: bool,
    /// Every worker sees one device only, as number 0.
    pub(crate) virtual_local_rank: bool,
    pub(crate) role: Sourced<String>,
    pub(crate) run_id: Sourced<String>,
    /// Variables for the workers, in the order given.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Where the workers run.
    pub(crate) cwd: Option<Sourced<OsString>>,
    /// How long the run may take; zero is no limit.
    pub(crate) timeout: Sourced<Duration>,
    /// How often all workers may be started again.
    pub(crate) max_restarts: u16,
    pub(crate) numa_binding: Option<Binding>,
    /// The options of our own that were set, in the order in which they were read.
    pub(crate) said: Vec<Said>,
    /// Set variables that the original obeys through torchrun and this launcher does not.
    pub(crate) ignored: Vec<&'static str>,
}

impl Request {
    pub(crate) fn entry(&self) -> Entry {
        match (self.module, self.no_python) {
            (_, true) => Entry::Program,
            (true, false) => Entry::Module,
            (false, false) => Entry::Script,
        }
    }

    /// A path as workers see it: relative to where they will run.
    pub(crate) fn seen_by_workers(&self, path: &OsStr) -> OsString {
        match &self.cwd {
            Some(cwd) => Path::new(&cwd.value).join(path).into(),
            None => path.to_owned(),
        }
    }
}

impl Request {
    /// The same but for what it asks of devices, which every machine can give.
    pub(crate) fn on_one_cpu(&self) -> Self {
        Self {
            accelerator: Some(Accelerator::Cpu),
            devices: Sourced::new("1".into(), self.devices.source.clone()),
            numa_binding: None,
            ..self.clone()
        }
    }
}
