//! From what was asked and what is there to what will be done.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::exports::launchers_own;
use super::interpreter::Interpreter;
use super::machine::Machine;
use super::own_device::{self, OwnDevices};
use super::worker::{Place, Plan, Settings};
use crate::accelerator::{Accelerator, Busy, Selection};
use crate::cli::{Entry, Output, Request};
use crate::cluster::{Cluster, Seat, Share, narrowed};
use crate::environ::Environ;
use crate::integer::Integer;
use crate::numa::Bound;
use crate::source::{Source, Sourced};
use crate::topology::NodeRank;

/// Where nodes meet when nobody says otherwise, as in the original.
const DEFAULT_ADDRESS: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 29400;

/// Everything that a plan is made from.
pub(crate) struct Given<'a> {
    pub(crate) request: &'a Request,
    pub(crate) cluster: Cluster,
    pub(crate) share: Share,
    pub(crate) selection: Selection,
    /// What is executed, an interpreter or not.
    pub(crate) interpreter: Interpreter,
    /// The CPUs of each of our workers, where they were asked for.
    pub(crate) bound: Option<Bound>,
    /// Devices of our workers that somebody computes on already.
    pub(crate) busy: Vec<Busy>,
    pub(crate) machine: Machine,
    pub(crate) environ: Environ,
}

/// Decides. What the command line says wins over the cluster, and that over the defaults.
///
/// # Errors
/// A number or an address that cannot be right, named with its value and its option.
pub(crate) fn resolve(given: Given<'_>) -> Result<Plan> {
    let Given {
        request,
        cluster,
        share,
        selection,
        interpreter,
        bound,
        busy,
        machine,
        environ,
    } = given;
    check_variables(request)?;
    let num_nodes = num_nodes(request, &cluster)?;
    let node_rank = node_rank(request, &cluster, &num_nodes)?;
    let narrowed = match &share {
        // A worker that counts its own device only does not mind.
        Share::Rank { .. } if request.virtual_local_rank => None,
        Share::Rank { seat, .. } if request.accelerator != Some(Accelerator::Cpu) => {
            narrowed(&environ, seat)
        }
        _ => None,
    };
    let hints = cluster
        .notes
        .iter()
        .cloned()
        .chain(selection.hint.clone())
        .chain(narrowed)
        .collect();
    let place = place(&share, num_nodes.value, node_rank.value);
    let own_devices = own_devices(request, &selection, &share, &environ)?;
    let seat = match share {
        Share::Node => None,
        Share::Rank { seat, .. } => Some(seat),
    };
    Ok(Plan {
        arguments: arguments(request, &interpreter),
        program: interpreter.path,
        program_source: interpreter.source,
        script: request.script.clone(),
        entry: request.entry(),
        cwd: request.cwd.as_ref().map(|it| it.value.clone()),
        run_id: request.run_id.clone(),
        role: request.role.clone(),
        cluster: cluster.name,
        local_world_size: local_world_size(request, &selection, seat.as_ref()),
        place,
        main_address: main_address(request, &cluster)?,
        main_port: main_port(request, &cluster)?,
        num_nodes,
        node_rank,
        hardware: selection.hardware(),
        devices: devices(request, selection.workers, seat.as_ref()),
        own_devices,
        bound,
        seat,
        accelerator: request.accelerator.map(|it| it.name()),
        strategy: request.strategy,
        precision: request.precision,
        settings: Settings {
            grace: grace(request, &cluster),
            linger: request.linger.value,
            limit: Some(request.timeout.value).filter(|it| !it.is_zero()),
            keep_daemons: request.keep_daemons,
            handled: request.signals_to_handle.value.clone(),
        },
        max_restarts: request.max_restarts,
        join_timeout: request.join_timeout.value,
        node_timeout: request.node_timeout.value,
        isolate: request.isolate,
        output: output(request)?,
        hints,
        busy,
        ignored: ignored(request, &cluster),
        environ,
        machine,
    })
}

/// `-u` as in the original: Python does not hold output back when it goes to a file or a pipe.
fn arguments(request: &Request, interpreter: &Interpreter) -> Vec<OsString> {
    let python: &[&str] = match request.entry() {
        Entry::Script => &["-u"],
        Entry::Module => &["-u", "-m"],
        Entry::Program => &[],
    };
    let path = (request.entry() != Entry::Program).then(|| interpreter.path.clone());
    let own = path.into_iter().chain(python.iter().map(Into::into));
    own.chain([request.script.clone()])
        .chain(request.script_args.iter().cloned())
        .collect()
}

fn check_variables(request: &Request) -> Result<()> {
    for (name, value) in &request.env {
        let Some(way_out) = launchers_own(name) else {
            continue;
        };
        let (name, value) = (name.display(), value.display());
        bail!("`--env {name}={value}` sets a variable that is the launcher's own\nhint: {way_out}");
    }
    Ok(())
}

/// Kubeflow's elastic jobs say by torchrun's rendezvous where nodes meet, and there we do.
fn ignored(request: &Request, cluster: &Cluster) -> Vec<&'static str> {
    let meeting = cluster.main_address.as_ref().map(|it| &it.source);
    let obeyed = meeting == Some(&Source::Variable("PET_RDZV_ENDPOINT".to_owned()));
    let names = request.ignored.iter().copied();
    names
        .filter(|it| !(obeyed && it.starts_with("PET_RDZV_")))
        .collect()
}

fn own_devices(
    request: &Request,
    selection: &Selection,
    share: &Share,
    environ: &Environ,
) -> Result<Option<OwnDevices>> {
    if !request.virtual_local_rank {
        return Ok(None);
    }
    let ranks = share.local_ranks(selection.workers);
    let own = own_device::own_devices(&ranks, selection.devices.as_deref(), environ);
    own.map(Some)
        .map_err(|it| anyhow!("{it} (--virtual-local-rank)"))
}

fn place(share: &Share, num_nodes: u32, node_rank: NodeRank) -> Place {
    match share {
        Share::Node => Place {
            index: node_rank.0,
            count: num_nodes,
            leads: node_rank.0 == 0,
        },
        Share::Rank { seat, leads } => Place {
            index: seat.global_rank.value.0,
            count: seat.world_size.value,
            leads: *leads,
        },
    }
}

fn local_world_size(request: &Request, selection: &Selection, seat: Option<&Seat>) -> Sourced<u32> {
    let ours = || Sourced::new(selection.workers, request.devices.source.clone());
    seat.map_or_else(ours, |it| it.local_world_size.clone())
}

/// What the worker's Fabric is told. Where the engine started a launcher for each worker and nobody spoke of
/// devices, there are as many as launchers on the node. A worker that sees no device but its own cannot look for those of a
/// list; their number says enough.
fn devices(request: &Request, workers: u32, seat: Option<&Seat>) -> OsString {
    let is_list = request.devices.value.as_encoded_bytes().contains(&b',');
    match seat {
        _ if request.virtual_local_rank && is_list => workers.to_string().into(),
        Some(seat) if request.devices.source == Source::Default => {
            seat.local_world_size.value.to_string().into()
        }
        _ => request.devices.value.clone(),
    }
}

/// The default leaves room before an engine that kills on its own; a period that was asked for stands.
fn grace(request: &Request, cluster: &Cluster) -> Duration {
    let asked = &request.shutdown_timeout;
    match cluster.kill_after {
        Some(limit) if asked.source == Source::Default => asked.value.min(limit.mul_f64(0.7)),
        _ => asked.value,
    }
}

fn num_nodes(request: &Request, cluster: &Cluster) -> Result<Sourced<u32>> {
    let Some(given) = &request.num_nodes else {
        return Ok(cluster
            .num_nodes
            .clone()
            .unwrap_or(Sourced::new(1, Source::Default)));
    };
    match number(given) {
        Some(nodes @ 1..) => Ok(Sourced::new(nodes, Source::Flag("--num-nodes"))),
        _ => bail!(
            "`--num-nodes {}` is no number of nodes: give 1 or more",
            given.text
        ),
    }
}

fn node_rank(
    request: &Request,
    cluster: &Cluster,
    nodes: &Sourced<u32>,
) -> Result<Sourced<NodeRank>> {
    let rank = match &request.node_rank {
        Some(given) => match number(given) {
            Some(rank) => Sourced::new(NodeRank(rank), Source::Flag("--node-rank")),
            None => bail!("`--node-rank {}` is no rank: they count from 0", given.text),
        },
        None => cluster
            .node_rank
            .clone()
            .unwrap_or(Sourced::new(NodeRank(0), Source::Default)),
    };
    if rank.value.0 < nodes.value {
        return Ok(rank);
    }
    bail!(
        "node rank {} ({}) does not fit {} node{} ({}): ranks go from 0 to {}",
        rank.value,
        rank.source,
        nodes.value,
        if nodes.value == 1 { "" } else { "s" },
        nodes.source,
        nodes.value - 1
    )
}

/// The original takes word characters, dots, colons and dashes, and drops the brackets of an IPv6 address.
fn main_address(request: &Request, cluster: &Cluster) -> Result<Sourced<String>> {
    let Some(given) = &request.main_address else {
        let default = Sourced::new(DEFAULT_ADDRESS.to_owned(), Source::Default);
        return Ok(cluster.main_address.clone().unwrap_or(default));
    };
    let text = given.to_string_lossy();
    let bare = text
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'))
        .unwrap_or(&text);
    let fits = |it: char| it.is_alphanumeric() || "_.:-".contains(it);
    if bare.is_empty() || !bare.chars().all(fits) {
        bail!("`--main-address {text}` is no host name or IP address");
    }
    Ok(Sourced::new(
        bare.to_owned(),
        Source::Flag("--main-address"),
    ))
}

fn main_port(request: &Request, cluster: &Cluster) -> Result<Sourced<u16>> {
    let Some(given) = &request.main_port else {
        let default = Sourced::new(DEFAULT_PORT, Source::Default);
        return Ok(cluster.main_port.clone().unwrap_or(default));
    };
    match given.value.and_then(|it| u16::try_from(it).ok()) {
        Some(port) => Ok(Sourced::new(port, Source::Flag("--main-port"))),
        None => bail!(
            "`--main-port {}` is no port: they go from 0 to 65535",
            given.text
        ),
    }
}

fn output(request: &Request) -> Result<Output> {
    let output = request.output.clone();
    let Some(flag) = output.needs_relay().filter(|_| output.direct) else {
        return Ok(output);
    };
    let said = request.said.iter().find(|it| it.flag == flag);
    let source = match said.map(|it| &it.source) {
        Some(Source::Variable(name)) => format!(" ({name})"),
        _ => String::new(),
    };
    bail!(
        "`{flag}`{source} works on what passes through the launcher, and with `--output direct` nothing \
         does: leave one of them out"
    )
}

fn number(given: &Integer) -> Option<u32> {
    u32::try_from(given.value?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn kubeflows_rendezvous_is_obeyed() {
        let mut request = sample::request(2);
        request.ignored = vec!["PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS"];
        let mut cluster = Cluster::plain();
        assert_eq!(ignored(&request, &cluster), request.ignored);
        let source = Source::Variable("PET_RDZV_ENDPOINT".into());
        cluster.main_address = Some(Sourced::new("job-worker-0".into(), source));
        assert_eq!(ignored(&request, &cluster), ["PET_MAX_RESTARTS"]);
    }

    #[test]
    fn a_list_of_devices_that_a_worker_cannot_see_becomes_their_number() {
        let mut request = sample::request(2);
        request.devices.value = "3,1".into();
        assert_eq!(devices(&request, 2, None), "3,1");
        request.virtual_local_rank = true;
        assert_eq!(devices(&request, 2, None), "2");
        request.devices.value = "-1".into();
        assert_eq!(devices(&request, 2, None), "-1");
    }

    #[test]
    fn what_is_executed_depends_on_what_the_script_is() {
        let words = |change: fn(&mut Request)| {
            let mut request = sample::request(2);
            change(&mut request);
            let plan = resolve(sample::given(&request, 2, &[])).unwrap();
            let words = plan
                .arguments
                .into_iter()
                .map(|it| it.into_string().unwrap());
            words.collect::<Vec<_>>().join(" ")
        };
        let python = "/venv/bin/python3 -u";
        assert_eq!(words(|_| {}), format!("{python} train.py --lr 0.1"));
        let module = words(|it| it.module = true);
        assert_eq!(module, format!("{python} -m train.py --lr 0.1"));
        assert_eq!(words(|it| it.no_python = true), "train.py --lr 0.1");
    }

    #[test]
    fn no_limit_is_none() {
        let mut request = sample::request(2);
        let limit = |request: &Request| {
            let plan = resolve(sample::given(request, 2, &[])).unwrap();
            plan.settings.limit
        };
        assert_eq!(limit(&request), None);
        request.timeout.value = Duration::from_secs(90);
        assert_eq!(limit(&request), Some(Duration::from_secs(90)));
    }
}
