//! What people and machines can make of workers' output: labels, a choice of ranks, files, reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Fabric, Finished, wait_until};
use crate::pty::Terminal;

/// Two lines on each stream, the second without an end.
const SPEAKER: &str = "\
import os, sys
rank = os.environ['RANK']
for name, stream in ('out', sys.stdout), ('err', sys.stderr):
    stream.write(f'{name} {rank} first\\n{name} {rank} last')
";

fn run(workers: u32) -> Fabric {
    Fabric::run().args(["--main-port", "0", "--devices", &workers.to_string()])
}

fn speaking(options: &[&str]) -> Finished {
    run(2).args(options).code(SPEAKER).finish().expect_code(0)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// All files below, by their path from there.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
        if path.is_dir() {
            let below = files(&path).into_iter();
            found.extend(below.map(|(path, text)| (name.join(path), text)));
        } else {
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    found
}

/// The files of the only run whose folder is below `base`, whose path was said once.
#[track_caller]
fn logs(done: &Finished, base: &Path) -> BTreeMap<PathBuf, String> {
    let folders: Vec<PathBuf> = fs::read_dir(base)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    let [folder] = &folders[..] else {
        panic!("{folders:?}");
    };
    let said = format!("fabric: logs in {}\n", folder.display());
    assert_eq!(done.stderr.matches(&said).count(), 1, "{}", done.stderr);
    files(folder)
}

#[test]
fn every_line_says_who_wrote_it() {
    let done = speaking(&["--prefix"]);
    let expected = |name: &str| {
        let lines = [
            "0] NAME 0 first",
            "0] NAME 0 last",
            "1] NAME 1 first",
            "1] NAME 1 last",
        ];
        lines.map(|it| format!("[rank {}", it.replace("NAME", name)))
    };
    assert_eq!(sorted(&done.stdout), expected("out"));
    assert_eq!(sorted(&done.stderr), expected("err"));
}

#[test]
fn a_template_is_torchruns() {
    let template = "<${role_name} ${local_rank} ${rank} $$ ${x}>";
    let done = speaking(&["--role", "actor", "--log-line-prefix-template", template]);
    assert!(
        done.stdout.contains("<actor 1 1 $ ${x}>out 1 first\n"),
        "{}",
        done.stdout
    );
}

#[test]
fn labels_are_coloured_on_a_terminal_and_bars_keep_theirs() {
    let bar = "import sys\nsys.stdout.write('\\r 10%'); sys.stdout.write('\\r 20%'); print()\n";
    let (terminal, running) = Terminal::start(run(1).arg("--prefix").code(bar), 24, 80);
    terminal.wait_for("\r\x1b[31m[rank 0]\x1b[0m  10%\r\x1b[31m[rank 0]\x1b[0m  20%\r\n");
    running.finish().expect_code(0);
    let plain = run(1).arg("--prefix").env("NO_COLOR", "1").code(bar);
    let (terminal, running) = Terminal::start(plain, 24, 80);
    terminal.wait_for("\r[rank 0]  10%\r[rank 0]  20%\r\n");
    running.finish().expect_code(0);
}

#[test]
fn only_the_ranks_that_were_chosen_are_shown() {
    let chosen = |options: &[&str]| {
        let done = run(6)
            .args(options)
            .code("import os; print(os.environ['RANK'])\n");
        sorted(&done.finish().expect_code(0).stdout).concat()
    };
    assert_eq!(chosen(&["--ranks", "0,3-4"]), "034");
    assert_eq!(chosen(&["--local-ranks-filter", "5,1"]), "15");
    assert_eq!(
        chosen(&["--ranks", "0,3-5", "--local-ranks-filter", "1-4"]),
        "34"
    );
    assert_eq!(chosen(&["--ranks", "9"]), "");
}

#[test]
fn who_fails_is_quoted_even_if_it_is_not_shown() {
    let lines =
        "import os, signal\nif os.environ['RANK'] == '1': import no_such_thing\nsignal.pause()\n";
    let done = run(2)
        .args(["--ranks", "0"])
        .code(lines)
        .finish()
        .expect_code(1);
    assert!(
        done.stderr.starts_with("fabric: rank 1 failed"),
        "{}",
        done.stderr
    );
    done.expect_said(&[
        "  message     ModuleNotFoundError: No module named 'no_such_thing'\n",
        "  hint        this Python does not have the module",
        "    Traceback (most recent call last):\n",
    ]);
}

#[test]
fn a_log_dir_has_a_copy_of_all() {
    let fabric = run(2);
    let base = fabric.scratch().join("logs");
    let fabric = fabric.args(["--run-id", "a/b ü", "--log-dir"]).arg(&base);
    let done = fabric.code(SPEAKER).finish().expect_code(0);
    assert_eq!(done.stdout.matches("first\n").count(), 2);
    let logs = logs(&done, &base);
    let names: Vec<String> = logs.keys().map(|it| it.display().to_string()).collect();
    assert_eq!(
        names,
        [
            "attempt_0/0/stderr.log",
            "attempt_0/0/stdout.log",
            "attempt_0/1/stderr.log",
            "attempt_0/1/stdout.log",
            "launcher.log"
        ]
    );
    assert_eq!(
        logs[Path::new("attempt_0/1/stdout.log")],
        "out 1 first\nout 1 last"
    );
    assert_eq!(
        logs[Path::new("attempt_0/0/stderr.log")],
        "err 0 first\nerr 0 last"
    );
    let folder = fs::read_dir(&base)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name();
    assert!(folder.to_str().unwrap().starts_with("a_b_ü_"), "{folder:?}");
}

/// A line without `2026-07-20 14:03:22.250 ` in front of it, which must be there.
#[track_caller]
fn undated(line: &str) -> String {
    let (time, rest) = line.split_at(24);
    let shape = |it: char| if it.is_ascii_digit() { '0' } else { it };
    let time: String = time.chars().map(shape).collect();
    assert_eq!(time, "0000-00-00 00:00:00.000 ", "{line}");
    rest.to_owned()
}

#[test]
fn the_launchers_own_words_are_in_its_log() {
    let fabric = run(2);
    let base = fabric.scratch().join("logs");
    let fabric = fabric.arg("--log-dir").arg(&base);
    let done = fabric.worker("exit_with.py").args(["7", "--rank", "1"]);
    let done = done.finish().expect_code(7);
    let logs = logs(&done, &base);
    let log = &logs[Path::new("launcher.log")];
    let undated: String = log.lines().map(|it| undated(it) + "\n").collect();
    assert!(undated.contains("rank 1 failed: exit code 7"), "{log}");
    assert!(done.stderr.ends_with(&undated), "{log}");
}

#[test]
fn the_launchers_log_has_no_colours_of_the_terminal() {
    let fabric = run(1).worker("exit_with.py").arg("7");
    let base = fabric.scratch().join("logs");
    let fabric = fabric.env("FABRIC_LOG_DIR", &base);
    let (terminal, running) = Terminal::start(fabric, 24, 80);
    terminal.wait_for("\x1b[1;31mfabric: rank 0 failed");
    let done = running.finish().expect_code(7);
    let files = files(&done.scratch.path().join("logs"));
    let log = files
        .iter()
        .find(|(path, _)| path.ends_with("launcher.log"));
    let (_, log) = log.unwrap();
    assert!(log.contains(" fabric: rank 0 failed"), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
}

#[test]
fn redirected_streams_are_in_files_only() {
    let fabric = run(2);
    let base = fabric.scratch().join("logs");
    let fabric = fabric
        .env("PET_LOG_DIR", &base)
        .args(["--redirects", "0:1,1:2"]);
    let done = fabric.code(SPEAKER).finish().expect_code(0);
    assert_eq!(done.stdout, "out 1 first\nout 1 last");
    let (said, shown) = done.stderr.split_once('\n').unwrap();
    assert!(said.starts_with("fabric: logs in "));
    assert_eq!(shown, "err 0 first\nerr 0 last");
    assert_eq!(
        logs(&done, &base)[Path::new("attempt_0/0/stdout.log")],
        "out 0 first\nout 0 last"
    );
}

#[test]
fn what_is_teed_is_labelled_as_by_torchrun() {
    // Without a folder that was named the files are among the temporary ones, and stay.
    let done = run(2)
        .env("PET_TEE", "1")
        .code(SPEAKER)
        .finish()
        .expect_code(0);
    assert!(
        done.stdout.contains("[default1]:out 1 first\n"),
        "{}",
        done.stdout
    );
    assert!(done.stderr.contains("err 1 first\n") && !done.stderr.contains("[default"));
    let folder = done
        .stderr
        .lines()
        .find_map(|it| it.strip_prefix("fabric: logs in "))
        .unwrap();
    assert!(Path::new(folder).starts_with(done.scratch.path()));
    let names: Vec<String> = files(Path::new(folder))
        .keys()
        .map(|it| it.display().to_string())
        .collect();
    assert_eq!(
        names,
        [
            "attempt_0/0/stdout.log",
            "attempt_0/1/stdout.log",
            "launcher.log"
        ]
    );
}

#[test]
fn lines_with_chosen_texts_are_in_a_file_of_all_workers() {
    let lines = "import os
rank = os.environ['RANK']
for step in range(3): print('step', step, 'loss', rank); print('noise')
print('a,b without an end', rank, end='')
";
    let fabric = run(2).args(["--ranks", "0", "--duplicate-stdout-filters", "loss,a,,b"]);
    let done = fabric.code(lines).finish().expect_code(0);
    assert_eq!(done.stdout.matches("noise\n").count(), 3);
    let folder = done.stderr.lines().next().unwrap();
    let folder = Path::new(folder.strip_prefix("fabric: logs in ").unwrap());
    let files = files(folder);
    let text = &files[Path::new("attempt_0/filtered_stdout.log")];
    for rank in 0..2 {
        let own = |it: &&str| it.starts_with(&format!("[default{rank}]:"));
        let step = |it| format!("[default{rank}]:step {it} loss {rank}");
        let last = format!("[default{rank}]:a,b without an end {rank}");
        let found: Vec<&str> = text.lines().filter(own).collect();
        assert_eq!(found, [step(0), step(1), step(2), last], "{text}");
    }
    assert_eq!(files.len(), 2, "{:?}", files.keys());
}

#[test]
fn where_both_streams_are_one_file_lines_of_all_are_whole() {
    let lines = "import os, sys\nfor number in range(2000): os.write(1 + number % 2, b'x' * 199 + b'\\n')\n";
    let fabric = run(3);
    let out = fs::File::create(fabric.scratch().join("out")).unwrap();
    let fabric = fabric.stderr(out.try_clone().unwrap()).stdout(out);
    let base = fabric.scratch().join("logs");
    let done = fabric
        .arg("--log-dir")
        .arg(&base)
        .code(lines)
        .finish()
        .expect_code(0);
    let text = fs::read_to_string(done.scratch.path().join("out")).unwrap();
    let (said, lines) = text.split_once('\n').unwrap();
    assert!(said.starts_with("fabric: logs in "));
    assert!(lines.lines().count() == 6000 && lines.lines().all(|it| it.len() == 199));
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let refused = |fabric: Fabric, text: &str| {
        let done = fabric.code("print('started')").finish().expect_code(1);
        assert_eq!(done.stdout, "");
        done.expect_said(&[text]);
    };
    refused(
        run(1).args(["--output", "direct", "--prefix"]),
        "fabric: `--prefix` works on what passes through the launcher, and with `--output direct`",
    );
    refused(
        run(1).args(["--output", "direct"]).env("PET_TEE", "3"),
        "fabric: `--tee` (PET_TEE) works on what passes through the launcher",
    );
    refused(
        run(1).args(["--log-dir", "/proc/none"]),
        "fabric: failed to make a folder for logs in `/proc/none` (--log-dir): ",
    );
    refused(
        run(1).env("FABRIC_REPORT", "/proc/none/report.json"),
        "fabric: failed to write `/proc/none/report.json` (FABRIC_REPORT): ",
    );
}

#[test]
fn events_come_as_they_happen_and_the_report_in_the_end() {
    let lines = "
import os, sys, time
from pathlib import Path
print('a line'); print('another', file=sys.stderr)
Path(__file__).with_name(os.environ['RANK'] + '.ready').touch()
while not Path(__file__).with_name('go').exists(): time.sleep(0.002)
if os.environ['RANK'] == '1': raise ValueError('boom')
";
    let fabric = run(2);
    let events = fabric.scratch().join("events.jsonl");
    let report = fabric.scratch().join("report.json");
    let fabric = fabric
        .arg("--events")
        .arg(&events)
        .arg("--report")
        .arg(&report);
    let running = fabric.code(lines).start();
    let names = || -> Vec<String> {
        let text = fs::read_to_string(&events).unwrap_or_default();
        let events = text
            .lines()
            .map(|it| serde_json::from_str::<Value>(it).unwrap());
        events
            .map(|it| it["event"].as_str().unwrap().to_owned())
            .collect()
    };
    wait_until("both starts are told", || {
        names() == ["joined", "started", "started"]
    });
    running.ready(2);
    fs::write(running.scratch().join("go"), "").unwrap();
    let done = running.finish().expect_code(1);
    let names = names();
    for name in ["exited", "stopping", "done", "wrote", "ended"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    assert_eq!(names.last().unwrap(), "ended");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(report["exit_code"], 1);
    assert_eq!(report["root_cause"]["message"], "ValueError: boom");
    assert_eq!(report["root_cause"]["rank"], 1);
    assert_eq!(report["workers"][0]["lines"], 2);
    assert!(done.stderr.contains("  message     ValueError: boom\n"));
}

/// Attempt 0 ends with rank 1, attempt 1 with rank 0; each worker says a lot before.
const TWO_ATTEMPTS: &str = "\
import os, sys, time
rank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']
for number in range(30): print('attempt', attempt, 'rank', rank, 'line', number, file=sys.stderr)
if rank != attempt: raise ValueError('boom ' + attempt)
time.sleep(600)
";

#[test]
fn every_attempt_has_files_and_last_words_of_its_own() {
    let fabric = run(2).args(["--max-restarts", "1", "--prefix"]);
    let folder = fabric.scratch().to_owned();
    let base = folder.join("logs");
    let fabric = fabric.arg("--log-dir").arg(&base);
    let fabric = ["report", "events"].iter().fold(fabric, |it, name| {
        it.arg(format!("--{name}")).arg(folder.join(name))
    });
    let done = fabric.code(TWO_ATTEMPTS).finish().expect_code(1);

    let logs = logs(&done, &base);
    for (attempt, rank) in [("0", "1"), ("1", "0")] {
        let log = &logs[&PathBuf::from(format!("attempt_{attempt}/{rank}/stderr.log"))];
        let start = format!("attempt {attempt} rank {rank} line 0\n");
        let end = format!("ValueError: boom {attempt}\n");
        assert!(log.starts_with(&start) && log.ends_with(&end), "{log}");
    }
    assert!(logs[Path::new("launcher.log")].contains("; all workers start again\n"));

    let (before, summary) = done.stderr.split_once("fabric: rank 0 failed: ").unwrap();
    let ours = |it: &&str| it.starts_with("[rank ") || it.starts_with("fabric: ");
    let strays: Vec<&str> = before.lines().filter(|it| !ours(it)).collect();
    assert_eq!(strays, [""; 0]);
    let (first, last) = summary.split_once("  last lines\n").unwrap();
    assert!(first.contains("  earlier     attempt 1 of 2 failed after "));
    assert!(first.contains("ValueError: boom 0\n"), "{first}");
    assert!(last.lines().count() == 20 && last.ends_with("    ValueError: boom 1\n"));
    assert!(!last.contains("attempt 0"), "{last}");

    let read = |name: &str| fs::read_to_string(done.scratch.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("report")).unwrap();
    let earlier = &report["earlier"][0];
    assert_eq!(
        (&earlier["rank"], &earlier["exit_code"]),
        (&1.into(), &1.into())
    );
    assert_eq!(earlier["message"], "ValueError: boom 0");
    let lines = earlier["last_lines"].as_array().unwrap();
    assert_eq!(lines.len(), 20);
    assert_eq!(report["root_cause"]["message"], "ValueError: boom 1");
    let events = read("events");
    let mut events = events
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let restart = events.find(|it| it["event"] == "restarting").unwrap();
    assert_eq!(
        (&restart["rank"], &restart["exit_code"]),
        (&1.into(), &1.into())
    );
    assert_eq!(events.filter(|it| it["event"] == "started").count(), 2);
}
