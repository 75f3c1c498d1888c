//! Signals to the launcher: which end the run, which are passed on, and how the launcher leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Fabric, Running, before_exec, stat, stats, wait_until};
use crate::terminal::Terminal;

/// Workers that note every signal; with `--stay` none ends them.
fn noting(options: &[&str], workers: u32, more: &[&str]) -> Running {
    let run = Fabric::run().args(["--devices", &workers.to_string(), "--main-port", "0"]);
    let run = run.args(options).worker("note_signals.py").scratch_arg();
    let run = run.args(more).start();
    run.ready(workers);
    run
}

/// What a worker noted: the signals by name with the moment of each. SIGCONT goes along with every end.
fn notes(scratch: &Path, rank: u32) -> Vec<(String, f64)> {
    let text = fs::read_to_string(scratch.join(format!("{rank}.signals"))).unwrap();
    let lines = text.lines().filter_map(|it| it.split_once(' '));
    let notes = lines.map(|(name, at)| (name.to_owned(), at.parse().unwrap()));
    notes.collect()
}

fn names(scratch: &Path, rank: u32) -> Vec<String> {
    notes(scratch, rank)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

fn ends(scratch: &Path, rank: u32) -> Vec<String> {
    let names = names(scratch, rank).into_iter();
    names.filter(|it| it != "SIGCONT").collect()
}

fn send(run: &Running, signal: i32) {
    // SAFETY: no memory is involved. (The safe call knows no real-time signals.)
    assert_eq!(unsafe { libc::kill(run.pid().as_raw(), signal) }, 0);
}

#[test]
fn an_ending_signal_reaches_every_worker_once_and_the_launcher_dies_by_it() {
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let run = noting(&[], 4, &[]);
        run.signal(signal);
        let done = run.finish().expect_code(-(signal as i32));
        let scratch = done.scratch.path();
        let moments: Vec<f64> = (0..4).map(|it| notes(scratch, it)[0].1).collect();
        (0..4).for_each(|it| assert_eq!(ends(scratch, it), [signal.as_str()]));
        let (first, last) = (
            moments.iter().copied().fold(f64::MAX, f64::min),
            moments.iter().copied().fold(0.0, f64::max),
        );
        // Sent within a fraction of a millisecond; this is when Python came to run its handlers.
        assert!(last - first < 0.5, "{moments:?}");
    }
}

#[test]
fn other_signals_are_passed_on_once_and_the_launcher_lives_on() {
    let real_time = libc::SIGRTMIN() + 3;
    let signals = [
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGCONT, "SIGCONT"),
        (libc::SIGWINCH, "SIGWINCH"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (real_time, "SIGRTMIN+3"),
    ];
    let run = noting(&[], 2, &[]);
    for (number, (signal, _)) in signals.iter().enumerate() {
        send(&run, *signal);
        wait_until("both workers noted it", || {
            (0..2).all(|it| names(run.scratch(), it).len() == number + 1)
        });
    }
    run.signal(Signal::SIGTERM);
    let done = run.finish().expect_code(-15);
    for rank in 0..2 {
        let noted = names(done.scratch.path(), rank);
        let expected = signals.iter().map(|it| it.1).chain(["SIGTERM"]);
        assert!(
            expected.eq(noted.iter().take(8).map(String::as_str)),
            "{noted:?}"
        );
    }
}

#[test]
fn nohup_protects_launcher_and_workers() {
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let run = Fabric::through(
        "nohup",
        &[fabric, "run", "--devices", "2", "--main-port", "0"],
    );
    let run = run.worker("note_signals.py").scratch_arg().start();
    run.ready(2);
    run.signal(Signal::SIGHUP);
    // Had it done anything, it would have done so before this one.
    run.signal(Signal::SIGUSR1);
    let noted = |it| names(run.scratch(), it) == ["SIGUSR1"];
    wait_until("both workers noted SIGUSR1 only", || (0..2).all(noted));
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}

#[test]
fn a_background_job_is_deaf_to_the_interrupt_key() {
    let script = "\"$@\" & echo $! >$TMPDIR/job; wait";
    let run = Fabric::through("sh", &["-c", script, "sh", env!("CARGO_BIN_EXE_fabric")]);
    let run = run.args(["run", "--devices", "2", "--main-port", "0"]);
    let run = run.worker("note_signals.py").scratch_arg().start();
    run.ready(2);
    let job = fs::read_to_string(run.scratch().join("job")).unwrap();
    let job = Pid::from_raw(job.trim().parse().unwrap());
    let before = cpu_ticks(job);
    kill(job, Signal::SIGINT).unwrap();
    kill(job, Signal::SIGUSR2).unwrap();
    let noted = |it| names(run.scratch(), it) == ["SIGUSR2"];
    wait_until("both workers noted SIGUSR2 only", || (0..2).all(noted));
    // It must not spin while it waits for an interrupt that cannot come.
    assert!(cpu_ticks(job) - before < 20);
    kill(job, Signal::SIGTERM).unwrap();
    run.finish().expect_code(0);
}

/// Hundredths of a second that a process has computed for (fields 14 and 15 of proc(5)'s stat).
fn cpu_ticks(pid: Pid) -> u64 {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = line[line.rfind(')').unwrap() + 2..]
        .split(' ')
        .skip(11)
        .take(2);
    fields.map(|it| it.parse::<u64>().unwrap()).sum()
}

#[test]
fn what_was_ignored_or_blocked_at_the_start_reaches_the_workers_as_it_should() {
    let run = Fabric::run().worker("dump.py").scratch_arg().with(|it| {
        before_exec(it, || {
            // SAFETY: system calls on a set that is initialised, safe between fork and exec.
            unsafe {
                for ignored in [libc::SIGHUP, libc::SIGUSR1, libc::SIGTERM, libc::SIGCHLD] {
                    libc::signal(ignored, libc::SIG_IGN);
                }
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
            }
        });
    });
    let done = run.finish().expect_code(0);
    let text = fs::read_to_string(done.scratch.path().join("0.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    let set = |name: &str| facts["signals"][name].as_u64().unwrap();
    assert_eq!(set("SigBlk"), 0);
    let bit = |signal: i32| 1_u64 << (signal - 1);
    // SIGPIPE and SIGXFSZ are Python's own doing.
    let expected = [libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ];
    assert_eq!(
        set("SigIgn"),
        expected.iter().map(|it| bit(*it)).sum::<u64>()
    );
}

#[test]
fn two_terms_within_a_second_are_one_and_a_later_one_means_now() {
    let run = noting(&[], 2, &["--stay"]);
    let first = Instant::now();
    run.signal(Signal::SIGTERM);
    wait_until("both workers noted the first", || {
        (0..2).all(|it| !ends(run.scratch(), it).is_empty())
    });
    run.signal(Signal::SIGTERM);
    wait_until("a second has passed", || {
        first.elapsed() > Duration::from_millis(1100)
    });
    (0..2).for_each(|it| assert_eq!(ends(run.scratch(), it), ["SIGTERM"]));
    let third = Instant::now();
    run.signal(Signal::SIGTERM);
    run.finish()
        .expect_code(-15)
        .expect_said(&["killed by fabric (SIGKILL)"]);
    assert!(
        third.elapsed() < Duration::from_secs(5),
        "{:?}",
        third.elapsed()
    );
}

#[test]
fn a_second_interrupt_means_now() {
    let run = Fabric::run().args(["--devices", "2", "--main-port", "0"]);
    let run = run.worker("ignore_term.py").scratch_arg().start();
    run.ready(2);
    let first = Instant::now();
    run.signal(Signal::SIGINT);
    wait_until("a moment has passed", || {
        first.elapsed() > Duration::from_millis(300)
    });
    let second = Instant::now();
    run.signal(Signal::SIGINT);
    run.finish().expect_code(-2);
    // The grace period is 30 s; on a machine that does nothing else it takes milliseconds.
    let took = second.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn the_list_of_ending_signals_can_be_changed() {
    let run = noting(&["--signals-to-handle", "SIGUSR1"], 2, &["--stay"]);
    run.signal(Signal::SIGTERM);
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGHUP);
    wait_until("all are passed on", || {
        (0..2).all(|it| names(run.scratch(), it).len() == 3)
    });
    run.signal(Signal::SIGUSR1);
    wait_until("both have noted it", || {
        (0..2).all(|it| ends(run.scratch(), it).len() == 4)
    });
    // Two requests in quick succession are one.
    let first = Instant::now();
    wait_until("a second has passed", || {
        first.elapsed() > Duration::from_millis(1100)
    });
    run.signal(Signal::SIGUSR1);
    run.finish().expect_code(-10);
}

#[test]
fn the_list_of_ending_signals_can_be_a_variable_as_for_torchrun() {
    let run = Fabric::run().env("PET_SIGNALS_TO_HANDLE", "SIGUSR2,SIGTERM");
    let run = run
        .args(["--main-port", "0"])
        .worker("sleeper.py")
        .scratch_arg()
        .start();
    run.ready(1);
    run.signal(Signal::SIGUSR2);
    run.finish().expect_code(-12);
}

#[test]
fn a_stopped_worker_ends_as_promptly_as_others() {
    let run = Fabric::run().args(["--devices", "2", "--main-port", "0"]);
    let run = run.worker("stopper.py").scratch_arg().start();
    let pids = run.ready(2);
    let stopped = |text: &String| stat(text.trim().parse().unwrap()).unwrap().state == 'T';
    wait_until("both are stopped", || pids.values().all(stopped));
    let before = Instant::now();
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
    // And not after the grace period of 30 s.
    assert!(before.elapsed() < Duration::from_secs(5));
}

/// From the very first instruction on: before the handlers, between and during the starts of workers.
#[test]
fn a_signal_at_any_moment_of_the_start_ends_all() {
    let mut seen = BTreeMap::new();
    for moment in 0..60 {
        let signal = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP][moment % 3];
        let run = Fabric::run().args(["--devices", "8"]);
        let ready = format!("ready={}", run.scratch().display());
        let run = run.actor([&ready]).start();
        let then = Instant::now() + Duration::from_micros(250 * moment as u64);
        while Instant::now() < then {}
        run.signal(signal);
        let done = run.finish().expect_code(-(signal as i32));
        let started = fs::read_dir(done.scratch.path()).unwrap().count();
        *seen.entry(started).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "all at the same point: {seen:?}");
}

/// A shell with job control on a terminal, which has been told to run two workers that sleep.
fn at_a_terminal(after: &str) -> (Terminal, Running, Pid) {
    let shell = Fabric::through("sh", &["-i"])
        .env("PS1", "> ")
        .env("TERM", "dumb");
    let (mut terminal, run) = Terminal::start(shell);
    let fabric = env!("CARGO_BIN_EXE_fabric");
    terminal.type_in(&format!(
        "{fabric} run --devices 2 --main-port 0 tests/workers/sleeper.py $TMPDIR {after}\n"
    ));
    run.ready(2);
    let of_shell = |parent: Pid, name: &'static str| {
        stats().find(|it| {
            let comm = fs::read_to_string(format!("/proc/{}/comm", it.pid)).unwrap_or_default();
            it.parent == parent.as_raw() && comm.trim() == name
        })
    };
    let launcher = of_shell(run.pid(), "fabric").expect("the launcher is the shell's child");
    (terminal, run, Pid::from_raw(launcher.pid))
}

fn states(run: &Running, launcher: Pid) -> Vec<char> {
    let workers = (0..2).map(|it| run.worker(it).as_raw());
    let all = workers.chain([launcher.as_raw()]);
    all.map(|it| stat(it).unwrap().state).collect()
}

#[track_caller]
fn suspend_and_resume(after: &str) {
    let (mut terminal, run, launcher) = at_a_terminal(after);
    for _ in 0..2 {
        terminal.type_in("\x1a");
        wait_until("workers and launcher are stopped", || {
            states(&run, launcher) == ['T', 'T', 'T']
        });
        terminal.type_in("fg\n");
        wait_until("all go on", || !states(&run, launcher).contains(&'T'));
    }
    terminal.type_in("\x03");
    wait_until("the launcher has gone", || {
        stat(launcher.as_raw()).is_none()
    });
    terminal.type_in("echo code=$?\n");
    terminal.wait_for("code=130");
    terminal.type_in("exit\n");
    run.finish().expect_code(0);
}

#[test]
fn control_z_stops_workers_and_launcher_and_fg_resumes_them() {
    suspend_and_resume("");
}

#[test]
fn so_it_does_in_a_pipeline() {
    suspend_and_resume("2>&1 | tee $TMPDIR/log");
}

#[test]
fn closing_the_terminal_ends_the_run() {
    let (terminal, run, _) = at_a_terminal("");
    drop(terminal);
    run.finish();
}

/// Without a shell nobody could resume it, and so the kernel does not let it be stopped from a terminal.
#[test]
fn where_nobody_could_resume_it_a_run_is_not_stopped() {
    let run = Fabric::run().args(["--devices", "2", "--main-port", "0"]);
    let run = run.worker("note_signals.py").scratch_arg().with(|it| {
        before_exec(it, || {
            // SAFETY: a system call that is safe between fork and exec.
            unsafe { libc::setsid() };
        });
    });
    let run = run.start();
    run.ready(2);
    run.signal(Signal::SIGTSTP);
    let resumed = |it| names(run.scratch(), it).contains(&"SIGCONT".to_owned());
    wait_until("the workers went on at once", || (0..2).all(resumed));
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}

/// A scheduler that suspends and resumes does not wait for us in between.
#[test]
fn a_resume_right_after_a_suspension_is_not_lost() {
    let run = noting(&[], 2, &[]);
    for _ in 0..30 {
        run.signal(Signal::SIGTSTP);
        run.signal(Signal::SIGCONT);
    }
    run.signal(Signal::SIGUSR1);
    let noted = |it| names(run.scratch(), it).contains(&"SIGUSR1".to_owned());
    wait_until("the workers are awake", || (0..2).all(noted));
    run.signal(Signal::SIGTERM);
    run.finish().expect_code(-15);
}
