//! Who may join: launchers that were started for the same run.

use super::event::Party;
use super::members::Members;

/// Why a launcher cannot join the host's meeting, with both sides' values; none where it can.
pub(crate) fn objection(host: &Party, guest: &Party, members: &Members) -> Option<String> {
    let (here, there) = (&host.host, format!("node {} ({})", guest.node, guest.host));
    let differs = |what: &str, theirs: &str, ours: &str| {
        Some(format!(
            "{there} {what} {theirs}, node 0 ({here}) {what} {ours}"
        ))
    };
    if guest.run_id != host.run_id {
        let (theirs, ours) = (format!("`{}`", guest.run_id), format!("`{}`", host.run_id));
        return differs("was started with run-id", &theirs, &ours);
    }
    if guest.num_nodes != host.num_nodes {
        let (theirs, ours) = (guest.num_nodes.to_string(), host.num_nodes.to_string());
        return differs("was started with num-nodes", &theirs, &ours);
    }
    let Some(place) = members.place(guest.node) else {
        let last = host.num_nodes - 1;
        return Some(format!(
            "{there} is out of range: node ranks go from 0 to {last}"
        ));
    };
    if guest.launcher != host.launcher {
        return differs("runs fabric", &guest.launcher, &host.launcher);
    }
    if guest.max_restarts != host.max_restarts {
        let [theirs, ours] = [guest, host].map(|it| it.max_restarts.to_string());
        return differs("was started with max-restarts", &theirs, &ours);
    }
    if guest.script != host.script {
        let (theirs, ours) = (format!("`{}`", guest.script), format!("`{}`", host.script));
        return differs("runs", &theirs, &ours);
    }
    if host.identical && guest.local_world_size != host.local_world_size {
        let [theirs, ours] = [guest, host].map(|it| it.local_world_size);
        return Some(format!(
            "{there} has local world size {theirs}, node 0 ({here}) has local world size {ours}, where `TORCH_ELASTIC_WORKER_IDENTICAL=1` says that all start as many"
        ));
    }
    if guest.token != host.token {
        return Some(format!(
            "{there} has another `FABRIC_TOKEN` than node 0 ({here})"
        ));
    }
    let (first, second) = (&place.as_ref()?.node.host, &guest.host);
    Some(format!(
        "node rank {} is taken twice, by {first} and by {second}",
        guest.node
    ))
}
