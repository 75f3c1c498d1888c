//! What a launch says of its workers while nothing has failed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Fabric, stat, wait_until};

#[test]
fn a_worker_that_stands_still_is_named_with_the_way_out() {
    let run = Fabric::run()
        .args(["--devices=2", "--accelerator=cpu", "--main-port=0"])
        .worker("sleeper.py")
        .scratch_arg();
    let said = run.scratch().join("stderr");
    let stderr = std::fs::File::create(&said).unwrap();
    let run = run.with(|it| _ = it.stderr(stderr)).start();
    let pid = run.ready(2)[&1].trim().to_owned();
    let worker = Pid::from_raw(pid.parse().unwrap());
    kill(worker, Signal::SIGSTOP).unwrap();
    let text = || std::fs::read_to_string(&said).unwrap();
    wait_until("it is told", || text().contains("hint: "));
    let expected = format!(
        "fabric: rank 1 was stopped and stands still\nhint: `kill -CONT {pid}` lets it go on\n"
    );
    assert_eq!(text(), expected);
    let state = || stat(worker.as_raw()).map(|it| it.state);
    assert_eq!(state(), Some('T'));
    kill(worker, Signal::SIGCONT).unwrap();
    wait_until("it goes on", || state() == Some('S'));
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}
