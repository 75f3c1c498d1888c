//! What an option is: its names, its variables, the kind of its value.

use std::ffi::OsStr;

use super::kind::Kind;
use crate::environ::Environ;

/// What the variables of our own options begin with.
const PREFIX: &str = "FABRIC_";

/// One option.
pub(super) struct Opt {
    /// Long name with its dashes; where words are parted by `-`, `_` is understood too.
    pub(super) flag: &'static str,
    /// A second long name with its dashes, such as torchrun's.
    pub(super) alias: Option<&'static str>,
    pub(super) short: Option<char>,
    pub(super) kind: Kind,
    /// What stands for the value in `--help`.
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    /// What holds when neither the command line nor a variable says anything.
    pub(super) default: Option<&'static str>,
    /// Variables of other programs that set it; its own variable wins over them, and they win in this order.
    pub(super) variables: &'static [&'static str],
    pub(super) section: Section,
}

/// Whose option it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Section {
    /// The original's: known anywhere on the command line up to `--`.
    Original,
    /// Ours: known only before the script.
    Own,
}

impl Opt {
    /// The long name without its dashes.
    pub(super) fn name(&self) -> &'static str {
        &self.flag[2..]
    }

    /// Whether this is one of its long names, without dashes in front and with `-` between words.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let alias = self.alias.and_then(|it| it.strip_prefix("--"));
        self.name() == name || alias == Some(name)
    }

    /// The second spelling, without dashes in front, of a name of several words.
    pub(super) fn underscored(&self) -> Option<String> {
        let name = self.name();
        name.contains('-').then(|| name.replace('-', "_"))
    }

    /// How an error names the option: click lists all spellings that were declared.
    pub(super) fn label(&self) -> String {
        match self.underscored() {
            Some(second) if self.section == Section::Original => {
                format!("'{}' / '--{second}'", self.flag)
            }
            _ => format!("'{}'", self.flag),
        }
    }

    /// The variables that set it, the strongest first. The original's options have none.
    pub(super) fn variable_names(&self) -> Vec<String> {
        let own = format!("{PREFIX}{}", self.name().replace('-', "_").to_uppercase());
        let own = (self.section == Section::Own).then_some(own);
        let others = self.variables.iter().map(|it| (*it).to_owned());
        own.into_iter().chain(others).collect()
    }

    /// The first of these that is set and not empty, and its value. Compared, rather than made to be looked up: hardly
    /// any of them ever is.
    pub(super) fn set_by<'e>(&self, environ: &'e Environ) -> Option<(&'e str, &'e OsStr)> {
        let mut full = environ.iter().filter(|(_, value)| !value.is_empty());
        let own = full.find(|(name, _)| self.section == Section::Own && self.owns(name));
        let other = |name: &&str| environ.iter().find(|it| it.0 == *name && !it.1.is_empty());
        let found = own.or_else(|| self.variables.iter().find_map(other));
        found.and_then(|(name, value)| Some((name.to_str()?, value)))
    }

    /// Whether this is its own variable.
    fn owns(&self, variable: &OsStr) -> bool {
        let spelled = |it: u8| match it {
            b'-' => b'_',
            other => other.to_ascii_uppercase(),
        };
        if variable.len() != PREFIX.len() + self.name().len() {
            return false;
        }
        let rest = variable.as_encoded_bytes().strip_prefix(PREFIX.as_bytes());
        rest.is_some_and(|it| it.iter().copied().eq(self.name().bytes().map(spelled)))
    }

    /// The name that stands for its value in `--help`.
    pub(super) const fn value(mut self, name: &'static str) -> Self {
        self.value_name = name;
        self
    }

    /// What `--help` says, without a full stop.
    pub(super) const fn help(mut self, text: &'static str) -> Self {
        self.help = text;
        self
    }

    /// A second long name.
    pub(super) const fn alias(mut self, flag: &'static str) -> Self {
        self.alias = Some(flag);
        self
    }

    /// A short name besides.
    pub(super) const fn short(mut self, name: char) -> Self {
        self.short = Some(name);
        self
    }

    /// What holds when nothing is said.
    pub(super) const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    /// Variables of other programs that set it.
    pub(super) const fn variables(mut self, names: &'static [&'static str]) -> Self {
        self.variables = names;
        self
    }
}

/// An option of the original; what is not said of it is empty.
pub(super) const fn original(flag: &'static str, kind: Kind) -> Opt {
    Opt {
        flag,
        alias: None,
        short: None,
        kind,
        value_name: "",
        help: "",
        default: None,
        variables: &[],
        section: Section::Original,
    }
}

/// An option of our own.
pub(super) const fn own(flag: &'static str, kind: Kind) -> Opt {
    let mut opt = original(flag, kind);
    opt.section = Section::Own;
    opt
}
