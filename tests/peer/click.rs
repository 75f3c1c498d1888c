//! Our parser against the original's: recorded answers of click 8.5.1 with Lightning Fabric 2.6.6, and live ones to random lines.
//!
//! Words travel in JSON as `oracle.py` says: one character a byte.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Command, Usage, parse};
use crate::cli::{Request, look_at};
use crate::environ::Environ;
use crate::integer::Integer;

mod lines;

/// Where the answers were made: a directory with one of each kind of file.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new(unreadable: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["t.py", "-x", "sp ace.py", "noread.py"] {
            std::fs::write(at(name), "").unwrap();
        }
        let mode = std::fs::Permissions::from_mode(unreadable);
        std::fs::set_permissions(at("noread.py"), mode).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        symlink("nowhere", at("brokenlink")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        Self { dir }
    }

    fn parse(&self, words: Vec<OsString>) -> Result<Command, Usage> {
        let look = |path: &OsStr| {
            let at = if path.is_empty() {
                PathBuf::new()
            } else {
                self.dir.path().join(path)
            };
            look_at(at.as_os_str())
        };
        parse(words, &Environ::default(), Some(80), &look)
    }

    /// Our answer in the oracle's form, without our hints.
    fn answer(&self, words: Vec<OsString>) -> Value {
        match self.parse(words) {
            Ok(Command::Run(request)) => accepted(&request),
            Ok(Command::Show(_)) => json!({"exit": 0}),
            Ok(_) => json!({"another command": "not the original's to parse"}),
            Err(usage) => json!({"exit": 2, "stderr": without_hint(&usage.text)}),
        }
    }
}

fn accepted(request: &Request) -> Value {
    let name = |it: Option<&str>| it.map(str::to_owned);
    let number = |it: &Option<Integer>| it.as_ref().map(|it| it.text.clone());
    let options = [
        (
            "accelerator",
            request.accelerator.map(|it| it.name().to_owned()),
            "",
        ),
        ("strategy", name(request.strategy), ""),
        ("devices", Some(to_json(&request.devices.value)), "1"),
        ("num_nodes", number(&request.num_nodes), "1"),
        ("node_rank", number(&request.node_rank), "0"),
        (
            "main_address",
            request.main_address.as_deref().map(to_json),
            "127.0.0.1",
        ),
        ("main_port", number(&request.main_port), "29400"),
        ("precision", name(request.precision), ""),
    ];
    let given: Map<String, Value> = options
        .into_iter()
        .filter_map(|(name, text, default)| Some((name, text?, default)))
        .filter(|(_, text, default)| text != default)
        .map(|(name, text, _)| (name.to_owned(), text.into()))
        .collect();
    let args: Vec<String> = request.script_args.iter().map(|it| to_json(it)).collect();
    json!({"exit": 0, "options": given, "script": to_json(&request.script), "script_args": args})
}

fn without_hint(text: &str) -> &str {
    match text.rfind("\nhint: ") {
        Some(at) => &text[..=at],
        None => text,
    }
}

fn to_json(word: &OsStr) -> String {
    word.as_bytes().iter().map(|it| char::from(*it)).collect()
}

fn from_json(words: &Value) -> Vec<OsString> {
    let word = |it: &Value| {
        let bytes = it.as_str().unwrap().chars();
        OsString::from_vec(bytes.map(|it| u8::try_from(it).unwrap()).collect())
    };
    words.as_array().unwrap().iter().map(word).collect()
}

/// Recorded lines that are answered differently on purpose.
const ON_PURPOSE: [(&str, &str); 12] = [
    (
        r#"["run","--verbose","t.py"]"#,
        "an option of ours before the script",
    ),
    (
        r#"["run","t.py\u0000"]"#,
        "no process can be given a zero byte",
    ),
    (r#"[]"#, "our help names our commands"),
    (r#"["--version"]"#, "we have it"),
    (r#"["consolidate"]"#, "the original itself is asked"),
    (
        r#"["consolidate","--help"]"#,
        "the original itself is asked",
    ),
    (r#"["consolidate","nope"]"#, "the original itself is asked"),
    (r#"["consolidate","dir"]"#, "the original itself is asked"),
    (
        r#"["consolidate","dir","x"]"#,
        "the original itself is asked",
    ),
    (
        r#"["consolidate","dir","--foo"]"#,
        "the original itself is asked",
    ),
    (
        r#"["consolidate","dir","--output_file","o.pt"]"#,
        "the original itself is asked",
    ),
    (
        r#"["consolidate","dir","--output-file","o.pt"]"#,
        "the original itself is asked",
    ),
];

#[test]
fn recorded_lines_are_answered_as_by_the_original() {
    // The answers were recorded as root, who may read every file.
    let place = Place::new(0o644);
    let cases: Vec<&str> = include_str!("data/click_cases.jsonl").lines().collect();
    assert_eq!(cases.len(), 296);
    for case in cases {
        let mut theirs: Value = serde_json::from_str(case).unwrap();
        let words = theirs.as_object_mut().unwrap().remove("argv").unwrap();
        let ours = place.answer(from_json(&words));
        let line = words.to_string();
        match ON_PURPOSE.iter().find(|(it, _)| *it == line) {
            None => assert_eq!(ours, theirs, "{line}"),
            Some((_, reason)) => {
                assert_ne!(ours, theirs, "{line}: no difference, so why {reason}?")
            }
        }
    }
}

/// What asks the original itself.
mod live {
    use super::*;

    #[test]
    fn random_lines_are_answered_as_by_the_original() {
        let environ = Environ::of_this_process();
        let number = |name, default| environ.text(name).map_or(default, |it| it.parse().unwrap());
        let (seed, count) = (
            number("FABRIC_TEST_SEED", 1),
            number("FABRIC_TEST_LINES", 5000),
        );
        let place = Place::new(0o000);
        let lines: Vec<Vec<OsString>> = lines::random(seed).take(count as usize).collect();
        let (mut accepted, mut refused) = (0, 0);
        for (words, theirs) in lines.iter().zip(ask_the_original(&environ, &place, &lines)) {
            let ours = place.answer(words.clone());
            if ours == theirs {
                accepted += u64::from(ours.get("script").is_some());
                refused += u64::from(ours["exit"] == 2);
            } else {
                assert!(
                    suggests_ours(&ours),
                    "seed {seed}, {words:?}\n  ours: {ours}\ntheirs: {theirs}"
                );
            }
        }
        // Lines that mean something, and lines that are wrong: the comparison is worth its name.
        assert!(
            accepted > count / 3 && refused > count / 5,
            "{accepted} and {refused} of {count}"
        );
    }

    /// A mistyped command may resemble one that only we have.
    fn suggests_ours(ours: &Value) -> bool {
        let text = ours["stderr"].as_str().unwrap_or_default();
        let (_, suggestion) = text.split_once("id you mean ").unwrap_or_default();
        ["'man'", "'completions'", "'link'", "'--version'"]
            .iter()
            .any(|it| suggestion.contains(it))
    }

    /// The original's answers, in order.
    fn ask_the_original(environ: &Environ, place: &Place, lines: &[Vec<OsString>]) -> Vec<Value> {
        let python = environ.text("FABRIC_TEST_PYTHON").expect(
        "FABRIC_TEST_PYTHON must name a Python that has the original: \
         python3 -m venv V && V/bin/pip install lightning click && export FABRIC_TEST_PYTHON=V/bin/python",
    );
        let mut oracle = Process::new(std::path::absolute(python).unwrap())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer/oracle.py"))
            .current_dir(place.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut questions = oracle.stdin.take().unwrap();
        let answers = BufReader::new(oracle.stdout.take().unwrap());
        let answers = std::thread::scope(|scope| {
            scope.spawn(move || {
                for words in lines {
                    let words: Vec<String> = words.iter().map(|it| to_json(it)).collect();
                    writeln!(questions, "{}", json!(words)).unwrap();
                }
            });
            let parsed = answers
                .lines()
                .map(|it| serde_json::from_str(&it.unwrap()).unwrap());
            parsed.collect::<Vec<Value>>()
        });
        assert!(oracle.wait().unwrap().success());
        assert_eq!(answers.len(), lines.len());
        answers
    }
}
