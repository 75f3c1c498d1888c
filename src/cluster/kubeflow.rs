//! Kubernetes: PyTorchJobs of Kubeflow's training operator, TrainJobs, indexed Jobs.
//!
//! One launcher a pod. `RANK` is the pod's number; `WORLD_SIZE` counts pods up to operator
//! 1.6 and processes from 1.7 on, which sets `PET_NNODES` as well (`pytorch/envvar.go`).

use anyhow::{Context as _, Result, bail, ensure};

use super::facts::Cluster;
use super::surroundings::Surroundings;
use super::variables::{derived, first, map, required, text};
use crate::environ::Environ;
use crate::source::{Source, Sourced};
use crate::topology::NodeRank;

/// Operator 1.7 and later with a master, and Trainer 2.
pub(super) fn is_numbered(s: &Surroundings) -> bool {
    s.text("PET_NNODES").is_some() && s.text("PET_NODE_RANK").is_some()
}

/// Workers only, who are to meet at a rendezvous.
pub(super) fn is_elastic(s: &Surroundings) -> bool {
    let pod = s.text("KUBERNETES_SERVICE_HOST").is_some();
    pod && s.text("PET_NNODES").is_some() && s.text("PET_RDZV_ENDPOINT").is_some()
}

/// Operator 1.6 and before: the master's name ends so, here or in its own address.
pub(super) fn is_early(s: &Surroundings) -> bool {
    let pod = s.text("KUBERNETES_SERVICE_HOST").is_some();
    let named = |it: &str| it.ends_with("-master-0");
    let master = named(s.hostname) || s.text("MASTER_ADDR").is_some_and(named);
    pod && master && s.text("RANK").is_some() && s.text("WORLD_SIZE").is_some()
}

/// A pod of a Job with completion mode Indexed knows its number and nothing else, so the
/// command line has to say how many there are.
pub(super) fn is_indexed(s: &Surroundings) -> bool {
    let pod = s.text("KUBERNETES_SERVICE_HOST").is_some();
    let asked = s.asked.num_nodes.is_some_and(|it| it > 1);
    pod && asked && s.text("JOB_COMPLETION_INDEX").is_some()
}

pub(super) fn read_numbered(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = Cluster::named("Kubeflow");
    cluster.num_nodes = Some(num_nodes(s.environ)?);
    cluster.node_rank = Some(map(required(s.environ, "PET_NODE_RANK")?, NodeRank));
    let names = ["PET_MASTER_ADDR", "MASTER_ADDR"];
    cluster.main_address = names.iter().find_map(|it| text(s.environ, it));
    cluster.main_port = main_port(s.environ)?;
    checked(cluster)
}

/// The pod's name ends in its number: `JOB-worker-2`.
pub(super) fn read_elastic(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = Cluster::named("Kubeflow");
    cluster.num_nodes = Some(num_nodes(s.environ)?);
    let number = s
        .hostname
        .rsplit_once("-worker-")
        .and_then(|it| it.1.parse().ok());
    let number = number.with_context(|| {
        format!(
            "`{}` does not end in `-worker-N`, which would be the node rank: give `--node-rank`",
            s.hostname
        )
    })?;
    cluster.node_rank = Some(derived(NodeRank(number), "the pod's name"));
    let endpoint =
        text(s.environ, "PET_RDZV_ENDPOINT").context("`PET_RDZV_ENDPOINT` is not set")?;
    let (host, port) = endpoint
        .value
        .rsplit_once(':')
        .unwrap_or((&endpoint.value, ""));
    cluster.main_port = port
        .parse()
        .ok()
        .map(|it| Sourced::new(it, endpoint.source.clone()));
    cluster.main_address = Some(Sourced::new(host.to_owned(), endpoint.source));
    checked(cluster)
}

pub(super) fn read_early(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = Cluster::named("Kubeflow");
    cluster.num_nodes = Some(required(s.environ, "WORLD_SIZE")?);
    cluster.node_rank = Some(map(required(s.environ, "RANK")?, NodeRank));
    cluster.main_address = text(s.environ, "MASTER_ADDR");
    cluster.main_port = main_port(s.environ)?;
    checked(cluster)
}

pub(super) fn read_indexed(s: &Surroundings) -> Result<Cluster> {
    let mut cluster = Cluster::named("Kubernetes");
    let index: Sourced<u32> = required(s.environ, "JOB_COMPLETION_INDEX")?;
    cluster.node_rank = Some(map(index, NodeRank));
    cluster.main_address = text(s.environ, "MASTER_ADDR");
    cluster.main_port = main_port(s.environ)?;
    Ok(cluster)
}

/// `4`, or `4:4`; nodes that come and go (`2:4`) are refused.
fn num_nodes(environ: &Environ) -> Result<Sourced<u32>> {
    let source = Source::Variable("PET_NNODES".to_owned());
    let given = environ
        .text("PET_NNODES")
        .context("`PET_NNODES` is not set")?;
    let (fewest, most) = given.split_once(':').unwrap_or((given, given));
    let (Ok(fewest), Ok(most)) = (fewest.trim().parse::<u32>(), most.trim().parse::<u32>()) else {
        bail!("`PET_NNODES` is `{given}`, not a number of nodes");
    };
    ensure!(
        fewest == most,
        "`PET_NNODES` is `{given}`, but a job whose nodes come and go is not supported: give it \
         as many workers at least as at most"
    );
    Ok(Sourced::new(most, source))
}

fn main_port(environ: &Environ) -> Result<Option<Sourced<u16>>> {
    first(environ, &["PET_MASTER_PORT", "MASTER_PORT"])
}

fn checked(cluster: Cluster) -> Result<Cluster> {
    if let (Some(nodes), Some(node)) = (&cluster.num_nodes, &cluster.node_rank) {
        ensure!(
            node.value.0 < nodes.value,
            "node rank {} ({}) of {} ({})",
            node.value,
            node.source,
            nodes.value,
            nodes.source
        );
    }
    Ok(cluster.settled_on_one_node())
}
