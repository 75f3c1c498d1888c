//! Training services that start one container a node: Amazon SageMaker, Google Vertex AI.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::facts::Cluster;
use super::surroundings::Surroundings;
use super::variables::derived;
use crate::topology::NodeRank;

/// SageMaker's own starter of torchrun uses this port (`torch_distributed.py`).
const SAGEMAKER_PORT: u16 = 7777;

/// Users who test at home set empty ones.
pub(super) fn is_sagemaker(s: &Surroundings) -> bool {
    s.text("SM_CURRENT_HOST").is_some() && !sagemaker_hosts(s).is_empty()
}

/// `SM_HOSTS` is sorted as text (`algo-10` before `algo-2`); that order numbers the nodes.
pub(super) fn read_sagemaker(s: &Surroundings) -> Result<Cluster> {
    let hosts = sagemaker_hosts(s);
    let own = s
        .text("SM_CURRENT_HOST")
        .context("`SM_CURRENT_HOST` is not set")?;
    let place = hosts.iter().position(|it| it == own);
    let place = place
        .with_context(|| format!("`SM_CURRENT_HOST` is `{own}`, which `SM_HOSTS` does not name"))?;
    let mut cluster = Cluster::named("SageMaker");
    cluster.num_nodes = Some(derived(hosts.len() as u32, "SM_HOSTS"));
    cluster.node_rank = Some(derived(
        NodeRank(place as u32),
        "SM_HOSTS and SM_CURRENT_HOST",
    ));
    cluster.main_address = Some(derived(hosts[0].clone(), "SM_HOSTS"));
    cluster.main_port = Some(derived(SAGEMAKER_PORT, "SageMaker's custom"));
    Ok(cluster.settled_on_one_node())
}

fn sagemaker_hosts(s: &Surroundings) -> Vec<String> {
    let hosts = s
        .text("SM_HOSTS")
        .and_then(|it| serde_json::from_str(it).ok());
    hosts.unwrap_or_default()
}

/// Tensorflow's own TF_CONFIG is like it, but has no `environment`.
pub(super) fn is_vertex(s: &Surroundings) -> bool {
    let spec = vertex_spec(s);
    spec.is_some_and(|it| it["cluster"].is_object() && it["task"].is_object())
}

/// Nodes are those of the primary pool, then those of `workerpool1`. Pools 2 and 3 are
/// parameter servers and evaluators.
pub(super) fn read_vertex(s: &Surroundings) -> Result<Cluster> {
    let spec = vertex_spec(s).context("`CLUSTER_SPEC` is not JSON")?;
    let pool = |name: &str| -> Vec<String> {
        let hosts = spec["cluster"][name].as_array().into_iter().flatten();
        hosts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut primary = pool("workerpool0");
    if primary.is_empty() {
        primary = pool("chief");
    }
    let workers = pool("workerpool1");
    let index = spec["task"]["index"].as_u64().unwrap_or(0) as usize;
    let node_rank = match spec["task"]["type"].as_str() {
        Some("workerpool0" | "chief") => index,
        Some("workerpool1") => primary.len() + index,
        other => bail!(
            "this is `{}` of `CLUSTER_SPEC`, not a training node: only `workerpool0` and \
             `workerpool1` train; `--cluster none` starts it by itself",
            other.unwrap_or("nobody")
        ),
    };
    let main = primary
        .first()
        .context("`CLUSTER_SPEC` has no `workerpool0`")?;
    let host = main.split(':').next().unwrap_or(main);
    let mut cluster = Cluster::named("Vertex AI");
    cluster.num_nodes = Some(derived(
        (primary.len() + workers.len()) as u32,
        "CLUSTER_SPEC",
    ));
    cluster.node_rank = Some(derived(NodeRank(node_rank as u32), "CLUSTER_SPEC"));
    cluster.main_address = Some(derived(host.to_owned(), "CLUSTER_SPEC"));
    Ok(cluster.settled_on_one_node())
}

fn vertex_spec(s: &Surroundings) -> Option<Value> {
    serde_json::from_str(s.text("CLUSTER_SPEC")?).ok()
}
