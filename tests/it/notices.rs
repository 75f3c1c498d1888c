//! What a launch says of its workers while nothing has failed.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Fabric, Running, stat, wait_until, wait_until_within};

/// The lines of the launcher so far; it writes nothing but these.
fn said(run: &Running) -> String {
    std::fs::read_to_string(run.scratch().join("stderr")).unwrap()
}

fn start(fabric: Fabric) -> Running {
    let stderr = std::fs::File::create(fabric.scratch().join("stderr")).unwrap();
    fabric.stderr(stderr).start()
}

#[test]
fn a_worker_that_stands_still_is_named_with_the_way_out() {
    let run = Fabric::run()
        .args(["--devices=2", "--accelerator=cpu", "--main-port=0"])
        .worker("sleeper.py")
        .scratch_arg();
    let run = start(run);
    let pid = run.ready(2)[&1].trim().to_owned();
    let worker = Pid::from_raw(pid.parse().unwrap());
    kill(worker, Signal::SIGSTOP).unwrap();
    wait_until("it is told", || said(&run).contains("hint: "));
    let expected = format!(
        "fabric: rank 1 was stopped and stands still\nhint: `kill -CONT {pid}` lets it go on\n"
    );
    assert_eq!(said(&run), expected);
    let state = || stat(worker.as_raw()).map(|it| it.state);
    assert_eq!(state(), Some('T'));
    kill(worker, Signal::SIGCONT).unwrap();
    wait_until("it goes on", || state() == Some('S'));
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}

#[test]
fn ranks_that_go_on_without_another_are_named_after_a_minute() {
    let lines = "import os, time\nif os.environ['RANK'] != '0': time.sleep(600)\n";
    let run = Fabric::run().args(["--devices=3", "--accelerator=cpu", "--main-port=0"]);
    let run = start(run.code(lines));
    let (minute, grace) = (Duration::from_secs(60), Duration::from_secs(30));
    wait_until_within(minute + grace, "it is told", || {
        said(&run).contains("hint: ")
    });
    let id = run.pid().to_string();
    let expected = format!(
        "fabric: rank 0 ended with exit code 0 a minute ago, ranks 1, 2 still running\n\
         hint: a rank that waits for one that has ended waits for ever; `fabric stop {id}` ends the run\n"
    );
    assert_eq!(said(&run), expected);
    let stop = Fabric::new().args(["stop", &id]);
    stop.finish().expect_code(0);
    run.finish().expect_code(-15);
}
