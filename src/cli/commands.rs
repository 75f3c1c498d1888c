//! The commands as clap sees them, built from the table of options: `--help`, completions, the man page, and the parse of every
//! command that the original does not have.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

use super::kind::Kind;
use super::options::{OPTIONS, Opt, Section};
use super::usage::Form;

/// The original lists its options first; what only we have stands apart.
const OWN_HEADING: &str = "Options of fabric's own (only before SCRIPT)";

const HELP_TEMPLATE: &str =
    "{usage-heading} {usage}\n\n{about-with-newline}\n{all-args}{after-help}";

/// `fabric` with all its commands; help is at most `width` columns wide.
pub(super) fn root(width: usize) -> Command {
    Command::new("fabric")
        .about("Start a training script once per device, watch over it, and leave nothing behind.")
        .version(env!("CARGO_PKG_VERSION"))
        .override_usage(Form::Group.synopsis())
        .term_width(width)
        .help_template("{usage-heading} {usage}\n\n{about-with-newline}\nOptions:\n{options}\n\nCommands:\n{subcommands}")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .arg(help())
        .arg(
            Arg::new("version")
                .long("version")
                .action(ArgAction::Version)
                .help("Show the version and exit"),
        )
        .subcommands([run(), consolidate(), completions(), man()])
        .mut_subcommands(|it| it.help_template(HELP_TEMPLATE).disable_help_flag(true))
}

/// The names of all commands.
pub(super) fn names() -> Vec<String> {
    let root = root(0);
    root.get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect()
}

/// `fabric --help`.
pub(super) fn group_help(width: usize) -> String {
    root(width).render_long_help().to_string()
}

/// `fabric run --help`.
pub(super) fn run_help(width: usize) -> String {
    let mut root = root(width);
    root.build();
    let run = root
        .find_subcommand_mut("run")
        .expect("the table above has it");
    run.render_long_help().to_string()
}

/// A script that completes `fabric` in a shell.
pub(super) fn completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root(0), "fabric", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The manual page, troff for man(1): `fabric run` with all its options, then the other commands.
pub(super) fn man_page() -> String {
    let mut root = root(0);
    root.build();
    let run = root
        .find_subcommand("run")
        .expect("the table above has it")
        .clone();
    let (group, run) = (Man::new(root), Man::new(run));
    let mut page = Vec::new();
    let sections = [
        group.render_title(&mut page),
        group.render_name_section(&mut page),
        run.render_synopsis_section(&mut page),
        run.render_description_section(&mut page),
        run.render_options_section(&mut page),
        group.render_subcommands_section(&mut page),
        group.render_version_section(&mut page),
    ];
    debug_assert!(
        sections.iter().all(Result::is_ok),
        "memory takes all writes"
    );
    String::from_utf8_lossy(&page).into_owned()
}

fn run() -> Command {
    Command::new("run")
        .about("Run a Lightning Fabric script, once per device")
        .long_about(
            "Run a Lightning Fabric script, once per device.\n\n\
             SCRIPT is the path of a Python script. SCRIPT_ARGS are its arguments, passed on byte for byte; \
             to pass one that has the name of an option below, put -- before it.",
        )
        .override_usage(Form::Run.synopsis())
        .arg(
            Arg::new("script")
                .value_name("SCRIPT")
                .required(true)
                .value_hint(ValueHint::FilePath)
                .help("Python script to run"),
        )
        .arg(
            Arg::new("script_args")
                .value_name("SCRIPT_ARGS")
                .num_args(0..)
                .value_hint(ValueHint::AnyPath)
                .help("Arguments of the script"),
        )
        .args(OPTIONS.iter().map(arg))
}

fn consolidate() -> Command {
    Command::new("consolidate")
        .about("Turn a sharded checkpoint into one file, by the Python original")
        .arg(help())
        .arg(
            Arg::new("args")
                .value_name("ARGS")
                .num_args(0..)
                .value_hint(ValueHint::AnyPath)
                .help("What the original takes: CHECKPOINT_FOLDER, --output_file FILE"),
        )
}

fn completions() -> Command {
    let shells =
        PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| name.parse::<Shell>());
    Command::new("completions")
        .about("Print a script that completes fabric's command line in a shell")
        .arg(help())
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(shells)
                .help("Shell to print the script for"),
        )
}

fn man() -> Command {
    Command::new("man")
        .about("Print the manual page: fabric man | man -l -")
        .arg(help())
}

fn help() -> Arg {
    Arg::new("help")
        .long("help")
        .action(ArgAction::Help)
        .help("Show this message and exit")
}

/// A row of the table as clap has it.
fn arg(opt: &'static Opt) -> Arg {
    let mut arg = Arg::new(opt.name()).long(opt.name()).help(help_text(opt));
    if let Some(short) = opt.short {
        arg = arg.short(short);
    }
    if let Some(default) = opt.default {
        arg = arg.default_value(default);
    }
    if opt.section == Section::Own {
        arg = arg.help_heading(OWN_HEADING);
    }
    if opt.kind.takes_value() {
        arg = arg.value_name(opt.value_name);
    }
    match opt.kind {
        Kind::Help => arg.action(ArgAction::Help),
        Kind::Flag(_) => arg.action(ArgAction::SetTrue),
        Kind::Count(_) => arg.action(ArgAction::Count),
        Kind::Choice(names, _) => arg.value_parser(PossibleValuesParser::new(names)),
        Kind::Text(_) if opt.value_name == "PATH" => arg.value_hint(ValueHint::AnyPath),
        Kind::Text(_) => arg.value_hint(ValueHint::Other),
        Kind::Integer(_) | Kind::Seconds(_) | Kind::Signals(_) => arg.value_hint(ValueHint::Other),
    }
}

/// The help with what clap does not know: second spellings, and variables, which are ours to read.
fn help_text(opt: &Opt) -> String {
    let mut text = opt.help.to_owned();
    if let (Section::Original, Some(second)) = (opt.section, opt.underscored()) {
        text.push_str(&format!(" [also: --{second}]"));
    }
    let names = opt.variable_names();
    if !names.is_empty() {
        text.push_str(&format!(" [variables: {}]", names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command as Process, Stdio};

    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_table() {
        root(78).debug_assert();
    }
}
