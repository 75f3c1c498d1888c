//! The examples, run as their readers would run them; the numbers must not depend on who launches.

use std::ffi::OsStr;
use std::process::Command;

use crate::harness::{free_port, test_python, variable};

#[test]
fn train_learns_the_irises_with_two_workers() {
    let output = stdout_of(fabric().args(["--devices", "2", "examples/train.py"]));

    let losses = numbers_after("loss ", &output);
    assert_eq!(losses.len(), 5, "{output}");
    assert!(losses.is_sorted_by(|one, next| one > next), "{output}");
    let last = output.lines().last().unwrap();
    assert!(last.starts_with("workers 2 "), "{output}");
    assert!(numbers_after("accuracy ", last)[0] > 0.9, "{output}");
}

#[test]
fn train_tells_the_same_story_with_one_worker_with_three_and_without_a_launcher() {
    let alone = stdout_of(python3().arg("examples/train.py"));
    for devices in ["1", "3"] {
        let launched = stdout_of(fabric().args(["--devices", devices, "examples/train.py"]));
        let expected = alone.replace("workers 1 ", &format!("workers {devices} "));
        assert_eq!(launched, expected, "with {devices} workers");
    }
}

#[test]
fn fabric_digits_trains_the_same_under_the_original() {
    let (python, script) = (test_python(), "examples/fabric_digits.py");
    let ours = stdout_of(
        fabric()
            .args(["--devices", "2", "--accelerator", "cpu"])
            .arg("--python")
            .args([python.as_os_str(), OsStr::new(script)]),
    );
    let theirs = stdout_of(
        command(python.with_file_name("fabric"))
            .args(["run", "--devices", "2", "--accelerator", "cpu"])
            .args(["--main-port", &free_port().to_string(), script]),
    );

    let result = ours.lines().last().unwrap();
    let facts = "environment=TorchElasticEnvironment strategy=DDPStrategy world_size=2 ";
    assert!(result.starts_with(facts), "{ours}");
    assert!(numbers_after("accuracy=", result)[0] > 0.95, "{ours}");
    assert_eq!(ours, theirs);
}

/// `fabric run`, ours, on a plain machine.
fn fabric() -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_fabric"));
    command.arg("run");
    command
}

fn python3() -> Command {
    command("python3")
}

/// A command in the repository's root that inherits only what every login has.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in ["PATH", "HOME", "LANG", "TMPDIR"] {
        if let Some(value) = variable(name) {
            command.env(name, value);
        }
    }
    command
}

/// What a command that must succeed writes to its standard output.
#[track_caller]
fn stdout_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The number right after each `label`.
fn numbers_after(label: &str, text: &str) -> Vec<f64> {
    let number = |rest: &str| rest.split_whitespace().next()?.parse().ok();
    text.split(label).skip(1).filter_map(number).collect()
}
