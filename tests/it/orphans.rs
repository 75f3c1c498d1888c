//! Whatever ends a run, nothing that the workers started outlives it, and nothing else is touched.
//! (That nothing is left is asserted by the harness, at the end of every run.)

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Fabric, Finished, Running, alive, stats, wait_until};

/// All that a worker may leave behind.
const KINDS: [&str; 7] = [
    "child", "orphan", "group", "daemon", "stopped", "headless", "mover",
];
/// Everything must be gone this long after the launcher.
const SOON: Duration = Duration::from_secs(1);

/// Two workers, deaf to every polite signal, each with one process of every kind, that get 0.2 s to end.
fn crowd(options: &[&str]) -> Fabric {
    let run = Fabric::run().args(["--devices", "2", "--shutdown-timeout", "0.2"]);
    let ready = format!("ready={}", run.scratch().display());
    run.args(options)
        .actor(["deaf"].into_iter().chain(KINDS))
        .arg(ready)
}

/// Its name, what is done, and how the launcher leaves then.
type Attack = (&'static str, fn(&Running), i32);

/// Every way to end a run.
const ATTACKS: &[Attack] = &[
    (
        "a worker is killed",
        |it| strike(it, 0, Signal::SIGKILL),
        137,
    ),
    ("a worker crashes", |it| strike(it, 1, Signal::SIGSEGV), 139),
    ("SIGINT", |it| it.signal(Signal::SIGINT), -2),
    ("SIGTERM", |it| it.signal(Signal::SIGTERM), -15),
    ("SIGHUP", |it| it.signal(Signal::SIGHUP), -1),
    ("SIGQUIT", |it| it.signal(Signal::SIGQUIT), -3),
    ("SIGKILL", |it| it.signal(Signal::SIGKILL), -9),
    ("SIGKILL to the launcher's group", kill_group, -9),
    ("SIGKILL after SIGSTOP", stop_and_kill, -9),
    ("an alarm", |it| it.signal(Signal::SIGVTALRM), -26),
    (
        "SIGKILL to the guardian",
        |it| to(it.guardian(), Signal::SIGKILL),
        137,
    ),
    (
        "SIGKILL to the guardian after SIGSTOP",
        stop_and_kill_guardian,
        137,
    ),
    (
        "SIGKILL to the launcher of a stopped guardian",
        kill_beside_stopped_guardian,
        -9,
    ),
    (
        "SIGTERM with a stopped guardian",
        term_beside_stopped_guardian,
        -15,
    ),
];

fn to(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap();
}

fn strike(run: &Running, rank: u32, signal: Signal) {
    to(run.worker(rank), signal);
}

fn kill_group(run: &Running) {
    to(Pid::from_raw(-run.pid().as_raw()), Signal::SIGKILL);
}

fn stop_and_kill(run: &Running) {
    run.signal(Signal::SIGSTOP);
    run.signal(Signal::SIGKILL);
}

fn stop_and_kill_guardian(run: &Running) {
    let guardian = run.guardian();
    to(guardian, Signal::SIGSTOP);
    to(guardian, Signal::SIGKILL);
}

fn kill_beside_stopped_guardian(run: &Running) {
    let guardian = run.guardian();
    // So that it cannot wake the guardian.
    run.signal(Signal::SIGSTOP);
    to(guardian, Signal::SIGSTOP);
    run.signal(Signal::SIGKILL);
}

fn term_beside_stopped_guardian(run: &Running) {
    to(run.guardian(), Signal::SIGSTOP);
    run.signal(Signal::SIGTERM);
}

#[track_caller]
fn attack_all(options: &[&str]) {
    for (name, attack, code) in ATTACKS {
        let run = crowd(options).with(|it| {
            std::os::unix::process::CommandExt::process_group(it, 0);
        });
        let run = run.start();
        run.ready(2);
        attack(&run);
        let done = run.finish_within(SOON);
        assert_eq!(done.code(), *code, "{name}: {}", done.stderr);
    }
}

#[test]
fn no_attack_leaves_anything() {
    attack_all(&[]);
}

#[test]
fn no_attack_leaves_anything_of_an_isolated_run() {
    attack_all(&["--isolate", "pid"]);
}

/// Without isolation this leaves what the workers started, as the README says.
#[test]
fn isolated_processes_end_even_if_launcher_and_guardian_are_killed_at_once() {
    let run = crowd(&["--isolate", "pid"]).start();
    run.ready(2);
    let guardian = run.guardian();
    run.signal(Signal::SIGSTOP);
    to(guardian, Signal::SIGSTOP);
    to(guardian, Signal::SIGKILL);
    run.signal(Signal::SIGKILL);
    run.finish_within(SOON).expect_code(-9);
}

#[test]
fn three_of_three_launchers_that_are_killed_leave_nothing_of_python_workers() {
    for _ in 0..3 {
        let run = Fabric::run().args(["--devices", "2"]).worker("forker.py");
        let run = run.scratch_arg().start();
        assert_eq!(run.ready(2)[&1].lines().count(), 5);
        run.signal(Signal::SIGKILL);
        run.finish_within(SOON).expect_code(-9);
    }
}

#[test]
fn error_files_of_a_killed_launcher_are_removed() {
    let run = crowd(&[]).start();
    run.ready(2);
    assert_eq!(leftover_folders(run.scratch()), 1);
    run.signal(Signal::SIGKILL);
    let scratch = run.finish_within(SOON).scratch;
    assert_eq!(leftover_folders(scratch.path()), 0);
}

fn leftover_folders(scratch: &std::path::Path) -> usize {
    let names = fs::read_dir(scratch)
        .unwrap()
        .flatten()
        .map(|it| it.file_name());
    let ours = |it: &std::ffi::OsString| it.to_string_lossy().starts_with("torchelastic_");
    names.filter(ours).count()
}

/// Two workers that succeed at once and leave one process of every kind.
fn success(options: &[&str]) -> Fabric {
    let words = KINDS.into_iter().chain(["exit=0"]);
    Fabric::run()
        .args(["--devices", "2"])
        .args(options)
        .actor(words)
}

#[test]
fn after_success_what_is_left_may_stay_a_while_and_is_named() {
    let done = success(&["--linger", "1"]).finish().expect_code(0);
    // 1 s to linger, and 1 s between the polite and the hard signal.
    let took = done.took;
    assert!((2.0..6.0).contains(&took.as_secs_f64()), "took {took:?}");
    let line = done.stderr.lines().next().unwrap();
    assert!(line.starts_with("fabric: workers left pid "), "{line}");
    assert!(line.contains("(actor -u "), "{line}");
    assert!(
        line.contains("ended in 1 s (--linger SECONDS, --keep-daemons)"),
        "{line}"
    );
}

#[test]
fn what_ends_by_itself_a_moment_later_is_not_worth_a_word() {
    let run = Fabric::run().args(["--devices", "2"]);
    let done = run.actor(["spawn=100", "exit=0"]).finish().expect_code(0);
    assert_eq!(done.stderr, "");
}

#[test]
fn who_cannot_wait_for_what_lingers_interrupts() {
    let run = success(&["--linger", "50"]).start();
    let scratch = run.scratch().to_owned();
    wait_until("all workers have succeeded", || {
        children_of(run.guardian()) >= 6
    });
    run.signal(Signal::SIGINT);
    let done = run.finish();
    assert!(done.took < Duration::from_secs(20), "took {:?}", done.took);
    assert_eq!(done.code(), 0, "the work was done: {}", done.stderr);
    assert!(!scratch.join("0.ready").exists());
}

fn children_of(parent: Pid) -> usize {
    let workers = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let stats = stats().filter(|it| it.parent == parent.as_raw());
    stats.filter(|it| workers(it.pid).contains("actor")).count()
}

#[test]
fn kept_daemons_live_on_as_under_the_original() {
    // Not those that go on to another process all the time: nobody would reap them but init.
    let kinds = KINDS.into_iter().filter(|it| *it != "mover");
    let run = Fabric::run().args(["--devices", "2", "--keep-daemons"]);
    let mut run = run.actor(kinds.chain(["exit=0"])).start();
    assert_eq!(run.wait().code(), Some(0));
    assert_eq!(run.others().len(), 12);
    // The harness ends them when the run is dropped.
}

/// A shell that has a job of its own, and then becomes the launcher, or waits for it.
fn beside_a_job(job: &str, how: &str) -> Fabric {
    let script =
        format!("env -u FABRIC_TEST_RUN {job} <&- >&- 2>&- & echo $! >$TMPDIR/job; {how} \"$@\"");
    let run = Fabric::through("sh", &["-c", &script, "sh", env!("CARGO_BIN_EXE_fabric")]);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.args(["run", "--devices", "2", "--shutdown-timeout", "0.2"]);
    run.actor(["deaf"].into_iter().chain(KINDS)).arg(ready)
}

fn job(folder: PathBuf) -> i32 {
    fs::read_to_string(folder.join("job"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn the_shells_other_jobs_live_on() {
    for (name, attack, _) in ATTACKS {
        let run = beside_a_job("sleep 99", "exec").with(|it| {
            std::os::unix::process::CommandExt::process_group(it, 0);
        });
        let run = run.start();
        run.ready(2);
        let job = job(run.scratch().to_owned());
        if name.contains("group") {
            // Somebody else's doing: the job is in that group.
            kill(Pid::from_raw(job), Signal::SIGKILL).unwrap();
            continue;
        }
        attack(&run);
        run.finish_within(SOON);
        assert!(alive(job), "{name}");
        to(Pid::from_raw(job), Signal::SIGKILL);
    }
}

/// The launcher adopts it, and must not take it for its own when the guardian is lost.
#[test]
fn an_orphan_of_the_shells_job_lives_on_when_the_guardian_is_killed() {
    let job = "sh -c 'sleep 98 >&- & echo $! >$TMPDIR/orphan'";
    let run = beside_a_job(job, "exec").start();
    run.ready(2);
    let orphan = fs::read_to_string(run.scratch().join("orphan")).unwrap();
    let orphan = orphan.trim().parse().unwrap();
    to(run.guardian(), Signal::SIGKILL);
    run.finish_within(SOON).expect_code(137);
    assert!(alive(orphan));
    to(Pid::from_raw(orphan), Signal::SIGKILL);
}

#[test]
fn siblings_live_on() {
    let run = beside_a_job("sleep 97", "").start();
    run.ready(2);
    let job = job(run.scratch().to_owned());
    let launcher = stats()
        .into_iter()
        .find(|it| it.parent == run.pid().as_raw() && it.pid != job);
    to(Pid::from_raw(launcher.unwrap().pid), Signal::SIGTERM);
    run.finish_within(SOON).expect_code(143);
    assert!(alive(job));
    to(Pid::from_raw(job), Signal::SIGKILL);
}

/// In namespaces of its own, as root of them. `setup` runs there first.
fn in_namespaces(kinds: &[&str], setup: &str) -> Fabric {
    // `exec`, so that the launcher is whatever process unshare made.
    let script = format!("{setup} exec \"$@\"");
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let mut words = vec!["--user", "--map-root-user"];
    words.extend(kinds);
    words.extend(["sh", "-c", &script, "sh", fabric, "run", "--devices", "2"]);
    Fabric::through("unshare", &words)
}

/// The first process of a PID namespace: its parent is unshare.
fn first(run: &Running) -> Pid {
    let mut found = None;
    wait_until("there is a first process", || {
        found = stats()
            .into_iter()
            .find(|it| it.parent == run.pid().as_raw());
        found.is_some()
    });
    Pid::from_raw(found.unwrap().pid)
}

#[track_caller]
fn expect_nothing_said_of_trouble(done: &Finished) {
    assert!(!done.stderr.contains("survived"), "{}", done.stderr);
}

#[test]
fn as_the_first_process_of_a_container_it_ends_on_term_at_once() {
    let run = in_namespaces(&["--pid", "--fork", "--mount-proc"], "");
    let ready = format!("ready={}", run.scratch().display());
    let run = run.actor([&ready]).start();
    run.ready(2);
    let before = Instant::now();
    to(first(&run), Signal::SIGTERM);
    let done = run.finish_within(SOON).expect_code(143);
    assert!(before.elapsed() < Duration::from_secs(2));
    expect_nothing_said_of_trouble(&done);
}

/// The kernel drops signals to the first process that have their default effect, so a launcher that had not
/// come to its handlers yet would run on.
#[test]
fn as_the_first_process_it_ends_on_a_term_that_comes_early() {
    for moment in 0..12 {
        let run = in_namespaces(&["--pid", "--fork", "--kill-child"], "");
        let run = run.args(["--shutdown-timeout", "0.2"]);
        let run = run.actor(["deaf"]).start();
        let first = first(&run);
        // Before its first instructions nothing can be done about that rule.
        wait_until("it keeps signals waiting", || {
            let status = fs::read_to_string(format!("/proc/{first}/status")).unwrap_or_default();
            let blocked = status.lines().find_map(|it| it.strip_prefix("SigBlk:"));
            // unshare(1), which it was before, blocks some for a moment, too.
            status.starts_with("Name:\tfabric\n")
                && blocked.is_some_and(|it| it.contains(|it| ('1'..='f').contains(&it)))
        });
        let then = Instant::now() + Duration::from_micros(200 * moment);
        while Instant::now() < then {}
        kill(first, Signal::SIGTERM).unwrap();
        kill(first, Signal::SIGINT).unwrap();
        let done = run.finish_within(SOON);
        assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
    }
}

#[test]
fn as_the_first_process_it_reaps_every_orphan() {
    // One orphan of the shell that became the launcher, and two of each worker.
    let setup = "(sleep 0.3 &);";
    let run = in_namespaces(&["--pid", "--fork", "--mount-proc"], setup);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.actor(["spawn=100", "spawn=200", &ready]).start();
    run.ready(2);
    let launcher = first(&run);
    wait_until("nobody but the guardian and the workers is there", || {
        let mut below = vec![launcher.as_raw()];
        for it in stats() {
            if below.contains(&it.parent) {
                below.push(it.pid);
            }
        }
        // Zombies are counted here.
        below.len() == 4
    });
    to(launcher, Signal::SIGINT);
    run.finish_within(SOON).expect_code(130);
}

#[test]
fn without_a_proc_nothing_is_left_either() {
    let run = in_namespaces(&["--mount"], "mount -t tmpfs none /proc &&");
    let ready = format!("ready={}", run.scratch().display());
    let words = ["deaf"].into_iter().chain(KINDS);
    let run = run
        .args(["--shutdown-timeout", "0.2"])
        .actor(words)
        .arg(ready);
    let run = run.start();
    run.ready(2);
    run.signal(Signal::SIGTERM);
    let done = run.finish_within(SOON).expect_code(-15);
    expect_nothing_said_of_trouble(&done);
}

/// Its process numbers are strangers' then.
#[test]
fn the_proc_of_another_namespace_is_not_believed() {
    for attack in [Signal::SIGTERM, Signal::SIGKILL] {
        let run = in_namespaces(&["--pid", "--fork"], "");
        let ready = format!("ready={}", run.scratch().display());
        let words = ["deaf"].into_iter().chain(KINDS);
        let run = run
            .args(["--shutdown-timeout", "0.2"])
            .actor(words)
            .arg(ready);
        let run = run.start();
        run.ready(2);
        to(first(&run), attack);
        let done = run.finish_within(SOON);
        expect_nothing_said_of_trouble(&done);
    }
}

#[test]
fn in_the_namespaces_of_another_process_all_is_as_usual() {
    let mut host = Command::new("unshare");
    host.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]);
    let mut host = host
        .args(["sleep", "96"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let inner = || stats().find(|it| it.parent == host.id() as i32);
    wait_until("the host is up", || {
        inner().is_some_and(|it| is_sleep(it.pid))
    });
    let target = inner().unwrap().pid.to_string();
    let fabric = env!("CARGO_BIN_EXE_fabric");
    let words = [
        "--target",
        &target,
        "--user",
        "--preserve-credentials",
        "--pid",
        "--mount",
    ];
    let run = Fabric::through("nsenter", &words);
    let ready = format!("ready={}", run.scratch().display());
    let run = run.args([fabric, "run", "--devices", "2", "--shutdown-timeout", "0.2"]);
    let run = run
        .actor(["deaf"].into_iter().chain(KINDS))
        .arg(ready)
        .start();
    run.ready(2);
    to(first(&run), Signal::SIGTERM);
    // nsenter dies by the signal that its child died by.
    let done = run.finish_within(SOON).expect_code(-15);
    expect_nothing_said_of_trouble(&done);
    host.kill().unwrap();
    host.wait().unwrap();
}

fn is_sleep(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "sleep\n")
}

#[test]
fn where_namespaces_are_refused_isolation_is_refused_in_one_line() {
    let no_namespaces = "echo 0 >/proc/sys/user/max_pid_namespaces && ";
    let run = in_namespaces(&["--fork"], no_namespaces);
    let done = run
        .args(["--isolate", "pid"])
        .actor(["exit=0"])
        .finish()
        .expect_code(1);
    let mut lines = done.stderr.lines();
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("fabric: failed to make a PID namespace (--isolate pid): "),
        "{line}"
    );
    assert!(lines.next().unwrap().starts_with("hint: "));
    assert_eq!(lines.next(), None);
}

#[test]
fn isolated_workers_see_only_each_other_and_are_told_of_by_their_numbers_outside() {
    let run = Fabric::run().args(["--devices", "2", "--isolate", "pid"]);
    let run = run.worker("sleeper.py").scratch_arg().start();
    let numbers = run.ready(2).into_values();
    let inside: Vec<i32> = numbers.map(|it| it.trim().parse().unwrap()).collect();
    assert!(inside.iter().all(|it| *it < 100), "{inside:?}");
    let outside = run.worker(1);
    to(outside, Signal::SIGKILL);
    let told = format!("pid {outside})");
    let done = run.finish_within(SOON).expect_code(137);
    done.expect_said(&["rank 1 failed: SIGKILL", &told]);
}
