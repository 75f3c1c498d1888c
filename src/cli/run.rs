//! `fabric run`: click's grammar, and from its words to a request.
//!
//! click 8.5 with `ignore_unknown_options`, as the original uses it: a known option is taken wherever
//! it stands, up to the first `--`, which is dropped; its value is the next word, whatever that looks
//! like; every other word keeps its place, the first of them is the script and the rest are the
//! script's. No abbreviations. Options of our own are known only until the script has come.
//!
//! Checks come in click's order: words that cannot be split (a value missing at the end), `--help`,
//! the given options in order of first appearance (the last value counts), the script, and last what
//! was not given, which is where variables are read.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::environ::Environ;
use crate::source::Source;

use super::hint::{self, Look};
use super::kind::Kind;
use super::options::{OPTIONS, Opt, Section};
use super::repr::repr_path;
use super::request::Request;
use super::script::ScriptFile;
use super::usage::{Form, Usage};

/// The request of the words after `fabric run`; `None` when they ask for help.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    environ: &Environ,
    look: Look,
) -> Result<Option<Request>, Usage> {
    let line = split(words)?;
    if line
        .given
        .iter()
        .any(|it| matches!(it.opt.kind, Kind::Help))
    {
        return Ok(None);
    }
    let mut request = Request::default();
    for it in &line.given {
        read(&mut request, it.opt, &it.text(), Source::Flag(it.opt.flag))?;
    }
    check_script(&line, look)?;
    for opt in OPTIONS.iter().filter(|it| !line.has(it)) {
        read_default(&mut request, opt, environ)?;
    }
    let mut words = line.words.into_iter();
    request.script = words.next().unwrap_or_default();
    request.script_args = words.collect();
    Ok(Some(request))
}

/// The words of a command line, split.
#[derive(Default)]
struct Line {
    /// In order of first appearance; the last value of each.
    given: Vec<Given>,
    /// The script and its arguments.
    words: Vec<OsString>,
}

/// A given option.
struct Given {
    opt: &'static Opt,
    /// Of an option that takes one.
    value: OsString,
    /// How often it was given.
    times: usize,
}

impl Given {
    /// What the option's kind reads: flags and counts have no value of their own.
    fn text(&self) -> OsString {
        match self.opt.kind {
            Kind::Flag(_) => OsString::from("1"),
            Kind::Count(_) => self.times.min(i8::MAX as usize).to_string().into(),
            _ => self.value.clone(),
        }
    }
}

impl Line {
    fn has(&self, opt: &Opt) -> bool {
        self.given.iter().any(|it| it.opt.flag == opt.flag)
    }

    fn give(&mut self, opt: &'static Opt, value: OsString) {
        match self.given.iter_mut().find(|it| it.opt.flag == opt.flag) {
            Some(given) => {
                given.value = value;
                given.times += 1;
            }
            None => self.given.push(Given {
                opt,
                value,
                times: 1,
            }),
        }
    }

    /// Whether the line could still go on with options of our own.
    fn before_script(&self) -> bool {
        self.words.is_empty()
    }
}

fn split(words: impl IntoIterator<Item = OsString>) -> Result<Line, Usage> {
    let mut line = Line::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            line.words.extend(words.by_ref());
        } else if let Some(opts) = short_options(&word).filter(|_| line.before_script()) {
            for opt in opts {
                line.give(opt, OsString::new());
            }
        } else if let Some((opt, typed, inline)) = long_option(&word, line.before_script()) {
            let value = value_of(opt, typed, inline, &mut words)?;
            line.give(opt, value);
        } else {
            line.words.push(word);
        }
    }
    Ok(line)
}

/// A long option with its name as typed and the value after `=`.
fn long_option(
    word: &OsStr,
    before_script: bool,
) -> Option<(&'static Opt, &str, Option<OsString>)> {
    let bytes = word.as_bytes();
    let mut halves = bytes.splitn(2, |it| *it == b'=');
    let typed = std::str::from_utf8(halves.next()?).ok()?;
    let inline = halves.next().map(|it| OsString::from_vec(it.to_vec()));
    let opt = Opt::named(typed)?;
    (before_script || opt.section == Section::Original).then_some((opt, typed, inline))
}

/// Short options, all of them ours and without a value, alone or together: `-v`, `-vv`.
fn short_options(word: &OsStr) -> Option<Vec<&'static Opt>> {
    let letters = word
        .to_str()?
        .strip_prefix('-')
        .filter(|it| !it.is_empty())?;
    letters.chars().map(Opt::abbreviated).collect()
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

fn read(request: &mut Request, opt: &Opt, text: &OsStr, source: Source) -> Result<(), Usage> {
    let from = match &source {
        Source::Variable(name) => format!(" (variable {name})"),
        _ => String::new(),
    };
    let wrong = |what| {
        let message = format!("Invalid value for {}{from}: {what}", opt.label());
        Usage::new(Form::Run, &message)
    };
    opt.kind.read(request, text, source).map_err(wrong)
}

/// What holds for an option that is not given: the first of its variables that is set and not empty, else its default.
fn read_default(request: &mut Request, opt: &Opt, environ: &Environ) -> Result<(), Usage> {
    let set = opt.variable_names().into_iter().find_map(|name| {
        let value = environ.get(&name).filter(|it| !it.is_empty())?;
        Some((value, Source::Variable(name)))
    });
    let default = || opt.default.map(|it| (OsStr::new(it), Source::Default));
    match set.or_else(default) {
        Some((text, source)) => read(request, opt, text, source),
        None => Ok(()),
    }
}

fn check_script(line: &Line, look: Look) -> Result<(), Usage> {
    let Some((script, args)) = line.words.split_first() else {
        let last = line.given.last().filter(|it| it.opt.kind.takes_value());
        let hint = last.and_then(|it| hint::swallowed_script(it.opt.flag, &it.value, look));
        return Err(Usage::new(Form::Run, "Missing argument 'SCRIPT'.").hint(hint));
    };
    let (what, hint) = match look(script) {
        ScriptFile::Ok => return Ok(()),
        ScriptFile::Missing => ("does not exist", hint::missing_script(script, args, look)),
        ScriptFile::Unreadable => ("is not readable", None),
    };
    let path = repr_path(script);
    let message = format!("Invalid value for 'SCRIPT': Path {path} {what}.");
    Err(Usage::new(Form::Run, &message).hint(hint))
}
