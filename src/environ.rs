//! The environment as it was when the launcher started, frozen; the only place that reads it.

use std::ffi::{OsStr, OsString};

/// A snapshot of environment variables, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environ {
    variables: Vec<(OsString, OsString)>,
}

impl Environ {
    /// The environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where the environment is read"
    )]
    pub(crate) fn of_this_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The raw value, also when it is not UTF-8; a variable that is set but empty is `Some("")`.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(it, _)| it == name)?;
        Some(&found.1)
    }

    /// The value where it is UTF-8 and not empty: what most settings want.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str().filter(|it| !it.is_empty())
    }

    /// The same with these variables set besides, the last of each name, instead of what it had.
    pub(crate) fn with(mut self, more: &[(OsString, OsString)]) -> Self {
        for (name, value) in more {
            self.variables.retain(|(it, _)| it != name);
            self.variables.push((name.clone(), value.clone()));
        }
        self
    }

    /// NO_COLOR (no-color.org) and a dumb terminal want none.
    pub(crate) fn wants_colours(&self) -> bool {
        self.text("NO_COLOR").is_none() && self.get("TERM") != Some(OsStr::new("dumb"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environ {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(pairs: T) -> Self {
        let variables = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            variables: variables.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_are_present_but_no_text() {
        let environ: Environ = [("A", "1"), ("B", "")].into_iter().collect();
        assert_eq!(environ.get("B"), Some(OsStr::new("")));
        assert_eq!(environ.text("B"), None);
        assert_eq!(environ.text("A"), Some("1"));
        assert_eq!(environ.get("C"), None);
    }

    #[test]
    fn more_variables_replace_those_of_their_name() {
        let environ: Environ = [("A", "1"), ("B", "2")].into_iter().collect();
        let more = [("A", "3"), ("A", "4"), ("C", "")].map(|(a, b)| (a.into(), b.into()));
        let both = environ.with(&more).variables;
        let expected = [("B", "2"), ("A", "4"), ("C", "")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(both, expected);
    }
}
