//! Tests only: machines that do not exist, bound as torch's own code binds them.
//!
//! torch comes from the Python that `FABRIC_TEST_PYTHON` names; it is shown the same files (`tests/peer/numa.py`).

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::binding::{Binding, bind, homes, spread};
use super::cpus::CpuSet;
use super::tree::Tree;
use crate::environ::Environ;

const RANDOM_MACHINES: usize = 60;

/// A machine of regular shape.
#[derive(Clone, Debug)]
struct Machine {
    sockets: u32,
    nodes_per_socket: u32,
    /// Cores of a node that share their largest cache, and how many such groups it has.
    cores_per_cache: u32,
    caches_per_node: u32,
    /// CPUs of a core: the second ones are numbered after all first ones, as on common machines.
    threads: u32,
    /// The NUMA node of each device, -1 where the kernel does not say.
    homes: Vec<i32>,
    /// CPUs that the process may not use.
    forbidden: Vec<u32>,
}

impl Machine {
    fn nodes(&self) -> u32 {
        self.sockets * self.nodes_per_socket
    }

    fn cores(&self) -> u32 {
        self.nodes() * self.caches_per_node * self.cores_per_cache
    }

    fn allowed(&self) -> CpuSet {
        let all = 0..self.cores() * self.threads;
        all.filter(|it| !self.forbidden.contains(it)).collect()
    }

    fn addresses(&self) -> Vec<String> {
        let buses = 1..=self.homes.len();
        buses.map(|bus| format!("0000:{bus:02x}:00.0")).collect()
    }

    /// The CPUs of cores with the same result of `group` as this one.
    fn mates(&self, core: u32, group: impl Fn(u32) -> u32) -> String {
        let cores = (0..self.cores()).filter(|it| group(*it) == group(core));
        let cpus = cores.flat_map(|it| (0..self.threads).map(move |thread| (thread, it)));
        let cpus = cpus.map(|(thread, core)| thread * self.cores() + core);
        cpus.collect::<CpuSet>().to_string()
    }

    /// Path below /sys to text.
    fn files(&self) -> BTreeMap<String, String> {
        let cores_per_node = self.cores_per_cache * self.caches_per_node;
        let node_of = |core| core / cores_per_node;
        let mut files = BTreeMap::new();
        let mut add = |path: String, text: String| files.insert(path, text + "\n");
        add(
            "devices/system/node/possible".into(),
            format!("0-{}", self.nodes() - 1),
        );
        for node in 0..self.nodes() {
            let cpus = self.mates(node * cores_per_node, node_of);
            add(format!("devices/system/node/node{node}/cpulist"), cpus);
        }
        for cpu in 0..self.cores() * self.threads {
            let core = cpu % self.cores();
            let at = |name: &str| format!("devices/system/cpu/cpu{cpu}/{name}");
            let socket = node_of(core) / self.nodes_per_socket;
            add(at("topology/physical_package_id"), socket.to_string());
            let siblings = self.mates(core, |it| it);
            add(at("topology/thread_siblings_list"), siblings.clone());
            let largest = self.mates(core, |it| it / self.cores_per_cache);
            let caches = [
                ("Data", "1", siblings.clone()),
                ("Instruction", "4", siblings),
                ("Unified", "3", largest),
            ];
            for (index, (kind, level, shared)) in caches.into_iter().enumerate() {
                let at = |name: &str| at(&format!("cache/index{index}/{name}"));
                add(at("type"), kind.into());
                add(at("level"), level.into());
                add(at("shared_cpu_list"), shared);
            }
        }
        for (address, home) in self.addresses().iter().zip(&self.homes) {
            add(
                format!("bus/pci/devices/{address}/numa_node"),
                home.to_string(),
            );
        }
        files
    }
}

fn machines() -> impl Strategy<Value = Machine> {
    let shape = (1u32..3, 1u32..3, 1u32..4, 1u32..4, 1u32..3);
    let devices = prop::collection::vec(-1i32..4, 1..6);
    let forbidden = prop::collection::vec(0u32..96, 0..24);
    (shape, devices, forbidden).prop_map(|(shape, homes, forbidden)| {
        let (sockets, nodes_per_socket, cores_per_cache, caches_per_node, threads) = shape;
        let last = (sockets * nodes_per_socket) as i32 - 1;
        Machine {
            sockets,
            nodes_per_socket,
            cores_per_cache,
            caches_per_node,
            threads,
            homes: homes.into_iter().map(|it| it.min(last)).collect(),
            forbidden,
        }
    })
}

/// Our answer, in the form of the oracle's.
fn ours(machine: &Machine, mode: Binding, device: usize) -> Result<String, String> {
    let (files, allowed) = (machine.files(), machine.allowed());
    let tree = Tree {
        read: &|path| files.get(path).cloned(),
        allowed: &allowed,
    };
    let homes = homes(&machine.addresses(), &tree)?;
    bind(mode, device, &homes, &tree).map(|it| it.to_string())
}

/// What asks the original itself.
mod live {
    use super::*;

    #[test]
    fn random_machines_are_bound_as_torch_binds_them() {
        let mut runner = TestRunner::deterministic();
        let strategy = machines();
        let mut sample = || strategy.new_tree(&mut runner).unwrap().current();
        let machines: Vec<Machine> = (0..RANDOM_MACHINES).map(|_| sample()).collect();
        let modes = || Binding::NAMES.iter().map(|it| Binding::named(it).unwrap());
        let mut cases = Vec::new();
        for machine in &machines {
            for mode in modes() {
                cases.extend((0..machine.homes.len()).map(|device| (machine, mode, device)));
            }
        }
        let answers = ask(cases
            .iter()
            .map(|(machine, mode, device)| question(machine, *mode, *device)));
        assert_eq!(answers.len(), cases.len(), "each question gets an answer");
        let refused = answers.iter().filter(|it| **it == "error").count();
        assert!(
            refused < answers.len() / 2,
            "{refused} of {} are refused",
            answers.len()
        );
        for ((machine, mode, device), answer) in cases.into_iter().zip(answers) {
            let ours = ours(machine, mode, device);
            // A NUMA node without a CPU for us makes torch give up on the whole socket.
            if answer == "error" && mode == Binding::Socket {
                continue;
            }
            let comparable = ours.clone().unwrap_or("error".into());
            assert_eq!(
                json!(comparable),
                answer,
                "{mode:?} {device} {ours:?} {machine:?}"
            );
        }
    }

    fn question(machine: &Machine, mode: Binding, device: usize) -> Value {
        let files = machine.files().into_iter();
        let files: BTreeMap<_, _> = files
            .map(|(path, text)| (format!("/sys/{path}"), text))
            .collect();
        json!({
            "files": files,
            "allowed": machine.allowed().to_string(),
            "devices": machine.addresses(),
            "mode": mode.name(),
            "device": device,
        })
    }

    fn ask(questions: impl Iterator<Item = Value>) -> Vec<Value> {
        let environ = Environ::of_this_process();
        let python = environ.text("FABRIC_TEST_PYTHON");
        let python = python.expect("FABRIC_TEST_PYTHON names a Python that has torch");
        let mut file = tempfile::tempfile().unwrap();
        questions.for_each(|it| writeln!(file, "{it}").unwrap());
        file.rewind().unwrap();
        let output = Command::new(python)
            .arg("tests/peer/numa.py")
            .stdin(file)
            .stderr(Stdio::inherit())
            .output();
        let output = output.unwrap_or_else(|error| panic!("failed to run `{python}`: {error}"));
        let lines = str::from_utf8(&output.stdout).unwrap().lines();
        lines.map(|it| serde_json::from_str(it).unwrap()).collect()
    }
}

/// Two sockets of two nodes each, 4 cores of two CPUs in a node, two of them on a cache; a device on nodes 0, 0, 1 and 3.
fn server() -> Machine {
    Machine {
        sockets: 2,
        nodes_per_socket: 2,
        cores_per_cache: 2,
        caches_per_node: 2,
        threads: 2,
        homes: vec![0, 0, 1, 3],
        forbidden: Vec::new(),
    }
}

#[track_caller]
fn check(machine: &Machine, mode: Binding, expected: [&str; 4]) {
    let found = [0, 1, 2, 3].map(|it| ours(machine, mode, it).unwrap_or_else(|it| it));
    assert_eq!(found, expected);
}

#[test]
fn each_mode_has_its_own_idea_of_near() {
    let machine = server();
    let (low, high) = ("0-3,16-19", "12-15,28-31");
    check(&machine, Binding::Node, [low, low, "4-7,20-23", high]);
    let (left, right) = ("0-7,16-23", "8-15,24-31");
    check(&machine, Binding::Socket, [left, left, left, right]);
    let shared = ["0-1,16-17", "2-3,18-19"];
    check(
        &machine,
        Binding::Exclusive,
        [shared[0], shared[1], "4-7,20-23", high],
    );
    check(
        &machine,
        Binding::CoreComplex,
        [shared[0], shared[1], "4-5,20-21", "12-13,28-29"],
    );
}

#[test]
fn what_is_forbidden_is_left_out_and_what_is_missing_is_named() {
    let mut machine = server();
    machine.forbidden = (1..8).chain(16..24).collect();
    let none = "this process may use CPUs 0,8-15,24-31, and NUMA node 1 has none of them";
    check(&machine, Binding::Node, ["0", "0", none, "12-15,28-31"]);
    let few = "NUMA node 0 has fewer cores (1) for this process than devices (2)";
    check(
        &machine,
        Binding::Exclusive,
        [few, few, none, "12-15,28-31"],
    );
}

#[test]
fn workers_without_devices_are_spread_over_the_nodes() {
    let (machine, spread_over) = (server(), |places, machine: &Machine| {
        let (files, allowed) = (machine.files(), machine.allowed());
        let read = |path: &str| files.get(path).cloned();
        let tree = Tree {
            read: &read,
            allowed: &allowed,
        };
        spread(places, &tree)
    });
    assert_eq!(spread_over(1, &machine), Ok(vec![0]));
    assert_eq!(spread_over(2, &machine), Ok(vec![0, 2]));
    assert_eq!(spread_over(6, &machine), Ok(vec![0, 0, 1, 2, 2, 3]));
    let mut confined = server();
    confined.forbidden = (0..12).chain(16..28).collect();
    assert_eq!(spread_over(2, &confined), Ok(vec![3, 3]));
}

#[test]
fn a_kernel_that_does_not_tell_is_quoted() {
    let allowed = CpuSet::parse("0-1").unwrap();
    let tree = Tree {
        read: &|path| path.ends_with("numa_node").then(|| "x\n".to_owned()),
        allowed: &allowed,
    };
    let missing = "`/sys/devices/system/node/possible` cannot be read";
    assert_eq!(spread(2, &tree), Err(missing.to_owned()));
    let wrong = "`/sys/bus/pci/devices/0000:01:00.0/numa_node` is no number: `x`";
    assert_eq!(tree.home_of("0000:01:00.0"), Err(wrong.to_owned()));
}
