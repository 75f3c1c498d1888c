//! Checks of the way to the meeting place: what most often keeps a run on several nodes from starting.

use core::net::IpAddr;

use super::facts::{Facts, Interface, Network, Port};
use super::finding::Finding;
use crate::environ::Environ;
use crate::plan::Plan;

/// The facts with what these checks cannot do without.
struct Scene<'a> {
    plan: &'a Plan,
    network: &'a Network,
    environ: &'a Environ,
}

impl<'a> Scene<'a> {
    fn of(facts: &'a Facts) -> Option<Self> {
        Some(Self {
            plan: facts.plan.as_ref()?,
            network: facts.network.as_ref()?,
            environ: &facts.environ,
        })
    }

    fn several_nodes(&self) -> bool {
        self.plan.num_nodes.value > 1
    }

    fn is_main_node(&self) -> bool {
        self.plan.place.leads
    }

    /// The interface that leads to the main address.
    fn lead(&self) -> Option<&Interface> {
        self.interface(self.network.local_end?)
    }

    /// The interface that leads to everywhere else.
    fn outer(&self) -> Option<&Interface> {
        self.interface(self.network.outer_end?)
    }

    /// The interface that has this address.
    fn interface(&self, address: IpAddr) -> Option<&Interface> {
        let mut interfaces = self.network.interfaces.iter();
        interfaces.find(|it| it.addresses.contains(&address))
    }

    /// Interfaces that could lead to other nodes.
    fn outward(&self) -> Vec<&Interface> {
        let interfaces = self.network.interfaces.iter();
        let outward = interfaces.filter(|it| !it.loopback && !it.addresses.is_empty());
        outward.collect()
    }
}

/// The interfaces that are up.
pub(super) fn interfaces(facts: &Facts) -> Vec<Finding> {
    let interfaces = facts.network.iter().flat_map(|it| &it.interfaces);
    let one = |it: &Interface| {
        let addresses: Vec<String> = it.addresses.iter().map(IpAddr::to_string).collect();
        format!("{} ({})", it.name, addresses.join(", "))
    };
    let list: Vec<String> = interfaces.map(one).collect();
    match list.is_empty() {
        true => Vec::new(),
        false => vec![Finding::ok("interfaces", list.join(", "))],
    }
}

/// What the main address stands for, and whether the other nodes can mean the same by it.
pub(super) fn address(facts: &Facts) -> Vec<Finding> {
    const SUBJECT: &str = "main address";
    let Some(scene) = Scene::of(facts) else {
        return Vec::new();
    };
    let name = &scene.plan.main_address.value;
    let found = match &scene.network.addresses {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => return vec![unresolved(SUBJECT, name, "it has no address")],
        Err(why) => return vec![unresolved(SUBJECT, name, why)],
    };
    if scene.several_nodes() && found[0].is_loopback() {
        return vec![trap(&scene, found[0])];
    }
    let here = found
        .iter()
        .any(|it| it.is_loopback() || scene.interface(*it).is_some());
    let lead = scene.lead().map_or_else(
        || "no interface leads there".to_owned(),
        |it| format!("{} leads there", it.name),
    );
    let addresses: Vec<String> = found.iter().map(IpAddr::to_string).collect();
    let what = if addresses == [name.as_str()] {
        lead
    } else {
        format!("`{name}` is {}; {lead}", addresses.join(", "))
    };
    vec![match (scene.several_nodes(), scene.is_main_node(), here) {
        _ if scene.lead().is_none() => {
            let way_out = "bring up an interface of that network, or give another --main-address";
            Finding::bad(SUBJECT, what, way_out)
        }
        (true, true, false) => {
            let what = format!("{what}; but it is none of this machine's, though this is node 0");
            Finding::warn(SUBJECT, what, advice(&scene))
        }
        (true, false, true) => {
            let what = format!("{what}; but it is this machine's, though this is not node 0");
            Finding::warn(
                SUBJECT,
                what,
                "right only where nodes share a machine; else give node 0's address with --main-address",
            )
        }
        _ => Finding::ok(SUBJECT, what),
    }]
}

fn unresolved(subject: &'static str, name: &str, why: &str) -> Finding {
    let what = format!("`{name}` cannot be found: {why}");
    Finding::bad(
        subject,
        what,
        "give node 0's IP address with --main-address",
    )
}

/// On every node a loopback address is that node.
fn trap(scene: &Scene<'_>, address: IpAddr) -> Finding {
    let name = &scene.plan.main_address.value;
    let line = scene.network.hosts_line.as_ref();
    let line = line.map_or_else(String::new, |it| {
        format!(", by the line `{it}` of /etc/hosts")
    });
    let what = if address.to_string() == *name {
        format!(
            "{address} ({}) is this machine on every node",
            scene.plan.main_address.source
        )
    } else {
        format!("`{name}` is {address}{line}: this very machine")
    };
    Finding::bad("main address", what, advice(scene))
}

/// Where this is node 0, the address to give is one of its own: most likely that of the default route.
fn advice(scene: &Scene<'_>) -> String {
    let own = scene.network.outer_end;
    match own.and_then(|it| Some((it, scene.interface(it)?))) {
        Some((address, interface)) if scene.is_main_node() => format!(
            "give an address of this machine that the other nodes reach, on every node: perhaps --main-address {address} ({})",
            interface.name
        ),
        _ => "give node 0's IP address with --main-address, on every node".to_owned(),
    }
}

/// The main port: free on node 0, reachable from the others.
pub(super) fn port(facts: &Facts) -> Vec<Finding> {
    const SUBJECT: &str = "main port";
    let Some(scene) = Scene::of(facts) else {
        return Vec::new();
    };
    let (address, port) = (&scene.plan.main_address.value, scene.plan.main_port.value);
    vec![match &scene.network.port {
        Port::Free if port == 0 => Finding::ok(SUBJECT, "a free one will be taken"),
        Port::Free => Finding::ok(SUBJECT, format!("{port} is free")),
        Port::Another(holder) => {
            let by = holder
                .as_ref()
                .map_or_else(String::new, |it| format!(" by {it}"));
            Finding::ok(
                SUBJECT,
                format!("{port} is taken{by}; a free one will be used"),
            )
        }
        Port::Refused(error) => Finding::error(SUBJECT, error),
        Port::Answers => Finding::ok(SUBJECT, format!("port {port} of {address} answers")),
        Port::NobodyYet => {
            let what = format!("{address} can be reached; nothing listens at port {port} yet");
            Finding::ok(SUBJECT, what)
        }
        Port::Silent(why) => {
            let what = format!("no answer from port {port} of {address}: {why}");
            let way_out = "start node 0, and let the firewalls between the nodes pass TCP on this and on higher ports";
            Finding::warn(SUBJECT, what, way_out)
        }
        Port::Unknown => return Vec::new(),
    }]
}

/// The variable of each library that chooses an interface, and whether its value is a list of beginnings.
const CHOICES: [(&str, bool); 2] = [("NCCL_SOCKET_IFNAME", true), ("GLOO_SOCKET_IFNAME", false)];

/// Which interface NCCL and Gloo will use, which is not decided by the main address.
pub(super) fn choice_of_interface(facts: &Facts) -> Vec<Finding> {
    let Some(scene) = Scene::of(facts).filter(Scene::several_nodes) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut unset = Vec::new();
    for (name, beginnings) in CHOICES {
        match scene.environ.text(name) {
            Some(value) => found.push(chosen(&scene, name, value, beginnings)),
            None => unset.push(name),
        }
    }
    found.extend(unchosen(&scene, &unset));
    found.extend(own_name(&scene));
    found
}

fn chosen(scene: &Scene<'_>, name: &str, value: &str, beginnings: bool) -> Finding {
    let all = scene.network.interfaces.iter();
    let fit = all.filter(|it| !it.addresses.is_empty() && fits(&it.name, value, beginnings));
    let names: Vec<&str> = fit.map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        let what = format!("{name}={value} names none that is up here");
        return Finding::bad(
            "interface",
            what,
            format!("unset {name}, or name one that is up"),
        );
    }
    Finding::ok(
        "interface",
        format!("{} ({name}={value})", names.join(", ")),
    )
}

/// NCCL: names' beginnings with commas between them, after `=` whole names, after `^` those it must not use
/// (NCCL user guide, NCCL_SOCKET_IFNAME). Gloo: whole names with commas between them.
fn fits(interface: &str, value: &str, beginnings: bool) -> bool {
    let (listed, rest) = match value.strip_prefix('^') {
        Some(rest) if beginnings => (false, rest),
        _ => (true, value),
    };
    let (whole, rest) = match rest.strip_prefix('=') {
        Some(rest) if beginnings => (true, rest),
        _ => (!beginnings, rest),
    };
    let mut names = rest.split(',').filter(|it| !it.is_empty());
    listed == names.any(|it| interface == it || !whole && interface.starts_with(it))
}

/// With several to choose from, each library has rules of its own, and may choose what leads nowhere.
fn unchosen(scene: &Scene<'_>, unset: &[&str]) -> Option<Finding> {
    let outward = scene.outward();
    if outward.len() < 2 || unset.is_empty() {
        return None;
    }
    let names: Vec<&str> = outward.iter().map(|it| it.name.as_str()).collect();
    let best = scene.lead().filter(|it| !it.loopback);
    let best = best.or_else(|| scene.outer()).map_or("NAME", |it| &it.name);
    let exports: Vec<String> = unset.iter().map(|it| format!("{it}={best}")).collect();
    let what = format!(
        "NCCL and Gloo choose among {} by rules of their own",
        names.join(", ")
    );
    let way_out = format!("if a run hangs at its start: export {}", exports.join(" "));
    Some(Finding::warn("interface", what, way_out))
}

/// Gloo tells other nodes the address of this machine's own name (torch's `ProcessGroupGloo`).
fn own_name(scene: &Scene<'_>) -> Option<Finding> {
    let host = &scene.plan.machine.host;
    let address = scene.network.own_addresses.first()?;
    let set = scene.environ.text("GLOO_SOCKET_IFNAME").is_some();
    if set || !address.is_loopback() {
        return None;
    }
    let what = format!("its own name `{host}` is {address}, which Gloo would tell the other nodes");
    let way_out = "give the name its address in /etc/hosts, or export GLOO_SOCKET_IFNAME=NAME of the interface";
    Some(Finding::warn("host name", what, way_out))
}

#[cfg(test)]
mod tests {
    use super::super::facts::{OnPath, System};
    use super::super::finding::Level;
    use super::*;
    use crate::cli::Request;
    use crate::integer::Integer;
    use crate::plan::{resolve, sample};

    /// Node `rank` of two, with eth0, docker0 and loopback, whose main address `node-0` is `address`.
    fn facts(rank: &str, address: &str, change: impl FnOnce(&mut Network)) -> Facts {
        let request = Request {
            num_nodes: Integer::parse("2"),
            node_rank: Integer::parse(rank),
            main_address: Some("node-0".into()),
            ..sample::request(1)
        };
        let plan = resolve(sample::given(&request, 1, &[]));
        let interface = |name: &str, address: &str| Interface {
            name: name.to_owned(),
            addresses: vec![address.parse().unwrap()],
            loopback: name == "lo",
        };
        let mut network = Network {
            interfaces: vec![
                interface("docker0", "172.17.0.1"),
                interface("eth0", "10.0.0.5"),
                interface("lo", "127.0.0.1"),
            ],
            addresses: Ok(vec![address.parse().unwrap()]),
            hosts_line: None,
            own_addresses: vec!["10.0.0.5".parse().unwrap()],
            local_end: Some("10.0.0.5".parse().unwrap()),
            outer_end: Some("10.0.0.5".parse().unwrap()),
            port: Port::Free,
        };
        change(&mut network);
        Facts {
            refusal: None,
            plan: Some(plan.unwrap()),
            accelerator: None,
            environ: Environ::default(),
            python: None,
            gpus: Err("none".to_owned()),
            gpu_nodes: Vec::new(),
            gpu_users: Vec::new(),
            visible_gpus: (0, None),
            system: System::default(),
            network: Some(network),
            on_path: OnPath::Nothing,
        }
    }

    #[track_caller]
    fn check(found: Vec<Finding>, level: Level, says: &str) {
        let texts = found.iter().map(|it| {
            let way_out = it.way_out.as_deref().unwrap_or_default();
            (it.level, format!("{} -> {way_out}", it.what))
        });
        let texts: Vec<(Level, String)> = texts.collect();
        let fits = texts.iter().any(|it| it.0 == level && it.1.contains(says));
        assert!(fits, "no {level:?} `{says}` in {texts:?}");
    }

    fn nothing(_: &mut Network) {}

    #[test]
    fn the_main_address_is_node_0s_and_nobody_elses() {
        let at = |rank, to| address(&facts(rank, to, nothing));
        check(
            at("0", "10.0.0.5"),
            Level::Ok,
            "`node-0` is 10.0.0.5; eth0 leads there",
        );
        check(
            at("1", "10.0.0.9"),
            Level::Ok,
            "`node-0` is 10.0.0.9; eth0 leads there",
        );
        check(
            at("0", "10.0.0.9"),
            Level::Warn,
            "none of this machine's, though this is node 0",
        );
        check(
            at("1", "10.0.0.5"),
            Level::Warn,
            "this machine's, though this is not node 0",
        );
    }

    #[test]
    fn a_loopback_address_is_a_trap_with_the_way_out_of_this_node() {
        let with_line = |it: &mut Network| it.hosts_line = Some("127.0.1.1 node-0".to_owned());
        let at = |rank| address(&facts(rank, "127.0.1.1", with_line));
        check(
            at("0"),
            Level::Bad,
            "by the line `127.0.1.1 node-0` of /etc/hosts",
        );
        check(
            at("0"),
            Level::Bad,
            "perhaps --main-address 10.0.0.5 (eth0)",
        );
        check(at("1"), Level::Bad, "give node 0's IP address");
    }

    #[test]
    fn an_address_that_leads_nowhere_is_bad() {
        let unknown = |it: &mut Network| it.addresses = Err("no such name".to_owned());
        check(
            address(&facts("0", "10.0.0.9", unknown)),
            Level::Bad,
            "no such name",
        );
        let lost = |it: &mut Network| it.local_end = None;
        check(
            address(&facts("1", "10.0.0.9", lost)),
            Level::Bad,
            "no interface leads there",
        );
    }

    #[test]
    fn a_silent_port_is_a_warning_for_node_0_may_come_yet() {
        let silent = |it: &mut Network| it.port = Port::Silent("timed out".to_owned());
        check(
            port(&facts("1", "10.0.0.9", silent)),
            Level::Warn,
            "firewalls",
        );
    }

    #[test]
    fn several_interfaces_and_a_name_of_loopback_are_worth_a_warning() {
        let found = choice_of_interface(&facts("0", "10.0.0.5", nothing));
        let export = "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0";
        check(found, Level::Warn, export);
        let named = |it: &mut Network| it.own_addresses = vec!["127.0.1.1".parse().unwrap()];
        let found = choice_of_interface(&facts("0", "10.0.0.5", named));
        check(found, Level::Warn, "its own name `gpu-1` is 127.0.1.1");
        let mut alone = facts("0", "10.0.0.5", |it| drop(it.interfaces.remove(0)));
        assert_eq!(choice_of_interface(&alone), []);
        alone.environ = [("GLOO_SOCKET_IFNAME", "eth1")].into_iter().collect();
        check(
            choice_of_interface(&alone),
            Level::Bad,
            "GLOO_SOCKET_IFNAME=eth1 names none",
        );
    }

    #[test]
    fn interfaces_are_chosen_as_nccl_and_gloo_do() {
        for (value, nccl, gloo) in [
            ("eth", true, false),
            ("eth0", true, true),
            ("ib,eth", true, false),
            ("ib,eth0", true, true),
            ("=eth", false, false),
            ("=eth0", true, false),
            ("^docker,lo", true, false),
            ("^eth", false, false),
            ("^=eth", true, false),
        ] {
            assert_eq!(fits("eth0", value, true), nccl, "NCCL {value}");
            assert_eq!(fits("eth0", value, false), gloo, "Gloo {value}");
        }
    }
}
