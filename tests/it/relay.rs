//! What workers write arrives: whole, in order, unchanged, and nobody but its writer waits for its reader.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::harness::{Fabric, Running, wait_until};
use crate::pty::Terminal;

fn run(workers: u32) -> Fabric {
    Fabric::run().args(["--main-port", "0", "--devices", &workers.to_string()])
}

/// Ranks in front of every worker of these tests; `wait(NAME)` returns once the test has made that file.
const START: &str = "\
import os, sys, time
from pathlib import Path
rank = int(os.environ['RANK'])
here = Path(__file__).parent
def wait(name):
    while not (here / name).exists(): time.sleep(0.002)
def done(name):
    (here / f'{rank}.{name}').touch()
";

fn code(fabric: Fabric, lines: &str) -> Fabric {
    fabric.code(&format!("{START}{lines}"))
}

fn make(running: &Running, name: &str) {
    File::create(running.scratch().join(name)).unwrap();
}

#[test]
fn twelve_thousand_long_lines_of_four_ranks_are_whole_and_in_order() {
    let done = run(4)
        .worker("flooder.py")
        .arg("3000")
        .finish()
        .expect_code(0);
    let mut next = [0; 4];
    for line in done.stdout.lines() {
        assert_eq!(line.len(), 299, "{line}");
        let mut words = line.split(' ');
        let mut number = || words.nth(1).unwrap().parse::<usize>().unwrap();
        let (rank, number) = (number(), number());
        assert_eq!(number, next[rank], "rank {rank}");
        next[rank] += 1;
    }
    assert_eq!(next, [3000; 4]);
}

#[test]
fn lines_in_two_writes_are_whole() {
    // Python's print under -u. A machine that is busy enough may stop a worker for longer than we wait
    // between the two; without a relay one line in fifteen is torn.
    let lines = "for number in range(2000): print('rank', rank, 'says', number)\n";
    let done = code(run(3), lines).finish().expect_code(0);
    let whole = |it: &&str| it.split(' ').count() == 4;
    let count = done.stdout.lines().filter(whole).count();
    assert!((5980..=6000).contains(&count), "{count}");
}

#[test]
fn a_line_without_end_is_shown_while_the_worker_waits() {
    let lines = "print(f'prompt {rank}> ', end='')\nwait('go')\nprint('bye')\n";
    let fabric = code(run(2), lines);
    let (mut shown, theirs) = std::io::pipe().unwrap();
    let running = fabric.stdout(theirs).start();
    let mut text = Vec::new();
    while text.len() < "prompt 0> prompt 1> ".len() {
        let mut bytes = [0; 100];
        let count = shown.read(&mut bytes).unwrap();
        assert!(count > 0, "it ended");
        text.extend_from_slice(&bytes[..count]);
    }
    make(&running, "go");
    running.finish().expect_code(0);
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye\nbye\n");
}

#[test]
fn a_million_last_bytes_arrive() {
    for workers in [1, 2] {
        let lines = "
if rank == 1: wait('never')
for stream in 1, 2:
    rest = b'x' * 1_000_000
    while rest: rest = rest[os.write(stream, rest):]
os._exit(3)
";
        let done = code(run(workers), lines).finish().expect_code(3);
        assert_eq!(done.stdout, "x".repeat(1_000_000));
        assert!(done.stderr.starts_with(&"x".repeat(1_000_000)));
    }
}

#[test]
fn the_root_causes_words_come_last_however_much_the_others_write() {
    let lines = "
import signal
def stop(*_):
    for number in range(1000): print('rank', rank, 'cleans up', number, file=sys.stderr)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
done('ready')
if rank == 1:
    for other in 0, 2, 3: wait(f'{other}.ready')
    raise ValueError('boom')
wait('never')
";
    let done = code(run(4), lines).finish().expect_code(1);
    assert_eq!(done.stderr.matches("cleans up").count(), 3000);
    let last: Vec<&str> = done.stderr.lines().rev().take(20).collect();
    let said = |text: &str| last.iter().any(|it| it.contains(text));
    assert!(said("message     ValueError: boom"), "{last:?}");
    assert!(said("    raise ValueError('boom')"), "{last:?}");
    assert!(said("rank 1 failed: exit code 1"), "{last:?}");
}

#[test]
fn bytes_are_not_changed() {
    let lines = "
block = bytes(range(256)) * 3 + b'\\r\\n\\n\\r\\xff' + bytes(range(255, -1, -1))
for length in range(1, 900, 7): os.write(1, block[:length] * 5)
";
    let block: Vec<u8> = [
        (0..=255).collect::<Vec<u8>>().repeat(3),
        b"\r\n\n\r\xff".to_vec(),
        (0..=255).rev().collect(),
    ]
    .concat();
    let expected: Vec<u8> = (1..900)
        .step_by(7)
        .flat_map(|it| block[..it].repeat(5))
        .collect();
    let fabric = code(run(1), lines);
    let path = fabric.scratch().join("out");
    let out = File::create(&path).unwrap();
    let done = fabric.stdout(out).finish().expect_code(0);
    assert_eq!(fs::read(done.scratch.path().join("out")).unwrap(), expected);
}

#[test]
fn both_streams_in_one_file_stay_in_order() {
    let lines = "
for number in range(3000):
    stream = sys.stderr if number % 3 == 0 else sys.stdout
    print(number, file=stream)
";
    let fabric = code(run(1), lines);
    let out = File::create(fabric.scratch().join("out")).unwrap();
    let err = out.try_clone().unwrap();
    let done = fabric.stdout(out).stderr(err).finish().expect_code(0);
    let text = fs::read_to_string(done.scratch.path().join("out")).unwrap();
    let numbers: Vec<u32> = text.lines().map(|it| it.parse().unwrap()).collect();
    assert!(numbers.iter().copied().eq(0..3000));
}

/// Rank 0 writes to a pipe that nobody reads until it must wait, then rank 1 fails.
fn blocked() -> (Running, std::io::PipeReader) {
    let lines = "
if rank == 0:
    os.set_blocking(1, False)
    block = b'x' * 4095 + b'\\n'
    try:
        while True: os.write(1, block); time.sleep(0.0001)
    except BlockingIOError:
        done('full')
    os.set_blocking(1, True)
    os.write(1, block * 100)
wait('0.full')
sys.exit(7)
";
    let fabric = code(run(2), lines);
    let (reader, writer) = std::io::pipe().unwrap();
    let running = fabric.stdout(writer).start();
    let full = running.scratch().join("0.full");
    wait_until("the pipe is full", || full.exists());
    (running, reader)
}

#[test]
fn a_reader_that_does_not_read_delays_no_end() {
    let (running, reader) = blocked();
    wait_until("all but the launcher have ended", || {
        running.others().is_empty()
    });
    drop(reader);
    running
        .finish()
        .expect_code(7)
        .expect_said(&["rank 1 failed: exit code 7"]);
}

#[test]
fn output_that_nobody_reads_is_given_up_at_a_signal() {
    let (running, reader) = blocked();
    wait_until("all but the launcher have ended", || {
        running.others().is_empty()
    });
    running.signal(Signal::SIGTERM);
    running
        .finish()
        .expect_code(7)
        .expect_said(&["rank 1 failed: exit code 7"]);
    drop(reader);
}

#[test]
fn a_reader_that_has_gone_is_no_reason_to_stop() {
    let lines =
        "for number in range(20000): print('line', number)\nprint('done', file=sys.stderr)\n";
    let fabric = code(run(2), lines);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = fabric.stdout(writer).start();
    reader.read_exact(&mut [0; 6]).unwrap();
    drop(reader);
    let done = running.finish().expect_code(0);
    assert_eq!(done.stderr, "done\ndone\n");
}

#[test]
fn a_full_disk_is_told_once_and_no_reason_to_stop() {
    let lines = "
for number in range(100): print('line', number)
print('done', file=sys.stderr)
";
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let fabric = code(run(1), lines).stdout(full());
    let done = fabric.finish().expect_code(0);
    let told = "cannot write to standard output, what workers write is lost: ENOSPC";
    assert_eq!(done.stderr.matches(told).count(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("done\n"));
    let fabric = code(run(1), "sys.exit(3)").stderr(full());
    fabric.finish().expect_code(3);
}

#[test]
fn a_line_that_never_ends_takes_no_memory() {
    let lines = "
block = b'x' * 65536
for _ in range(1024):
    rest = block
    while rest: rest = rest[os.write(1, rest):]
done('written')
wait('go')
";
    let running = code(run(2), lines).start();
    let written = |rank: u32| running.scratch().join(format!("{rank}.written")).exists();
    wait_until("all is written", || written(0) && written(1));
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|it| it.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u32 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 32 * 1024, "{peak} kB");
    make(&running, "go");
    assert_eq!(
        running.finish().expect_code(0).stdout.len(),
        2 * 1024 * 65536
    );
}

/// A shell as the interpreter starts much faster than Python.
fn shell(fabric: Fabric, workers: u32, lines: &str) -> Fabric {
    let fabric = fabric.args(["--main-port", "0", "--python", "/bin/sh"]);
    fabric.args(["--devices", &workers.to_string()]).code(lines)
}

#[test]
fn a_hundred_workers_are_heard() {
    let done = shell(Fabric::run(), 100, "echo out $RANK; echo err $RANK >&2\n")
        .finish()
        .expect_code(0);
    for (text, name) in [(done.stdout, "out"), (done.stderr, "err")] {
        let mut ranks: Vec<u32> = text.lines().map(|it| it[4..].parse().unwrap()).collect();
        ranks.sort_unstable();
        assert!(text.lines().all(|it| it.starts_with(name)) && ranks.into_iter().eq(0..100));
    }
}

/// Starts with at most so many open files, and sets the soft limit, which is what workers get, to 40.
fn with_files(fabric: Fabric, most: u64) -> Fabric {
    let limit = move || Ok(setrlimit(Resource::RLIMIT_NOFILE, 40, most)?);
    fabric.with(|it| {
        // SAFETY: one system call.
        unsafe { it.pre_exec(limit) };
    })
}

#[test]
fn the_users_limit_of_open_files_is_the_workers_and_no_hindrance() {
    let fabric = with_files(Fabric::run(), 4096);
    let done = shell(fabric, 60, "echo $(ulimit -n)\n")
        .finish()
        .expect_code(0);
    assert_eq!(
        (&done.stdout[..], &done.stderr[..]),
        (&"40\n".repeat(60)[..], "")
    );
}

#[test]
fn without_descriptors_workers_write_directly_and_that_is_said() {
    let fabric = with_files(Fabric::run(), 64);
    let done = shell(fabric, 60, "echo here\n").finish().expect_code(0);
    assert_eq!(done.stdout, "here\n".repeat(60));
    let said = "fabric: workers write directly: to pass it on takes 204 open files, and 64 are allowed (`ulimit -Hn`)\n";
    assert_eq!(done.stderr, said);
}

#[test]
fn direct_output_is_the_launchers_own() {
    let lines = "print(os.path.samestat(os.fstat(1), os.stat(here / 'out')))\n";
    let fabric = code(run(1).args(["--output", "direct"]), lines);
    let out = File::create(fabric.scratch().join("out")).unwrap();
    let done = fabric.stdout(out).finish().expect_code(0);
    assert_eq!(
        fs::read_to_string(done.scratch.path().join("out")).unwrap(),
        "True\n"
    );
}

#[test]
fn who_is_left_behind_with_the_pipe_does_not_hold_us() {
    let lines = "
import subprocess
subprocess.Popen(['sh', '-c', 'while sleep 0.01; do echo still here; done'], start_new_session=True)
print('worker done')
";
    let mut running = code(run(1).arg("--keep-daemons"), lines).start();
    assert!(running.wait().success());
    wait_until("the one left behind has seen its pipe close", || {
        running.others().is_empty()
    });
    let done = running.finish();
    assert!(done.stdout.contains("worker done\n"));
}

#[test]
fn on_a_terminal_workers_see_a_terminal_of_its_size() {
    let lines = "
import signal
def tell(*_): print(f'<{rank}: {[os.isatty(it) for it in (0, 1, 2)]} {tuple(os.get_terminal_size(1))}>')
signal.signal(signal.SIGWINCH, tell)
tell()
done('ready')
wait('go')
";
    let (terminal, running) = Terminal::start(code(run(2), lines), 33, 111);
    terminal.wait_for("<0: [True, True, True] (111, 33)>");
    terminal.wait_for("<1: [False, True, True] (111, 33)>");
    let ready = |rank: u32| running.scratch().join(format!("{rank}.ready")).exists();
    wait_until("both listen", || ready(0) && ready(1));
    terminal.resize(20, 70);
    terminal.wait_for("<0: [True, True, True] (70, 20)>");
    terminal.wait_for("<1: [False, True, True] (70, 20)>");
    make(&running, "go");
    running.finish().expect_code(0);
    assert!(!terminal.text().contains("\r\r\n"), "{:?}", terminal.text());
}

#[test]
fn a_bar_moves_on_a_terminal_and_the_order_of_both_streams_is_kept() {
    let lines = "
def bar(text): sys.stderr.write('\\r' + text); sys.stderr.flush()
bar(' 10% #')
wait('go')
bar(' 20% ##')
bar(' ' * 8 + '\\r'); print('a line above the bar'); bar(' 30% ###')
wait('stop')
";
    let (terminal, running) = Terminal::start(code(run(1), lines), 24, 80);
    terminal.wait_for("\r 10% #");
    make(&running, "go");
    terminal.wait_for("\r 20% ##\r        \ra line above the bar\r\n\r 30% ###");
    make(&running, "stop");
    running.finish().expect_code(0);
}

#[test]
fn a_million_last_bytes_arrive_through_a_terminal() {
    let lines = "
rest = (b'x' * 99 + b'\\n') * 10_000
while rest: rest = rest[os.write(1, rest):]
os._exit(3)
";
    let (terminal, running) = Terminal::start(code(run(1), lines), 24, 80);
    running.finish().expect_code(3);
    let line = format!("{}\r\n", "x".repeat(99));
    wait_until("all is shown", || {
        terminal.text().matches(&line).count() == 10_000
    });
}

#[test]
fn control_c_on_a_terminal_ends_the_run() {
    let lines = "print('ready')\nwait('never')\n";
    let (mut terminal, running) = Terminal::start(code(run(2), lines), 24, 80);
    wait_until("both are ready", || {
        terminal.text().matches("ready").count() == 2
    });
    terminal.press(b"\x03");
    let done = running.finish();
    assert_eq!(done.code(), -2);
    assert!(
        terminal.text().contains("stopped by SIGINT"),
        "{}",
        terminal.text()
    );
}
