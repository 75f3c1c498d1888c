//! What `--dry-run` promises is what a run does, and what counts as a script.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Fabric, Finished, python};

/// Options, script and arguments that need care in a shell.
fn with_care(run: Fabric) -> Fabric {
    let run = run
        .env("LT_PRECISION", "it's 16")
        .env("OMP_NUM_THREADS", "3")
        .env("RANK", "9");
    let run = run
        .env("LC_ALL", "C.UTF-8")
        .args(["--devices", "2", "--accelerator", "cpu"]);
    let run = run.worker("dump.py").scratch_arg();
    run.args([
        "a b",
        "$HOME",
        "it's",
        "",
        "two\nlines",
        "*",
        "\u{e9}",
        "--mo",
        "0.9",
    ])
}

/// A script for bash that does by hand what the dry run says of one worker.
fn by_hand(told: &str, rank: usize) -> String {
    let (facts, variables) = told
        .split_once("\nvariables of every worker, besides your own\n")
        .unwrap();
    let (shared, own) = variables
        .split_once("\nvariables of each worker\n")
        .unwrap();
    let command = facts
        .lines()
        .find_map(|it| it.strip_prefix("command "))
        .unwrap();
    let own = own.lines().nth(rank).unwrap();
    shared
        .lines()
        .chain([own])
        .map(|it| format!("export {it}\n"))
        .collect::<String>()
        + "exec "
        + command
}

fn seen(folder: &Path, rank: usize) -> Value {
    let text = fs::read_to_string(folder.join(format!("{rank}.json"))).unwrap();
    serde_json::from_str(&text.replace(folder.to_str().unwrap(), "/scratch")).unwrap()
}

#[test]
fn the_dry_run_done_by_hand_is_the_run() {
    let port = crate::harness::free_port().to_string();
    let run = |words: &[&str]| with_care(Fabric::run().args(["--main-port", &port]).args(words));
    let told = run(&["--dry-run"]).finish().expect_code(0);
    let real = run(&[]).finish().expect_code(0);
    for rank in [0, 1] {
        let script = by_hand(&told.stdout, rank);
        let hand = Fabric::through("bash", &["-c", &script]).env("LC_ALL", "C.UTF-8");
        hand.finish().expect_code(0);
        let (mut hand, mut real) = (
            seen(told.scratch.path(), rank),
            seen(real.scratch.path(), rank),
        );
        assert_eq!(hand["argv"], real["argv"]);
        for it in [&mut hand, &mut real] {
            let variables = it["environ"].as_object_mut().unwrap();
            // The harness's and the shell's own, and the folder that a dry run does not make.
            for name in [
                "FABRIC_TEST_RUN",
                "TMPDIR",
                "PWD",
                "SHLVL",
                "_",
                "OLDPWD",
                "TORCHELASTIC_ERROR_FILE",
            ] {
                variables.remove(name);
            }
        }
        assert_eq!(hand["environ"], real["environ"]);
    }
}

#[test]
fn a_dry_run_touches_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let run = Fabric::run().args(["--dry-run", "--main-port", &port, "--devices", "3"]);
    let done = run.worker("dump.py").scratch_arg().finish().expect_code(0);
    assert_eq!(done.stderr, "");
    assert!(
        done.stdout.contains("workers here  3 (--devices)\n"),
        "{}",
        done.stdout
    );
    assert_eq!(fs::read_dir(done.scratch.path()).unwrap().count(), 0);
}

fn run_script(name: &str, content: &[u8]) -> Finished {
    let run = Fabric::run();
    let script = run.scratch().join(name);
    fs::write(&script, content).unwrap();
    run.arg(&script).finish()
}

#[test]
fn a_script_is_whatever_python_takes() {
    let done = run_script("no suffix", b"print(__name__)").expect_code(0);
    assert_eq!(done.stdout, "__main__\n");
    run_script("notes.txt", b"import sys; sys.exit(4)").expect_code(4);
    let done = run_script("script.sh", b"#!/bin/sh\nexit 0\n").expect_code(1);
    assert!(done.stderr.contains("SyntaxError"), "{}", done.stderr);
}

#[test]
fn a_folder_or_an_archive_is_a_script_if_it_has_a_main_module() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("package");
    fs::create_dir(&package).unwrap();
    let without = Fabric::run().arg(&package).finish().expect_code(1);
    assert!(
        without.stderr.contains("can't find '__main__' module"),
        "{}",
        without.stderr
    );
    fs::write(package.join("__main__.py"), "print('main')").unwrap();
    let archive = folder.path().join("archive");
    let pack = [
        "-m",
        "zipapp",
        package.to_str().unwrap(),
        "-o",
        archive.to_str().unwrap(),
    ];
    Fabric::through(python().to_str().unwrap(), &pack)
        .finish()
        .expect_code(0);
    for script in [&package, &archive] {
        let done = Fabric::run().arg(script).finish().expect_code(0);
        assert_eq!(done.stdout, "main\n");
    }
}

#[test]
fn what_is_refused_is_refused_before_anything_starts() {
    let refused = |options: &[&str], said: &str| {
        let run = Fabric::run().args(options).worker("dump.py").scratch_arg();
        let done = run.finish().expect_code(1);
        assert_eq!(done.stderr, format!("fabric: {said}\n"), "{options:?}");
        assert_eq!(
            fs::read_dir(done.scratch.path()).unwrap().count(),
            0,
            "{options:?}"
        );
    };
    refused(
        &["--num-nodes", "0"],
        "`--num-nodes 0` is no number of nodes: give 1 or more",
    );
    refused(
        &["--num-nodes", "-1"],
        "`--num-nodes -1` is no number of nodes: give 1 or more",
    );
    refused(
        &["--node-rank", "-1"],
        "`--node-rank -1` is no rank: they count from 0",
    );
    refused(
        &["--node-rank", "1"],
        "node rank 1 (--node-rank) does not fit 1 node (default): ranks go from 0 to 0",
    );
    refused(
        &["--main-port", "70000"],
        "`--main-port 70000` is no port: they go from 0 to 65535",
    );
    refused(
        &["--main-port", "-1"],
        "`--main-port -1` is no port: they go from 0 to 65535",
    );
    refused(
        &["--main-address", ""],
        "`--main-address ` is no host name or IP address",
    );
    refused(
        &["--main-address", "a b"],
        "`--main-address a b` is no host name or IP address",
    );
    refused(
        &["--main-address", "[::1"],
        "`--main-address [::1` is no host name or IP address",
    );
}
