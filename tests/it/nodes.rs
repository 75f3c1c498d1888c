//! Several launchers on this machine, each a node of one run: they meet, train, fail and end together.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    Fabric, Finished, Running, actor, free_port, test_old_python, test_python, wait_until,
};

/// What takes a second at most, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(10);

/// One run over several nodes.
struct Run {
    num_nodes: u32,
    port: u16,
    /// Where workers of all nodes leave word.
    place: TempDir,
}

impl Run {
    fn over(num_nodes: u32) -> Self {
        Self {
            num_nodes,
            port: free_port(),
            place: TempDir::new().unwrap(),
        }
    }

    fn place(&self) -> &Path {
        self.place.path()
    }

    /// The words that every launcher of this run is given, whoever's it is.
    fn node_through(&self, program: &str, rank: u32) -> Fabric {
        let words = [("--num-nodes", self.num_nodes), ("--node-rank", rank)];
        let words = words.map(|(name, value)| format!("{name}={value}"));
        let fabric = Fabric::through(program, &["run"]).args(words);
        fabric.arg(format!("--main-port={}", self.port))
    }

    fn node(&self, rank: u32) -> Fabric {
        self.node_through(env!("CARGO_BIN_EXE_fabric"), rank)
    }

    /// A node with so many workers that do what tests/workers/actor.c is told.
    fn acting(&self, rank: u32, workers: u32, words: &[&str]) -> Fabric {
        let node = self.node(rank).arg(format!("--devices={workers}"));
        let node = node.arg("--python").arg(actor());
        node.worker("actor.c").args(words)
    }

    /// Two nodes with 2 and 1 workers that sleep.
    fn sleeping(&self) -> [Running; 2] {
        let ready = format!("ready={}", self.place().display());
        let start = |rank| self.acting(rank, 2 - rank, &[&ready]).start();
        let nodes = [start(0), start(1)];
        for rank in 0..3 {
            self.worker(rank);
        }
        nodes
    }

    /// The process of a worker that has said it is ready.
    fn worker(&self, rank: u32) -> Pid {
        let path = self.place().join(format!("{rank}.ready"));
        wait_until("the worker is ready", || path.exists());
        let text = fs::read_to_string(path).unwrap();
        Pid::from_raw(text.trim().parse().unwrap())
    }
}

fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

fn finish(nodes: [Running; 2]) -> [Finished; 2] {
    nodes.map(Running::finish)
}

/// A launcher that tells what it says while it runs.
struct Told {
    running: Running,
    said: PathBuf,
}

impl Told {
    fn start(run: Fabric) -> Self {
        let said = run.scratch().join("said");
        let running = run.stderr(std::fs::File::create(&said).unwrap()).start();
        Self { running, said }
    }

    #[track_caller]
    fn says(&self, text: &str) {
        wait_until(text, || {
            fs::read_to_string(&self.said).unwrap().contains(text)
        });
    }

    /// Interrupts it, and it ends at once.
    #[track_caller]
    fn interrupt(self) {
        let asked = Instant::now();
        self.running.signal(Signal::SIGINT);
        self.running.finish().expect_code(-2);
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
}

#[test]
fn ranks_are_sums_of_what_each_node_has() {
    let run = Run::over(2);
    let start = |rank: u32| {
        let node = run.node(rank).arg(format!("--devices={}", 2 - rank));
        node.worker("dump.py").arg(run.place()).start()
    };
    for done in finish([start(0), start(1)]) {
        assert_eq!(done.expect_code(0).stderr, "");
    }
    let names = [
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "ROLE_RANK",
    ];
    for (rank, expected) in [(0, "3 0 2 0 0"), (1, "3 1 2 0 1"), (2, "3 0 1 1 2")] {
        let text = fs::read_to_string(run.place().join(format!("{rank}.json"))).unwrap();
        let facts: Value = serde_json::from_str(&text).unwrap();
        let values = names.map(|it| facts["environ"][it].as_str().unwrap());
        assert_eq!(values.join(" "), expected, "rank {rank}");
    }
}

#[test]
fn a_rank_that_is_killed_on_either_node_ends_both_and_both_name_it() {
    for (rank, node) in [(1, 0), (2, 1)] {
        let run = Run::over(2);
        let nodes = run.sleeping();
        let killed = Instant::now();
        kill(run.worker(rank), Signal::SIGKILL).unwrap();
        let done = finish(nodes);
        assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
        let [there, elsewhere] = if node == 0 { [0, 1] } else { [1, 0] };
        let host = host();
        for (at, done) in done.into_iter().enumerate() {
            let done = done.expect_code(137);
            if at == there {
                let place = format!("node {node} on {host}, ");
                done.expect_said(&[&format!("rank {rank} failed: SIGKILL"), &place]);
            } else {
                assert_eq!(at, elsewhere);
                let cause = format!("rank {rank} on node {node} ({host}): SIGKILL");
                done.expect_said(&["stopped because another node did", &cause]);
            }
        }
    }
}

#[test]
fn success_here_and_failure_there_is_failure_everywhere() {
    for failing in [0, 1] {
        let run = Run::over(2);
        let words = format!("@{failing}");
        // The other is done long before.
        let words = ["wait=1", &words, "wait=700", "exit=7"];
        let other = format!("@{}", 1 - failing);
        let words = [&words[..], &[&other, "exit=0"]].concat();
        let nodes = [0, 1].map(|rank| run.acting(rank, 1, &words).start());
        for done in finish(nodes) {
            done.expect_code(7);
        }
    }
}

#[test]
fn an_interrupt_on_one_node_stops_all() {
    for interrupted in [0, 1] {
        let run = Run::over(2);
        let nodes = run.sleeping();
        let asked = Instant::now();
        nodes[interrupted].signal(Signal::SIGINT);
        for (at, done) in finish(nodes).into_iter().enumerate() {
            if at == interrupted {
                done.expect_code(-2);
            } else {
                let cause = format!("node {interrupted} ({}): stopped by SIGINT", host());
                done.expect_code(130).expect_said(&[&cause]);
            }
        }
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
}

#[test]
fn a_launcher_that_is_killed_ends_the_other_node() {
    for killed in [0, 1] {
        let run = Run::over(2);
        let nodes = run.sleeping();
        let since = Instant::now();
        nodes[killed].signal(Signal::SIGKILL);
        for (at, done) in finish(nodes).into_iter().enumerate() {
            if at == killed {
                done.expect_code(-9);
            } else {
                let cause = format!("node {killed} ({})", host());
                let done = done.expect_code(1);
                done.expect_said(&[&cause, "its launcher ended before its workers had finished"]);
            }
        }
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

#[test]
fn a_node_that_is_missing_is_named_on_all_that_wait() {
    let run = Run::over(3);
    let [first, last] = [0, 2].map(|rank| Told::start(run.acting(rank, 1, &[])));
    let sentence = format!("waiting for node 1 of 3 (joined: 0 {0}, 2 {0})", host());
    first.says(&sentence);
    last.says(&sentence);
    last.interrupt();
    let left = format!("node 2 ({}) has left before the start", host());
    wait_until(
        "the first has ended or tells that the last has left",
        || {
            let said = fs::read_to_string(&first.said).unwrap();
            said.contains(&left) || said.contains("stopped by SIGINT")
        },
    );
    first.running.finish().expect_code(130);
}

#[test]
fn whoever_waits_can_be_interrupted_at_once() {
    let run = Run::over(2);
    let host = Told::start(run.acting(0, 1, &[]));
    wait_until("node 0 listens", || {
        std::net::TcpStream::connect(("127.0.0.1", run.port)).is_ok()
    });
    host.interrupt();
    let guest = Told::start(run.acting(1, 1, &[]));
    guest.says(&format!(
        "cannot reach node 0 at `127.0.0.1:{}`: refused by 127.0.0.1",
        run.port
    ));
    guest.interrupt();
}

#[test]
fn who_was_started_for_another_run_is_refused_at_once_and_harms_nobody() {
    let run = Run::over(2);
    let nodes = run.sleeping();
    let host = host();
    let refused = |late: Fabric, texts: &[&str]| {
        let done = late.finish().expect_code(1).expect_said(texts);
        assert!(done.took < SOON, "{:?}", done.took);
    };
    let twice = format!("node rank 1 is taken twice, by {host} and by {host}");
    refused(run.acting(1, 1, &[]), &[&twice]);
    let bigger = Run {
        num_nodes: 3,
        port: run.port,
        place: TempDir::new().unwrap(),
    };
    let values = format!(
        "node 2 ({host}) was started with num-nodes 3, node 0 ({host}) was started with num-nodes 2"
    );
    refused(bigger.acting(2, 1, &[]), &[&values]);
    let other = run.node(1).worker("exit_with.py").arg("0");
    refused(other, &["exit_with.py`", "actor.c`", "node 1", "node 0"]);
    nodes[1].signal(Signal::SIGTERM);
    let [first, second] = finish(nodes);
    second.expect_code(-15);
    first.expect_code(143).expect_said(&[&twice, &values]);
}

#[test]
fn fifty_launchers_are_fifty_nodes() {
    let run = Run::over(50);
    let start = |rank| {
        let node = run.node(rank).args(["--no-python", "true"]);
        node.start()
    };
    let nodes: Vec<Running> = (0..50).map(start).collect();
    for node in nodes {
        assert_eq!(node.finish().expect_code(0).stderr, "");
    }
}

/// A script in which two gloo ranks add up numbers.
fn all_reduce(node: Fabric) -> Fabric {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/allreduce.py");
    node.arg(script)
}

/// One node runs another launcher, the other this program; both train with that Python.
fn mixed(ours: u32, theirs: impl FnOnce(&Run) -> Fabric, python: &Path, environ: &[(&str, &str)]) {
    let run = Run::over(2);
    let start = |node: Fabric| {
        let set = |node: Fabric, (name, value): &(&str, &str)| node.env(name, value);
        environ.iter().fold(all_reduce(node), set).start()
    };
    let theirs = start(theirs(&run));
    let ours = run.node(ours).args(["--accelerator=cpu", "--python"]);
    let ours = start(ours.arg(python));
    let ours = ours.finish().expect_code(0);
    assert_eq!(ours.stdout, "3\n");
    let told = ours.stderr.matches("runs the Python original").count();
    assert_eq!(told, 1, "{}", ours.stderr);
    assert_eq!(theirs.finish().expect_code(0).stdout, "3\n");
}

#[test]
fn mixed_with_the_original() {
    let python = test_python();
    let original = python.with_file_name("fabric");
    for ours in [0, 1] {
        let theirs = |run: &Run| {
            let node = run.node_through(original.to_str().unwrap(), 1 - ours);
            node.arg("--accelerator=cpu")
        };
        mixed(ours, theirs, &python, &[]);
    }
}

/// The same with torch's own launcher.
fn mixed_with_an_agent(python: &Path, environ: &[(&str, &str)]) {
    for ours in [0, 1] {
        let theirs = |run: &Run| {
            let words = ["-m", "torch.distributed.run", "--nnodes=2"];
            let agent = Fabric::through(python.to_str().unwrap(), &words);
            let agent = agent.args([format!("--node-rank={}", 1 - ours)]);
            let agent = agent.arg("--master-addr=127.0.0.1");
            agent.arg(format!("--master-port={}", run.port))
        };
        mixed(ours, theirs, python, environ);
    }
}

#[test]
fn mixed_with_an_agent_of_an_old_torch() {
    mixed_with_an_agent(&test_old_python(), &[]);
}

#[test]
fn mixed_with_an_agent_that_does_not_say_how_many_workers_it_has() {
    let environ = [("TORCH_ELASTIC_WORKER_IDENTICAL", "1")];
    mixed_with_an_agent(&test_python(), &environ);
}
