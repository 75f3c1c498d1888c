//! Nodes on make-believe machines with a network between them that can be cut.
//!
//! Needs root and network namespaces; `tests/engines/netns-hosts` makes the machines.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::harness::{Fabric, Finished, Running, actor, wait_until};

/// What the tests give to `--node-timeout`, in seconds.
const NODE_TIMEOUT: u64 = 4;
/// The same, with time for a busy machine.
const NOTICED: Duration = Duration::from_secs(NODE_TIMEOUT + 6);

/// Three machines, host1 to host3, at 10.77.0.1 and up.
struct Hosts {
    state: TempDir,
    /// Where workers of all nodes leave word.
    place: TempDir,
}

impl Hosts {
    fn up() -> Self {
        let [state, place] = [(); 2].map(|()| TempDir::with_prefix("fabric-hosts").unwrap());
        let hosts = Self { state, place };
        hosts.control(&["up", "3"]);
        hosts
    }

    fn script() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/engines/netns-hosts")
    }

    fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(Self::script());
        let state = self.state.path().join("state");
        command.env("NETNS_HOSTS_STATE", state).args(words);
        command.output().unwrap()
    }

    #[track_caller]
    fn control(&self, words: &[&str]) {
        let done = self.command(words);
        assert!(done.status.success(), "{words:?}: {done:?}");
    }

    /// The launcher of a node, on the machine of that number, with one worker.
    fn node(&self, rank: u32, num_nodes: u32, address: &str) -> Fabric {
        let words = ["exec", &format!("host{}", rank + 1)];
        let script = Self::script();
        let node = Fabric::through(script.to_str().unwrap(), &words);
        let node = node.env("NETNS_HOSTS_STATE", self.state.path().join("state"));
        let node = node.args([env!("CARGO_BIN_EXE_fabric"), "run", "--main-port=29400"]);
        let node = node.arg(format!("--num-nodes={num_nodes}"));
        let node = node.arg(format!("--node-rank={rank}"));
        let node = node.arg(format!("--main-address={address}"));
        node.arg(format!("--node-timeout={NODE_TIMEOUT}"))
    }

    /// A shell command on a machine.
    #[track_caller]
    fn shell(&self, host: &str, words: &str) {
        self.control(&["exec", host, "sh", "-c", words]);
    }

    fn acting(&self, node: Fabric) -> Fabric {
        let ready = format!("ready={}", self.place.path().display());
        let node = node.arg("--python").arg(actor());
        node.worker("actor.c").arg(ready)
    }

    /// Three nodes whose workers sleep.
    fn sleeping(&self) -> [Running; 3] {
        let nodes = [0, 1, 2].map(|rank| self.acting(self.node(rank, 3, "host1")).start());
        self.started();
        nodes
    }

    /// Waits for the workers of three nodes.
    fn started(&self) {
        for rank in 0..3 {
            self.worker(rank);
        }
    }

    /// Waits for a worker.
    fn worker(&self, rank: u32) -> Pid {
        let path = self.place.path().join(format!("{rank}.ready"));
        wait_until("the worker is ready", || path.exists());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Pid::from_raw(text.trim().parse().unwrap())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let done = self.command(&["down"]);
        assert!(
            done.status.success() || std::thread::panicking(),
            "{done:?}"
        );
    }
}

/// Ends all and checks that each took no longer than a lost node may.
#[track_caller]
fn finish<const N: usize>(nodes: [Running; N], since: Instant) -> [Finished; N] {
    let done = nodes.map(Running::finish);
    assert!(since.elapsed() < NOTICED, "{:?}", since.elapsed());
    done
}

#[test]
fn a_late_host_is_named_and_then_all_train() {
    let hosts = Hosts::up();
    let [first, third] = [0, 2].map(|rank| {
        let node = hosts.acting(hosts.node(rank, 3, "host1"));
        let said = node.scratch().join("said");
        (
            node.arg("exit=0")
                .stderr(std::fs::File::create(&said).unwrap())
                .start(),
            said,
        )
    });
    let sentence = "waiting for node 1 of 3 (joined: 0 host1, 2 host3)";
    for (_, said) in [&first, &third] {
        wait_until("the late host is named", || {
            std::fs::read_to_string(said).unwrap().contains(sentence)
        });
    }
    let second = hosts.acting(hosts.node(1, 3, "host1")).arg("exit=0");
    second.finish().expect_code(0);
    first.0.finish().expect_code(0);
    third.0.finish().expect_code(0);
    hosts.started();
}

#[test]
fn a_cut_ends_both_sides_of_it() {
    let hosts = Hosts::up();
    let nodes = hosts.sleeping();
    hosts.control(&["cut", "host3"]);
    let [first, second, third] = finish(nodes, Instant::now());
    let lost = "node 2 (host3): the connection to its launcher was lost";
    first.expect_code(1).expect_said(&[lost]);
    second.expect_code(1).expect_said(&[lost]);
    let lost = "node 0 (host1): the connection to its launcher was lost";
    third.expect_code(1).expect_said(&[lost]);

    // The main node itself.
    hosts.control(&["heal"]);
    let nodes = hosts.sleeping();
    hosts.control(&["cut", "host1"]);
    let [first, second, third] = finish(nodes, Instant::now());
    second.expect_code(1).expect_said(&[lost]);
    third.expect_code(1).expect_said(&[lost]);
    first
        .expect_code(1)
        .expect_said(&["the connection to its launcher was lost"]);
}

#[test]
fn a_cut_that_heals_in_time_harms_nobody() {
    let hosts = Hosts::up();
    let words = ["wait=1000", "exit=0"];
    // Long enough for the slowest machine.
    let patient = "--node-timeout=100";
    let start = |rank| hosts.acting(hosts.node(rank, 3, "host1").arg(patient));
    let nodes = [0, 1, 2].map(|rank| start(rank).args(words).start());
    let last = hosts.worker(2);
    hosts.control(&["cut", "host3"]);
    wait_until("the worker behind the cut has ended", || {
        kill(last, None).is_err()
    });
    hosts.control(&["heal"]);
    for node in nodes {
        node.finish().expect_code(0);
    }
}

#[test]
fn nodes_that_do_not_reach_each_other_do_not_miss_each_other() {
    let hosts = Hosts::up();
    let [first, second, third] = hosts.sleeping();
    hosts.control(&["split", "host2", "host3"]);
    // Word goes by way of node 0.
    second.signal(Signal::SIGTERM);
    second.finish().expect_code(-15);
    let cause = "node 1 (host2): stopped by SIGTERM";
    for done in finish([first, third], Instant::now()) {
        done.expect_code(143).expect_said(&[cause]);
    }

    hosts.control(&["heal"]);
    let nodes = hosts.sleeping();
    hosts.control(&["split", "host1", "host3"]);
    let [first, second, third] = finish(nodes, Instant::now());
    let lost = "node 2 (host3): the connection to its launcher was lost";
    first.expect_code(1).expect_said(&[lost]);
    second.expect_code(1).expect_said(&[lost]);
    let lost = "node 0 (host1): the connection to its launcher was lost";
    third.expect_code(1).expect_said(&[lost]);
}

#[test]
fn a_name_that_resolves_late_is_asked_for_again() {
    let hosts = Hosts::up();
    let node = |rank| {
        hosts
            .acting(hosts.node(rank, 2, "pod-0.train"))
            .arg("exit=0")
    };
    let guest = node(1);
    let said = guest.scratch().join("said");
    let guest = guest.stderr(std::fs::File::create(&said).unwrap()).start();
    let host = node(0).start();
    let sentence = "cannot reach node 0 at `pod-0.train:29400`: the name does not resolve";
    wait_until("the name is said not to resolve", || {
        std::fs::read_to_string(&said).unwrap().contains(sentence)
    });
    hosts.shell("host2", "echo 10.77.0.1 pod-0.train >> /etc/hosts");
    guest.finish().expect_code(0);
    host.finish().expect_code(0);
}

#[test]
fn a_name_that_means_the_machine_itself_is_found_out() {
    let hosts = Hosts::up();
    let trap = |host| {
        let mine = hosts.state.path().join(host);
        let mine = mine.display();
        let edit = format!("sed 's/^10.77.0.1 .*/127.0.1.1 host1/' /etc/hosts > {mine}");
        hosts.shell(host, &format!("{edit} && mount --bind {mine} /etc/hosts"));
    };
    let node = |rank| hosts.acting(hosts.node(rank, 2, "host1"));
    trap("host1");
    let [host, guest] = [0, 1].map(|rank| node(rank).arg("exit=0").start());
    guest.finish().expect_code(0);
    let sentence = "/etc/hosts gives this machine's name `host1` to 127.0.1.1";
    host.finish().expect_code(0).expect_said(&[sentence]);

    trap("host2");
    let lost = node(1).with(|it| {
        it.env("FABRIC_JOIN_TIMEOUT", "2");
    });
    let sentence = "refused by 127.0.1.1, which is this machine itself: /etc/hosts may give";
    lost.finish().expect_code(1).expect_said(&[sentence]);
}

#[test]
fn a_host_that_loses_its_power_ends_the_others() {
    let hosts = Hosts::up();
    let [first, second, third] = hosts.sleeping();
    let since = Instant::now();
    hosts.control(&["crash", "host2"]);
    second.finish().expect_code(-9);
    for done in finish([first, third], since) {
        done.expect_code(1)
            .expect_said(&["node 1 (host2): the connection"]);
    }
}

#[test]
fn a_network_beside_the_default_one_is_named_with_the_variables_for_it() {
    let hosts = Hosts::up();
    for (host, rank) in [("host1", 0), ("host2", 1)] {
        let ip = ["exec", host, "ip"];
        let add = [
            "link", "add", "lan0", "type", "veth", "peer", "name", "lan1",
        ];
        hosts.control(&[&ip[..], &add].concat());
        hosts.control(&[&ip[..], &["link", "set", "lan0", "up"]].concat());
        let address = format!("10.99.{rank}.1/24");
        hosts.control(&[&ip[..], &["addr", "add", &address, "dev", "lan0"]].concat());
        let route = ["route", "add", "default", "dev", "lan0"];
        hosts.control(&[&ip[..], &route].concat());
    }
    let start = |rank| {
        let node = hosts.acting(hosts.node(rank, 2, "host1"));
        node.arg("exit=0").start()
    };
    for (rank, running) in [0, 1].map(|it| (it, start(it))) {
        let address = format!("reached on `eth0` (10.77.0.{}), ", rank + 1);
        running.finish().expect_code(0).expect_said(&[
            &address,
            "the default route of this machine is on `lan0`",
            "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0",
        ]);
    }
}

#[test]
fn an_address_that_nobody_has_is_said_to_be_silent() {
    let hosts = Hosts::up();
    let node = hosts.acting(hosts.node(1, 2, "10.77.0.99"));
    let done = node.with(|it| {
        it.env("FABRIC_JOIN_TIMEOUT", "8");
    });
    let done = done.finish().expect_code(1);
    done.expect_said(&["node 0 at `10.77.0.99:29400`", "within 8 s"]);

    // The main address is another host than node 0's: nobody listens there.
    let node = hosts.acting(hosts.node(1, 2, "host3"));
    let done = node.with(|it| {
        it.env("FABRIC_JOIN_TIMEOUT", "6");
    });
    let done = done.finish().expect_code(1);
    done.expect_said(&["refused by 10.77.0.3: no launcher listens there yet"]);
}
