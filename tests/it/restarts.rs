//! `--max-restarts`: all workers of all nodes start again after one of them has failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::harness::{Fabric, Finished, Running, actor, free_port, wait_until};

/// Writes down each start; in attempt A, rank FAILING[A] exits with 7 once all have written, the others sleep.
/// After the last failure all exit with 0.
const WORKER: &str = "import os, pathlib, sys, time
place, *failing = sys.argv[1:]
rank, world = os.environ['RANK'], int(os.environ['WORLD_SIZE'])
attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
names = 'TORCHELASTIC_MAX_RESTARTS', 'TORCHELASTIC_ERROR_FILE', 'MASTER_PORT'
pathlib.Path(place, f'{attempt}.{rank}').write_text(' '.join(os.environ[it] for it in names))
if attempt >= len(failing):
    sys.exit(0)
while len(list(pathlib.Path(place).glob(f'{attempt}.*'))) < world:
    time.sleep(0.01)
if failing[attempt] == rank:
    sys.exit(7 + attempt)
time.sleep(100)
";

struct Run {
    place: TempDir,
    port: u16,
}

impl Run {
    fn new() -> Self {
        let place = TempDir::new().unwrap();
        fs::write(place.path().join("worker.py"), WORKER).unwrap();
        Self {
            place,
            port: free_port(),
        }
    }

    fn place(&self) -> &Path {
        self.place.path()
    }

    fn node(&self, options: &[&str], failing: &[&str]) -> Fabric {
        let port = format!("--main-port={}", self.port);
        let run = Fabric::run().arg(port).args(options);
        let run = run.arg(self.place().join("worker.py"));
        run.arg(self.place()).args(failing)
    }

    /// One of two nodes whose workers do what tests/workers/actor.c is told.
    fn acting(&self, rank: u32, options: &[&str], words: &[&str]) -> Fabric {
        let rank = format!("--node-rank={rank}");
        let port = format!("--main-port={}", self.port);
        let node = Fabric::run().args(["--num-nodes=2", &rank, &port]);
        let node = node.args(options).arg("--python").arg(actor());
        node.worker("actor.c").args(words)
    }

    /// Which ranks have started in which attempt, such as `0.1` for rank 1 in the first.
    fn starts(&self) -> Vec<String> {
        let files = fs::read_dir(self.place()).unwrap();
        let names = files.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut starts: Vec<_> = names.filter(|it| it != "worker.py").collect();
        starts.sort();
        starts
    }
}

#[test]
fn workers_start_again_until_they_succeed() {
    let run = Run::new();
    let options = ["--devices=2", "--max-restarts=3"];
    let done = run.node(&options, &["1", "0"]).finish().expect_code(0);
    let done = done.expect_said(&[
        "fabric: attempt 1 of 4 failed after ",
        " s: rank 1: exit code 7; all workers start again\n",
        "fabric: attempt 2 of 4 failed after ",
        " s: rank 0: exit code 8; all workers start again\n",
    ]);
    assert!(!done.stderr.contains("root cause"), "{}", done.stderr);
    assert_eq!(run.starts(), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]);
    let told = run.starts().into_iter().map(|it| {
        let text = fs::read_to_string(run.place().join(it)).unwrap();
        let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        assert_eq!((&*words[0], &*words[2]), ("3", &*run.port.to_string()));
        words[1].clone()
    });
    let files: std::collections::BTreeSet<String> = told.collect();
    assert_eq!(files.len(), 6, "each attempt has error files of its own");
}

#[test]
fn when_none_is_left_the_summary_tells_of_every_attempt() {
    let run = Run::new();
    let node = run.node(&["--devices=2"], &["1", "0", "1"]);
    let done = node.env("PET_MAX_RESTARTS", "1").finish().expect_code(8);
    let done = done.expect_said(&["rank 0 failed: exit code 8\n", "root cause  rank 0 "]);
    let (_, summary) = done.stderr.split_once("root cause").unwrap();
    assert!(summary.contains("  earlier     attempt 1 of 2 failed after "));
    assert_eq!(run.starts(), ["0.0", "0.1", "1.0", "1.1"]);
}

#[test]
fn a_start_that_fails_twice_alike_is_not_tried_again() {
    let run = Fabric::run().args(["--main-port=0", "--max-restarts=100"]);
    let done = run.worker("exit_with.py").arg("7").finish();
    let done = done.expect_code(7).expect_said(&[
        "fabric: the same failure at the start twice in a row: no further attempt is made\n",
        "attempt 1 of 101 failed",
    ]);
    assert!(!done.stderr.contains("attempt 2 of 101 failed"));
}

#[test]
fn every_node_says_that_a_start_is_given_up() {
    let run = Run::new();
    let start = |rank| {
        run.acting(rank, &["--max-restarts=9"], &["@1", "exit=7"])
            .start()
    };
    let why = "fabric: the same failure at the start twice in a row: no further attempt is made\n";
    for done in [start(0), start(1)].map(Running::finish) {
        let done = done.expect_code(7);
        assert_eq!(done.stderr.matches(why).count(), 1, "{}", done.stderr);
    }
}

/// The launchers of two nodes, with 2 and 1 workers.
fn two_nodes(run: &Run, failing: &[&str]) -> [Finished; 2] {
    let start = |rank: u32| {
        let devices = format!("--devices={}", 2 - rank);
        let rank = format!("--node-rank={rank}");
        let options = ["--num-nodes=2", "--max-restarts=2", &devices, &rank];
        run.node(&options, failing).start()
    };
    [start(0), start(1)].map(|it| it.finish_within(Duration::from_secs(5)))
}

#[test]
fn all_nodes_start_again_whoever_fails() {
    let run = Run::new();
    for done in two_nodes(&run, &["2", "0"]) {
        let done = done.expect_code(0);
        done.expect_said(&[
            "attempt 1 of 3 failed",
            "rank 2 on node 1 (",
            "rank 0 on node 0 (",
        ]);
    }
    assert_eq!(run.starts().len(), 9, "{:?}", run.starts());

    let run = Run::new();
    for done in two_nodes(&run, &["2", "2", "1"]) {
        let done = done.expect_code(9);
        done.expect_said(&[
            "attempt 2 of 3 failed",
            "  earlier     attempt 1 of 3 failed",
        ]);
    }
    assert_eq!(run.starts().len(), 9, "{:?}", run.starts());
}

#[test]
fn a_signal_is_the_end_and_no_failure() {
    let run = Fabric::run().args(["--main-port=0", "--max-restarts=5"]);
    let running = run.worker("sleeper.py").scratch_arg().start();
    running.ready(1);
    running.signal(Signal::SIGTERM);
    let done = running.finish().expect_code(-15);
    assert!(!done.stderr.contains("attempt"), "{}", done.stderr);
}

#[test]
fn a_signal_while_an_attempt_is_being_ended_is_heeded_on_every_node() {
    for asked in [0, 1] {
        let run = Run::new();
        let ready = format!("ready={}", run.place().display());
        // One on each node is deaf, so the attempt takes long enough to end for us to have our say.
        let words = [
            "@0", "deaf", &ready, "@2", "deaf", &ready, "@1", "wait=300", "exit=7",
        ];
        let said: [PathBuf; 2] = [0, 1].map(|it| run.place().join(format!("said.{it}")));
        let start = |rank: u32| {
            let devices = format!("--devices={}", 2 - rank);
            let options = ["--max-restarts=5", "--shutdown-timeout=2", &devices];
            let node = run.acting(rank, &options, &words);
            node.stderr(fs::File::create(&said[rank as usize]).unwrap())
                .start()
        };
        let nodes = [start(0), start(1)];
        for rank in [0, 2] {
            let ready = run.place().join(format!("{rank}.ready"));
            wait_until("it is deaf", || ready.exists());
        }
        wait_until("the attempt has failed", || {
            let said = fs::read_to_string(&said[asked]).unwrap();
            said.contains("all workers start again")
        });
        nodes[asked].signal(Signal::SIGINT);
        for (at, node) in nodes.into_iter().enumerate() {
            node.finish()
                .expect_code(if at == asked { -2 } else { 130 });
        }
    }
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed_between_attempts() {
    let run = Run::new();
    let options = ["--devices=2", "--max-restarts=3"];
    let mut running = run.node(&options, &["1", "9"]).start();
    wait_until("the second attempt has begun", || {
        run.place().join("1.1").exists()
    });
    running.signal(Signal::SIGKILL);
    running.wait();
    running
        .finish_within(Duration::from_secs(5))
        .expect_code(-9);
}
