//! `fabric ps` and `fabric stop`: what runs is seen and can be ended, and nothing else.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::accelerator::stand_in;
use crate::harness::{Fabric, Finished, Running, alive, stat, wait_until};

/// So many sleeping workers, which are there.
fn sleepers(workers: u32) -> Running {
    start("sleeper.py", workers)
}

fn start(worker: &str, workers: u32) -> Running {
    let count = workers.to_string();
    let run = Fabric::run()
        .args(["--accelerator", "cpu", "--devices", &count])
        .worker(worker)
        .scratch_arg()
        .start();
    run.ready(workers);
    wait_until("the launch is shown", || listed(&run).is_some());
    run
}

fn ps(change: impl FnOnce(Fabric) -> Fabric) -> Finished {
    change(Fabric::new().arg("ps")).finish().expect_code(0)
}

/// What `fabric ps --json` says of this launch.
fn listed(run: &Running) -> Option<Value> {
    seen(run, |it| it)
}

fn seen(run: &Running, change: impl FnOnce(Fabric) -> Fabric) -> Option<Value> {
    let done = ps(|it| change(it.arg("--json")));
    let launches: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    let id = run.pid().as_raw();
    launches.into_iter().find(|it| it["id"] == id)
}

fn stop(run: &Running, options: &[&str]) -> Finished {
    let id = run.pid().to_string();
    Fabric::new().args(["stop", &id]).args(options).finish()
}

#[test]
fn a_launch_is_listed_with_its_workers_while_it_runs_and_not_after() {
    let run = sleepers(2);
    let launch = listed(&run).unwrap();
    assert!(launch["script"].as_str().unwrap().ends_with("sleeper.py"));
    assert_eq!(
        (&launch["node_rank"], &launch["num_nodes"]),
        (&0.into(), &1.into())
    );
    let workers = launch["workers"].as_array().unwrap();
    for (rank, pid) in run.ready(2) {
        let worker = &workers[rank as usize];
        assert_eq!(worker["rank"], rank);
        assert_eq!(worker["pid"].to_string(), pid.trim());
        assert_eq!(worker["state"], "running");
        assert!(
            worker["memory_bytes"].as_u64().unwrap() > 1 << 20,
            "{worker}"
        );
    }
    run.signal(Signal::SIGKILL);
    let (id, done) = (run.pid(), run.finish().expect_code(-9));
    let left = ps(|it| it).stdout;
    assert!(!left.contains(&format!("{id}  ")), "{left}");
    assert_eq!(std::fs::read_dir(done.scratch.path()).unwrap().count(), 2);
}

#[test]
fn a_launch_that_waits_for_other_nodes_is_listed_and_can_be_stopped() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let run = Fabric::run()
        .args(["--num-nodes", "2", "--main-port", &port])
        .worker("exit_with.py")
        .arg("0")
        .start();
    wait_until("the launch is shown", || listed(&run).is_some());
    assert_eq!(listed(&run).unwrap()["workers"], serde_json::json!([]));
    let text = ps(|it| it).stdout;
    let expected = "exit_with.py, node 0 of 2, for ";
    assert!(
        text.contains(expected) && text.contains("waits for the other nodes"),
        "{text}"
    );
    stop(&run, &[]).expect_code(0);
    run.finish().expect_code(-15);
}

#[test]
fn people_get_a_block_per_launch_in_eighty_plain_columns() {
    let run = sleepers(2);
    let text = ps(|it| it.env("TERM", "xterm")).stdout;
    let headline = text
        .lines()
        .find(|it| it.starts_with(&run.pid().to_string()));
    assert!(
        headline.unwrap().contains("sleeper.py, ranks 0, 1, for "),
        "{text}"
    );
    assert!(
        text.contains("\n    rank      pid  state       cpu      memory\n"),
        "{text}"
    );
    assert!(text.lines().all(|it| it.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(stop(&run, &[]).code(), 0);
    run.finish().expect_code(-15);
}

#[test]
fn states_of_workers_are_told() {
    let run = sleepers(2);
    let pid = |rank| nix::unistd::Pid::from_raw(run.ready(2)[&rank].trim().parse().unwrap());
    nix::sys::signal::kill(pid(1), Signal::SIGSTOP).unwrap();
    wait_until("the worker stands still", || {
        stat(pid(1).as_raw()).is_some_and(|it| it.state == 'T')
    });
    let launch = listed(&run).unwrap();
    assert_eq!(launch["workers"][0]["state"], "running");
    assert_eq!(launch["workers"][1]["state"], "stopped");
    assert_eq!(stop(&run, &["--now"]).code(), 0);
    run.finish().expect_code(-9);
}

#[test]
fn gpus_belong_to_the_worker_whose_process_is_on_them() {
    let run = sleepers(2);
    let users = format!("1:{}:10240 0:1:512", run.ready(2)[&1].trim());
    let with_gpus = |it: Fabric| {
        it.env("LD_LIBRARY_PATH", stand_in())
            .env("FAKE_NVML_DEVICES", "2")
            .env("FAKE_NVML_USERS", users)
    };
    let launch = seen(&run, with_gpus).unwrap();
    assert_eq!(launch["workers"][0]["gpus"], serde_json::json!([]));
    let expected =
        serde_json::json!([{"gpu": 1, "memory_bytes": 10_737_418_240_u64, "busy_percent": 90}]);
    assert_eq!(launch["workers"][1]["gpus"], expected);
    assert_eq!(stop(&run, &["--now"]).code(), 0);
    run.finish().expect_code(-9);
}

#[test]
fn watching_ends_when_nobody_reads_any_more() {
    let mut watching = Command::new(env!("CARGO_BIN_EXE_fabric"))
        .args(["ps", "--watch", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 10];
    watching
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut some)
        .unwrap();
    let mut status = None;
    wait_until("watching has ended", || {
        status = watching.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

#[test]
fn stop_ends_a_launch_in_order() {
    let run = sleepers(2);
    let done = stop(&run, &[]).expect_code(0);
    assert!(
        done.stdout.ends_with("sleeper.py) has ended\n"),
        "{}",
        done.stdout
    );
    run.finish()
        .expect_code(-15)
        .expect_said(&["stopped by SIGTERM"]);
}

#[test]
fn stop_now_ends_workers_that_ignore_the_polite_signal() {
    let run = start("ignore_term.py", 1);
    let worker: i32 = run.ready(1)[&0].trim().parse().unwrap();
    stop(&run, &["--now"]).expect_code(0);
    assert!(!alive(worker));
    run.finish().expect_code(-9);
}

#[test]
fn stop_wakes_a_launch_that_stands_still() {
    let run = sleepers(1);
    run.signal(Signal::SIGSTOP);
    stop(&run, &[]).expect_code(0);
    run.finish().expect_code(-15);
}

#[test]
fn stop_touches_no_process_that_is_no_launch() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    for id in [other.id().to_string(), "1".to_owned(), "4194304".to_owned()] {
        let none =
            format!("fabric: there is no launch {id} of yours on this machine\nhint: `fabric ps`");
        let done = Fabric::new().args(["stop", &id]).finish().expect_code(1);
        assert!(done.stderr.starts_with(&none), "{}", done.stderr);
    }
    assert!(alive(other.id() as i32));
    other.kill().unwrap();
    other.wait().unwrap();
    Fabric::new()
        .args(["stop", "train"])
        .finish()
        .expect_code(2);
}

/// Needs root, which may become another user; who is not sees with its own eyes that init is not its launch, above.
#[test]
#[expect(clippy::print_stderr, reason = "what was not tested is said")]
fn another_users_launches_are_neither_seen_nor_stopped() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("NOT TESTED: to become another user takes root");
        return;
    }
    let run = sleepers(1);
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let copy = dir.path().join("fabric");
    std::fs::copy(env!("CARGO_BIN_EXE_fabric"), &copy).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(words).uid(65534).gid(65534).current_dir("/");
        command.output().unwrap()
    };
    let id = run.pid().to_string();
    assert_eq!(as_nobody(&["ps", "--json"]).stdout, b"[]\n");
    let refused = as_nobody(&["stop", &id]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no launch"));
    assert!(listed(&run).is_some());
    stop(&run, &[]).expect_code(0);
    run.finish().expect_code(-15);
}
