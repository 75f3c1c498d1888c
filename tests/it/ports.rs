//! Where workers meet: the usual port, another when that is taken, and none that two launches share.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use crate::harness::{Fabric, Running};

/// Prints the port once and stays for a moment, so that launches overlap.
const TELL_PORT: &str =
    "import os, time\nprint(os.environ['MASTER_PORT'], flush=True)\ntime.sleep(0.5)\n";

fn tell_port() -> Fabric {
    let run = Fabric::run();
    let script = run.scratch().join("tell_port.py");
    std::fs::write(&script, TELL_PORT).unwrap();
    run.arg(script)
}

#[test]
fn eight_launches_at_once_have_eight_ports() {
    let runs: Vec<Running> = (0..8).map(|_| tell_port().start()).collect();
    let done = runs
        .into_iter()
        .map(|it| it.finish_within(Duration::from_secs(10)).expect_code(0));
    let ports: BTreeSet<String> = done.map(|it| it.stdout).collect();
    assert_eq!(ports.len(), 8, "{ports:?}");
}

#[test]
fn a_named_port_that_is_taken_is_refused_with_its_holder() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let me = format!("pid {}", std::process::id());
    let run = Fabric::run()
        .args(["--main-port", &port.to_string()])
        .worker("exit_with.py")
        .arg("0");
    let done = run.finish().expect_code(1).expect_said(&[
        &format!("port {port} (--main-port) is taken"),
        &me,
        "hint: ",
    ]);
    assert!(done.took < Duration::from_secs(2), "{:?}", done.took);
}

#[test]
fn the_usual_port_gives_way_and_says_so() {
    // Taken here, or by another test: both will do.
    let _taken = TcpListener::bind(("127.0.0.1", 29400));
    let done = tell_port()
        .finish()
        .expect_code(0)
        .expect_said(&["port 29400 is taken"]);
    assert_ne!(done.stdout.trim(), "29400");
    assert!(
        done.stderr
            .contains(&format!("workers meet at port {}", done.stdout.trim()))
    );
}

#[test]
fn port_0_is_a_free_one() {
    let done = tell_port()
        .args(["--main-port", "0"])
        .finish()
        .expect_code(0);
    assert_ne!(done.stdout.trim().parse::<u16>().unwrap(), 0);
    assert_eq!(done.stderr, "");
}

#[test]
fn port_0_is_refused_where_other_nodes_would_have_to_know_it() {
    let run = Fabric::run()
        .args(["--main-port", "0", "--num-nodes", "2"])
        .worker("exit_with.py")
        .arg("0");
    run.finish()
        .expect_code(1)
        .expect_said(&["the other nodes would not know"]);
}
