//! What torchrun and other launchers can do, and `fabric run` can do before the script.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::{Fabric, Finished};

/// What workers wrote with dump.py, by global rank.
fn dumps(done: &Finished, workers: u32) -> BTreeMap<u32, Value> {
    let read = |rank| {
        let text = fs::read_to_string(done.scratch.path().join(format!("{rank}.json"))).unwrap();
        (rank, serde_json::from_str(&text).unwrap())
    };
    (0..workers).map(read).collect()
}

/// `fabric run` with two workers that are dumped once `options` have been said.
fn dumped<W: AsRef<OsStr>>(options: &[W]) -> Fabric {
    let run = Fabric::run().args(["--accelerator", "cpu", "--devices", "2", "--main-port", "0"]);
    run.args(options).worker("dump.py").scratch_arg()
}

/// A package with a relative import, and programs, in a folder of its own.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    fs::create_dir(folder.path().join("pkg")).unwrap();
    write("pkg/__init__.py", "");
    write("pkg/inner.py", "WORD = 'inner'\n");
    write(
        "pkg/__main__.py",
        "import os, sys\nfrom .inner import WORD\n\
         os.write(1, f\"{os.environ['RANK']} {__name__} {WORD} {sys.argv[1:]}\\n\".encode())\n",
    );
    write("plain.sh", "#!/bin/sh\n");
    let script = write(
        "tell.sh",
        "#!/bin/sh\nline=$(printf '%s|' \"$RANK\" \"$0\" \"$@\")\nprintf '%s\\n' \"$line\"\n",
    );
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_module_runs_with_its_package_around_it() {
    let folder = folder();
    for (options, variable) in [(&["-m"][..], "0"), (&["--module"], "0"), (&[], "1")] {
        let run = Fabric::run()
            .cwd(folder.path())
            .env("PET_MODULE", variable)
            .args(["--accelerator", "cpu", "--devices", "2"]);
        let done = run
            .args(options)
            .args(["pkg", "-m", "a b"])
            .finish()
            .expect_code(0);
        let expected = [0, 1].map(|it| format!("{it} __main__ inner ['-m', 'a b']"));
        assert_eq!(sorted(&done.stdout), expected);
    }
}

#[test]
fn a_module_that_is_not_there_is_pythons_to_report() {
    let run = Fabric::run().args(["-m", "no_such_module_here"]).finish();
    run.expect_code(1)
        .expect_said(&["No module named no_such_module_here"]);
}

#[test]
fn a_program_gets_its_arguments_as_they_were_typed() {
    let folder = folder();
    let nested = r#"a "b 'c' $RANK" `d`"#;
    for program in ["./tell.sh", "tell.sh"] {
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let run = Fabric::run()
            .cwd(folder.path())
            .env("PATH", path)
            .args([
                "--no-python",
                "--accelerator",
                "cpu",
                "--devices",
                "2",
                program,
            ])
            .args([nested, "", "--env"]);
        let done = run.finish().expect_code(0);
        // The kernel tells an interpreter the path that was executed.
        let shown = match program {
            "tell.sh" => folder.path().join(program).display().to_string(),
            _ => program.to_owned(),
        };
        let expected = [0, 1].map(|it| format!("{it}|{shown}|{nested}||--env|"));
        assert_eq!(sorted(&done.stdout), expected);
    }
}

#[test]
fn a_program_that_cannot_be_run_is_refused_with_the_way_out() {
    let folder = folder();
    for (program, expected) in [
        (
            "./gone",
            "fabric: the program `./gone` (--no-python) does not exist\n",
        ),
        (
            "./plain.sh",
            "fabric: the program `./plain.sh` (--no-python) cannot be executed\nhint: chmod +x ./plain.sh\n",
        ),
        (
            "tell.sh",
            "fabric: the program `tell.sh` (--no-python) is not on PATH\n\
             hint: a file of the current directory is `./tell.sh`\n",
        ),
    ] {
        let run = Fabric::run()
            .cwd(folder.path())
            .args(["--no-python", program]);
        assert_eq!(run.finish().expect_code(1).stderr, expected);
    }
}

#[test]
fn variables_reach_the_workers_byte_for_byte() {
    let odd = OsStr::from_bytes(b"ODD\xff=\xfe=\n b");
    let pairs = ["PLAIN=new", "EMPTY=", "OMP_NUM_THREADS=7"].map(OsStr::new);
    let options = pairs.into_iter().chain([odd]);
    let options: Vec<_> = options.flat_map(|it| [OsStr::new("--env"), it]).collect();
    let done = dumped(&options)
        .env("PLAIN", "old")
        .env("EMPTY", "full")
        .finish()
        .expect_code(0);
    for (_, facts) in dumps(&done, 2) {
        let environ = &facts["environ"];
        assert_eq!(environ["PLAIN"], "new");
        assert_eq!(environ["EMPTY"], "");
        assert_eq!(environ["OMP_NUM_THREADS"], "7");
        assert_eq!(environ["ODD\u{ff}"], "\u{fe}=\n b");
    }
}

#[test]
fn variables_of_the_launcher_are_not_set_by_hand() {
    let done = dumped(&["--env", "MASTER_PORT=1"]).finish().expect_code(1);
    let expected = "fabric: `--env MASTER_PORT=1` sets a variable that is the launcher's own\n\
                    hint: use `--main-port`\n";
    assert_eq!(done.stderr, expected);
}

#[test]
fn wrong_values_are_refused_in_one_line() {
    for (options, expected) in [
        (
            &["--env", "A"][..],
            "Invalid value for '--env': 'A' is not of the form NAME=VALUE.",
        ),
        (
            &["--timeout", "1w"],
            "Invalid value for '--timeout': '1w' is not a duration such as '90', '30m' or '2h30m'.",
        ),
        (
            &["--role", ""],
            "Invalid value for '--role': '' is not a name.",
        ),
        (
            &["--numa-binding", "core"],
            "Invalid value for '--numa-binding': 'core' is not one of 'node', 'socket', 'exclusive', 'core-complex'.",
        ),
        (
            &["--cwd", "gone"],
            "Invalid value for '--cwd': 'gone' is not a directory.",
        ),
        (
            &["--cwd", "Cargo.toml"],
            "Invalid value for '--cwd': 'Cargo.toml' is not a directory.",
        ),
    ] {
        let done = dumped(options).finish().expect_code(2);
        let last = done.stderr.lines().last().unwrap();
        assert_eq!(last, format!("Error: {expected}"));
    }
}

#[test]
fn workers_run_where_they_are_told_to_and_the_script_is_found_there() {
    let folder = folder();
    let there = fs::canonicalize(folder.path()).unwrap();
    let options = [OsStr::new("--cwd"), there.as_os_str()];
    let done = dumped(&options).finish().expect_code(0);
    for (_, facts) in dumps(&done, 2) {
        assert_eq!(facts["cwd"], there.to_str().unwrap());
    }
    let run = Fabric::run().args(["--no-python", "--accelerator", "cpu", "--cwd"]);
    let done = run
        .arg(&there)
        .args(["./tell.sh", "x"])
        .finish()
        .expect_code(0);
    assert_eq!(done.stdout, "0|./tell.sh|x|\n");
}

#[test]
fn a_time_limit_ends_even_what_ignores_it() {
    let run = Fabric::run()
        .args(["--accelerator", "cpu", "--devices", "2"])
        .args(["--timeout", "3s", "--shutdown-timeout", "0.5"])
        .worker("ignore_term.py")
        .scratch_arg();
    run.finish().expect_code(124).expect_said(&[
        "fabric: the time limit of 3 s is over, ending the workers (they have 0.50 s)\n",
        "fabric: killing what has not ended yet\n",
        "fabric: ended by the time limit of 3 s (--timeout)\n",
    ]);
}

#[test]
fn a_run_within_its_time_limit_is_not_touched() {
    let run = Fabric::run().args(["--timeout", "1h", "--main-port", "0"]);
    let done = run.worker("exit_with.py").arg("0").finish().expect_code(0);
    assert_eq!(done.stderr, "");
}

/// CPUs as `0-3,6`.
fn cpus(list: &str) -> Vec<u32> {
    let number = |it: &str| it.parse::<u32>().unwrap();
    let run = |it: &str| {
        let (first, last) = it.split_once('-').unwrap_or((it, it));
        number(first)..=number(last)
    };
    list.split(',').flat_map(run).collect()
}

fn own_cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines
        .find_map(|it| it.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    cpus(line.trim())
}

#[test]
fn workers_keep_to_the_cpus_they_are_bound_to() {
    let all = own_cpus();
    let done = dumped(&["--numa-binding", "node"]).finish().expect_code(0);
    for (_, facts) in dumps(&done, 2) {
        let bound = cpus(facts["cpus"].as_str().unwrap());
        assert!(
            bound.iter().all(|it| all.contains(it)),
            "{bound:?} of {all:?}"
        );
    }
    let done = dumped(&["--numa-binding", "exclusive"]).finish();
    if all.len() < 2 {
        done.expect_code(1)
            .expect_said(&["fewer cores (1) for this process than devices (2)"]);
        return;
    }
    let facts = dumps(&done.expect_code(0), 2);
    let bound = facts.values().map(|it| cpus(it["cpus"].as_str().unwrap()));
    let bound: Vec<Vec<u32>> = bound.collect();
    assert!(
        bound[0].iter().all(|it| !bound[1].contains(it)),
        "{bound:?}"
    );
    for (rank, facts) in facts {
        let threads = facts["environ"]["OMP_NUM_THREADS"].as_str().unwrap();
        assert!(threads.parse::<usize>().unwrap() <= bound[rank as usize].len());
    }
}

#[test]
fn names_and_the_virtual_local_rank_reach_the_workers() {
    let done = dumped(&["--virtual-local-rank", "--rdzv-id", "run 7"])
        .env("PET_ROLE", "trainer")
        .finish()
        .expect_code(0);
    for (rank, facts) in dumps(&done, 2) {
        let environ = &facts["environ"];
        assert_eq!(environ["LOCAL_RANK"], "0");
        assert_eq!(environ["CUDA_VISIBLE_DEVICES"], rank.to_string());
        assert_eq!(environ["ROLE_NAME"], "trainer");
        assert_eq!(environ["TORCHELASTIC_RUN_ID"], "run 7");
    }
}

#[test]
fn what_the_original_would_obey_is_not_ignored_in_silence() {
    let run = dumped::<&str>(&[])
        .env("PET_RDZV_BACKEND", "c10d")
        .env("PET_STANDALONE", "1")
        .env("PET_START_METHOD", "fork")
        .env("PET_RUN_PATH", "0");
    let done = run.finish().expect_code(0);
    let expected = "fabric: set, but without effect here: PET_RDZV_BACKEND, PET_STANDALONE\n\
                    hint: unset what this run does not need; for what it needs use torchrun\n";
    assert_eq!(done.stderr, expected);
}

#[test]
fn a_dry_run_says_what_was_set_and_where() {
    let done = dumped(&["--dry-run", "--env", "A=b c", "--numa-binding", "node"])
        .env("PET_ROLE", "trainer")
        .env("FABRIC_TIMEOUT", "2h")
        .finish()
        .expect_code(0);
    for line in [
        "options       --env 'A=b c'\n",
        "              --numa-binding node\n",
        "              --timeout 2h (FABRIC_TIMEOUT)\n",
        "              --role trainer (PET_ROLE)\n",
        "time limit    7200 s (FABRIC_TIMEOUT)\n",
        "\n    on CPUs ",
    ] {
        assert!(
            done.stdout.contains(line),
            "no `{line}` in: {}",
            done.stdout
        );
    }
}
