//! Machines that lack something: processes, memory, descriptors, disk, directories, variables, CPUs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use tempfile::TempDir;

use crate::harness::{Fabric, actor, before_exec, workers};

/// A user that nobody else is, so that their processes can be counted. Only root can become them.
const SOMEBODY: u32 = 54_321;

/// The launcher and an actor where any user can reach them.
fn public() -> (TempDir, PathBuf, PathBuf) {
    copied(TempDir::new().unwrap())
}

/// The launcher, an actor and its script in this folder.
fn copied(folder: TempDir) -> (TempDir, PathBuf, PathBuf) {
    let copy = |from: &Path| {
        let to = folder.path().join(from.file_name().unwrap());
        fs::copy(from, &to).unwrap();
        to
    };
    let fabric = copy(Path::new(env!("CARGO_BIN_EXE_fabric")));
    let (actor, _) = (copy(actor()), copy(&workers().join("actor.c")));
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    (folder, fabric, actor)
}

/// A run of eight workers by somebody who may have so many processes and threads.
fn limited(processes: u64) -> (TempDir, Fabric) {
    assert!(
        Uid::effective().is_root(),
        "only root can become another user"
    );
    let (folder, fabric, actor) = public();
    let run = Fabric::through(fabric.to_str().unwrap(), &["run", "--devices", "8"]);
    let run = run.args(["--main-port", "0", "--python"]).arg(actor);
    let run = run
        .arg(folder.path().join("actor.c"))
        .cwd("/")
        .env_remove("TMPDIR");
    let run = run.with(|it| {
        before_exec(it, move || {
            let nobody_else = setgroups(&[])
                .and_then(|()| setgid(Gid::from_raw(SOMEBODY)))
                .and_then(|()| setrlimit(Resource::RLIMIT_NPROC, processes, processes))
                .and_then(|()| setuid(Uid::from_raw(SOMEBODY)));
            nobody_else.unwrap();
        });
    });
    (folder, run)
}

#[test]
fn a_limit_of_processes_is_named_wherever_it_is_met() {
    // The launcher's own threads, the guardian, and some of the workers need one each.
    let mut met = Vec::new();
    for processes in 1..=9 {
        let (_folder, run) = limited(processes);
        let done = run.finish();
        let limit = format!(
            "Resource temporarily unavailable (at most {processes} processes and threads for this user: `ulimit -u`"
        );
        let text = done.stderr.replace("\n              ", " ");
        assert!(text.contains(&limit), "{processes}: {}", done.stderr);
        assert_eq!(done.code(), 1);
        met.push(text.lines().next().unwrap().to_owned());
    }
    // Six for the launcher and the guardian: three workers start, and are ended.
    assert!(
        met.iter()
            .any(|it| it.contains("failed to start the guardian process")),
        "{met:?}"
    );
    assert!(
        met.iter().any(|it| it.contains("could not be started")),
        "{met:?}"
    );
}

#[test]
fn a_hundred_workers_need_no_more_than_64_descriptors() {
    let run = Fabric::run().args(["--devices", "100"]).with(|it| {
        before_exec(it, || setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap());
    });
    let run = run.actor(["@99", "exit=9"]);
    run.finish()
        .expect_code(9)
        .expect_said(&["ranks 0-98: ended by fabric (SIGTERM)"]);
}

#[test]
fn too_few_descriptors_are_named_with_their_limit() {
    for files in [4, 5, 6, 7, 8, 9, 10, 12] {
        let run = Fabric::run().args(["--devices", "2"]).with(move |it| {
            before_exec(it, move || {
                setrlimit(Resource::RLIMIT_NOFILE, files, files).unwrap()
            });
        });
        let done = run.actor(["exit=0"]).finish();
        let limit = format!("(at most {files} for a process: `ulimit -n`)");
        let named = done.code() == 1 && done.stderr.contains(&limit);
        assert!(named || done.code() == 0, "{files}: {}", done.stderr);
    }
}

#[test]
fn too_little_memory_is_an_error_and_no_crash() {
    let mut codes = Vec::new();
    for mebibytes in [16_u64, 24, 48, 96, 200] {
        let run = Fabric::run().args(["--devices", "2"]).with(move |it| {
            let bytes = mebibytes << 20;
            before_exec(it, move || {
                setrlimit(Resource::RLIMIT_AS, bytes, bytes).unwrap()
            });
        });
        let done = run.actor(["exit=0"]).finish();
        codes.push(done.code());
        if done.code() == 1 {
            let limit = format!("at most {} KiB of addresses", mebibytes << 10);
            assert!(
                done.stderr.contains(&limit),
                "{mebibytes} MiB: {}",
                done.stderr
            );
        }
    }
    // Below the size of the program the kernel ends it before its first instruction. 127 is the dynamic
    // loader's, which did not find room for the C library.
    let mut own = codes.iter().skip_while(|it| **it == -libc::SIGSEGV);
    assert!(own.all(|it| [0, 1, 127].contains(it)), "{codes:?}");
    assert_eq!(codes.last(), Some(&0));
}

/// A run in a mount namespace of its own, where `setup` has been done.
fn mounted(setup: &str) -> Fabric {
    mounted_for(env!("CARGO_BIN_EXE_fabric"), setup)
}

fn mounted_for(fabric: &str, setup: &str) -> Fabric {
    let script = format!("{setup} && exec \"$@\"");
    let words = [
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    let run = Fabric::through("unshare", &words);
    run.args([fabric, "run", "--devices", "2"])
}

#[test]
fn a_full_disk_costs_the_error_files_only() {
    let fill = "mount -t tmpfs -o size=4k,nr_inodes=2 none $TMPDIR && \
                { head -c 8192 /dev/zero >$TMPDIR/full || true; }";
    let done = mounted(fill)
        .actor(["@1", "exit=3"])
        .finish()
        .expect_code(3);
    assert!(
        done.stderr.contains("no directory for error files below"),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains("No space left on device"),
        "{}",
        done.stderr
    );
}

#[test]
fn without_any_place_for_temporary_files_it_runs() {
    let hide = "for it in /tmp /var/tmp /usr/tmp; do \
                [ ! -d $it ] || mount -t tmpfs -o ro none $it; done";
    // Where the tests lie may be hidden, too.
    let (folder, fabric, actor) = copied(TempDir::new_in("/dev/shm").unwrap());
    let run = mounted_for(fabric.to_str().unwrap(), hide)
        .env_remove("TMPDIR")
        .cwd("/");
    let run = run.args(["--main-port", "0", "--python"]).arg(actor);
    let run = run.arg(folder.path().join("actor.c")).arg("exit=0");
    run.finish().expect_code(0);
}

#[test]
fn a_working_directory_that_cannot_be_written_is_enough() {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let run = Fabric::run().args(["--devices", "2"]).cwd(folder.path());
    run.actor(["@1", "exit=3"]).finish().expect_code(3);
}

#[test]
fn a_working_directory_that_is_gone_is_enough() {
    let script = "mkdir $TMPDIR/gone && cd $TMPDIR/gone && rmdir $TMPDIR/gone && exec \"$@\"";
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through("sh", &["-c", script, "sh", fabric, "run", "--devices", "2"]);
    run.actor(["@1", "exit=3"]).finish().expect_code(3);
}

#[test]
fn it_needs_no_variable_at_all() {
    let run = Fabric::run().args(["--devices", "2"]).with(|it| {
        for name in ["HOME", "PATH", "USER", "LANG", "LC_ALL", "TMPDIR"] {
            it.env_remove(name);
        }
    });
    run.actor(["@1", "exit=3"]).finish().expect_code(3);
}

#[test]
fn one_cpu_is_enough() {
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through("taskset", &["1", fabric, "run", "--devices", "4"]);
    let done = run.actor(["@3", "exit=3"]).finish().expect_code(3);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

/// A umask that lets nobody do anything makes the private folder useless to workers, and nothing worse.
#[test]
fn a_strict_umask_is_no_trouble() {
    let run = Fabric::run().args(["--devices", "2"]).with(|it| {
        before_exec(it, || {
            nix::sys::stat::umask(Mode::from_bits_truncate(0o777));
        });
    });
    run.actor(["@1", "exit=3"]).finish().expect_code(3);
}
