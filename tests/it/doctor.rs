//! `fabric doctor` on this machine: what it says is true.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::accelerator::stand_in;
use crate::harness::{Fabric, Finished};

fn doctor() -> Fabric {
    Fabric::new().arg("doctor")
}

/// The findings about a subject.
struct Found(Vec<Value>);

fn findings(done: &Finished) -> Vec<Value> {
    let value: Value = serde_json::from_str(&done.stdout).unwrap();
    value["findings"].as_array().unwrap().clone()
}

fn about(done: &Finished, subject: &str) -> Found {
    let all = findings(done).into_iter();
    Found(all.filter(|it| it["subject"] == subject).collect())
}

impl Found {
    /// One of them has this level and all of these texts.
    #[track_caller]
    fn expect(&self, level: &str, texts: &[&str]) {
        let fits = |it: &Value| {
            let text = format!("{} {}", it["what"], it["way_out"]);
            it["level"] == level && texts.iter().all(|it| text.contains(it))
        };
        assert!(
            self.0.iter().any(fits),
            "no {level} {texts:?} in {:#?}",
            self.0
        );
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_it_says_of_this_machine_is_true() {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port = port.to_string();
    let done = doctor()
        .args(["--main-port", &port, "--json"])
        .finish()
        .expect_code(0);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let cpus = format!(" of {} (CPUs ", cpus.matches("processor\t").count());
    about(&done, "CPUs").expect("ok", &[&cpus]);
    about(&done, "main port").expect("ok", &[&format!("{port} (--main-port)")]);
    about(&done, "main port").expect("ok", &[&format!("{port} is free")]);
    about(&done, "main address").expect("ok", &["lo leads there"]);
    about(&done, "interfaces").expect("ok", &["lo (127.0.0.1"]);
    about(&done, "interpreter").expect("ok", &["on PATH", "Python 3."]);
    about(&done, "nodes").expect("ok", &["1 (default)"]);
}

#[test]
fn people_get_eighty_plain_columns() {
    let done = doctor()
        .args(["--num-nodes", "2"])
        .env("TERM", "xterm")
        .finish()
        .expect_code(1);
    assert!(
        done.stdout
            .starts_with("launch\n  ok    cluster       plain machine\n")
    );
    assert!(
        done.stdout
            .contains("\n  bad   main address  127.0.0.1 (default) is this machine")
    );
    let wide = done
        .stdout
        .lines()
        .filter(|it| it.chars().count() > 80 && !it.contains('/'));
    assert_eq!(wide.collect::<Vec<_>>(), [""; 0]);
    assert!(!done.stdout.contains('\x1b'));
}

#[test]
fn a_taken_port_is_bad_and_its_holder_is_named() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let done = doctor()
        .args(["--main-port", &port, "--json"])
        .finish()
        .expect_code(1);
    let me = format!("by pid {}", std::process::id());
    about(&done, "main port").expect(
        "bad",
        &[&format!("port {port} (--main-port) is taken"), &me],
    );
}

#[test]
fn another_node_knocks_at_the_main_port() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let node_1 = [
        "--num-nodes=2",
        "--node-rank=1",
        "--main-address=127.0.0.1",
        "--main-port",
        &port,
    ];
    let ask = || doctor().args(node_1).arg("--json").finish().expect_code(1);
    about(&ask(), "main port").expect("ok", &[&format!("port {port} of 127.0.0.1 answers")]);
    drop(listener);
    about(&ask(), "main port").expect("ok", &["can be reached; nothing listens"]);
}

#[test]
fn gpus_are_listed_with_who_is_on_them() {
    let users = format!("1:{}:2048", std::process::id());
    let ask = |options: &[&str]| {
        let with_gpus = doctor()
            .env("LD_LIBRARY_PATH", stand_in())
            .env("FAKE_NVML_DEVICES", "2")
            .env("FAKE_NVML_USERS", &users)
            .env("CUDA_VISIBLE_DEVICES", "1");
        with_gpus
            .args(options)
            .arg("--json")
            .finish()
            .expect_code(0)
    };
    let done = ask(&["--accelerator", "gpu"]);
    about(&done, "GPU driver").expect("ok", &["580.65.06, for CUDA up to 13.1"]);
    about(&done, "GPU").expect("ok", &["0: Make-believe H200, 0 bytes of 80 GiB in use"]);
    let me = format!("used by pid {} (", std::process::id());
    about(&done, "GPU").expect(
        "warn",
        &[
            "1: Make-believe H200, 2 GiB of",
            &me,
            "2 GiB",
            "CUDA_VISIBLE_DEVICES",
        ],
    );
    about(&done, "visible GPUs").expect("ok", &["sees 1 of 2", "CUDA_VISIBLE_DEVICES=1"]);
    about(&ask(&["--accelerator", "cpu"]), "GPU").expect("ok", &[&me]);
}

#[test]
fn a_launch_that_would_be_refused_is_bad_and_the_rest_is_looked_at_all_the_same() {
    let done = doctor()
        .args(["--accelerator=gpu", "--devices=2", "--json"])
        .finish()
        .expect_code(1);
    about(&done, "launch").expect("bad", &["asks for 2 GPUs", "--accelerator cpu"]);
    about(&done, "main address").expect("ok", &["lo leads there"]);
    assert!(about(&done, "workers here").0.is_empty());
    let done = doctor()
        .args(["--num-nodes=2", "--node-rank=5", "--json"])
        .finish()
        .expect_code(1);
    about(&done, "launch").expect("bad", &["node rank 5"]);
}

#[test]
fn a_name_that_means_this_machine_on_every_node_is_a_trap() {
    let fabric = env!("CARGO_BIN_EXE_fabric");
    // A mount namespace with an /etc/hosts of our own; the user namespace lets anybody have one.
    let script = format!(
        "echo '127.0.1.1 node-0.test node-0 # trap' > $TMPDIR/hosts\n\
         mount --bind $TMPDIR/hosts /etc/hosts || exit 99\n\
         exec {fabric} doctor --json --num-nodes 2 --main-address node-0"
    );
    let words = ["--map-root-user", "--mount", "sh", "-c", &script];
    let done = Fabric::through("unshare", &words).finish().expect_code(1);
    let expected = [
        "`node-0` is 127.0.1.1",
        "the line `127.0.1.1 node-0.test node-0`",
        "--main-address",
    ];
    about(&done, "main address").expect("bad", &expected);
}

#[test]
fn interfaces_that_are_not_there_are_bad() {
    let done = doctor()
        .args(["--num-nodes", "2", "--json"])
        .env("NCCL_SOCKET_IFNAME", "nosuch")
        .env("GLOO_SOCKET_IFNAME", "lo")
        .finish()
        .expect_code(1);
    about(&done, "interface").expect("bad", &["NCCL_SOCKET_IFNAME=nosuch"]);
    about(&done, "interface").expect("ok", &["lo (GLOO_SOCKET_IFNAME=lo)"]);
}

#[test]
fn an_interpreter_that_is_none_is_bad() {
    let done = doctor()
        .args(["--python", "/bin/true", "--json"])
        .finish()
        .expect_code(1);
    about(&done, "interpreter").expect(
        "bad",
        &["/bin/true (--python) does not run Python", "PYTHON_EXEC"],
    );
}

#[test]
fn another_fabric_on_path_is_told() {
    let ask = doctor().arg("--json");
    let folder = ask.scratch().to_owned();
    write_program(&folder.join("fabric"), "#!/usr/bin/python3\n");
    let path = std::env::join_paths(
        [folder.clone()]
            .into_iter()
            .chain(std::env::split_paths(&crate::harness::path())),
    );
    let done = ask.env("PATH", path.unwrap()).finish().expect_code(0);
    let at = folder.join("fabric").display().to_string();
    about(&done, "fabric").expect("warn", &[&at, "probably the Python original"]);
}

#[test]
fn variables_that_have_no_effect_are_told() {
    let ask = doctor().arg("--json").env("PET_STANDALONE", "1");
    let done = ask.env("PET_ROLE", "trainer").finish().expect_code(0);
    let expected = ["without effect here: PET_STANDALONE", "use torchrun"];
    about(&done, "variables").expect("warn", &expected);
    let none = doctor().arg("--json").finish().expect_code(0);
    assert!(about(&none, "variables").0.is_empty());
}
