//! Devices, through the real loading of a driver library: a stand-in with any number of GPUs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Tells what a worker needs to know of its devices, in one write so that lines stay whole.
const WORKER: &str = r#"
import os, sys
names = "LOCAL_RANK", "WORLD_SIZE", "LT_DEVICES", "CUDA_VISIBLE_DEVICES"
os.write(1, (" ".join(os.environ.get(name, "unset") for name in names) + "\n").encode())
"#;

/// The directory of the stand-in driver library, compiled once.
pub(crate) fn stand_in() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvml");
        std::fs::create_dir_all(&dir).unwrap();
        // Each test may be a process of its own: none shall load what another has half written.
        let part = dir.join(format!("part-{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(&part)
            .arg("tests/nvml/libnvidia-ml.c")
            .status();
        assert!(status.expect("`cc` is installed").success());
        std::fs::rename(part, dir.join("libnvidia-ml.so.1")).unwrap();
        dir
    })
}

/// One `fabric run` on a machine whose driver is the stand-in.
struct Machine {
    dir: TempDir,
    command: Command,
}

impl Machine {
    /// A machine with so many GPUs, or with `no-driver`.
    fn with(gpus: &str) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("worker.py"), WORKER).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LD_LIBRARY_PATH", stand_in())
            .env("FAKE_NVML_DEVICES", gpus)
            .env("FAKE_NVML_MARKER", dir.path().join("loaded"))
            .current_dir(dir.path())
            .arg("run");
        Self { dir, command }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    fn run(&mut self, options: &[&str]) -> Output {
        self.command
            .args(options)
            .arg("worker.py")
            .output()
            .unwrap()
    }

    /// What the workers tell, in the order of their local ranks.
    #[track_caller]
    fn workers(mut self, options: &[&str]) -> Vec<String> {
        let output = self.run(options);
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The one line on stderr of a launch that is refused.
    #[track_caller]
    fn refusal(mut self, options: &[&str]) -> String {
        let output = self.run(options);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        stderr
    }

    /// Whether a launch makes the launcher load the driver library.
    #[track_caller]
    fn loads_driver(mut self, options: &[&str]) -> bool {
        let output = self.run(options);
        assert!(output.status.success(), "{output:?}");
        self.dir.path().join("loaded").exists()
    }
}

#[test]
fn all_gpus_get_a_worker_each() {
    for gpus in [1, 4, 8] {
        let workers =
            Machine::with(&gpus.to_string()).workers(&["--accelerator", "cuda", "--devices", "-1"]);
        let expected: Vec<_> = (0..gpus)
            .map(|rank| format!("{rank} {gpus} -1 unset"))
            .collect();
        assert_eq!(workers, expected);
    }
}

#[test]
fn a_list_of_gpus_starts_a_worker_for_each_of_them() {
    let workers = Machine::with("4").workers(&["--devices", "3,0"]);
    assert_eq!(workers, ["0 2 3,0 unset", "1 2 3,0 unset"]);
}

#[test]
fn more_devices_than_there_are_is_refused_in_one_line() {
    let refusal = Machine::with("4").refusal(&["--accelerator", "cuda", "--devices", "8"]);
    assert!(
        refusal.contains(
            "`--devices 8` asks for 8 CUDA devices, but only 4, numbers 0 to 3, are there: \
             use `--devices 4` or less"
        ),
        "{refusal}"
    );
}

#[test]
fn cuda_visible_devices_limits_the_count_and_reaches_the_workers_unchanged() {
    for (visible, count) in [("2,0", 2), ("GPU-00000003,GPU-00000001", 2), ("3,9,1", 1)] {
        let machine = Machine::with("4").env("CUDA_VISIBLE_DEVICES", visible);
        let workers = machine.workers(&["--accelerator", "cuda", "--devices", "-1"]);
        let worker = |rank| format!("{rank} {count} -1 {visible}");
        assert_eq!(workers, (0..count).map(worker).collect::<Vec<_>>());
    }
}

#[test]
fn a_hidden_device_is_refused_with_the_variable_that_hides_it() {
    let machine = Machine::with("4").env("CUDA_VISIBLE_DEVICES", "1");
    let refusal = machine.refusal(&["--accelerator", "cuda", "--devices", "2"]);
    assert!(
        refusal.contains("(`CUDA_VISIBLE_DEVICES=1` shows 1 of 4)"),
        "{refusal}"
    );
}

#[test]
fn a_gpu_partition_counts_as_one_device() {
    let machine = Machine::with("2")
        .env("FAKE_NVML_PARTITIONS", "2")
        .env("CUDA_VISIBLE_DEVICES", "MIG-00000001-0001");
    let workers = machine.workers(&["--accelerator", "cuda", "--devices", "-1"]);
    assert_eq!(workers, ["0 1 -1 MIG-00000001-0001"]);
}

#[test]
fn without_a_loaded_driver_cuda_is_refused_and_the_cpu_is_chosen() {
    let refusal = Machine::with("no-driver").refusal(&["--accelerator", "cuda"]);
    assert!(
        refusal.contains("none is there (the NVIDIA driver is not loaded)"),
        "{refusal}"
    );
    let workers = Machine::with("no-driver").workers(&["--devices", "2"]);
    assert_eq!(workers, ["0 2 2 unset", "1 2 2 unset"]);
}

#[test]
fn auto_starts_one_worker_and_tells_of_the_idle_devices() {
    let output = Machine::with("4").run(&["--devices", "auto"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"0 1 auto unset\n");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("4 devices are there: use `--devices 4`"),
        "{stderr}"
    );
}

#[test]
fn with_a_virtual_local_rank_each_worker_sees_its_own_gpu_as_number_0() {
    for (devices, visible, expected) in [
        ("2", None, ["0 2 2 0", "0 2 2 1"]),
        ("3,1", None, ["0 2 2 1", "0 2 2 3"]),
        ("2", Some("3,0,1"), ["0 2 2 0", "0 2 2 3"]),
        ("0,2", Some("3,0,1"), ["0 2 2 1", "0 2 2 3"]),
    ] {
        let mut machine = Machine::with("4");
        if let Some(visible) = visible {
            machine = machine.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let options = [
            "--accelerator",
            "cuda",
            "--virtual-local-rank",
            "--devices",
            devices,
        ];
        assert_eq!(machine.workers(&options), expected, "{devices} {visible:?}");
    }
}

#[test]
fn a_gpu_in_use_is_warned_of_if_it_is_one_of_ours() {
    let pid = std::process::id();
    let warning = |devices| {
        let users = format!("1:{pid}:3072 1:999999999:?");
        let mut machine = Machine::with("4").env("FAKE_NVML_USERS", &users);
        let output = machine.run(&[
            "--accelerator",
            "cuda",
            "--devices",
            devices,
            "--main-port",
            "0",
        ]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let told = warning("2");
    let (told, hint) = told.split_once('\n').unwrap();
    let start = format!("fabric: GPU 1 is already in use by pid {pid} (");
    assert!(told.starts_with(&start), "{told}");
    assert!(told.ends_with(", 3 GiB; pid 999999999"), "{told}");
    assert_eq!(
        hint,
        "hint: end that, or choose other GPUs with --devices or CUDA_VISIBLE_DEVICES\n"
    );
    assert_eq!(warning("0,2"), "");
}

#[test]
fn a_gpu_that_the_kernel_does_not_know_cannot_be_bound_near() {
    let output = Machine::with("4").run(&["--accelerator", "cuda", "--numa-binding", "node"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let expected = "fabric: `--numa-binding node` cannot be done: \
                    `/sys/bus/pci/devices/0000:40:00.0/numa_node` cannot be read\nhint: leave it out\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[test]
fn the_driver_is_loaded_only_where_the_answer_depends_on_it() {
    let loads = |options: &[&str]| Machine::with("4").loads_driver(options);
    assert!(loads(&["--dry-run", "--accelerator", "cuda"]));
    assert!(loads(&["--dry-run", "--devices", "2"]));
    assert!(!loads(&[
        "--dry-run",
        "--accelerator",
        "cpu",
        "--devices",
        "2"
    ]));
    assert!(!loads(&["--dry-run", "--strategy", "dp", "--devices", "2"]));
    assert!(!loads(&["--dry-run"]));
}
