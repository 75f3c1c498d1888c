//! Why a request for devices cannot be met, in one line with the way out.

use std::ffi::OsString;
use std::fmt;

use crate::source::{Source, Sourced};

/// A refused `--devices`: what was given and where, what is there, what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// The value and its origin as the user knows them.
    pub(super) given: String,
    pub(super) why: Why,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// `--accelerator tpu`.
    Tpu,
    /// `auto` with `--accelerator gpu`.
    AutoForGpu,
    /// The CPU takes a count above 0 and nothing else; `note` tells why it is the CPU.
    NotACount { note: Option<String> },
    /// More workers than there can be process ids.
    TooMany,
    /// No integer; `part` is the culprit where it is not the whole value.
    NotAnInteger { part: Option<String> },
    /// 0, less than 0, or a list of nothing.
    NoneAsked,
    /// All devices of none.
    NoneThere(Pool),
    /// The same device twice.
    Twice { index: String },
    /// All of two kinds, whose indices overlap.
    TwoKinds,
    /// The first index that is not there.
    Missing { index: String, pool: Pool },
    /// A count that is larger than what is there.
    TooFew { count: String, pool: Pool },
}

/// The devices a request could have chosen from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pool {
    pub(super) noun: &'static str,
    /// Indices from 0 to below this are there.
    pub(super) count: u32,
    pub(super) note: Option<String>,
    /// Two kinds of device share the indices, so that "all" would name some twice.
    pub(super) overlap: bool,
}

impl Refusal {
    pub(super) fn new(devices: &Sourced<OsString>, why: Why) -> Self {
        let given = given(&devices.value.to_string_lossy(), &devices.source);
        Self { given, why }
    }
}

/// The value as the user wrote it, on one line, quoted where it would not be seen otherwise.
fn given(text: &str, source: &Source) -> String {
    let mut text: String = text.escape_debug().collect();
    if text.is_empty() || text.contains(' ') {
        text = format!("\"{text}\"");
    }
    match source {
        Source::Flag(flag) => format!("`{flag} {text}`"),
        Source::Variable(name) => format!("`{name}={text}`"),
        other => format!("`--devices {text}` ({other})"),
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = &self.given;
        match &self.why {
            Why::Tpu => f.write_str(
                "`--accelerator tpu` cannot be launched from here: start the script with \
                 `python`, its TPU strategy starts the processes itself",
            ),
            Why::AutoForGpu => write!(
                f,
                "{given} does not go with `--accelerator gpu`: \
                 use `--accelerator cuda` or `mps`, or give a number"
            ),
            Why::NotACount { note } => write!(
                f,
                "{given} is no number of processes for the CPU{}: \
                 give one above 0, such as `--devices 2`",
                aside(note)
            ),
            Why::TooMany => write!(f, "{given} is more than any machine can run: give less"),
            Why::NotAnInteger { part } => write!(
                f,
                "{given} is not understood{}: give a count such as `2`, \
                 indices such as `0,2`, or `-1` for all",
                at(part)
            ),
            Why::NoneAsked => write!(
                f,
                "{given} asks for no device, so nothing would start: give a count above 0, \
                 or `-1` for all, or use `--accelerator cpu`"
            ),
            Why::NoneThere(pool) => write!(f, "{given} asks for all {}s, but {pool}", pool.noun),
            Why::Twice { index } => {
                write!(f, "{given} names device {index} twice: name each once")
            }
            Why::TwoKinds => write!(
                f,
                "{given} covers both CUDA and MPS devices, whose indices overlap: \
                 choose `--accelerator cuda` or `mps`"
            ),
            Why::Missing { index, pool } => {
                write!(f, "{given} names {} {index}, but {pool}", pool.noun)
            }
            Why::TooFew { count, pool } => {
                let plural = if count == "1" { "" } else { "s" };
                write!(
                    f,
                    "{given} asks for {count} {}{plural}, but {pool}",
                    pool.noun
                )
            }
        }
    }
}

impl fmt::Display for Pool {
    /// What is there and the way out, to be read after "but".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = aside(&self.note);
        match self.count {
            0 => write!(f, "none is there{note}: `--accelerator cpu` works without"),
            1 => write!(f, "only number 0 is there{note}: use `--devices 1`"),
            n => write!(
                f,
                "only {n}, numbers 0 to {}, are there{note}: use `--devices {n}` or less",
                n - 1
            ),
        }
    }
}

fn aside(note: &Option<String>) -> String {
    note.as_ref()
        .map_or_else(String::new, |it| format!(" ({it})"))
}

fn at(part: &Option<String>) -> String {
    let shown = |it: &String| format!(" at `{}`", it.escape_debug());
    part.as_ref().map_or_else(String::new, shown)
}
