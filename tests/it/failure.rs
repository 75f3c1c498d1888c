//! A worker fails: who hears of it, what is said, how it all ends.

use crate::harness::Fabric;

#[test]
fn the_exit_code_is_the_root_causes() {
    let run = Fabric::run()
        .args(["--devices", "4"])
        .worker("exit_with.py")
        .args(["7", "--rank", "1"]);
    run.finish().expect_code(7).expect_said(&[
        "rank 1 failed: exit code 7",
        "local rank 1",
        "ranks 0, 2, 3: ended by fabric (SIGTERM)",
    ]);
}

#[test]
fn a_signal_is_named_and_becomes_128_plus_its_number() {
    let run = Fabric::run()
        .args(["--devices", "2"])
        .worker("die_by.py")
        .args(["SIGSEGV", "--rank", "0"]);
    run.finish()
        .expect_code(139)
        .expect_said(&["SIGSEGV (segmentation fault)"]);
}

#[test]
fn success_is_silent() {
    let run = Fabric::run()
        // A port of its own: that the usual one is taken would be worth a line.
        .args(["--devices", "3", "--main-port", "0"])
        .worker("exit_with.py")
        .arg("0");
    let done = run.finish().expect_code(0);
    assert_eq!(done.stderr, "");
}
