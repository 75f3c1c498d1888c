//! The way out of a wrong command line, where one can be guessed; the original says nothing there.

use std::ffi::{OsStr, OsString};

use super::options::{self, OPTIONS};
use super::script::ScriptFile;
use super::similar::close_matches;

/// Habits from torchrun, and what they are called here.
const TORCHRUN: &[(&str, &str)] = &[
    ("nproc-per-node", "devices"),
    ("nnodes", "num-nodes"),
    ("master-addr", "main-address"),
    ("master-port", "main-port"),
];

/// More than difflib's default: a wrong guess is worse than none.
const LIKELY: f64 = 0.75;

/// What can be asked about a path: whether it is a script.
pub(super) type Look<'a> = &'a dyn Fn(&OsStr) -> ScriptFile;

/// For a script that does not exist.
pub(super) fn missing_script(script: &OsStr, args: &[OsString], look: Look) -> Option<String> {
    let text = script.to_str()?;
    if text.len() > 1 && text.starts_with('-') {
        return Some(misplaced_option(text));
    }
    let first = args.first().filter(|it| look(it) == ScriptFile::Ok);
    if let (Some(first), "model") = (first, text) {
        let first = first.to_string_lossy();
        return Some(format!(
            "`run model SCRIPT` is the old form; now it is `fabric run {first}`"
        ));
    }
    let with_suffix = format!("{text}.py");
    let exists = look(OsStr::new(&with_suffix)) == ScriptFile::Ok;
    exists.then(|| format!("did you mean `{with_suffix}`?"))
}

/// For a command line whose last option may have swallowed the script.
pub(super) fn swallowed_script(flag: &str, value: &OsStr, look: Look) -> Option<String> {
    let value_text = value.to_str()?;
    (look(value) == ScriptFile::Ok)
        .then(|| format!("`{value_text}` was taken as the value of `{flag}`"))
}

/// For a word that is not a command.
pub(super) fn unknown_command(word: &OsStr, look: Look) -> Option<String> {
    let text = word.to_str()?;
    (look(word) == ScriptFile::Ok).then(|| format!("to run a script, say `fabric run {text}`"))
}

/// For an option that stands before the command.
pub(super) fn before_command(name: &str) -> Option<String> {
    options::named(name)
        .map(|_| format!("`{name}` goes after the command: `fabric run {name} ...`"))
}

fn misplaced_option(text: &str) -> String {
    let typed = text.split('=').next().unwrap_or(text);
    let known = meant(typed);
    if known.is_empty() {
        return format!("options of the script go after it: `fabric run SCRIPT {text} ...`");
    }
    format!("did you mean {}?", known.join(" or "))
}

/// The options that a mistyped one may have been.
fn meant(typed: &str) -> Vec<String> {
    let name = typed
        .trim_start_matches('-')
        .replace('_', "-")
        .to_lowercase();
    let longs = || OPTIONS.iter().map(|it| it.name());
    let known = if let Some((_, ours)) = TORCHRUN.iter().find(|(theirs, _)| *theirs == name) {
        vec![*ours]
    } else if name == "h" {
        vec!["help"]
    } else if name.len() > 1 && longs().any(|it| it.starts_with(&name)) {
        longs().filter(|it| it.starts_with(&name)).collect()
    } else {
        close_matches(&name, longs(), LIKELY)
    };
    known.into_iter().map(|it| format!("`--{it}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, args: &[&str], expected: Option<&str>) {
        let look = |path: &OsStr| match path.to_str() {
            Some("t.py") => ScriptFile::Ok,
            _ => ScriptFile::Missing,
        };
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let hint = missing_script(OsStr::new(script), &args, &look);
        assert_eq!(hint.as_deref(), expected, "{script}");
    }

    #[test]
    fn an_option_that_was_mistyped() {
        check("--dryrun", &[], Some("did you mean `--dry-run`?"));
        check("--dev", &["2"], Some("did you mean `--devices`?"));
        check("--device=2", &[], Some("did you mean `--devices`?"));
        check("-devices", &[], Some("did you mean `--devices`?"));
        check("--Num-Nodes", &[], Some("did you mean `--num-nodes`?"));
        check(
            "--main",
            &[],
            Some("did you mean `--main-address` or `--main-port`?"),
        );
        check("--nproc_per_node=4", &[], Some("did you mean `--devices`?"));
        check("-h", &[], Some("did you mean `--help`?"));
    }

    #[test]
    fn an_option_of_the_script() {
        let expected = "options of the script go after it: `fabric run SCRIPT --lr ...`";
        check("--lr", &["t.py"], Some(expected));
    }

    #[test]
    fn other_habits() {
        check("t", &[], Some("did you mean `t.py`?"));
        let old = "`run model SCRIPT` is the old form; now it is `fabric run t.py`";
        check("model", &["t.py"], Some(old));
        check("model", &["nope.py"], None);
        check("nope.py", &[], None);
    }
}
