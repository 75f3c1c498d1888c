//! Ends that must not hang: what cannot be killed, pipes that nobody reads, streams that are closed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};

use crate::harness::{Fabric, Running, actor, alive, before_exec, stat, wait_until};

/// A debugger outside the run that has stopped this process and then does nothing more.
fn debugger_of(pid: Pid) -> Child {
    let trace = format!("trace={pid}");
    let mut debugger = Command::new(actor());
    let debugger = debugger.args(["-u", "", &trace]).spawn().unwrap();
    wait_until("the worker is stopped by the debugger", || {
        stat(pid.as_raw()).is_some_and(|it| it.state == 't')
    });
    debugger
}

fn end(mut debugger: Child) {
    debugger.kill().unwrap();
    debugger.wait().unwrap();
}

/// Two workers, ready.
fn two(options: &[&str], words: &[&str]) -> Running {
    let run = Fabric::run().args(["--devices", "2"]).args(options);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.actor(words).arg(ready).start();
    run.ready(2);
    run
}

/// The kernel gives the dead to their debugger first, and this one does not take them.
#[test]
fn a_worker_that_a_debugger_holds_is_named_and_left() {
    let mut run = two(&["--shutdown-timeout", "0.2"], &[]);
    let worker = run.worker(1);
    let debugger = debugger_of(worker);
    let before = Instant::now();
    run.signal(Signal::SIGTERM);
    run.wait();
    // 0.2 s of grace and 5 s until a process that was killed is given up.
    let took = before.elapsed();
    assert!((5.0..10.0).contains(&took.as_secs_f64()), "{took:?}");
    end(debugger);
    let held = format!("pid {worker} survived SIGKILL (dead, but a debugger holds it)");
    run.finish()
        .expect_code(-15)
        .expect_said(&[&held, "rank 0: ended by fabric"]);
}

#[test]
fn a_guardian_that_a_debugger_holds_is_not_waited_for() {
    let mut run = two(&[], &[]);
    let debugger = debugger_of(run.guardian());
    let before = Instant::now();
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait().code(), Some(137));
    let took = before.elapsed();
    // Several bounded waits one after the other; the debugger would have held it for ever.
    assert!((10.0..30.0).contains(&took.as_secs_f64()), "{took:?}");
    end(debugger);
    run.finish()
        .expect_said(&["the guardian process died: SIGKILL"]);
}

#[test]
fn a_daemon_that_holds_our_output_open_does_not_hold_us() {
    let run = Fabric::run()
        .args(["--keep-daemons"])
        .actor(["daemon", "exit=0"]);
    let mut run = run.start();
    assert!(run.wait().success());
    let daemon = run.others()[0];
    assert!(alive(daemon));
    kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    run.finish();
}

#[test]
fn closed_streams_are_no_trouble() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for (words, code) in [
            (&["flood=10", "exit=0"][..], 0),
            (&["wait=50", "exit=3"][..], 3),
        ] {
            let script = format!("\"$@\" {closed}");
            let fabric = env!("CARGO_BIN_EXE_fabric");
            let run = Fabric::through("sh", &["-c", &script, "sh", fabric, "run", "-vv"]);
            run.args(["--devices", "2"])
                .actor(words)
                .finish()
                .expect_code(code);
        }
    }
}

#[test]
fn workers_have_only_the_three_standard_streams() {
    // Whatever we are born with, say a lock file, and whatever we open.
    let script = "exec 7</dev/null 9>/dev/null; exec \"$@\"";
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through("sh", &["-c", script, "sh", fabric, "run", "--devices", "2"]);
    let run = run
        .args(["--main-port", "0"])
        .worker("dump.py")
        .scratch_arg();
    let done = run.finish().expect_code(0);
    for rank in 0..2 {
        let text = std::fs::read_to_string(done.scratch.path().join(format!("{rank}.json")));
        let facts: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(facts["fds"], serde_json::json!([0, 1, 2]));
    }
}

#[test]
fn the_guardian_holds_nothing_of_the_launchers() {
    let script = "exec 7</dev/null; exec \"$@\"";
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through("sh", &["-c", script, "sh", fabric, "run"]);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.actor([&ready]).start();
    run.ready(1);
    let folder = format!("/proc/{}/fd", run.guardian());
    let links = std::fs::read_dir(folder).unwrap().flatten();
    let links = links.filter_map(|it| std::fs::read_link(it.path()).ok());
    let mut links: Vec<String> = links.map(|it| it.display().to_string()).collect();
    links.sort();
    links.dedup();
    let kinds: Vec<&str> = links
        .iter()
        .map(|it| it.split('[').next().unwrap())
        .collect();
    // Standard streams, the empty input for other workers, its own socket, and where deaths show.
    assert_eq!(
        kinds,
        ["/dev/null", "anon_inode:", "pipe:", "pipe:", "socket:"],
        "{links:?}"
    );
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}

#[test]
fn a_reader_that_has_seen_enough_ends_nothing_but_the_output() {
    let script = "\"$@\" 2>&1 | head -n 1";
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through(
        "sh",
        &["-c", script, "sh", fabric, "run", "-vv", "--devices", "2"],
    );
    // The workers die of SIGPIPE, the report of that meets a closed pipe.
    let done = run.actor(["flood=2000", "exit=0"]).finish().expect_code(0);
    assert_eq!(done.stdout.lines().count(), 1);
}

/// A pipe that is full, for all of what the run prints.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe().unwrap();
    let mut file = File::from(writer.try_clone().unwrap());
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    let set = |flags| nix::fcntl::fcntl(writer.as_fd(), nix::fcntl::FcntlArg::F_SETFL(flags));
    set(flags).unwrap();
    while file.write(&[b'.'; 4096]).is_ok() {}
    while file.write(b".").is_ok() {}
    set(nix::fcntl::OFlag::empty()).unwrap();
    (reader, writer)
}

/// A run that prints to nobody: `less`, say, which somebody has left standing at its first page.
fn unread(options: &[&str], words: &[&str]) -> (Running, OwnedFd) {
    let (reader, writer) = full_pipe();
    let run = Fabric::run().args(options).args(["--devices", "2"]);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.actor([&ready]).args(words);
    let run = run.with(|it| {
        it.stderr(Stdio::from(writer));
    });
    (run.start(), reader)
}

#[test]
fn a_report_that_nobody_reads_delays_no_end() {
    let (mut run, reader) = unread(&[], &[]);
    run.ready(2);
    let (guardian, worker) = (run.guardian().as_raw(), run.worker(1).as_raw());
    kill(run.worker(0), Signal::SIGKILL).unwrap();
    // While the launcher is stuck in the line that says so, all others are ended.
    wait_until("the other worker has been ended", || !alive(worker));
    wait_until("the guardian is done", || !alive(guardian));
    assert!(alive(run.pid().as_raw()), "it has something to say");
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert!(text.contains("rank 0 failed: SIGKILL"), "{text}");
    assert_eq!(run.wait().code(), Some(137));
    run.finish();
}

#[test]
fn a_report_that_nobody_reads_delays_no_signal() {
    let (run, reader) = unread(&[], &["@1", "deaf"]);
    run.ready(2);
    let (guardian, worker) = (run.guardian().as_raw(), run.worker(0));
    // The report of this failure is stuck, and the other worker, which is deaf, has 30 s.
    kill(worker, Signal::SIGKILL).unwrap();
    wait_until("the first has failed", || !alive(worker.as_raw()));
    run.signal(Signal::SIGINT);
    let first = Instant::now();
    wait_until("a moment has passed", || {
        first.elapsed() > Duration::from_millis(300)
    });
    run.signal(Signal::SIGINT);
    wait_until("all have been killed", || !alive(guardian));
    assert!(first.elapsed() < Duration::from_secs(15));
    // All is done but for what nobody reads, which a further signal gives up. Now and then one, for in its last moments
    // a signal ends the launcher as it does any program.
    let mut asked: Option<Instant> = None;
    wait_until("a signal ends it", || {
        if asked.is_none_or(|it| it.elapsed() > Duration::from_secs(2)) {
            run.signal(Signal::SIGINT);
            asked = Some(Instant::now());
        }
        !alive(run.pid().as_raw())
    });
    drop(reader);
    run.finish().expect_code(137);
}

#[test]
fn a_launcher_without_a_controlling_shell_needs_no_terminal() {
    let run = Fabric::run().args(["--devices", "2"]).with(|it| {
        before_exec(it, || {
            // SAFETY: a system call that is safe between fork and exec.
            unsafe { libc::setsid() };
        });
    });
    run.actor(["exit=0"]).finish().expect_code(0);
}
