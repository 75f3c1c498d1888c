//! What a worker gets: its variables, its arguments, and the process it finds itself in.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Fabric, Finished, binary, free_port, python, workers};

type Variables = BTreeMap<String, String>;

/// The launcher's variables in these tests besides PATH, TMPDIR and the mark.
/// A locale, or Python adds one to what programs started by it find.
const USER: &[(&str, &str)] = &[
    ("LOGNAME", "jo"),
    ("GREETING", "good morning"),
    ("LC_ALL", "C.UTF-8"),
];

/// `fabric run OPTIONS dump.py` for a user with USER's variables.
fn dump(options: &[&str]) -> Fabric {
    let run = USER
        .iter()
        .fold(Fabric::run(), |run, (name, value)| run.env(name, value));
    run.args(options).worker("dump.py").scratch_arg()
}

/// What the worker of that rank wrote down.
#[track_caller]
fn seen(done: &Finished, rank: u32) -> Value {
    let path = done.scratch.path().join(format!("{rank}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[track_caller]
fn variables(done: &Finished, rank: u32) -> Variables {
    serde_json::from_value(seen(done, rank)["environ"].clone()).unwrap()
}

#[track_caller]
fn argv(done: &Finished, rank: u32) -> Vec<String> {
    serde_json::from_value(seen(done, rank)["argv"].clone()).unwrap()
}

/// Runs with these variables exported before; what rank 0 finds of the same names.
fn exported(options: &[&str], before: &[(&str, &str)]) -> Variables {
    let run = dump(options);
    let run = before
        .iter()
        .fold(run, |run, (name, value)| run.env(name, value));
    let mut found = variables(&run.finish().expect_code(0), 0);
    found.retain(|name, _| before.iter().any(|(it, _)| it == name));
    found
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

#[test]
fn a_worker_has_the_users_variables_and_these_and_no_other() {
    let run = dump(&[
        "--devices",
        "2",
        "--accelerator",
        "cpu",
        "--strategy",
        "ddp",
    ]);
    let run = run.env("NOT_UTF8", OsStr::from_bytes(b"\xff\xfe"));
    let done = run.finish().expect_code(0);
    let folder = done.scratch.path().to_str().unwrap();
    let threads = (cpus() / 2).max(1).to_string();
    let cache = format!("{folder}/torchinductor_jo");
    for rank in ["0", "1"] {
        let mut found = variables(&done, rank.parse().unwrap());
        let error_file = found.remove("TORCHELASTIC_ERROR_FILE").unwrap();
        let name = format!("/error_{rank}.json");
        assert!(
            error_file.starts_with(&format!("{folder}/torchelastic_")),
            "{error_file}"
        );
        assert!(error_file.ends_with(&name), "{error_file}");
        for name in ["PATH", "FABRIC_TEST_RUN", "TMPDIR"] {
            assert!(found.remove(name).is_some(), "{name}");
        }
        let expected = [
            ("NOT_UTF8", "\u{ff}\u{fe}"),
            ("LT_CLI_USED", "1"),
            ("LT_DEVICES", "2"),
            ("LT_NUM_NODES", "1"),
            ("LT_ACCELERATOR", "cpu"),
            ("LT_STRATEGY", "ddp"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            ("NODE_RANK", "0"),
            ("ROLE_NAME", "default"),
            ("ROLE_RANK", rank),
            ("ROLE_WORLD_SIZE", "2"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "0"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            (
                "TORCHELASTIC_SIGNALS_TO_HANDLE",
                "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            ),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("OMP_NUM_THREADS", &threads),
            ("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),
            ("TORCHINDUCTOR_CACHE_DIR", &cache),
        ];
        assert!(found.remove("MASTER_PORT").unwrap().parse::<u16>().unwrap() > 0);
        let expected = USER.iter().chain(&expected);
        let expected: Variables = expected
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn what_the_launcher_decides_wins_over_what_the_user_exported() {
    let port = free_port().to_string();
    let ours = [
        ("LT_CLI_USED", "1"),
        ("LT_DEVICES", "1"),
        ("LT_NUM_NODES", "1"),
        ("LT_ACCELERATOR", "cpu"),
        ("LT_STRATEGY", "fsdp"),
        ("LT_PRECISION", "bf16-mixed"),
        ("MASTER_ADDR", "::1"),
        ("MASTER_PORT", &port),
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("GROUP_RANK", "0"),
        ("GROUP_WORLD_SIZE", "1"),
        ("NODE_RANK", "0"),
        ("ROLE_NAME", "default"),
        ("ROLE_RANK", "0"),
        ("ROLE_WORLD_SIZE", "1"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        (
            "TORCHELASTIC_SIGNALS_TO_HANDLE",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        ),
        ("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),
    ];
    // Without it that many of torchrun's variables would make this a worker of torchrun.
    let options = [
        "--cluster",
        "none",
        "--accelerator",
        "cpu",
        "--strategy",
        "fsdp",
        "--precision",
        "bf16-mixed",
        "--main-address",
        "[::1]",
        "--main-port",
        &port,
    ];
    let expected: Variables = ours
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    for users in ["99", ""] {
        let before = ours.map(|(name, _)| (name, users));
        assert_eq!(
            exported(&options, &before),
            expected,
            "exported before: `{users}`"
        );
    }
}

#[test]
fn what_is_the_users_choice_stays_also_when_it_is_empty() {
    for users in ["17", ""] {
        let before = [
            "OMP_NUM_THREADS",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "TORCHINDUCTOR_CACHE_DIR",
            "CUDA_VISIBLE_DEVICES",
            "PYTHONUNBUFFERED",
            "LT_ACCELERATOR",
            "LT_STRATEGY",
            "LT_PRECISION",
        ]
        .map(|name| (name, users));
        let kept: Variables = before
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        assert_eq!(exported(&[], &before), kept);
    }
}

#[test]
fn a_launch_within_a_launch_starts_clean() {
    let outer = Fabric::run().args([
        "--strategy",
        "ddp",
        "--precision",
        "16",
        "--accelerator",
        "cpu",
    ]);
    let outer = USER
        .iter()
        .fold(outer, |run, (name, value)| run.env(name, value));
    let nested = outer
        .worker("become.py")
        .args(["--", binary(), "run", "--devices", "2"]);
    let nested = nested
        .worker("dump.py")
        .scratch_arg()
        .finish()
        .expect_code(0);
    let direct = dump(&["--devices", "2"]).finish().expect_code(0);
    for rank in [0, 1] {
        let (mut nested, mut direct) = (variables(&nested, rank), variables(&direct, rank));
        // The run's own, and what was set for one worker and now counts as its user's choice.
        for name in [
            "FABRIC_TEST_RUN",
            "MASTER_PORT",
            "OMP_NUM_THREADS",
            "TMPDIR",
            "TORCHELASTIC_ERROR_FILE",
            "TORCHINDUCTOR_CACHE_DIR",
        ] {
            let both = [nested.remove(name), direct.remove(name)];
            assert!(both.iter().all(Option::is_some), "{name}: {both:?}");
        }
        assert_eq!(nested, direct);
    }
}

#[test]
fn threads_are_shared_out_of_the_cpus_that_the_launcher_may_use() {
    let run = Fabric::through("taskset", &["-c", "0", binary(), "run", "--devices", "2"]);
    let done = run.worker("dump.py").scratch_arg().finish().expect_code(0);
    assert_eq!(variables(&done, 1)["OMP_NUM_THREADS"], "1");
    let done = dump(&[]).finish().expect_code(0);
    assert_eq!(variables(&done, 0)["OMP_NUM_THREADS"], cpus().to_string());
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let odd: &[&[u8]] = &[
        b"a b",
        b"",
        b" ",
        b"'single'",
        b"\"double\"",
        b"$HOME",
        b"${local_rank}",
        b"$local_rank",
        b"$$",
        b"line\nbreak",
        b"tab\t",
        "sm\u{f8}rrebr\u{f8}d \u{1f95e}".as_bytes(),
        b"\xff\xfe bytes",
        b"--mo",
        b"0.9",
        b"--r=16",
        b"--log",
        b"{\"lr\": [1e-3, null]}",
        b"-4C",
        b"*.py",
        b"@x",
        b"~",
        b"+model=big",
        b"hydra.run.dir='.'",
        b"model.layers=[1,2]",
        b"~trainer",
        b"--multirun",
        b"-x=\\",
        b"-",
        b"---",
        b"-- --",
        b"--",
        // A second `--` is the script's own.
        b"--",
        b"--devices",
        b"7",
        b"--help",
    ];
    let run = Fabric::run()
        .args(["--devices", "2"])
        .worker("dump.py")
        .scratch_arg();
    let done = run
        .args(odd.iter().map(|it| OsStr::from_bytes(it)))
        .finish()
        .expect_code(0);
    let latin = |bytes: &[u8]| bytes.iter().map(|it| char::from(*it)).collect::<String>();
    // The first `--` ends the launcher's own options and is gone; all else is there.
    let first = odd.iter().position(|it| *it == b"--").unwrap();
    let expected = odd
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != first);
    let expected: Vec<String> = expected.map(|(_, it)| latin(it)).collect();
    for rank in [0, 1] {
        assert_eq!(argv(&done, rank)[4..], expected);
    }
}

#[test]
fn the_command_is_the_interpreter_unbuffered_and_the_script_as_typed() {
    let typed = "./tests/../tests//workers/dump.py";
    let run = Fabric::run().arg(typed).scratch_arg();
    let folder = run.scratch().to_str().unwrap().to_owned();
    let done = run.finish().expect_code(0);
    let interpreter = python().to_str().unwrap();
    assert_eq!(argv(&done, 0), [interpreter, "-u", typed, &folder]);
}

#[test]
fn a_script_may_have_any_name() {
    let run = Fabric::run();
    let script = run.scratch().join(OsStr::from_bytes(b"my -- \xff script"));
    fs::copy(workers().join("dump.py"), &script).unwrap();
    let done = run.arg(&script).scratch_arg().finish().expect_code(0);
    let latin: String = script
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|it| char::from(*it))
        .collect();
    assert_eq!(argv(&done, 0)[2], latin);
}

#[test]
fn folder_mask_niceness_and_limits_are_the_launchers() {
    let shell = "umask 027; ulimit -n 77; exec nice -n 3 \"$@\" 7</dev/null 8>&2 9<.";
    let run = Fabric::through(
        "sh",
        &["-c", shell, "sh", binary(), "run", "--devices", "2"],
    );
    let folder = run.scratch().canonicalize().unwrap();
    let before = niceness();
    let done = run
        .worker("dump.py")
        .scratch_arg()
        .cwd(&folder)
        .finish()
        .expect_code(0);
    for rank in [0, 1] {
        let seen = seen(&done, rank);
        assert_eq!(seen["cwd"], folder.to_str().unwrap());
        assert_eq!(seen["umask"], 0o027);
        assert_eq!(seen["nice"], (before + 3).min(19));
        assert_eq!(seen["files"], serde_json::json!([77, 77]));
        assert_eq!(
            seen["fds"],
            serde_json::json!([0, 1, 2]),
            "the launcher had 7, 8 and 9 open as well"
        );
    }
}

/// Field 19 of proc(5)'s stat.
fn niceness() -> i64 {
    let line = fs::read_to_string("/proc/self/stat").unwrap();
    line.rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(16)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn each_worker_leads_a_session_of_its_own() {
    let done = dump(&["--devices", "2"]).finish().expect_code(0);
    let ids = [0, 1].map(|rank| seen(&done, rank)["ids"].clone());
    for id in &ids {
        assert_eq!(id["sid"], id["pid"]);
        assert_eq!(id["pgid"], id["pid"]);
    }
    assert_ne!(ids[0]["pid"], ids[1]["pid"]);
    assert_eq!(ids[0]["ppid"], ids[1]["ppid"]);
}

/// Runs the launcher out of a process with odd signal settings, and a worker that is no Python, which has
/// settings of its own. Returns the worker's masks as the kernel shows them: blocked, ignored, caught, without
/// the two signals that the C library keeps for itself and its posix_spawn(3) leaves ignored.
fn signals_of_a_worker(settings: &str) -> [u64; 3] {
    let program =
        format!("import os, signal, sys\n{settings}\nos.execv(sys.argv[1], sys.argv[1:])");
    let python = python().to_str().unwrap();
    let run = Fabric::through(
        python,
        &["-c", &program, binary(), "run", "--python", "/bin/sh"],
    );
    let script = run.scratch().join("worker.sh");
    fs::write(&script, "exec cat /proc/self/status").unwrap();
    let done = run.arg(&script).finish().expect_code(0);
    ["SigBlk", "SigIgn", "SigCgt"].map(|name| {
        let line = done
            .stdout
            .lines()
            .find_map(|it| it.strip_prefix(&format!("{name}:\t")));
        u64::from_str_radix(line.unwrap(), 16).unwrap() & !(0b11 << 31)
    })
}

#[test]
fn a_worker_starts_with_no_signal_blocked_or_ignored() {
    let settings = "
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())";
    assert_eq!(signals_of_a_worker(settings), [0, 0, 0]);
}

#[test]
fn what_nohup_ignores_stays_ignored() {
    let bit = |signal: nix::sys::signal::Signal| 1u64 << (signal as i32 - 1);
    let settings = "signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)";
    let [_, ignored, _] = signals_of_a_worker(settings);
    assert_eq!(
        ignored,
        bit(nix::sys::signal::SIGHUP) | bit(nix::sys::signal::SIGINT)
    );
}

#[test]
fn standard_input_is_rank_zeros() {
    let run = Fabric::run()
        .args(["--devices", "3"])
        .worker("stdin_reader.py")
        .scratch_arg();
    let input = run.scratch().join("input");
    fs::write(&input, "one\ntwo\n").unwrap();
    let done = run
        .stdin(fs::File::open(&input).unwrap())
        .finish()
        .expect_code(0);
    let read =
        |rank: u32| fs::read_to_string(done.scratch.path().join(format!("{rank}.stdin"))).unwrap();
    assert_eq!([read(0), read(1), read(2)], ["one\ntwo\n", "", ""]);
}

/// A folder that looks like a virtual environment, whose Python only says where it is.
fn environment(folder: &Path, name: &str) {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    program(&bin.join(name));
}

fn program(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, "#!/bin/sh\necho \"$0\"\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_interpreter_is_searched_for_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, program) in [
        ("venv", "python"),
        ("active", "python3"),
        ("conda", "python"),
        ("path", "python3"),
        ("old", "python"),
    ] {
        environment(&at(name), program);
    }
    program(&at("named"));
    program(&at("exec"));
    fs::write(at("venv/pyvenv.cfg"), "").unwrap();
    fs::copy(binary(), at("venv/bin/fabric")).unwrap();
    let installed = at("venv/bin/fabric");
    let (installed, apart) = (installed.to_str().unwrap(), binary());
    let full = format!("{}:{}", at("old/bin").display(), at("path/bin").display());

    let check = |fabric: &str,
                 options: &[&str],
                 exec: bool,
                 active: bool,
                 conda: bool,
                 path: &str,
                 expected: &str| {
        let mut run = Fabric::through(fabric, &["run"])
            .args(options)
            .env("PATH", path);
        for (there, name, value) in [
            (exec, "PYTHON_EXEC", "exec"),
            (active, "VIRTUAL_ENV", "active"),
            (conda, "CONDA_PREFIX", "conda"),
        ] {
            if there {
                run = run.env(name, at(value));
            }
        }
        let done = run.worker("exit_with.py").finish().expect_code(0);
        assert_eq!(done.stdout.trim_end(), at(expected).to_str().unwrap());
    };
    let named = at("named");
    let named = ["--python", named.to_str().unwrap()];
    check(installed, &named, true, true, true, &full, "named");
    check(installed, &[], true, true, true, &full, "exec");
    check(installed, &[], false, true, true, &full, "venv/bin/python");
    check(apart, &[], false, true, true, &full, "active/bin/python3");
    check(apart, &[], false, false, true, &full, "conda/bin/python");
    check(apart, &[], false, false, false, &full, "path/bin/python3");
    check(
        apart,
        &[],
        false,
        false,
        false,
        at("old/bin").to_str().unwrap(),
        "old/bin/python",
    );
}

#[test]
fn without_an_interpreter_the_search_is_told() {
    let nowhere = || {
        Fabric::run()
            .env("PATH", "/nowhere")
            .env("VIRTUAL_ENV", "/no/venv")
    };
    nowhere().worker("exit_with.py").finish().expect_code(1).expect_said(&[
        "fabric: no Python interpreter found; tried /no/venv/bin (VIRTUAL_ENV), python3 and python on PATH `/nowhere`\n",
        "hint: name one with --python PATH or the variable PYTHON_EXEC\n",
    ]);
    let gone = nowhere()
        .env("PYTHON_EXEC", "/no/python")
        .worker("exit_with.py")
        .finish();
    gone.expect_code(1).expect_said(&[
        "fabric: the interpreter `/no/python` (PYTHON_EXEC) does not exist or cannot be executed\n\
         hint: `command -v python3` prints the one of this shell\n",
    ]);
}
