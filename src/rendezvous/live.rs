//! Tests only: clients, workers and agents of torch, live ones of two releases, at our store and at our meetings.
//!
//! They come from the Pythons that `FABRIC_TEST_PYTHON` and `FABRIC_TEST_OLD_PYTHON` name: the torch of today, and one of those
//! before it could send its process id, use queues or wait at a barrier in the server.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::poll::poll;

use super::event::Event;
use super::meeting::Meeting;
use super::server::{Running, Server};
use super::testing::{LIMITS, SOON, base, drive, host, join};

/// Which release.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Torch {
    New,
    Old,
}

impl Torch {
    const BOTH: [Self; 2] = [Self::New, Self::Old];

    #[expect(
        clippy::disallowed_methods,
        reason = "a setting of the test, not of the launcher"
    )]
    fn interpreter(self) -> Command {
        let name = match self {
            Self::New => "FABRIC_TEST_PYTHON",
            Self::Old => "FABRIC_TEST_OLD_PYTHON",
        };
        let python = std::env::var_os(name);
        let python =
            python.unwrap_or_else(|| panic!("{name} names no Python with torch: run tests/run"));
        let mut command = Command::new(python);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    /// What tests/store/api.py says about the store at a port (0: torch's own).
    fn api(self, port: u16, backend: &str) -> Vec<String> {
        let mut command = self.interpreter();
        let command = command
            .arg(path("api.py"))
            .args([&port.to_string(), backend]);
        let said = ended(command.spawn().unwrap());
        said.lines().map(ToOwned::to_owned).collect()
    }

    /// A worker that takes part in one all_reduce, with the variables that an agent would give it.
    fn rank(self, rank: u32, world: u32, port: u16) -> Child {
        let mut command = self.interpreter();
        command.arg(path("allreduce.py"));
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world.to_string());
        command
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        command.env("TORCHELASTIC_USE_AGENT_STORE", "True");
        command.env("TORCHELASTIC_RESTART_COUNT", "0");
        command.spawn().unwrap()
    }

    /// An agent of one of two nodes, with one such worker.
    fn agent(self, node: u32, port: u16) -> Child {
        let mut command = self.interpreter();
        command.args([
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc-per-node=1",
        ]);
        command.args(["--master-addr=127.0.0.1", &format!("--master-port={port}")]);
        command.args([format!("--node-rank={node}"), path("allreduce.py")]);
        command.spawn().unwrap()
    }
}

fn path(script: &str) -> String {
    format!("{}/tests/store/{script}", env!("CARGO_MANIFEST_DIR"))
}

/// What a process wrote, once it has ended well.
#[track_caller]
fn ended(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn serve() -> (u16, Running) {
    let server = Server::bind(OsStr::new("127.0.0.1"), 0).unwrap();
    let (port, mut store) = (server.local_port(), server.open(LIMITS.node).unwrap());
    store.start().unwrap();
    (port, store)
}

/// Calls of tests/store/api.py for which torch 2.4 has no function.
const NOT_YET: [&str; 12] = [
    "list_keys",
    "queue",
    "queue_pop of nothing",
    "queue_pop woken",
    "barrier",
    "barrier again",
    "barrier alone",
    "barrier in vain",
    "barrier has counted",
    "clone",
    "prefix barrier",
    "prefix queue",
];

#[test]
fn every_call_of_torch_gets_what_torchs_own_server_answers() {
    for torch in Torch::BOTH {
        let expected = torch.api(0, "libuv");
        assert!(expected.len() > 40, "{expected:?}");
        for backend in ["libuv", "plain"] {
            let (port, _store) = serve();
            let ours = torch.api(port, backend);
            assert_eq!(ours.len(), expected.len());
            for (ours, theirs) in ours.iter().zip(&expected) {
                // Clients that are not to use libuv have no queues either.
                if backend == "libuv" || !theirs.contains("queue") {
                    assert_eq!(ours, theirs);
                }
            }
        }
        let lacking = expected.iter().filter(|it| it.contains("lacks "));
        let lacking = lacking.map(|it| it.split('"').nth(1).unwrap());
        let known: &[&str] = if torch == Torch::Old { &NOT_YET } else { &[] };
        assert_eq!(lacking.collect::<Vec<_>>(), known);
    }
}

#[test]
fn gloo_ranks_meet_at_the_store_and_the_late_one_is_named() {
    for torch in Torch::BOTH {
        let (port, mut store) = serve();
        let mut ranks = vec![torch.rank(0, 3, port), torch.rank(1, 3, port)];
        let late = Some("in the process group, 2 processes wait for rank 2".into());
        let end = Instant::now() + SOON;
        while store.absent() != late {
            assert!(Instant::now() < end, "{:?}", store.clients());
            // That somebody waits is no event.
            poll(&mut [], 10_u8).unwrap();
        }
        ranks.push(torch.rank(2, 3, port));
        for rank in ranks {
            assert_eq!(ended(rank).trim(), "7");
        }
    }
}

#[test]
fn groups_of_up_to_eight_ranks_add_up() {
    for world in [2, 5, 8] {
        let (port, _store) = serve();
        let ranks = (0..world).map(|it| Torch::New.rank(it, world, port));
        let sum = (1_u32 << world) - 1;
        for rank in ranks.collect::<Vec<_>>() {
            assert_eq!(ended(rank).trim(), sum.to_string());
        }
    }
}

/// Our node trains with an agent of torch, and both know when it is over.
#[track_caller]
fn train(torch: Torch, mut ours: Meeting, node: u32, port: u16, agent: Child) {
    assert_eq!(base(&drive(&mut [&mut ours], 1)[0]), node);
    assert_eq!(ended(torch.rank(node, 2, port)).trim(), "3");
    let mut over = ours.finish(Instant::now());
    if over.is_empty() {
        over = drive(&mut [&mut ours], 1).remove(0);
    }
    assert_eq!(over, [Event::Over]);
    assert_eq!(ended(agent).trim(), "3");
}

#[test]
fn an_agent_of_torch_trains_with_our_host() {
    for torch in Torch::BOTH {
        let (port, ours) = host(2);
        let agent = torch.agent(1, port);
        train(torch, ours, 0, port, agent);
    }
}

#[test]
fn our_node_trains_with_a_host_of_torch() {
    for torch in Torch::BOTH {
        let port = Server::bind(OsStr::new("127.0.0.1"), 0)
            .unwrap()
            .local_port();
        let agent = torch.agent(0, port);
        train(torch, join(port, 1, 2), 1, port, agent);
    }
}
