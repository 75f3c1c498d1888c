//! A worker fails: who hears of it, what is said, how it all ends.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::harness::{Fabric, wait_until};

/// With a port of its own: that the usual one is taken by another test is not to be told here.
fn quiet(workers: u32) -> Fabric {
    Fabric::run().args(["--main-port", "0", "--devices", &workers.to_string()])
}

fn failing(workers: u32, worker: &str, args: &[&str]) -> Fabric {
    let run = quiet(workers);
    run.worker(worker).args(args)
}

#[test]
fn the_exit_code_is_the_root_causes() {
    let done = failing(4, "exit_with.py", &["7", "--rank", "1"]).finish();
    done.expect_code(7).expect_said(&[
        "rank 1 failed: exit code 7",
        "local rank 1, node 0 on ",
        "ranks 0, 2, 3: ended by fabric (SIGTERM)",
    ]);
}

#[test]
fn a_signal_is_named_and_becomes_128_plus_its_number() {
    let done = failing(2, "die_by.py", &["SIGSEGV", "--rank", "0"]).finish();
    done.expect_code(139)
        .expect_said(&["rank 0 failed: SIGSEGV (segmentation fault)"]);
}

#[test]
fn success_is_silent() {
    let done = failing(3, "exit_with.py", &["0"]).finish().expect_code(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
}

#[test]
fn a_worker_that_is_done_early_is_no_failure() {
    let run = failing(3, "last_one.py", &[]).scratch_arg();
    let done = run.finish().expect_code(0);
    assert_eq!(done.stderr, "");
}

/// The time from just before a worker's last system call to the end of everything.
fn time_to_end() -> Duration {
    let run = Fabric::run().args(["--devices", "4"]);
    let script = run.scratch().join("fail.py");
    let code = "import os, signal, time
if os.environ['RANK'] == '1':
    print(time.time(), flush=True)
    os._exit(7)
signal.pause()";
    fs::write(&script, code).unwrap();
    let done = run.arg(&script).finish().expect_code(7);
    let ended = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    ended - Duration::from_secs_f64(done.stdout.trim().parse().unwrap())
}

#[test]
fn after_a_failure_nobody_waits_for_the_grace_period() {
    let took = time_to_end();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_failure_is_told_before_the_others_have_ended() {
    let run = quiet(2).args(["--shutdown-timeout", "50"]);
    let script = run.scratch().join("deaf.py");
    // Opening one end waits for the other: rank 0 fails once rank 1 is deaf.
    let code = "import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = os.path.join(sys.path[0], 'deaf')
if os.environ['RANK'] == '0':
    open(deaf).close()
    sys.exit(3)
open(deaf, 'w').close()
signal.pause()";
    fs::write(&script, code).unwrap();
    mkfifo(&script.with_file_name("deaf"), Mode::S_IRWXU).unwrap();
    let said = run.scratch().join("stderr");
    let running = run.arg(&script).with(|it| {
        it.stderr(File::create(&said).unwrap());
    });
    let running = running.start();
    let notice = "fabric: rank 0 failed (exit code 3), ending the others (they have 50 s)\n";
    wait_until("the failure is told", || {
        fs::read_to_string(&said).unwrap() == notice
    });
    assert!(!running.others().is_empty(), "nobody is left to wait for");
}

/// What a single worker's error file of this form makes the summary say after its line on the status.
fn confession(form: &str) -> String {
    let done = failing(1, "error_file.py", &[form]).finish().expect_code(1);
    let (_, after) = done.stderr.split_once("exit code 1 after ").unwrap();
    after.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn the_workers_own_words_are_shown_in_every_form() {
    assert_eq!(
        confession("record"),
        "  message     ValueError: boom from rank 0
  traceback
    Traceback (most recent call last):
      File \"train.py\", line 7, in main
    ValueError: boom from rank 0
"
    );
    assert_eq!(
        confession("short"),
        "  message     ValueError: boom from rank 0\n"
    );
    assert_eq!(
        confession("malformed"),
        "  message     {\"message\": {\"mess\n"
    );
    assert_eq!(confession("empty"), "");
}

/// What a launcher around this one finds in its error file.
fn passed_on(worker: &str, args: &[&str]) -> Option<Vec<u8>> {
    let run = failing(2, worker, args);
    let file = run.scratch().join("outer.json");
    let done = run.env("TORCHELASTIC_ERROR_FILE", &file).finish();
    assert_ne!(done.code(), 0);
    fs::read(file).ok()
}

#[test]
fn an_outer_launcher_gets_the_root_causes_file_with_the_exit_code() {
    let record = passed_on("error_file.py", &["record", "--rank", "1"]).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["message"]["errorCode"], 1);
    assert_eq!(record["message"]["message"], "ValueError: boom from rank 1");
    let short = passed_on("error_file.py", &["short", "--rank", "0"]).unwrap();
    let short: Value = serde_json::from_slice(&short).unwrap();
    assert_eq!(short["message"], "ValueError: boom from rank 0");
    assert_eq!(
        passed_on("error_file.py", &["malformed", "--rank", "0"]).unwrap(),
        b"{\"message\": {\"mess"
    );
    assert_eq!(passed_on("exit_with.py", &["1", "--rank", "0"]), None);
}

#[test]
fn nothing_stays_in_the_folder_for_temporary_files() {
    for code in ["0", "1"] {
        let done = failing(2, "exit_with.py", &[code]).finish();
        let left: Vec<_> = fs::read_dir(done.scratch.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Runs a failing worker with standard error on a terminal; what the terminal got.
fn on_a_terminal(variables: &[(&str, &str)]) -> String {
    let pty = nix::pty::openpty(None, None).unwrap();
    let run = failing(1, "exit_with.py", &["1"]);
    let run = variables
        .iter()
        .fold(run, |run, (name, value)| run.env(name, value));
    run.with(|it| {
        it.stderr(pty.slave);
    })
    .finish()
    .expect_code(1);
    let mut text = vec![0; 4096];
    // The reply of a terminal that nobody has open for writing any more ends with an error.
    let mut terminal = File::from(pty.master);
    let read = terminal.read(&mut text).unwrap();
    String::from_utf8_lossy(&text[..read]).into_owned()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let coloured = "\x1b[1;31mfabric: rank 0 failed: exit code 1\x1b[0m";
    assert!(on_a_terminal(&[("TERM", "xterm")]).contains(coloured));
    assert!(on_a_terminal(&[("TERM", "xterm"), ("NO_COLOR", "")]).contains(coloured));
    for plain in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let text = on_a_terminal(&[plain]);
        assert!(
            text.contains("rank 0 failed") && !text.contains('\x1b'),
            "{text}"
        );
    }
    let done = failing(1, "exit_with.py", &["1"])
        .env("TERM", "xterm")
        .finish();
    assert!(!done.stderr.contains('\x1b'));
}

/// An executable file with this text.
fn program(run: &Fabric, text: &str) -> String {
    let path = run.scratch().join("python");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_interpreter_that_cannot_be_executed_is_named_with_what_it_lacks() {
    let run = Fabric::run();
    let python = program(&run, "#!/no/such/loader\n");
    let done = run
        .args(["--devices", "2", "--python", &python])
        .worker("exit_with.py")
        .finish();
    let reason = format!("`{python}` is there, but");
    done.expect_code(127).expect_said(&[
        "fabric: rank 0 could not be started\n",
        &reason,
        "`/no/such/loader`",
        "rank 1: not started",
    ]);
    let run = Fabric::run();
    let python = program(&run, "no program");
    let done = run
        .args(["--python", &python])
        .worker("exit_with.py")
        .finish();
    done.expect_code(126)
        .expect_said(&["is no program for this machine"]);
}

#[test]
fn the_error_file_is_torchs_own() {
    // What torch's `record` writes, to be sure that the form above is the real one.
    let run = Fabric::run()
        .arg("--python")
        .arg(crate::harness::test_python());
    let script = run.scratch().join("recorded.py");
    let code = "from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError('boom')
main()";
    fs::write(&script, code).unwrap();
    let outer = run.scratch().join("outer.json");
    let done = run
        .arg(&script)
        .env("TORCHELASTIC_ERROR_FILE", &outer)
        .finish();
    let done = done
        .expect_code(1)
        .expect_said(&["  message     ValueError: boom\n  traceback\n    Traceback"]);
    assert!(
        done.stderr.ends_with("    ValueError: boom\n"),
        "{}",
        done.stderr
    );
    let passed_on: Value = serde_json::from_slice(&fs::read(outer).unwrap()).unwrap();
    assert_eq!(passed_on["message"]["errorCode"], json!(1));
}
