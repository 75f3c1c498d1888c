//! What kinds of values options take, how each is read, and what click says about a wrong one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::source::{Source, Sourced};
use crate::status::Signal;

use super::ranks::Ranks;
use super::repr::repr;
use super::request::Request;
use super::streams::StreamMap;
use crate::integer::Integer;

/// The kind of an option's value, with the place in the request where it goes.
pub(super) enum Kind {
    /// `--help`: it stores nothing, it ends the parse.
    Help,
    /// Takes no value on the command line; a variable says 1 or 0, true or false.
    Flag(fn(&mut Request, bool)),
    /// As a flag, but how often it is given counts.
    Count(fn(&mut Request, i8)),
    /// How often something may happen.
    Times(fn(&mut Request, u16)),
    /// One of a few names.
    Choice(&'static [&'static str], fn(&mut Request, &'static str)),
    /// Any bytes.
    Text(fn(&mut Request, Sourced<OsString>)),
    /// Python's `int()`.
    Integer(fn(&mut Request, Integer)),
    /// Text in UTF-8 that is not empty.
    Word(fn(&mut Request, Sourced<String>)),
    /// `NAME=VALUE`, any bytes; each use adds one. In a variable there is one a line.
    Assignment(fn(&mut Request, (OsString, OsString))),
    /// A duration in seconds, with or without a fraction.
    Seconds(fn(&mut Request, Sourced<Duration>)),
    /// Seconds, or whole numbers with units, such as `2h30m`.
    Span(fn(&mut Request, Sourced<Duration>)),
    /// Any bytes with commas between them; two commas stand for one that belongs to a text.
    Texts(fn(&mut Request, Vec<Vec<u8>>)),
    /// Numbers and runs of numbers with commas between them.
    Ranks(fn(&mut Request, Ranks)),
    /// Output streams of workers, as torchrun writes them.
    Streams(fn(&mut Request, StreamMap)),
    /// Names of signals with commas between them.
    Signals(fn(&mut Request, Sourced<Vec<Signal>>)),
}

impl Kind {
    /// Whether the next word of the command line is this option's value.
    pub(super) fn takes_value(&self) -> bool {
        !matches!(self, Self::Help | Self::Flag(_) | Self::Count(_))
    }

    /// Whether every use counts, and not only the last.
    pub(super) fn repeats(&self) -> bool {
        matches!(self, Self::Assignment(_))
    }

    /// Reads `text` into the request; the error says what is wrong with it. For a flag the text is
    /// what a variable may hold, for a count also the number of times it was given.
    pub(super) fn read(
        &self,
        request: &mut Request,
        text: &OsStr,
        source: Source,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{} is not {what}.", repr(text)));
        match self {
            Self::Help => {}
            Self::Flag(store) => match truth(text) {
                Some(value) => store(request, value),
                None => return wrong("one of '1', '0', 'true', 'false'"),
            },
            Self::Count(store) => match count(text) {
                Some(value) => store(request, value),
                None => return wrong("a number of times, 0 to 127"),
            },
            Self::Times(store) => match text.to_str().and_then(|it| it.parse().ok()) {
                Some(value) => store(request, value),
                None => return wrong("a number of times, 0 to 65535"),
            },
            Self::Choice(names, store) => match names.iter().find(|it| text == **it) {
                Some(name) => store(request, name),
                None => return wrong(&one_of(names)),
            },
            Self::Text(store) => store(request, Sourced::new(text.to_owned(), source)),
            Self::Integer(store) => match text.to_str().and_then(Integer::parse) {
                Some(value) => store(request, value),
                None => return wrong("a valid integer"),
            },
            Self::Seconds(store) => match seconds(text) {
                Some(value) => store(request, Sourced::new(value, source)),
                None => return wrong("a number of seconds, 0 or more"),
            },
            Self::Word(store) => match text.to_str().filter(|it| !it.is_empty()) {
                Some(word) => store(request, Sourced::new(word.to_owned(), source)),
                None => return wrong("a name"),
            },
            Self::Assignment(store) => match assignment(text) {
                Some(pair) => store(request, pair),
                None => return wrong("of the form NAME=VALUE"),
            },
            Self::Span(store) => match seconds(text).or_else(|| span(text.to_str()?)) {
                Some(value) => store(request, Sourced::new(value, source)),
                None => return wrong("a duration such as '90', '30m' or '2h30m'"),
            },
            Self::Texts(store) => store(request, texts(text.as_bytes())),
            Self::Ranks(store) => match text.to_str().and_then(Ranks::parse) {
                Some(ranks) => store(request, ranks),
                None => return wrong("a list of ranks such as '0,3-5'"),
            },
            Self::Streams(store) => match text.to_str().and_then(StreamMap::parse) {
                Some(streams) => store(request, streams),
                None => return wrong("'0', '1', '2' or '3', or a list such as '0:3,1:2'"),
            },
            Self::Signals(store) => store(request, Sourced::new(signals(text)?, source)),
        }
        Ok(())
    }
}

/// Words, or an integer as torchrun's variables want it: all but zero is true.
fn truth(text: &OsStr) -> Option<bool> {
    match text.to_str()? {
        "true" => Some(true),
        "false" => Some(false),
        number => Integer::parse(number).map(|it| it.value != Some(0)),
    }
}

fn count(text: &OsStr) -> Option<i8> {
    match text.to_str()? {
        "true" => Some(1),
        "false" => Some(0),
        number => number.parse().ok().filter(|it| *it >= 0),
    }
}

fn assignment(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes
        .iter()
        .position(|it| *it == b'=')
        .filter(|it| *it > 0)?;
    let part = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Some((part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// Without those that are empty, which every line contains.
fn texts(list: &[u8]) -> Vec<Vec<u8>> {
    let (mut texts, mut rest) = (vec![Vec::new()], list);
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        match (first, others) {
            (b',', [b',', after @ ..]) => {
                rest = after;
                texts.last_mut().expect("never empty").push(b',');
            }
            (b',', _) => texts.push(Vec::new()),
            _ => texts.last_mut().expect("never empty").push(*first),
        }
    }
    texts.retain(|it| !it.is_empty());
    texts
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|it| format!("'{it}'")).collect();
    let some = if names.len() == 1 { "" } else { "one of " };
    format!("{some}{}", quoted.join(", "))
}

fn seconds(text: &OsStr) -> Option<Duration> {
    let number: f64 = text.to_str()?.trim().parse().ok()?;
    Some(Duration::try_from_secs_f64(number).ok()?.min(LONGEST))
}

/// Longer than any run, and still a time that can be added to another and waited for.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The units of a duration, largest first, in seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Numbers with units, each unit at most once and the larger first.
fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text.trim(), Duration::ZERO);
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit())?;
        let (number, unit) = (&rest[..end], rest[end..].chars().next()?);
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(*seconds)?;
        total = total.checked_add(Duration::from_secs(part))?;
        rest = &rest[end + unit.len_utf8()..];
    }
    (!text.trim().is_empty()).then_some(total.min(LONGEST))
}

/// Signals that cannot be caught (signal(7)), that say a process of its own ended, or that the
/// kernel sends for a fault in the very process.
const NOT_HANDLED: [&str; 9] = [
    "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS",
];

fn signals(text: &OsStr) -> Result<Vec<Signal>, String> {
    let mut signals = Vec::new();
    for name in text.to_string_lossy().split(',').map(str::trim) {
        let known = Signal::named(name).filter(|_| !NOT_HANDLED.contains(&name));
        let Some(signal) = known else {
            let name = repr(OsStr::new(name));
            return Err(format!(
                "{name} is not a signal that can be handled; names look like 'SIGTERM,SIGUSR1'."
            ));
        };
        if !signals.contains(&signal) {
            signals.push(signal);
        }
    }
    Ok(signals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &Kind, text: &str, expected: Result<Request, &str>) {
        let mut request = Request::default();
        let result = kind.read(&mut request, OsStr::new(text), Source::Default);
        let result = result.map(|()| request);
        assert_eq!(result, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn of_two_commas_one_belongs_to_the_text() {
        let split = |list: &str| -> Vec<String> {
            let texts = texts(list.as_bytes());
            let texts = texts.into_iter().map(String::from_utf8);
            texts.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(split("apple,orange"), ["apple", "orange"]);
        assert_eq!(split("a,,b,c"), ["a,b", "c"]);
        assert_eq!(split("a,,,b,"), ["a,", "b"]);
        assert_eq!(split(""), [""; 0]);
    }

    #[test]
    fn a_flag_from_a_variable_is_a_truth_value() {
        let kind = Kind::Flag(|request, value| request.dry_run = value);
        let on = Request {
            dry_run: true,
            ..Request::default()
        };
        check(&kind, "1", Ok(on.clone()));
        check(&kind, "true", Ok(on));
        check(&kind, "0", Ok(Request::default()));
        check(
            &kind,
            "yes",
            Err("'yes' is not one of '1', '0', 'true', 'false'."),
        );
    }

    #[test]
    fn torchruns_flags_are_integers() {
        let truths = ["2", "-1", " 1 ", "00", "1.5", ""].map(|it| truth(OsStr::new(it)));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(truths, [yes, yes, yes, no, None, None]);
    }

    #[test]
    fn a_span_is_seconds_or_has_units() {
        let kind = Kind::Span(|request, value| request.timeout = value);
        let read = |text: &str| {
            let mut request = Request::default();
            let result = kind.read(&mut request, OsStr::new(text), Source::Default);
            result.map(|()| request.timeout.value.as_secs_f64())
        };
        for (text, seconds) in [
            ("90", 90.0),
            ("1.5", 1.5),
            ("0", 0.0),
            ("45s", 45.0),
            ("30m", 1_800.0),
            ("2h30m", 9_000.0),
            (" 1d1s ", 86_401.0),
            ("1e15", LONGEST.as_secs_f64()),
            ("99999999999999d", LONGEST.as_secs_f64()),
        ] {
            assert_eq!(read(text), Ok(seconds), "{text}");
        }
        for text in [
            "", " ", "-1", "5x", "m", "30m2h", "1h1h", "2h30", "1.5h", "1 h", "nan",
        ] {
            let expected = format!("'{text}' is not a duration such as '90', '30m' or '2h30m'.");
            assert_eq!(read(text), Err(expected));
        }
    }

    #[test]
    fn an_assignment_has_a_name() {
        let pair = |text: &[u8]| assignment(OsStr::from_bytes(text));
        let of = |name: &[u8], value: &[u8]| {
            Some((
                OsStr::from_bytes(name).to_owned(),
                OsStr::from_bytes(value).to_owned(),
            ))
        };
        assert_eq!(pair(b"A=b=c"), of(b"A", b"b=c"));
        assert_eq!(pair(b"A="), of(b"A", b""));
        assert_eq!(pair(b"\xff=\xfe\n"), of(b"\xff", b"\xfe\n"));
        assert_eq!((pair(b"A"), pair(b"=b"), pair(b"")), (None, None, None));
    }

    #[test]
    fn seconds_are_finite_and_not_negative() {
        let kind = Kind::Seconds(|request, value| request.linger = value);
        for (text, millis) in [("30", 30_000), ("0", 0), (" 2.5 ", 2_500), ("1e-3", 1)] {
            let linger = Sourced::new(Duration::from_millis(millis), Source::Default);
            let expected = Request {
                linger,
                ..Request::default()
            };
            check(&kind, text, Ok(expected));
        }
        for text in ["", "-1", "inf", "nan", "1e300", "5s"] {
            let expected = format!("'{text}' is not a number of seconds, 0 or more.");
            check(&kind, text, Err(&expected));
        }
    }

    #[test]
    fn signals_are_named_once_each_and_must_be_catchable() {
        let kind = Kind::Signals(|request, value| request.signals_to_handle = value);
        let named = Sourced::new(vec![Signal::TERM, Signal(1)], Source::Default);
        let expected = Request {
            signals_to_handle: named,
            ..Request::default()
        };
        check(&kind, "SIGTERM, SIGHUP,SIGTERM", Ok(expected));
        for (text, name) in [
            ("", ""),
            ("SIGTERM,", ""),
            ("TERM", "TERM"),
            ("SIGKILL", "SIGKILL"),
        ] {
            let expected = format!(
                "'{name}' is not a signal that can be handled; names look like 'SIGTERM,SIGUSR1'."
            );
            check(&kind, text, Err(&expected));
        }
    }

    #[test]
    fn a_choice_of_one_reads_as_in_click() {
        let kind = Kind::Choice(&["pid"], |_, _| {});
        check(&kind, "x", Err("'x' is not 'pid'."));
    }
}
