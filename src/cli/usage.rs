//! What a wrong command line is told, in the words and the form of click 8.5.

/// The exit code of a wrong command line.
pub(crate) const EXIT_USAGE: u8 = 2;

/// A wrong command line: the exact text for stderr.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    pub(crate) text: String,
}

/// Whose usage line precedes an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `fabric` before its command.
    Group,
    /// `fabric run`.
    Run,
    /// `fabric doctor`.
    Doctor,
}

impl Form {
    fn command(self) -> &'static str {
        match self {
            Self::Group => "fabric",
            Self::Run => "fabric run",
            Self::Doctor => "fabric doctor",
        }
    }

    /// How the command is called, without the word "Usage".
    pub(super) fn synopsis(self) -> &'static str {
        match self {
            Self::Group => "fabric [OPTIONS] COMMAND [ARGS]...",
            Self::Run => "fabric run [OPTIONS] SCRIPT [SCRIPT_ARGS]...",
            Self::Doctor => "fabric doctor [OPTIONS] [SCRIPT [SCRIPT_ARGS]...]",
        }
    }
}

impl Usage {
    /// The three parts of a usage error.
    pub(super) fn new(form: Form, message: &str) -> Self {
        let (synopsis, command) = (form.synopsis(), form.command());
        let text =
            format!("Usage: {synopsis}\nTry '{command} --help' for help.\n\nError: {message}\n");
        Self { text }
    }

    /// A badly formed option: click gives these no usage line.
    pub(super) fn bare(message: &str) -> Self {
        let text = format!("Error: {message}\n");
        Self { text }
    }

    /// A last line with the way out, which the original does not have.
    pub(super) fn hint(mut self, hint: Option<String>) -> Self {
        if let Some(hint) = hint {
            self.text.push_str(&format!("hint: {hint}\n"));
        }
        self
    }
}
