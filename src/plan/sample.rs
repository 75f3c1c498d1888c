//! A plan for tests of what is made of plans.

use std::path::PathBuf;
use std::time::Duration;

use super::interpreter::Interpreter;
use super::machine::Machine;
use super::resolve::{Given, resolve};
use super::worker::Plan;
use crate::accelerator::{Accelerator, Selection};
use crate::cli::Request;
use crate::cluster::{Cluster, Share};
use crate::source::{Source, Sourced};
use crate::status::Signal;

/// The plan of [`request`] for a user with these variables.
pub(crate) fn plan(workers: u32, variables: &[(&str, &str)]) -> Plan {
    resolve(given(&request(workers), workers, variables)).unwrap()
}

/// `fabric run --devices WORKERS --accelerator cpu train.py --lr 0.1`.
pub(crate) fn request(workers: u32) -> Request {
    Request {
        accelerator: Some(Accelerator::Cpu),
        devices: Sourced::new(workers.to_string().into(), Source::Flag("--devices")),
        script: "train.py".into(),
        script_args: vec!["--lr".into(), "0.1".into()],
        role: Sourced::new("default".into(), Source::Default),
        run_id: Sourced::new("none".into(), Source::Default),
        shutdown_timeout: Sourced::new(Duration::from_secs(30), Source::Default),
        linger: Sourced::new(Duration::from_secs(5), Source::Default),
        signals_to_handle: Sourced::new(vec![Signal::TERM, Signal::INT], Source::Default),
        ..Request::default()
    }
}

/// What such a request is resolved with on a machine of 8 CPUs.
pub(crate) fn given<'r>(
    request: &'r Request,
    workers: u32,
    variables: &[(&str, &str)],
) -> Given<'r> {
    Given {
        request,
        cluster: Cluster::plain(),
        share: Share::Node,
        selection: Selection {
            workers,
            kind: None,
            devices: None,
            hint: None,
        },
        interpreter: Interpreter {
            path: "/venv/bin/python3".into(),
            source: "VIRTUAL_ENV".into(),
        },
        bound: None,
        busy: Vec::new(),
        machine: Machine {
            cpus: 8,
            online_cpus: 8,
            host: "gpu-1".into(),
            user: "jo".into(),
            temp: PathBuf::from("/tmp"),
        },
        environ: variables.iter().copied().collect(),
    }
}
