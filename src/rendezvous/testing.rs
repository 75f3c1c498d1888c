//! For the tests: real Python processes with torch.

use std::process::{Child, Command, Stdio};

/// A script of this project's tests, to be run by a Python that has torch.
pub(crate) fn python(script: &str, arguments: &[String]) -> Command {
    let mut command = interpreter();
    command.arg(path(script)).args(arguments);
    command
}

/// An agent of torch with one worker.
pub(crate) fn torchrun(node: u32, num_nodes: u32, port: u16, script: &str) -> Command {
    let mut command = interpreter();
    command.args(["-m", "torch.distributed.run", "--nproc-per-node=1"]);
    command.args(["--master-addr=127.0.0.1", &format!("--master-port={port}")]);
    command.args([
        format!("--nnodes={num_nodes}"),
        format!("--node-rank={node}"),
        path(script),
    ]);
    command
}

#[expect(
    clippy::disallowed_methods,
    reason = "a setting of the test, not of the launcher"
)]
fn interpreter() -> Command {
    let python = std::env::var_os("FABRIC_TEST_PYTHON")
        .expect("set FABRIC_TEST_PYTHON to a Python interpreter that has torch");
    let mut command = Command::new(python);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn path(script: &str) -> String {
    format!("{}/tests/store/{script}", env!("CARGO_MANIFEST_DIR"))
}

/// What a process wrote, once it has ended well.
#[track_caller]
pub(crate) fn ended(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A worker that takes part in one all_reduce.
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) port: u16,
}

impl Rank {
    /// Starts it, with the variables that an agent would give it.
    pub(crate) fn start(&self) -> Child {
        let mut command = python("allreduce.py", &[]);
        command
            .env("RANK", self.rank.to_string())
            .env("WORLD_SIZE", self.world.to_string());
        command
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", self.port.to_string());
        command.env("TORCHELASTIC_USE_AGENT_STORE", "True");
        command.env("TORCHELASTIC_RESTART_COUNT", "0");
        command.spawn().unwrap()
    }
}
