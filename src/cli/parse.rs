//! `fabric`: which command, and what it is asked to do.
//!
//! Before the command click's grammar for a group holds: options end at the first other word, unknown
//! ones are errors, one `--` is skipped. After it, `run` has click's grammar of its own, `consolidate` takes
//! everything as it is, and of the commands that only we have `doctor` reads the words of a `run` and
//! the others are clap's.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap_complete::Shell;

use crate::environ::Environ;
use crate::integer::Integer;

use super::commands;
use super::hint::{self, Look};
use super::queries::{Doctor, Ps, Stop};
use super::repr::repr;
use super::request::Request;
use super::run;
use super::similar::{CUTOFF, close_matches};
use super::usage::{Form, Usage};

/// What the command line asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Run(Box<Request>),
    Doctor(Box<Doctor>),
    Ps(Ps),
    Stop(Stop),
    /// To print a text on stdout: help, version, completions, the man page.
    Show(String),
    /// `fabric consolidate` with these words, for the Python original.
    Consolidate(Vec<OsString>),
    /// To make `fabric` in our bin folder start this program, or what it started before.
    Link,
    Unlink,
}

/// The command of the words after the program's name. `terminal` is the width of the terminal in
/// columns, where there is one; the variable COLUMNS wins over it.
pub(crate) fn parse(
    words: impl IntoIterator<Item = OsString>,
    environ: &Environ,
    terminal: Option<usize>,
    look: Look,
) -> Result<Command, Usage> {
    if let Some(script) = click_completion(environ) {
        return Ok(Command::Show(script));
    }
    let mut words: VecDeque<OsString> = words.into_iter().collect();
    let width = help_width(environ, terminal);
    if words.is_empty() {
        let text = commands::group_help(width);
        return Err(Usage { text });
    }
    if let Some(shown) = group_options(&mut words, width)? {
        return Ok(Command::Show(shown));
    }
    let Some(name) = words.pop_front() else {
        return Err(Usage::new(Form::Group, "Missing command."));
    };
    match name.to_str() {
        Some("run") => Ok(match run::parse(words, environ, look)? {
            Some(request) => Command::Run(Box::new(request)),
            None => Command::Show(commands::run_help(width)),
        }),
        Some("doctor") => Ok(match run::parse_doctor(words, environ, look)? {
            Some(doctor) => Command::Doctor(Box::new(doctor)),
            None => Command::Show(commands::doctor_help(width)),
        }),
        Some("consolidate") => Ok(Command::Consolidate(words.into())),
        Some(known) if commands::names().iter().any(|it| it == known) => own(name, words, width),
        _ => unknown(name, words, width, look),
    }
}

/// Start files of shells may ask for completions as click has them asked for (`click/shell_completion.py`, 8.5):
/// `eval "$(_FABRIC_COMPLETE=bash_source fabric)"`. A script of click's that was kept gets no answers.
fn click_completion(environ: &Environ) -> Option<String> {
    let (shell, task) = environ.text("_FABRIC_COMPLETE")?.rsplit_once('_')?;
    let shell: Shell = shell.parse().ok()?;
    match task {
        "source" => Some(commands::completion_script(shell)),
        "complete" => Some(String::new()),
        _ => None,
    }
}

/// As wide as click's: two columns less than the terminal, which counts as 80 columns at most.
fn help_width(environ: &Environ, terminal: Option<usize>) -> usize {
    let columns = environ.text("COLUMNS").and_then(Integer::parse);
    let columns = columns.and_then(|it| usize::try_from(it.value?).ok());
    let columns = columns.filter(|it| *it > 0).or(terminal).unwrap_or(80);
    columns.clamp(52, 80) - 2
}

/// Takes the options before the command away; the text to show, when one of them asks for it.
fn group_options(words: &mut VecDeque<OsString>, width: usize) -> Result<Option<String>, Usage> {
    let mut shown = None;
    while let Some(word) = words.front().filter(|it| is_option(it)) {
        let is_end = word == "--";
        let text = if is_end {
            None
        } else {
            Some(group_option(word, width)?)
        };
        words.pop_front();
        if is_end {
            break;
        }
        shown = shown.or(text);
    }
    Ok(shown)
}

fn is_option(word: &OsStr) -> bool {
    word.len() > 1 && word.as_bytes().starts_with(b"-")
}

fn group_option(word: &OsStr, width: usize) -> Result<String, Usage> {
    let name = word.as_bytes().split(|it| *it == b'=').next();
    let name = OsStr::from_bytes(name.unwrap_or_default());
    let show: &dyn Fn() -> String = match name.to_str() {
        Some("--help") => &|| commands::group_help(width),
        Some("--version") => &version,
        _ => return Err(unknown_option(word, name)),
    };
    if name != word {
        let message = format!("Option {} does not take a value.", repr(name));
        return Err(Usage::bare(&message));
    }
    Ok(show())
}

fn version() -> String {
    concat!("fabric ", env!("CARGO_PKG_VERSION"), "\n").to_owned()
}

/// Of a word with one dash click names the first letter only.
fn unknown_option(word: &OsStr, name: &OsStr) -> Usage {
    if !word.as_bytes().starts_with(b"--") {
        let message = format!("No such option {}.", repr(first_letter(word)));
        return Usage::new(Form::Group, &message);
    }
    let message = format!("No such option {}.", repr(name));
    let name = name.to_string_lossy();
    let message = message + &did_you_mean(&name, &["--help", "--version"]);
    Usage::new(Form::Group, &message).hint(hint::before_command(&name))
}

/// The dash and one character after it; a byte that is not UTF-8 counts as one.
fn first_letter(word: &OsStr) -> &OsStr {
    let first = word.as_bytes()[1..].utf8_chunks().next();
    let size = first.and_then(|it| it.valid().chars().next());
    OsStr::from_bytes(&word.as_bytes()[..1 + size.map_or(1, char::len_utf8)])
}

fn did_you_mean(word: &str, known: &[&str]) -> String {
    let mut close = close_matches(word, known.iter().copied(), CUTOFF);
    close.sort_unstable();
    let quoted: Vec<String> = close.iter().map(|it| format!("'{it}'")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!(" Did you mean {one}?"),
        several => format!(" (Did you mean one of: {}?)", several.join(", ")),
    }
}

/// click looks at a word that is no command once more, as an option, when it looks like one.
fn unknown(
    name: OsString,
    mut words: VecDeque<OsString>,
    width: usize,
    look: Look,
) -> Result<Command, Usage> {
    words.push_front(name.clone());
    if let Some(shown) = group_options(&mut words, width)? {
        return Ok(Command::Show(shown));
    }
    let known = commands::names();
    // difflib takes `runn` for `unlink` as well.
    let likely = known.iter().filter(|it| *it != "unlink");
    let known: Vec<&str> = likely.map(String::as_str).collect();
    let message = format!("No such command {}.", repr(&name));
    let message = message + &did_you_mean(&name.to_string_lossy(), &known);
    Err(Usage::new(Form::Group, &message).hint(hint::unknown_command(&name, look)))
}

/// A command that the original does not have.
fn own(name: OsString, words: VecDeque<OsString>, width: usize) -> Result<Command, Usage> {
    let words = [OsString::from("fabric"), name].into_iter().chain(words);
    let matches = match commands::root(width).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => {
            let text = error.render().to_string();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Command::Show(text)),
                _ => Err(Usage { text }),
            };
        }
    };
    Ok(match matches.subcommand() {
        Some(("ps", asked)) => Command::Ps(Ps {
            json: asked.get_flag("json"),
            watch: asked.get_one("watch").copied(),
        }),
        Some(("stop", asked)) => Command::Stop(Stop {
            launch: *required(asked, "launch"),
            now: asked.get_flag("now"),
        }),
        Some(("link", _)) => Command::Link,
        Some(("unlink", _)) => Command::Unlink,
        Some(("completions", asked)) => {
            let shell: &Shell = required(asked, "shell");
            Command::Show(commands::completion_script(*shell))
        }
        _ => Command::Show(commands::man_page()),
    })
}

fn required<'m, T: Clone + Send + Sync + 'static>(asked: &'m ArgMatches, name: &str) -> &'m T {
    asked.get_one(name).expect("clap asks for it")
}

/// The proof that this is a drop-in: the original is asked. It lies with the other facts about the original.
#[cfg(test)]
#[path = "../../tests/peer/click.rs"]
mod click;

#[cfg(test)]
mod tests {
    use super::super::script::ScriptFile;
    use super::*;

    const USAGE: &str = "Usage: fabric [OPTIONS] COMMAND [ARGS]...\n\
                         Try 'fabric --help' for help.\n\nError: ";

    fn parse_line(line: &str) -> Result<Command, Usage> {
        let look = |path: &OsStr| match path.to_str() {
            Some("t.py") => ScriptFile::Ok,
            _ => ScriptFile::Missing,
        };
        let words = line.split_whitespace().map(OsString::from);
        parse(words, &Environ::default(), None, &look)
    }

    #[test]
    fn shells_that_ask_as_click_taught_them_are_answered() {
        let asked = |task: &str| {
            let environ = [("_FABRIC_COMPLETE", task)].into_iter().collect();
            parse([], &environ, None, &|_| ScriptFile::Missing)
        };
        let zsh = parse_line("completions zsh");
        assert_eq!(asked("zsh_source"), zsh);
        assert_eq!(asked("bash_complete"), Ok(Command::Show(String::new())));
        assert!(asked("tcsh_source").is_err() && asked("bash").is_err());
    }

    #[track_caller]
    fn check_shown(line: &str, start: &str) {
        match parse_line(line) {
            Ok(Command::Show(text)) => assert!(text.starts_with(start), "{text}"),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn check_refused(line: &str, expected: &str) {
        assert_eq!(parse_line(line).unwrap_err().text, expected, "{line}");
    }

    #[test]
    fn texts_for_stdout() {
        check_shown("--help", "Usage: fabric [OPTIONS] COMMAND [ARGS]...\n");
        check_shown(
            "run --help",
            "Usage: fabric run [OPTIONS] SCRIPT [SCRIPT_ARGS]...\n",
        );
        check_shown("run t.py a --help", "Usage: fabric run [OPTIONS]");
        check_shown(
            "--version",
            concat!("fabric ", env!("CARGO_PKG_VERSION"), "\n"),
        );
        check_shown("--version --help run", "fabric ");
        check_shown("completions --help", "Usage: fabric completions <SHELL>\n");
        check_shown("completions zsh", "#compdef fabric\n");
        check_shown("man", ".ie \\n(.g");
    }

    #[test]
    fn no_word_at_all_gets_the_help_as_an_error() {
        check_refused("", &commands::group_help(78));
        check_refused("--", &format!("{USAGE}Missing command.\n"));
    }

    #[test]
    fn run_gets_its_request() {
        let Ok(Command::Run(request)) = parse_line("-- run t.py x") else {
            panic!("not a run");
        };
        assert_eq!(
            (request.script, request.script_args),
            ("t.py".into(), vec!["x".into()])
        );
    }

    #[test]
    fn launches_are_asked_for_and_stopped() {
        let ps = |json, watch: Option<u64>| {
            let watch = watch.map(std::time::Duration::from_secs);
            Ok(Command::Ps(Ps { json, watch }))
        };
        assert_eq!(parse_line("ps"), ps(false, None));
        assert_eq!(parse_line("ps --json --watch"), ps(true, Some(2)));
        assert_eq!(parse_line("ps --watch 5"), ps(false, Some(5)));
        for wrong in [
            "ps --watch 0",
            "ps --watch nan",
            "ps x",
            "stop",
            "stop -1",
            "stop 0",
        ] {
            assert!(parse_line(wrong).is_err(), "{wrong}");
        }
        let stop = |now| Ok(Command::Stop(Stop { launch: 4711, now }));
        assert_eq!(parse_line("stop 4711"), stop(false));
        assert_eq!(parse_line("stop --now 4711"), stop(true));
    }

    #[test]
    fn the_doctor_gets_its_request() {
        let Ok(Command::Doctor(doctor)) = parse_line("doctor --json --devices 2") else {
            panic!("not the doctor");
        };
        assert!(doctor.json && doctor.request.script.is_empty());
        check_shown("doctor --help", "Usage: fabric doctor [OPTIONS] [SCRIPT");
    }

    #[test]
    fn consolidate_is_handed_through() {
        let words = ["--help", "--", "dir"].map(OsString::from).to_vec();
        assert_eq!(
            parse_line("consolidate --help -- dir"),
            Ok(Command::Consolidate(words))
        );
    }

    #[test]
    fn suggestions_name_our_commands_too() {
        check_refused(
            "completion",
            &format!("{USAGE}No such command 'completion'. Did you mean 'completions'?\n"),
        );
        check_refused(
            "doktor",
            &format!("{USAGE}No such command 'doktor'. Did you mean 'doctor'?\n"),
        );
        check_refused(
            "--versio",
            &format!("{USAGE}No such option '--versio'. Did you mean '--version'?\n"),
        );
    }

    #[test]
    fn hints_show_the_right_place() {
        let expected = format!(
            "{USAGE}No such command 't.py'.\nhint: to run a script, say `fabric run t.py`\n"
        );
        check_refused("t.py", &expected);
        let expected = format!(
            "{USAGE}No such option '--devices'.\n\
             hint: `--devices` goes after the command: `fabric run --devices ...`\n"
        );
        check_refused("--devices 2 run t.py", &expected);
    }

    #[test]
    fn own_commands_are_checked_by_clap() {
        let usage = parse_line("completions tcsh").unwrap_err();
        assert!(
            usage
                .text
                .starts_with("error: invalid value 'tcsh' for '<SHELL>'\n"),
            "{}",
            usage.text
        );
        assert!(parse_line("man x").is_err());
        assert_eq!(parse_line("link"), Ok(Command::Link));
        assert_eq!(parse_line("unlink"), Ok(Command::Unlink));
        assert!(parse_line("link /usr/bin").is_err());
    }

    #[track_caller]
    fn check_width(columns: &[(&str, &str)], terminal: Option<usize>, expected: usize) {
        let environ = columns.iter().copied().collect();
        assert_eq!(help_width(&environ, terminal), expected);
    }

    #[test]
    fn help_is_as_wide_as_clicks() {
        check_width(&[], None, 78);
        check_width(&[], Some(200), 78);
        check_width(&[], Some(60), 58);
        check_width(&[("COLUMNS", "70")], Some(60), 68);
        check_width(&[("COLUMNS", "0")], Some(60), 58);
        check_width(&[("COLUMNS", "wide")], None, 78);
        check_width(&[("COLUMNS", "1")], None, 50);
    }
}
