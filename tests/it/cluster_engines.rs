//! Real engines start the real launcher on make-believe hosts: Slurm, Open MPI, MPICH.
//!
//! Needs root, network namespaces and the engines; `tests/engines` brings them. An engine
//! that cannot be had fails its tests. Tests that run at the same time share an engine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Fabric, Finished};

/// Slurm's daemons take a moment to forget a step after srun has ended.
const PATIENCE: Duration = Duration::from_secs(15);

/// An engine over several hosts; the last test that uses it takes it down.
struct Engine {
    script: PathBuf,
    /// Names the engine's folder of state.
    variable: &'static str,
    state: TempDir,
}

static SLURM: Mutex<Weak<Engine>> = Mutex::new(Weak::new());
static MPI: Mutex<Weak<Engine>> = Mutex::new(Weak::new());

/// Hosts gpu-001, gpu-002 and login1, and the login host `ctl`.
fn slurm() -> Arc<Engine> {
    shared(&SLURM, "slurm-cluster", "SLURM_CLUSTER_STATE", "3")
}

/// Hosts host1 and host2.
fn mpi() -> Arc<Engine> {
    shared(&MPI, "mpi-hosts", "MPI_HOSTS_STATE", "2")
}

fn shared(
    place: &Mutex<Weak<Engine>>,
    script: &str,
    variable: &'static str,
    hosts: &str,
) -> Arc<Engine> {
    let mut place: MutexGuard<_> = place.lock().unwrap_or_else(|it| it.into_inner());
    if let Some(engine) = place.upgrade() {
        return engine;
    }
    let engine = Arc::new(Engine::up(script, variable, hosts));
    *place = Arc::downgrade(&engine);
    engine
}

impl Engine {
    fn up(script: &str, variable: &'static str, hosts: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines");
        let engine = Self {
            script: folder.join(script),
            variable,
            state: TempDir::with_prefix("fabric-engine").unwrap(),
        };
        let done = engine.control(&["up", hosts]);
        assert!(done.status.success(), "{script} up: {done:?}");
        engine
    }

    fn control(&self, words: &[&str]) -> std::process::Output {
        let mut command = Command::new(&self.script);
        command.env(self.variable, self.folder()).args(words);
        command.output().unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.state.path().join("engine")
    }

    /// The engine's own starter with these words, and after them `fabric run`.
    fn starts(&self, words: &[&str]) -> Fabric {
        Fabric::through(self.script.to_str().unwrap(), words)
            .env(self.variable, self.folder())
            .args([env!("CARGO_BIN_EXE_fabric"), "run"])
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let done = self.control(&["down"]);
        assert!(
            done.status.success() || std::thread::panicking(),
            "{done:?}"
        );
    }
}

/// What each rank found in its environment, from tests/workers/dump.py.
struct Ranks(BTreeMap<u32, BTreeMap<String, String>>);

impl Ranks {
    fn of(done: &Finished) -> Self {
        let files = fs::read_dir(done.scratch.path()).unwrap();
        let paths = files.map(|it| it.unwrap().path());
        let dumps = paths.filter(|it| it.extension().is_some_and(|it| it == "json"));
        Self(dumps.map(|it| rank_and_variables(&it)).collect())
    }

    /// The values of some variables, rank by rank, starting with rank 0.
    fn values(&self, names: &[&str]) -> Vec<String> {
        let shown = |it: &BTreeMap<String, String>| -> Vec<String> {
            names.iter().map(|name| it[*name].clone()).collect()
        };
        self.0.values().map(|it| shown(it).join(" ")).collect()
    }

    /// The one value that all ranks have.
    fn common(&self, name: &str) -> &str {
        let mut values: Vec<&str> = self.0.values().map(|it| it[name].as_str()).collect();
        values.dedup();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values[0]
    }
}

fn rank_and_variables(path: &Path) -> (u32, BTreeMap<String, String>) {
    let facts: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let environ = facts["environ"].as_object().unwrap().iter();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let rank = path.file_stem().unwrap().to_str().unwrap().parse();
    (
        rank.unwrap(),
        environ
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
    )
}

const PLACE: [&str; 5] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
];

/// Lets every rank dump itself, and says where each one is: [`PLACE`].
#[track_caller]
fn dumped(run: Fabric) -> Ranks {
    let run = run.worker("dump.py").scratch_arg();
    let done = run.start().finish_within(PATIENCE).expect_code(0);
    let ranks = Ranks::of(&done);
    ranks.common("MASTER_ADDR");
    ranks.common("MASTER_PORT");
    ranks
}

const FOUR_ON_TWO_NODES: [&str; 4] = ["0 4 0 2 0", "1 4 1 2 0", "2 4 0 2 1", "3 4 1 2 1"];

#[test]
fn slurm_one_launcher_per_node() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=1"]);
    let ranks = dumped(run.args(["--accelerator", "cpu", "--devices", "2"]));
    assert_eq!(ranks.values(&PLACE), FOUR_ON_TWO_NODES);
    assert_eq!(ranks.common("MASTER_ADDR"), "gpu-001");
    assert_eq!(ranks.common("LT_DEVICES"), "2");
    assert_eq!(ranks.common("LT_NUM_NODES"), "2");
}

#[test]
fn slurm_one_launcher_per_worker() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=2"]);
    let ranks = dumped(run);
    assert_eq!(ranks.values(&PLACE), FOUR_ON_TWO_NODES);
    assert_eq!(ranks.common("LT_DEVICES"), "2");
    assert_eq!(ranks.common("LT_NUM_NODES"), "2");
}

#[test]
fn slurm_ranks_of_a_node_need_not_follow_each_other() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "-n4", "-m", "cyclic"]);
    let expected = ["0 4 0 3 0", "1 4 0 1 1", "2 4 1 3 0", "3 4 2 3 0"];
    assert_eq!(dumped(run).values(&PLACE), expected);
}

#[test]
fn slurm_a_rank_may_lead_that_is_not_on_node_0() {
    let engine = slurm();
    let order = [
        "-N3",
        "-n3",
        "-m",
        "arbitrary",
        "-w",
        "login1,gpu-002,gpu-001",
    ];
    let words: Vec<_> = ["exec", "srun"].into_iter().chain(order).collect();
    let ranks = dumped(engine.starts(&words));
    assert_eq!(ranks.common("MASTER_ADDR"), "gpu-001");
    assert_eq!(ranks.common("WORLD_SIZE"), "3");
}

#[test]
fn slurm_tasks_that_do_not_fit_the_devices_are_refused() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=2"]);
    let run = run.args(["--accelerator", "cpu", "--devices", "3"]);
    let run = run.worker("dump.py").scratch_arg();
    let done = run.start().finish_within(PATIENCE).expect_code(1);
    let done = done.expect_said(&[
        "Slurm started 2 launchers on each node (SLURM_STEP_TASKS_PER_NODE)",
        "`--devices` asks for 3 workers",
        "srun --ntasks-per-node=1",
        "srun --ntasks-per-node=3",
    ]);
    assert!(Ranks::of(&done).0.is_empty());
}

#[test]
fn slurm_another_number_of_nodes_is_refused() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=1"]);
    let run = run
        .args(["--num-nodes", "3"])
        .worker("dump.py")
        .scratch_arg();
    let done = run.start().finish_within(PATIENCE).expect_code(1);
    done.expect_said(&["`--num-nodes` is 3, but Slurm started this on 2 nodes"]);
}

#[test]
fn slurm_a_step_smaller_than_its_job_is_a_world_of_its_own() {
    let engine = slurm();
    let words = ["exec", "salloc", "-N2", "srun", "-N1", "-n1"];
    let ranks = dumped(
        engine
            .starts(&words)
            .args(["--accelerator", "cpu", "--devices", "2"]),
    );
    assert_eq!(ranks.values(&PLACE), ["0 2 0 2 0", "1 2 1 2 0"]);
    assert_eq!(ranks.common("LT_NUM_NODES"), "1");
}

#[test]
fn slurm_an_allocation_without_srun_trains_here_and_says_so() {
    let engine = slurm();
    let run = engine.starts(&["exec", "salloc", "-N2"]);
    let run = run.args(["--accelerator", "cpu", "--devices", "2"]);
    let run = run.worker("dump.py").scratch_arg();
    let done = run.start().finish_within(PATIENCE).expect_code(0);
    let done = done.expect_said(&["only this host will train", "srun --ntasks-per-node=1"]);
    assert_eq!(Ranks::of(&done).values(&PLACE), ["0 2 0 2 0", "1 2 1 2 0"]);
}

#[test]
fn slurm_a_failing_rank_ends_all_tasks_with_its_code() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=1"]);
    let run = run.args(["--accelerator", "cpu", "--devices", "2"]);
    let run = run.worker("exit_with.py").args(["7", "--rank", "3"]);
    let done = run.start().finish_within(PATIENCE).expect_code(7);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

#[test]
fn slurm_a_failing_rank_ends_the_launchers_of_other_ranks() {
    let engine = slurm();
    let run = engine.starts(&["exec", "srun", "-N2", "--ntasks-per-node=2"]);
    let run = run.worker("exit_with.py").args(["7", "--rank", "3"]);
    let done = run.start().finish_within(PATIENCE).expect_code(7);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

#[test]
fn open_mpi_ranks_are_one_world() {
    let engine = mpi();
    // Three on two hosts: 0 and 2 on the first, 1 on the second.
    let words = [
        "openmpi", "--map-by", "node", "-np", "3", "-x", "PATH", "-x", "TMPDIR",
    ];
    let words: Vec<_> = words.into_iter().chain(["-x", "FABRIC_TEST_RUN"]).collect();
    let ranks = dumped(engine.starts(&words));
    assert_eq!(
        ranks.values(&PLACE),
        ["0 3 0 2 0", "1 3 0 1 1", "2 3 1 2 0"]
    );
    assert_eq!(ranks.common("MASTER_ADDR"), "host1");
}

#[test]
fn mpich_ranks_are_one_world() {
    let engine = mpi();
    let ranks = dumped(engine.starts(&["mpich", "-n", "3"]));
    assert_eq!(
        ranks.values(&PLACE),
        ["0 3 0 2 0", "1 3 1 2 0", "2 3 0 1 1"]
    );
    assert_eq!(ranks.common("MASTER_ADDR"), "host1");
}

#[test]
fn mpich_one_launcher_per_node() {
    let engine = mpi();
    let run = engine.starts(&["mpich", "-n", "2", "-ppn", "1"]);
    let ranks = dumped(run.args(["--accelerator", "cpu", "--devices", "2"]));
    assert_eq!(ranks.values(&PLACE), FOUR_ON_TWO_NODES);
}

#[test]
fn open_mpi_a_failing_rank_ends_all_tasks() {
    let engine = mpi();
    let words = [
        "openmpi",
        "-x",
        "PATH",
        "-x",
        "TMPDIR",
        "-x",
        "FABRIC_TEST_RUN",
    ];
    let run = engine
        .starts(&words)
        .worker("exit_with.py")
        .args(["7", "--rank", "3"]);
    let done = run.start().finish_within(PATIENCE).expect_code(7);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

/// A folder for the path, with `fabric` and programs that are these lines of shell.
fn path_with(programs: &[(&str, String)]) -> TempDir {
    let bin = TempDir::new().unwrap();
    symlink(env!("CARGO_BIN_EXE_fabric"), bin.path().join("fabric")).unwrap();
    for (name, lines) in programs {
        let file = bin.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

fn path_variable(bin: &TempDir) -> String {
    let usual = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
    format!("PATH={}:{usual}", bin.path().display())
}

/// An example that starts launchers by MPI or ssh, on the first host, as its reader would.
fn example(mpirun: &str, words: &[&str]) -> Finished {
    let engine = mpi();
    let agent = engine.folder().join("ssh").display().to_string();
    // A login at the far side has fabric in its path; where that is, is known below.
    let login = "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\n\
                 exec AGENT \"$host\" \"PATH=${0%/*}:\\$PATH; $*\"";
    let bin = path_with(&[
        ("mpirun", format!("exec /usr/bin/{mpirun} \"$@\"")),
        ("ssh", login.replace("AGENT", &agent)),
    ]);
    let settings = [
        path_variable(&bin),
        format!("OMPI_MCA_plm_rsh_agent={agent}"),
        "OMPI_MCA_plm=rsh".to_owned(),
        "OMPI_ALLOW_RUN_AS_ROOT=1".to_owned(),
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1".to_owned(),
        "HYDRA_LAUNCHER=ssh".to_owned(),
        format!("HYDRA_LAUNCHER_EXEC={agent}"),
    ];
    let run = Fabric::through(engine.script.to_str().unwrap(), &["exec", "host1", "env"]);
    let run = run.env(engine.variable, engine.folder());
    let run = run.args(settings).args(words).start();
    run.finish_within(PATIENCE).expect_code(0)
}

/// What examples/train.py says in the end with four workers.
const TRAINED: &str = "workers 4  unseen flowers 30  accuracy 0.967";

#[test]
fn the_example_for_mpirun_trains_under_open_mpi() {
    let done = example("mpirun.openmpi", &["examples/mpirun.sh", "host1,host2"]);
    assert!(done.stdout.contains(TRAINED), "{}", done.stdout);
}

#[test]
fn the_example_for_mpirun_trains_under_mpich() {
    let done = example("mpirun.mpich", &["examples/mpirun.sh", "host1,host2"]);
    assert!(done.stdout.contains(TRAINED), "{}", done.stdout);
}

#[test]
fn the_example_for_two_nodes_trains_by_ssh() {
    let words = ["examples/two_nodes.sh", "host1", "host2"];
    let done = example("mpirun.openmpi", &words);
    assert!(done.stdout.contains(TRAINED), "{}", done.stdout);
}

#[test]
fn the_example_for_slurm_trains_on_two_nodes() {
    let engine = slurm();
    let bin = path_with(&[]);
    let words = ["exec", "env"];
    let run = Fabric::through(engine.script.to_str().unwrap(), &words);
    let run = run.env(engine.variable, engine.folder());
    let log = run.scratch().join("log");
    let run = run.arg(path_variable(&bin)).args(["sbatch", "--wait"]);
    let run = run.arg("--output").arg(&log).arg("examples/slurm.sbatch");
    let _done = run.start().finish_within(PATIENCE).expect_code(0);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(TRAINED), "{log}");
}
