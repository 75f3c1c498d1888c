//! What a failure probably means: the kernel's traces of it, through a stand-in for its cgroup files.

use std::path::Path;

use nix::sys::resource::{Resource, setrlimit};

use crate::harness::{Fabric, before_exec};

/// A cgroup of one version, as it is mounted in a container: its files' names and contents.
struct Group {
    /// Below /sys/fs/cgroup.
    folder: &'static str,
    events: (&'static str, &'static str),
    limit: (&'static str, &'static str),
    /// What the kernel writes into the file of events when it kills for memory.
    struck: &'static str,
}

const VERSION_2: Group = Group {
    folder: ".",
    events: ("memory.events", "low 0\\noom 1\\noom_kill 3\\n"),
    limit: ("memory.max", "4294967296"),
    struck: "low 0\\noom 2\\noom_kill 4\\n",
};

const VERSION_1: Group = Group {
    folder: "memory",
    events: (
        "memory.oom_control",
        "oom_kill_disable 0\\nunder_oom 0\\noom_kill 0\\n",
    ),
    limit: ("memory.limit_in_bytes", "1610612736"),
    struck: "oom_kill_disable 0\\nunder_oom 0\\noom_kill 1\\n",
};

impl Group {
    /// Two workers in it: the second does `deed`, after the kernel's trace was left if there is to be one.
    fn run(&self, traced: bool, deed: &str) -> Fabric {
        let root = "/sys/fs/cgroup";
        let (events, before) = self.events;
        let (limit, value) = self.limit;
        let folder = self.folder;
        // What is mounted there belongs to the machine; this is seen in here only.
        let setup = format!(
            "mount -t tmpfs none {root} && mkdir -p {root}/{folder} && cd {root}/{folder} && \
             printf '{before}' >{events} && echo {value} >{limit} && cd / && exec \"$@\""
        );
        let words = [
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &setup,
            "sh",
        ];
        let run = Fabric::through("unshare", &words);
        let script = run.scratch().join("worker.sh");
        // Nobody runs out of memory in the millisecond in which the launcher looks at the counter for the first time.
        let trace = format!(
            "sleep 0.2; printf '{}' >{root}/{folder}/{events}; ",
            self.struck
        );
        let trace = if traced { trace.as_str() } else { "" };
        write(
            &script,
            &format!("[ $RANK = 0 ] && exec sleep 95; {trace}{deed}\n"),
        );
        let fabric = env!("CARGO_BIN_EXE_fabric");
        let run = run.args([fabric, "run", "--devices", "2", "--main-port", "0"]);
        // `sh -u SCRIPT`: as far as we can tell, a Python.
        run.args(["--python", "/bin/sh"]).arg(script)
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[track_caller]
fn check(group: &Group, traced: bool, deed: &str, code: i32, said: &str) {
    let done = group.run(traced, deed).finish().expect_code(code);
    // The report breaks its lines where it must.
    let text = done.stderr.replace("\n              ", " ");
    assert!(text.contains(said), "no `{said}` in: {}", done.stderr);
}

#[test]
fn the_out_of_memory_killer_is_named_with_the_limit_it_kept() {
    let kill = "kill -KILL $$";
    let said = "killed by the kernel's out-of-memory killer (cgroup limit 4 GiB)";
    check(&VERSION_2, true, kill, 137, said);
    let said = "killed by the kernel's out-of-memory killer (cgroup limit 1.5 GiB)";
    check(&VERSION_1, true, kill, 137, said);
}

#[test]
fn without_a_trace_it_was_somebody_else() {
    let said = "somebody sent SIGKILL; it was not fabric, and the kernel's out-of-memory killer left no trace";
    check(&VERSION_2, false, "kill -KILL $$", 137, said);
    check(&VERSION_1, false, "kill -KILL $$", 137, said);
}

#[test]
fn a_worker_whose_child_was_killed_for_memory_gets_a_hint() {
    let said = "the kernel's out-of-memory killer struck meanwhile (cgroup limit 4 GiB)";
    check(&VERSION_2, true, "exit 3", 3, said);
}

#[test]
fn codes_of_shells_are_translated() {
    let no_program = "a shell's code for a program that was not found";
    check(&VERSION_2, false, "no-such-program", 127, no_program);
    let no_permission = "a shell's code for a program that cannot be executed";
    check(&VERSION_2, false, "exec /etc/passwd", 126, no_permission);
    let died = "a shell's code for a program that died of SIGSEGV";
    check(&VERSION_2, false, "exit 139", 139, died);
}

/// A worker that crashes, with so many bytes for core dumps.
fn crashing(cores: u64) -> Fabric {
    let run = Fabric::run().args(["--devices", "2"]).with(|it| {
        before_exec(it, move || {
            setrlimit(Resource::RLIMIT_CORE, cores, cores).unwrap()
        });
    });
    // Where cores are files, it would be one in the folder that is removed.
    let scratch = run.scratch().to_owned();
    run.cwd(scratch).actor(["@1", "wait=20", "kill=11"])
}

#[test]
fn a_crash_tells_whether_there_is_a_core_and_why_not() {
    let done = crashing(0).finish().expect_code(139);
    let text = done.stderr.replace("\n              ", " ");
    assert!(
        text.contains("SIGSEGV (segmentation fault) after"),
        "{text}"
    );
    let meaning = "a crash in native code, such as an extension or a driver (no core was dumped: `ulimit -c` is 0)";
    assert!(text.contains(meaning), "{text}");
    let done = crashing(64 << 20).finish().expect_code(139);
    // The kernel may still have no place to put it; what it says is what is told.
    assert!(
        !done.stderr.contains("no core was dumped"),
        "{}",
        done.stderr
    );
    let cores = std::fs::read_dir(done.scratch.path()).unwrap().flatten();
    let names = cores.map(|it| it.file_name().to_string_lossy().into_owned());
    if names.into_iter().any(|it| it.starts_with("core")) {
        assert!(
            done.stderr
                .contains("SIGSEGV (segmentation fault), core dumped"),
            "{}",
            done.stderr
        );
    }
}
