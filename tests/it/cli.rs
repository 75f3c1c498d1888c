//! The command line of the real binary: which stream, which exit code, and that arguments come out as they went in.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Output};

const USAGE: &str =
    "Usage: fabric run [OPTIONS] SCRIPT [SCRIPT_ARGS]...\nTry 'fabric run --help' for help.\n\n";

#[expect(
    clippy::disallowed_methods,
    reason = "the tests' own environment is not the launcher's"
)]
fn fabric<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.args(words).env_clear().env("PATH", path);
    command
}

fn run(words: &[&str]) -> Output {
    fabric(words).output().unwrap()
}

#[track_caller]
fn check_refused(words: &[&str], expected: &str) {
    let output = run(words);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
}

#[test]
fn what_was_asked_for_goes_to_stdout() {
    for words in [
        vec!["--help"],
        vec!["--version"],
        vec!["run", "--help"],
        vec!["run", "no-such.py", "--help"],
        vec!["doctor", "--help"],
        vec!["ps", "--help"],
        vec!["stop", "--help"],
        vec!["completions", "bash"],
        vec!["man"],
    ] {
        let output = run(&words);
        assert_eq!(
            (output.status.code(), output.stderr),
            (Some(0), Vec::new()),
            "{words:?}"
        );
        assert!(output.stdout.ends_with(b"\n"), "{words:?}");
    }
}

#[test]
fn a_wrong_line_is_answered_on_stderr_with_exit_code_2() {
    let expected = format!("{USAGE}Error: Missing argument 'SCRIPT'.\n");
    check_refused(&["run"], &expected);
    let expected =
        format!("{USAGE}Error: Invalid value for 'SCRIPT': Path 'no-such.py' does not exist.\n");
    check_refused(&["run", "no-such.py"], &expected);
    check_refused(
        &["run", "--devices"],
        "Error: Option '--devices' requires an argument.\n",
    );
}

#[test]
fn no_word_at_all_gets_the_help_on_stderr() {
    let (bare, help) = (run(&[]), run(&["--help"]));
    assert_eq!((bare.status.code(), bare.stderr), (Some(2), help.stdout));
}

#[test]
fn the_help_fits_the_columns_that_the_environment_names() {
    for (columns, limit) in [("60", 58), ("200", 78)] {
        let output = fabric(["run", "--help"])
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let widest = text.lines().map(|it| it.chars().count()).max();
        assert!(
            widest.is_some_and(|it| it <= limit && it > limit - 10),
            "{text}"
        );
    }
}

/// As in `fabric run --help | head -1`.
#[test]
fn a_reader_that_has_gone_is_no_reason_to_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = fabric(["run", "--help"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn odd_arguments_reach_the_script_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("show.py");
    let show = "import os, sys\nprint(*[os.fsencode(it).hex() for it in sys.argv[1:]], sep=',')\n";
    std::fs::write(&script, show).unwrap();
    let args: Vec<OsString> = [
        "",
        " ",
        "a b",
        "\t\n",
        "-",
        "--",
        "-x",
        "--mo",
        "0.9",
        "--log",
        "--n=2",
        "--dry-run",
        "-v",
        "--python",
        "$HOME",
        "$$",
        "${local_rank}",
        "*",
        "~",
        "'\"\\",
        "--lr=1e-3",
        "é٣😀",
        "@file",
        "%s",
    ]
    .map(OsString::from)
    .into_iter()
    .chain([OsString::from_vec(b"\xff\xfe=\xc3".to_vec())])
    .collect();
    let start = ["run", "--accelerator", "cpu"].map(OsString::from);
    // click drops the first `--`, and what follows is all the script's.
    let words = start
        .into_iter()
        .chain([script.into(), "--".into()])
        .chain(args.clone());
    let output = fabric(words).output().unwrap();
    let hex = |word: &OsString| {
        word.as_bytes()
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect::<String>()
    };
    let expected = args.iter().map(hex).collect::<Vec<_>>().join(",") + "\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
