//! Environment variables as typed facts; errors name the variable and its value.

use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};

use crate::environ::Environ;
use crate::source::{Source, Sourced};

/// The value of a variable that is set and not empty.
pub(super) fn text(environ: &Environ, name: &str) -> Option<Sourced<String>> {
    let value = environ.text(name)?.to_owned();
    Some(Sourced::new(value, Source::Variable(name.to_owned())))
}

/// A number; `None` where the variable is not set or empty.
pub(super) fn number<T: FromStr>(environ: &Environ, name: &str) -> Result<Option<Sourced<T>>> {
    let Some(raw) = environ.get(name).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let shown = raw.to_string_lossy();
    let value = shown
        .trim()
        .parse()
        .map_err(|_| anyhow!("`{name}` is `{shown}`, not a number it could be"))?;
    Ok(Some(Sourced::new(value, Source::Variable(name.to_owned()))))
}

/// A number that must be there.
pub(super) fn required<T: FromStr>(environ: &Environ, name: &str) -> Result<Sourced<T>> {
    number(environ, name)?.with_context(|| format!("`{name}` is not set"))
}

/// The first of several variables that is set, as a number.
pub(super) fn first<T: FromStr>(environ: &Environ, names: &[&str]) -> Result<Option<Sourced<T>>> {
    for name in names {
        if let Some(found) = number(environ, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A value worked out from the named facts.
pub(super) fn derived<T>(value: T, from: impl Into<String>) -> Sourced<T> {
    Sourced::new(value, Source::Derived(from.into()))
}

/// The same source, another value: a number becomes a rank.
pub(super) fn map<T, U>(it: Sourced<T>, change: impl FnOnce(T) -> U) -> Sourced<U> {
    Sourced::new(change(it.value), it.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_variable_and_its_value() {
        let environ: Environ = [("A", "x"), ("B", ""), ("C", " 7 ")].into_iter().collect();
        let error = number::<u32>(&environ, "A").unwrap_err();
        assert_eq!(error.to_string(), "`A` is `x`, not a number it could be");
        assert_eq!(number::<u32>(&environ, "B").unwrap(), None);
        assert_eq!(number::<u32>(&environ, "C").unwrap().unwrap().value, 7);
        let error = required::<u32>(&environ, "B").unwrap_err();
        assert_eq!(error.to_string(), "`B` is not set");
    }
}
