//! What a check found.

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Ok,
    /// It may work, and it may be what makes a run slow or end.
    Warn,
    /// The launch would fail or hang.
    Bad,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One line of the doctor's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// A word or two that say what it is about.
    pub(crate) subject: &'static str,
    pub(crate) what: String,
    /// What to do; only where something is not ok.
    pub(crate) way_out: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, what: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            subject,
            what: what.into(),
            way_out: None,
        }
    }

    pub(super) fn warn(
        subject: &'static str,
        what: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warn,
            way_out: Some(way_out.into()),
            ..Self::ok(subject, what)
        }
    }

    pub(super) fn bad(
        subject: &'static str,
        what: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Bad,
            ..Self::warn(subject, what, way_out)
        }
    }

    /// Bad, in the words of an error of ours: its hint, if it has one, is the way out.
    pub(super) fn error(subject: &'static str, error: &str) -> Self {
        let level = Level::Bad;
        Self {
            level,
            ..Self::said(subject, error)
        }
    }

    /// The same, as a warning.
    pub(super) fn warning(subject: &'static str, text: &str) -> Self {
        let level = Level::Warn;
        Self {
            level,
            ..Self::said(subject, text)
        }
    }

    fn said(subject: &'static str, text: &str) -> Self {
        let (what, way_out) = match text.split_once("\nhint: ") {
            Some((what, hint)) => (what, Some(hint.to_owned())),
            None => (text, None),
        };
        Self {
            way_out,
            ..Self::ok(subject, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_an_error_is_the_way_out() {
        let expected = Finding::bad("port", "it is taken", "take another");
        assert_eq!(
            Finding::error("port", "it is taken\nhint: take another"),
            expected
        );
        assert_eq!(Finding::error("port", "no").way_out, None);
    }
}
