//! `fabric run`: click's grammar, and from its words to a request.
//!
//! click 8.5 with `ignore_unknown_options`, as the original uses it: a known option is taken wherever
//! it stands, up to the first `--`, which is dropped; its value is the next word, whatever that looks
//! like; every other word keeps its place, the first of them is the script and the rest are the
//! script's. No abbreviations. Options of our own are known only until the script has come.
//!
//! Checks come in click's order: words that cannot be split (a value missing at the end), `--help`,
//! the given options in order of first appearance (the last value counts), what was not given, which is
//! where variables are read, and last the script, because options of our own say what that is.
//!
//! `fabric doctor` reads a command line of `fabric run` by the same rules, but the script may be missing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::environ::Environ;
use crate::source::Source;

use super::hint::{self, Look};
use super::kind::Kind;
use super::opt::{Opt, Section};
use super::options::{self, JSON, OPTIONS};
use super::queries::Doctor;
use super::repr::repr_path;
use super::request::{Entry, Request, Said};
use super::script::ScriptFile;
use super::torchrun;
use super::usage::{Form, Usage};

/// The request of the words after `fabric run`; `None` when they ask for help.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    environ: &Environ,
    look: Look,
) -> Result<Option<Request>, Usage> {
    request(split(words, Form::Run)?, environ, look)
}

/// What the words after `fabric doctor` ask for; `None` when they ask for help.
pub(super) fn parse_doctor(
    words: impl IntoIterator<Item = OsString>,
    environ: &Environ,
    look: Look,
) -> Result<Option<Doctor>, Usage> {
    let line = split(words, Form::Doctor)?;
    let json = line.has(&JSON);
    let request = request(line, environ, look)?;
    Ok(request.map(|request| Doctor { request, json }))
}

fn request(line: Line, environ: &Environ, look: Look) -> Result<Option<Request>, Usage> {
    if line
        .given
        .iter()
        .any(|it| matches!(it.opt.kind, Kind::Help))
    {
        return Ok(None);
    }
    let (form, mut request) = (line.form, Request::default());
    for it in &line.given {
        for text in it.texts() {
            let source = Source::Flag(it.opt.flag);
            read(&mut request, it.opt, &text, source, form)?;
        }
    }
    for opt in OPTIONS.iter().filter(|it| !line.has(it)) {
        read_default(&mut request, opt, environ, form)?;
    }
    check_combination(&request, form)?;
    check_directory(&request, form, look)?;
    check_script(&line, &request, look)?;
    request.ignored = torchrun::ignored(environ);
    let mut words = line.words.into_iter();
    request.script = words.next().unwrap_or_default();
    request.script_args = words.collect();
    Ok(Some(request))
}

/// The words of a command line, split.
struct Line {
    form: Form,
    /// In order of first appearance.
    given: Vec<Given>,
    /// The script and its arguments.
    words: Vec<OsString>,
}

/// A given option.
struct Given {
    opt: &'static Opt,
    /// One for each time; empty for an option that takes none.
    values: Vec<OsString>,
}

impl Given {
    /// What the option's kind reads: flags and counts have no value of their own, of others the last counts.
    fn texts(&self) -> Vec<OsString> {
        match self.opt.kind {
            Kind::Flag(_) => vec!["1".into()],
            Kind::Count(_) => vec![self.values.len().min(i8::MAX as usize).to_string().into()],
            _ if self.opt.kind.repeats() => self.values.clone(),
            _ => self.last().into_iter().map(Into::into).collect(),
        }
    }

    fn last(&self) -> Option<&OsStr> {
        self.values.last().map(OsString::as_os_str)
    }
}

impl Line {
    fn has(&self, opt: &Opt) -> bool {
        self.given.iter().any(|it| it.opt.flag == opt.flag)
    }

    fn give(&mut self, opt: &'static Opt, value: OsString) {
        match self.given.iter_mut().find(|it| it.opt.flag == opt.flag) {
            Some(given) => given.values.push(value),
            None => self.given.push(Given {
                opt,
                values: vec![value],
            }),
        }
    }

    /// Whether the line could still go on with options of our own.
    fn before_script(&self) -> bool {
        self.words.is_empty()
    }
}

fn split(words: impl IntoIterator<Item = OsString>, form: Form) -> Result<Line, Usage> {
    let mut line = Line {
        form,
        given: Vec::new(),
        words: Vec::new(),
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            line.words.extend(words.by_ref());
        } else if let Some(opts) = short_options(&word).filter(|_| line.before_script()) {
            for opt in opts {
                line.give(opt, OsString::new());
            }
        } else if let Some((opt, typed, inline)) = long_option(&word, &line) {
            let value = value_of(opt, typed, inline, &mut words)?;
            line.give(opt, value);
        } else {
            line.words.push(word);
        }
    }
    Ok(line)
}

/// A long option with its name as typed and the value after `=`.
fn long_option<'w>(
    word: &'w OsStr,
    line: &Line,
) -> Option<(&'static Opt, &'w str, Option<OsString>)> {
    let bytes = word.as_bytes();
    let mut halves = bytes.splitn(2, |it| *it == b'=');
    let typed = std::str::from_utf8(halves.next()?).ok()?;
    let inline = halves.next().map(|it| OsString::from_vec(it.to_vec()));
    let own = (line.form == Form::Doctor && typed == JSON.flag).then_some(&JSON);
    let opt = own.or_else(|| options::named(typed))?;
    (line.before_script() || opt.section == Section::Original).then_some((opt, typed, inline))
}

/// Short options, all of them ours and without a value, alone or together: `-v`, `-vv`.
fn short_options(word: &OsStr) -> Option<Vec<&'static Opt>> {
    let letters = word
        .to_str()?
        .strip_prefix('-')
        .filter(|it| !it.is_empty())?;
    letters.chars().map(options::abbreviated).collect()
}

fn value_of(
    opt: &Opt,
    typed: &str,
    inline: Option<OsString>,
    rest: &mut impl Iterator<Item = OsString>,
) -> Result<OsString, Usage> {
    if opt.kind.takes_value() {
        let missing = || Usage::bare(&format!("Option '{typed}' requires an argument."));
        inline.or_else(|| rest.next()).ok_or_else(missing)
    } else if inline.is_some() {
        Err(Usage::bare(&format!(
            "Option '{typed}' does not take a value."
        )))
    } else {
        Ok(OsString::new())
    }
}

fn read(
    request: &mut Request,
    opt: &Opt,
    text: &OsStr,
    source: Source,
    form: Form,
) -> Result<(), Usage> {
    let from = match &source {
        Source::Variable(name) => format!(" (variable {name})"),
        _ => String::new(),
    };
    let wrong = |what| {
        let message = format!("Invalid value for {}{from}: {what}", opt.label());
        Usage::new(form, &message)
    };
    if opt.section == Section::Own && source != Source::Default {
        request.said.push(Said {
            flag: opt.flag,
            text: text.to_owned(),
            source: source.clone(),
        });
    }
    opt.kind.read(request, text, source).map_err(wrong)
}

/// What holds for an option that is not given: the first of its variables that is set and not empty, else its default.
fn read_default(
    request: &mut Request,
    opt: &Opt,
    environ: &Environ,
    form: Form,
) -> Result<(), Usage> {
    let set = opt.set_by(environ);
    let set = set.map(|(name, value)| (value, Source::Variable(name.to_owned())));
    let default = || opt.default.map(|it| (OsStr::new(it), Source::Default));
    let Some((text, source)) = set.or_else(default) else {
        return Ok(());
    };
    if !opt.kind.repeats() {
        return read(request, opt, text, source, form);
    }
    let lines = text.as_bytes().split(|it| *it == b'\n');
    lines
        .filter(|it| !it.is_empty())
        .try_for_each(|it| read(request, opt, OsStr::from_bytes(it), source.clone(), form))
}

fn check_combination(request: &Request, form: Form) -> Result<(), Usage> {
    if !(request.module && request.no_python) {
        return Ok(());
    }
    let named = |flag| {
        let said = request.said.iter().find(|it| it.flag == flag);
        match said.map(|it| &it.source) {
            Some(Source::Variable(name)) => format!("'{flag}' (variable {name})"),
            _ => format!("'{flag}'"),
        }
    };
    let (module, program) = (named("--module"), named("--no-python"));
    let message = format!("{module} and {program} exclude each other.");
    let hint = "SCRIPT is either a module or a program; leave one of them out";
    Err(Usage::new(form, &message).hint(Some(hint.to_owned())))
}

fn check_directory(request: &Request, form: Form, look: Look) -> Result<(), Usage> {
    let Some(cwd) = &request.cwd else {
        return Ok(());
    };
    // Looked for inside, a file is as missing as nothing at all.
    if look(&request.seen_by_workers(OsStr::new("."))) != ScriptFile::Missing {
        return Ok(());
    }
    let from = match &cwd.source {
        Source::Variable(name) => format!(" (variable {name})"),
        _ => String::new(),
    };
    let path = repr_path(&cwd.value);
    let message = format!("Invalid value for '--cwd'{from}: {path} is not a directory.");
    Err(Usage::new(form, &message))
}

fn check_script(line: &Line, request: &Request, look: Look) -> Result<(), Usage> {
    let look: Look = &|path| look(&request.seen_by_workers(path));
    let Some((script, args)) = line.words.split_first() else {
        // Without a program there would be nothing to look at.
        if line.form == Form::Doctor && request.entry() != Entry::Program {
            return Ok(());
        }
        let last = line.given.last().filter(|it| it.opt.kind.takes_value());
        let hint = last.and_then(|it| hint::swallowed_script(it.opt.flag, it.last()?, look));
        return Err(Usage::new(line.form, "Missing argument 'SCRIPT'.").hint(hint));
    };
    match request.entry() {
        Entry::Script => check_path(script, args, line.form, look),
        Entry::Module => check_module(script, line.form, look),
        // Whether it can be executed takes a look at PATH, which is not a matter of words.
        Entry::Program => Ok(()),
    }
}

/// Python finds modules in places that only it knows, but the path of a file is none.
fn check_module(script: &OsStr, form: Form, look: Look) -> Result<(), Usage> {
    let name = script.to_str().and_then(|it| it.strip_suffix(".py"));
    let Some(name) = name.filter(|_| look(script) == ScriptFile::Ok) else {
        return Ok(());
    };
    let path = repr_path(script);
    let message =
        format!("Invalid value for 'SCRIPT': {path} is a file, and --module takes a name.");
    let name = name.trim_start_matches("./").replace('/', ".");
    Err(Usage::new(form, &message).hint(Some(format!("did you mean `{name}`?"))))
}

fn check_path(script: &OsStr, args: &[OsString], form: Form, look: Look) -> Result<(), Usage> {
    let (what, hint) = match look(script) {
        ScriptFile::Ok => return Ok(()),
        ScriptFile::Missing => ("does not exist", hint::missing_script(script, args, look)),
        ScriptFile::Unreadable => ("is not readable", None),
    };
    let path = repr_path(script);
    let message = format!("Invalid value for 'SCRIPT': Path {path} {what}.");
    Err(Usage::new(form, &message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::source::Sourced;
    use crate::status::Signal;

    const USAGE: &str = "Usage: fabric run [OPTIONS] SCRIPT [SCRIPT_ARGS]...\n\
                         Try 'fabric run --help' for help.\n\nError: ";

    fn look(path: &OsStr) -> ScriptFile {
        match path.to_str() {
            Some("t.py") => ScriptFile::Ok,
            Some("noread.py") => ScriptFile::Unreadable,
            _ => ScriptFile::Missing,
        }
    }

    fn parse_with(environ: &[(&str, &str)], line: &str) -> Result<Option<Request>, Usage> {
        let environ = environ.iter().copied().collect();
        let words = line.split(' ').filter(|it| !it.is_empty());
        parse(words.map(OsString::from), &environ, &look)
    }

    #[track_caller]
    fn request(environ: &[(&str, &str)], line: &str) -> Request {
        parse_with(environ, line).unwrap().unwrap()
    }

    #[track_caller]
    fn check_refused(environ: &[(&str, &str)], line: &str, expected: &str) {
        let usage = parse_with(environ, line).unwrap_err();
        assert_eq!(usage.text, expected, "{line}");
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let request = request(&[], "t.py");
        let expected = Request {
            devices: Sourced::new("1".into(), Source::Default),
            script: "t.py".into(),
            cluster: Some(Sourced::new("auto".into(), Source::Default)),
            join_timeout: Sourced::new(Duration::from_secs(900), Source::Default),
            node_timeout: Sourced::new(Duration::from_secs(15), Source::Default),
            shutdown_timeout: Sourced::new(Duration::from_secs(30), Source::Default),
            role: Sourced::new("default".into(), Source::Default),
            run_id: Sourced::new("none".into(), Source::Default),
            linger: Sourced::new(Duration::from_secs(5), Source::Default),
            signals_to_handle: Sourced::new(
                vec![Signal::TERM, Signal::INT, Signal(1), Signal(3)],
                Source::Default,
            ),
            ..Request::default()
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn own_options_are_known_only_before_the_script() {
        let line = "--dry-run --devices 2 --python=py --shutdown_timeout 1.5 t.py --dry-run -v --devices 3";
        let request = request(&[], line);
        assert!(request.dry_run);
        assert_eq!(
            request.devices,
            Sourced::new("3".into(), Source::Flag("--devices"))
        );
        assert_eq!(
            request.python,
            Some(Sourced::new("py".into(), Source::Flag("--python")))
        );
        let timeout = Sourced::new(
            Duration::from_millis(1500),
            Source::Flag("--shutdown-timeout"),
        );
        assert_eq!(request.shutdown_timeout, timeout);
        assert_eq!(request.script_args, ["--dry-run", "-v"]);
    }

    #[test]
    fn nothing_is_an_option_after_two_dashes() {
        let request = request(&[], "-v -- t.py --dry-run -- --devices 2");
        assert!(!request.dry_run);
        assert_eq!(request.script_args, ["--dry-run", "--", "--devices", "2"]);
    }

    #[test]
    fn the_value_of_an_own_option_is_taken_literally() {
        let python = |line| request(&[], line).python.map(|it| it.value);
        assert_eq!(python("--python --devices t.py"), Some("--devices".into()));
        assert_eq!(python("--python= t.py"), Some("".into()));
        assert_eq!(python("--python -- t.py"), Some("--".into()));
        assert_eq!(python("--python=a=b --python c t.py"), Some("c".into()));
    }

    #[test]
    fn verbosity_counts() {
        let verbosity = |line| request(&[], line).verbosity;
        assert_eq!(verbosity("-v t.py"), 1);
        assert_eq!(verbosity("-vv --verbose -q t.py"), 2);
        assert_eq!(verbosity("-qq t.py"), -2);
        assert_eq!(verbosity(&format!("{} t.py", "-v ".repeat(500))), i8::MAX);
    }

    #[test]
    fn variables_give_defaults_and_our_own_name_wins() {
        let pet = ("PET_SHUTDOWN_TIMEOUT", "7");
        let old = ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "8");
        let ours = ("FABRIC_SHUTDOWN_TIMEOUT", "6");
        let timeout = |environ: &[_], line| {
            let it = request(environ, line).shutdown_timeout;
            (it.value.as_secs(), it.source.to_string())
        };
        assert_eq!(timeout(&[old, pet, ours], "t.py"), (6, ours.0.into()));
        assert_eq!(timeout(&[old, pet], "t.py"), (7, pet.0.into()));
        assert_eq!(timeout(&[old, (pet.0, "")], "t.py"), (8, old.0.into()));
        let flag = "--shutdown-timeout";
        assert_eq!(
            timeout(&[(ours.0, "x")], &format!("{flag} 5 t.py")),
            (5, flag.into())
        );
    }

    #[test]
    fn variables_turn_flags_on_and_off() {
        assert!(request(&[("FABRIC_DRY_RUN", "1")], "t.py").dry_run);
        assert!(!request(&[("FABRIC_DRY_RUN", "false")], "t.py").dry_run);
        assert_eq!(
            request(&[("FABRIC_VERBOSE", "3"), ("FABRIC_QUIET", "1")], "t.py").verbosity,
            2
        );
        assert_eq!(
            request(&[("FABRIC_DEVICES", "8")], "t.py").devices.value,
            "1"
        );
    }

    #[test]
    fn a_wrong_variable_is_named() {
        let environ = [("PET_SHUTDOWN_TIMEOUT", "soon")];
        let expected = format!(
            "{USAGE}Invalid value for '--shutdown-timeout' (variable PET_SHUTDOWN_TIMEOUT): \
             'soon' is not a number of seconds, 0 or more.\n"
        );
        check_refused(&environ, "t.py", &expected);
        assert_eq!(parse_with(&environ, "t.py --help"), Ok(None));
    }

    #[test]
    fn wrong_own_options_read_as_those_of_the_original() {
        check_refused(
            &[],
            "--dry-run=1 t.py",
            "Error: Option '--dry-run' does not take a value.\n",
        );
        check_refused(
            &[],
            "--python",
            "Error: Option '--python' requires an argument.\n",
        );
        let expected = format!("{USAGE}Invalid value for '--isolate': 'x' is not 'pid'.\n");
        check_refused(&[], "--isolate x t.py", &expected);
    }

    #[test]
    fn the_doctor_takes_a_command_line_of_run_with_or_without_a_script() {
        let doctor = |line: &str| {
            let words = line.split_whitespace().map(OsString::from);
            parse_doctor(words, &Environ::default(), &look)
        };
        let asked = doctor("--devices 2 --json").unwrap().unwrap();
        assert!(asked.json && asked.request.script.is_empty());
        assert_eq!(asked.request.devices.value, "2");
        let asked = doctor("t.py --json --devices 2").unwrap().unwrap();
        assert!(!asked.json);
        assert_eq!(asked.request.script_args, ["--json"]);
        assert_eq!(asked.request.devices.value, "2");
        let refused = doctor("nope.py").unwrap_err().text;
        assert!(refused.starts_with("Usage: fabric doctor "), "{refused}");
        assert_eq!(doctor("--help"), Ok(None));
        let refused = doctor("--no-python").unwrap_err().text;
        assert!(
            refused.ends_with("Missing argument 'SCRIPT'.\n"),
            "{refused}"
        );
        assert!(doctor("-m").unwrap().unwrap().request.module);
        check_refused(
            &[],
            "--json t.py",
            &format!(
                "{USAGE}Invalid value for 'SCRIPT': Path '--json' does not exist.\n\
             hint: options of the script go after it: `fabric run SCRIPT --json ...`\n"
            ),
        );
    }

    #[test]
    fn hints_follow_the_originals_error() {
        let expected = format!(
            "{USAGE}Invalid value for 'SCRIPT': Path '--dryrun' does not exist.\n\
             hint: did you mean `--dry-run`?\n"
        );
        check_refused(&[], "--dryrun t.py", &expected);
        let expected = format!(
            "{USAGE}Missing argument 'SCRIPT'.\nhint: `t.py` was taken as the value of `--devices`\n"
        );
        check_refused(&[], "--devices t.py", &expected);
        let expected =
            format!("{USAGE}Invalid value for 'SCRIPT': Path 'noread.py' is not readable.\n");
        check_refused(&[], "noread.py", &expected);
    }

    #[test]
    fn a_module_is_looked_for_by_python() {
        let asked = request(&[("PET_MODULE", "1")], "json.tool --help-me -m");
        assert_eq!(
            (asked.entry(), asked.script.to_str()),
            (Entry::Module, Some("json.tool"))
        );
        assert_eq!(asked.script_args, ["--help-me", "-m"]);
        assert_eq!(request(&[], "-m json.tool").entry(), Entry::Module);
        let off = [("FABRIC_MODULE", "0"), ("PET_MODULE", "1")];
        assert_eq!(request(&off, "t.py").entry(), Entry::Script);
        let expected = format!(
            "{USAGE}Invalid value for 'SCRIPT': 't.py' is a file, and --module takes a name.\n\
             hint: did you mean `t`?\n"
        );
        check_refused(&[], "-m t.py", &expected);
    }

    #[test]
    fn a_program_is_not_looked_at_here() {
        let asked = request(&[], "--no-python echo -m");
        assert_eq!(
            (asked.entry(), asked.script.to_str()),
            (Entry::Program, Some("echo"))
        );
        let expected = format!(
            "{USAGE}'--module' and '--no-python' (variable PET_NO_PYTHON) exclude each other.\n\
             hint: SCRIPT is either a module or a program; leave one of them out\n"
        );
        check_refused(&[("PET_NO_PYTHON", "1")], "-m t", &expected);
    }

    #[test]
    fn every_assignment_counts_and_a_variable_has_one_a_line() {
        let env = |environ: &[_], line| {
            let pairs = request(environ, line).env.into_iter();
            let texts =
                pairs.map(|(name, value)| format!("{}:{}", name.display(), value.display()));
            texts.collect::<Vec<_>>()
        };
        assert_eq!(
            env(&[], "--env A=1 --env=B==2 --env A=3 t.py"),
            ["A:1", "B:=2", "A:3"]
        );
        let variable = ("FABRIC_ENV", "A=1 2\n\nB=\n");
        assert_eq!(env(&[variable], "t.py"), ["A:1 2", "B:"]);
        assert_eq!(env(&[variable], "--env C=3 t.py"), ["C:3"]);
        let expected =
            format!("{USAGE}Invalid value for '--env': 'A' is not of the form NAME=VALUE.\n");
        check_refused(&[], "--env A t.py", &expected);
    }

    #[test]
    fn the_script_is_looked_for_where_the_workers_run() {
        let look = |path: &OsStr| match path.to_str() {
            Some("dir/." | "dir/t.py" | "/t.py") => ScriptFile::Ok,
            _ => ScriptFile::Missing,
        };
        let ask = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            parse(words, &Environ::default(), &look).map(|it| it.unwrap().script)
        };
        assert_eq!(ask("--cwd dir t.py"), Ok("t.py".into()));
        assert_eq!(ask("--cwd dir /t.py"), Ok("/t.py".into()));
        let message = ask("--cwd dir dir/t.py").unwrap_err().text;
        assert!(
            message.contains("Path 'dir/t.py' does not exist."),
            "{message}"
        );
        let message = ask("--cwd gone t.py").unwrap_err().text;
        let expected = "Invalid value for '--cwd': 'gone' is not a directory.\n";
        assert!(message.ends_with(expected), "{message}");
    }

    #[test]
    fn what_was_said_is_kept_with_its_source() {
        let asked = request(
            &[("PET_ROLE", "trainer")],
            "--rdzv-id 7 --devices 2 --dry-run t.py",
        );
        let said = asked
            .said
            .iter()
            .map(|it| (it.flag, it.text.to_str().unwrap(), it.source.to_string()));
        let flag = |flag: &'static str, text| (flag, text, flag.to_owned());
        let expected = [
            flag("--run-id", "7"),
            flag("--dry-run", "1"),
            ("--role", "trainer", "PET_ROLE".to_owned()),
        ];
        assert_eq!(said.collect::<Vec<_>>(), expected);
        assert_eq!(
            (asked.run_id.value.as_str(), asked.role.value.as_str()),
            ("7", "trainer")
        );
    }

    fn any_words() -> impl Strategy<Value = Vec<OsString>> {
        let known: Vec<&[u8]> = OPTIONS.iter().map(|it| it.flag.as_bytes()).collect();
        let word = prop_oneof![
            vec(any::<u8>(), 0..12),
            "[-=vq_a-z0-9]{0,6}".prop_map(String::into_bytes),
            prop::sample::select(known).prop_map(<[u8]>::to_vec),
        ];
        vec(word.prop_map(OsString::from_vec), 0..10)
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(words in any_words(), exists: bool) {
            let answer = if exists { ScriptFile::Ok } else { ScriptFile::Missing };
            let result = parse(words, &Environ::default(), &|_| answer);
            if let Err(usage) = result {
                prop_assert!(usage.text.ends_with('\n') && usage.text.contains("Error: "));
            }
        }

        #[test]
        fn arguments_after_two_dashes_come_out_byte_for_byte(args in any_words()) {
            for start in [["--", "t.py"], ["t.py", "--"]] {
                let words = start.map(OsString::from).into_iter().chain(args.clone());
                let request = parse(words, &Environ::default(), &look).unwrap().unwrap();
                prop_assert_eq!(&request.script, "t.py");
                prop_assert_eq!(&request.script_args, &args);
            }
        }

        #[test]
        fn words_that_are_no_options_of_the_original_reach_the_script(args in any_words()) {
            let theirs = |word: &OsString| {
                let name = word.as_bytes().split(|it| *it == b'=').next().unwrap_or_default();
                let name = std::str::from_utf8(name).unwrap_or_default();
                word == "--" || options::named(name).is_some_and(|it| it.section == Section::Original)
            };
            let args: Vec<OsString> = args.into_iter().filter(|it| !theirs(it)).collect();
            let words = std::iter::once(OsString::from("t.py")).chain(args.clone());
            let request = parse(words, &Environ::default(), &look).unwrap().unwrap();
            prop_assert_eq!(request.script_args, args);
        }
    }
}
