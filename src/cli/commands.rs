//! The commands as clap sees them, built from the table of options: `--help`, completions, the man page, and the parse of every
//! command that the original does not have.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;

use super::kind::Kind;
use super::opt::{Opt, Section};
use super::options::{JSON, OPTIONS};
use super::usage::Form;

/// The original lists its options first; what only we have stands apart.
const OWN_HEADING: &str = "Options of fabric's own (only before SCRIPT)";

/// Those whose command lines can be completed.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

const HELP_TEMPLATE: &str =
    "{usage-heading} {usage}\n\n{about-with-newline}\n{all-args}{after-help}";

const RUN_LONG: &str = "\
Run a Lightning Fabric script, once per device.

SCRIPT is the path of a Python script. SCRIPT_ARGS are its arguments, passed on byte for byte; \
to pass one that has the name of an option below, put -- before it.";

const STOP_LONG: &str = "\
Stop a launch of yours on this machine as Ctrl-C would: its workers are told to end, and are killed \
if they have not within the launch's --shutdown-timeout. Waits until it has ended.

Exit code 0: it has ended. 1: it has not, or there is no such launch.";

const DOCTOR_LONG: &str = "\
Check what a `fabric run` with the same options would meet on this machine, and start nothing. \
Every line is ok, warn or bad; what is not ok comes with the way out.

Exit code 0: nothing is bad. 1: something is.";

/// What `fabric run` ends with.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Every worker has exited with 0."),
    ("1", "Nothing could be launched: one line says why."),
    ("2", "The command line is wrong."),
    ("124", "The run has taken longer than --timeout."),
    (
        "126, 127",
        "The system would not, or could not, execute the interpreter.",
    ),
    ("N", "The worker that failed first has exited with N."),
    (
        "128+S",
        "The worker that failed first has died of signal S.",
    ),
];

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
        .subcommands([run(), doctor(), ps(), stop(), consolidate(), completions(), man(), link(), unlink()])
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
    root(width).render_help().to_string()
}

/// `fabric run --help`.
pub(super) fn run_help(width: usize) -> String {
    let mut run = built("run", root(width)).about(RUN_LONG);
    run.render_help().to_string()
}

/// `fabric doctor --help`.
pub(super) fn doctor_help(width: usize) -> String {
    let mut doctor = built("doctor", root(width)).about(DOCTOR_LONG);
    doctor.render_help().to_string()
}

/// A command as a part of `root`, with what it inherits from there.
fn built(name: &str, mut root: Command) -> Command {
    root.build();
    let command = root.find_subcommand(name);
    command.expect("root has it").clone()
}

/// A script that completes `fabric` in a shell.
pub(super) fn completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root(0), "fabric", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Fish => script.push_str(&fish_choices()),
        Shell::Bash => script = bash_files(&script),
        _ => {}
    }
    script
}

/// clap_complete offers options for a word that has not been begun, where we take a script and what it is given: for
/// those bash shall complete files, which it does where nothing is offered.
fn bash_files(script: &str) -> String {
    let offer = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )\n            return 0\n            ;;";
    let sections = script.split_inclusive("\n            ;;\n").map(|section| {
        let takes_script = ["run", "doctor"]
            .iter()
            .any(|it| section.starts_with(&format!("        fabric__subcmd__{it})")));
        if !takes_script {
            return section.to_owned();
        }
        let section = section.replace("${cur} == -* || ${COMP_CWORD} -eq 2", "${cur} == -*");
        section.replace(offer, "return 0\n            ;;")
    });
    sections.collect()
}

/// clap_complete leaves out the choices of an argument that is no option.
fn fish_choices() -> String {
    let shells = SHELLS.join(" ");
    format!(
        "complete -c fabric -n \"__fish_fabric_using_subcommand completions\" -f -a \"{shells}\"\n"
    )
}

/// The manual page, troff for man(1): `fabric run` with all its options, then the other commands.
pub(super) fn man_page() -> String {
    let (group, run) = (Man::new(root(0)), Man::new(built("run", root(0))));
    let mut page = Vec::new();
    let title = group.render_title(&mut page);
    // Names of options and variables stay whole.
    page.extend_from_slice(b".nh\n");
    let sections = [
        title,
        group.render_name_section(&mut page),
        run.render_synopsis_section(&mut page),
        run.render_description_section(&mut page),
        run.render_options_section(&mut page),
    ];
    debug_assert!(
        sections.iter().all(Result::is_ok),
        "memory takes all writes"
    );
    let page = String::from_utf8_lossy(&page).into_owned();
    page + &man_commands() + &man_exit_codes()
}

/// clap_mangen would refer to a page for each command, which nobody installs.
fn man_commands() -> String {
    let mut text = String::from(".SH COMMANDS\n");
    for it in root(0).get_subcommands() {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        let about = about.replace('-', "\\-");
        text.push_str(&format!(".TP\n\\fBfabric {}\\fR\n{about}\n", it.get_name()));
    }
    text
}

fn man_exit_codes() -> String {
    let codes = EXIT_CODES.iter();
    let codes = codes.map(|(code, meaning)| format!(".TP\n\\fB{code}\\fR\n{meaning}\n"));
    format!(".SH EXIT STATUS\n{}", codes.collect::<String>())
}

fn run() -> Command {
    Command::new("run")
        .about("Run a Lightning Fabric script, once per device")
        .long_about(RUN_LONG)
        .override_usage(Form::Run.synopsis())
        .arg(script().required(true))
        .arg(script_args())
        .args(OPTIONS.iter().map(arg))
}

fn script() -> Arg {
    Arg::new("script")
        .value_name("SCRIPT")
        .value_hint(ValueHint::FilePath)
        .help("Python script to run")
}

fn script_args() -> Arg {
    Arg::new("script_args")
        .value_name("SCRIPT_ARGS")
        .num_args(0..)
        .value_hint(ValueHint::AnyPath)
        .help("Arguments of the script")
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Check this machine for a launch, with the options of `run`")
        .long_about(DOCTOR_LONG)
        .override_usage(Form::Doctor.synopsis())
        .arg(script())
        .arg(script_args())
        .args(OPTIONS.iter().chain([&JSON]).map(arg))
}

fn ps() -> Command {
    Command::new("ps")
        .about("List your running launches on this machine, rank by rank")
        .arg(json())
        .arg(
            Arg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .num_args(0..=1)
                .default_missing_value("2")
                .value_parser(pause)
                .help("List again every so many seconds (2 if not said), until Ctrl-C"),
        )
        .arg(help())
}

/// A pause that is neither a busy loop nor for ever.
fn pause(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0.1..=86_400.0) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give 0.1 to 86400 seconds".to_owned()),
    }
}

fn stop() -> Command {
    Command::new("stop")
        .about("Stop one of your launches on this machine, and wait for its end")
        .long_about(STOP_LONG)
        .arg(
            Arg::new("launch")
                .value_name("ID")
                .required(true)
                .value_parser(value_parser!(i32).range(1..))
                .help("Number of the launch, as `fabric ps` shows it"),
        )
        .arg(
            Arg::new("now")
                .long("now")
                .action(ArgAction::SetTrue)
                .help("Kill all at once, without time to end in order"),
        )
        .arg(help())
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON, for programs")
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
    let shells = PossibleValuesParser::new(SHELLS).try_map(|name| name.parse::<Shell>());
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

fn link() -> Command {
    Command::new("link")
        .about("Let `fabric`, in the folder where this program is installed, be this program")
        .arg(help())
}

fn unlink() -> Command {
    Command::new("unlink")
        .about("Let `fabric` be Lightning's own again")
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
    if let Some(alias) = opt.alias {
        arg = arg.visible_alias(&alias[2..]);
    }
    if let Some(short) = opt.short {
        arg = arg.short(short);
    }
    if opt.section == Section::Own {
        arg = arg.help_heading(OWN_HEADING);
    }
    if opt.kind.takes_value() {
        arg = arg.value_name(opt.value_name).value_hint(completion(opt));
    }
    match opt.kind {
        _ if opt.kind.repeats() => arg.action(ArgAction::Append),
        Kind::Help => arg.action(ArgAction::Help),
        Kind::Flag(_) => arg.action(ArgAction::SetTrue),
        Kind::Count(_) => arg.action(ArgAction::Count),
        Kind::Choice(names, _) => arg
            .value_parser(PossibleValuesParser::new(names))
            .hide_possible_values(true),
        _ => arg,
    }
}

/// What a shell completes a value with.
fn completion(opt: &Opt) -> ValueHint {
    match opt.value_name {
        "PATH" => ValueHint::AnyPath,
        "FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Other,
    }
}

/// The help with all that the row says: clap would give each its own paragraph, and does not know variables.
fn help_text(opt: &Opt) -> String {
    let mut text = opt.help.to_owned();
    let mut note = |about: &str, what: &str| text.push_str(&format!(" [{about}: {what}]"));
    if let Kind::Choice(names, _) = opt.kind {
        note("choices", &names.join(", "));
    }
    if let Some(default) = opt.default {
        note("default", default);
    }
    if let (Section::Original, Some(second)) = (opt.section, opt.underscored()) {
        note("also", &format!("--{second}"));
    }
    match opt.variable_names().as_slice() {
        [] => {}
        [one] => note("variable", one),
        several => note("variables", &several.join(", ")),
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_table() {
        root(78).debug_assert();
    }

    #[test]
    fn help_tells_every_option_its_default_and_its_variables_in_78_columns() {
        let help = run_help(78);
        let squeezed = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for opt in OPTIONS {
            assert!(squeezed.contains(opt.flag), "{}", opt.flag);
            let default = opt.default.map(|it| format!("[default: {it}]"));
            assert!(
                default.is_none_or(|it| squeezed.contains(&it)),
                "{}",
                opt.flag
            );
            let known = |it: &String| squeezed.contains(it.as_str());
            assert!(opt.variable_names().iter().all(known), "{}", opt.flag);
        }
        assert!(help.lines().all(|it| it.chars().count() <= 78), "{help}");
        let (originals, own) = help.split_once(OWN_HEADING).unwrap();
        assert!(originals.contains("--devices") && !originals.contains("--dry-run"));
        assert!(own.contains("--dry-run") && !own.contains("--devices"));
    }

    #[test]
    fn help_of_the_group_names_every_command() {
        let help = group_help(78);
        assert!(help.starts_with("Usage: fabric [OPTIONS] COMMAND [ARGS]...\n"));
        for name in names() {
            assert!(help.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn the_man_page_has_every_option() {
        let page = man_page().replace("\\-", "-");
        for opt in OPTIONS {
            assert!(page.contains(opt.flag), "{}", opt.flag);
        }
        assert!(page.contains("fabric doctor") && page.contains("fabric stop"));
        assert!(page.contains("EXIT STATUS") && page.contains("signal S"));
        assert!(page.contains("fabric completions") && !page.contains("fabric-run(1)"));
    }

    #[test]
    fn zsh_and_fish_scripts_know_options_and_choices() {
        for shell in [Shell::Zsh, Shell::Fish] {
            let script = completion_script(shell);
            for word in ["shutdown-timeout", "deepspeed_stage_2", "consolidate"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn fish_completes_the_shells_too() {
        let script = completion_script(Shell::Fish);
        let last = script.lines().last().unwrap_or_default();
        assert!(
            last.ends_with("completions\" -f -a \"bash zsh fish\""),
            "{last}"
        );
    }

    #[test]
    fn bash_completes_options_and_choices() {
        let complete = |words: &str, last: &str, before: &str| {
            let script = completion_script(Shell::Bash);
            let ask = format!(
                "{script}\nCOMP_WORDS=({words}) COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
                 _fabric fabric '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\""
            );
            let output = Process::new("bash").args(["-c", &ask]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(
            complete("fabric run --acc", "--acc", "run"),
            "--accelerator"
        );
        assert_eq!(
            complete("fabric run --strategy fs", "fs", "--strategy"),
            "fsdp"
        );
        assert_eq!(complete("fabric comp", "comp", "fabric"), "completions");
        assert_eq!(complete("fabric completions z", "z", "completions"), "zsh");
        // Files, then.
        assert_eq!(complete("fabric run ''", "", "run"), "");
        assert_eq!(complete("fabric run t.py ''", "", "t.py"), "");
        assert_eq!(complete("fabric doctor --json ''", "", "--json"), "");
        assert_eq!(complete("fabric doc", "doc", "fabric"), "doctor");
        assert_eq!(complete("fabric doctor --js", "--js", "doctor"), "--json");
    }
}
