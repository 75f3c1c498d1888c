//! A value together with where it came from, so that every message can name the culprit.

use std::fmt;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Source {
    /// An option of the command line, by its long name with dashes.
    Flag(&'static str),
    /// An environment variable, by name.
    Variable(String),
    /// Nobody said anything: the documented default.
    #[default]
    Default,
    /// Worked out from other facts; the text says from which, such as "SLURM_STEP_NODELIST".
    Derived(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Variable(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
            Self::Derived(from) => write!(f, "from {from}"),
        }
    }
}

/// A value and its source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) source: Source,
}

impl<T> Sourced<T> {
    pub(crate) fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}
