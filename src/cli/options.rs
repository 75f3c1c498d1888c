//! The options of `fabric run`, one row each: parsing, `--help`, completions and the man page all come from here.
//!
//! The first rows are those of the original, Lightning Fabric 2.6. The rows of our own follow; they
//! are recognised only before the script, where the original knows no other option, so that no
//! working command line changes its meaning.

use super::kind::Kind;
use super::opt::{Opt, original, own};
use super::request::Isolation;
use crate::accelerator::Accelerator;
use crate::numa::Binding;

/// Every option, in the order of `--help`.
pub(super) static OPTIONS: &[Opt] = &[
    original("--accelerator", Kind::Choice(ACCELERATORS, |it, name| it.accelerator = Accelerator::named(name)))
        .value("NAME")
        .help("Hardware to train on"),
    original("--strategy", Kind::Choice(STRATEGIES, |it, name| it.strategy = Some(name)))
        .value("NAME")
        .help("How several devices share the work"),
    original("--devices", Kind::Text(|it, text| it.devices = text))
        .value("TEXT")
        .help("How many devices to use on each node (4), which ones (0,2 or \"3,\"), all of them (-1), or auto")
        .default("1"),
    original("--num-nodes", Kind::Integer(|it, number| it.num_nodes = Some(number)))
        .value("INTEGER")
        .help("How many machines (nodes) take part; 1 unless given or known from the cluster"),
    original("--node-rank", Kind::Integer(|it, number| it.node_rank = Some(number)))
        .value("INTEGER")
        .help("Which of the nodes this one is, from 0 to num_nodes - 1; 0 unless given or known from the cluster"),
    original("--main-address", Kind::Text(|it, text| it.main_address = Some(text.value)))
        .value("TEXT")
        .help("Host name or IP address of the main node, the one with node rank 0; 127.0.0.1 unless given or known from the cluster"),
    original("--main-port", Kind::Integer(|it, number| it.main_port = Some(number)))
        .value("INTEGER")
        .help("Port on the main node where all meet; 29400 unless given or known from the cluster"),
    original("--precision", Kind::Choice(PRECISIONS, |it, name| it.precision = Some(name)))
        .value("NAME")
        .help("Number format: double (64-true or 64), full (32-true or 32), half (16-mixed or 16) or bfloat16 (bf16-mixed or bf16)"),
    original("--help", Kind::Help)
        .help("Show this message and exit"),
    own("--dry-run", Kind::Flag(|it, on| it.dry_run = on))
        .help("Print what would be started, with every value and where it came from, and start nothing"),
    own("--python", Kind::Text(|it, text| it.python = Some(text)))
        .value("PATH")
        .help("Python interpreter that runs the script; if not given, the one of the environment that fabric is installed in, of VIRTUAL_ENV or CONDA_PREFIX, or python3 on PATH"),
    own("--module", Kind::Flag(|it, on| it.module = on))
        .short('m')
        .help("SCRIPT is the name of a Python module, run as `python -m` does")
        .variables(&["PET_MODULE"]),
    own("--no-python", Kind::Flag(|it, on| it.no_python = on))
        .help("SCRIPT is a program of its own, found as a shell finds it")
        .variables(&["PET_NO_PYTHON"]),
    own("--env", Kind::Assignment(|it, pair| it.env.push(pair)))
        .value("NAME=VALUE")
        .help("Variable for the workers, as if it had been exported; may be repeated (in the variable: one a line)"),
    own("--cwd", Kind::Text(|it, text| it.cwd = Some(text)))
        .value("DIR")
        .help("Directory in which the workers run; the path of SCRIPT starts there, too"),
    own("--timeout", Kind::Span(|it, time| it.timeout = time))
        .value("DURATION")
        .help("How long the run may take, such as 90 (seconds), 30m or 2h30m; then it is ended, with exit code 124. 0 is no limit")
        .default("0"),
    own("--max-restarts", Kind::Times(|it, times| it.max_restarts = times))
        .value("N")
        .help("How often all workers of all nodes are started again after one of them has failed")
        .default("0")
        .variables(&["PET_MAX_RESTARTS"]),
    own("--numa-binding", Kind::Choice(Binding::NAMES, |it, name| it.numa_binding = Binding::named(name)))
        .value("MODE")
        .help("Bind each worker to CPUs near its GPU; without GPUs, workers are spread over the NUMA nodes")
        .variables(&["PET_NUMA_BINDING"]),
    own("--virtual-local-rank", Kind::Flag(|it, on| it.virtual_local_rank = on))
        .help("Show each worker its own device only, as number 0, and LOCAL_RANK 0")
        .variables(&["PET_VIRTUAL_LOCAL_RANK"]),
    own("--role", Kind::Word(|it, word| it.role = word))
        .value("NAME")
        .help("Name for the workers' part in the run, their ROLE_NAME")
        .default("default")
        .variables(&["PET_ROLE"]),
    own("--run-id", Kind::Word(|it, word| it.run_id = word))
        .alias("--rdzv-id")
        .value("NAME")
        .help("Name of the run, the workers' TORCHELASTIC_RUN_ID; the same on all nodes")
        .default("none")
        .variables(&["PET_RDZV_ID"]),
    own("--shutdown-timeout", Kind::Seconds(|it, time| it.shutdown_timeout = time))
        .value("SECONDS")
        .help("How long workers may take to end after the polite signal, before they are killed")
        .default("30")
        .variables(&["PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]),
    own("--signals-to-handle", Kind::Signals(|it, signals| it.signals_to_handle = signals))
        .value("LIST")
        .help("Signals to the launcher that end the run in order: each is passed on to every worker")
        .default("SIGTERM,SIGINT,SIGHUP,SIGQUIT")
        .variables(&["PET_SIGNALS_TO_HANDLE"]),
    own("--linger", Kind::Seconds(|it, time| it.linger = time))
        .value("SECONDS")
        .help("How long processes that workers left behind may live on after success")
        .default("5"),
    own("--keep-daemons", Kind::Flag(|it, on| it.keep_daemons = on))
        .help("Leave processes that workers left behind alone after success"),
    own("--isolate", Kind::Choice(&["pid"], |it, _| it.isolate = Some(Isolation::Pid)))
        .value("KIND")
        .help("Put the workers into a PID namespace, where nothing can outlive them"),
    own("--cluster", Kind::Text(|it, text| it.cluster = Some(text)))
        .value("NAME")
        .help("Which scheduler or launcher is around us: auto, none, or one of those that a wrong name lists")
        .default("auto"),
    own("--cluster-map", Kind::Text(|it, text| it.cluster_map = Some(text)))
        .value("MAP")
        .help("Variables of a scheduler fabric does not know: FACT=VARIABLE, with commas between, such as num_nodes=MY_NODES"),
    own("--join-timeout", Kind::Seconds(|it, time| it.join_timeout = time))
        .value("SECONDS")
        .help("How long to wait for all nodes before the start")
        .default("900"),
    own("--node-timeout", Kind::Seconds(|it, time| it.node_timeout = time))
        .value("SECONDS")
        .help("How long a node may be silent before all others stop")
        .default("15"),
    own("--output", Kind::Choice(&["relay", "direct"], |it, name| it.output.direct = name == "direct"))
        .value("WAY")
        .help("Pass on what workers write, whole lines only, or let them write to our own streams")
        .default("relay"),
    own("--prefix", Kind::Flag(|it, on| it.output.prefix = on))
        .help("Say in front of every line which rank wrote it"),
    own("--log-line-prefix-template", Kind::Word(|it, word| it.output.template = Some(word)))
        .value("TEXT")
        .help("What to say there, with ${role_name}, ${local_rank}, ${rank} and ${hostname} replaced")
        .variables(&["PET_LOG_LINE_PREFIX_TEMPLATE", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"]),
    own("--ranks", Kind::Ranks(|it, ranks| it.output.ranks = Some(ranks)))
        .value("RANKS")
        .help("Show what these ranks write, such as 0,3-5, and nothing of the others"),
    own("--local-ranks-filter", Kind::Ranks(|it, ranks| it.output.local_ranks = Some(ranks)))
        .value("RANKS")
        .help("The same by local rank, on every node")
        .variables(&["PET_LOCAL_RANKS_FILTER"]),
    own("--log-dir", Kind::Text(|it, text| it.output.log_dir = Some(text)))
        .value("DIR")
        .help("Write what each worker writes to files there, too, in a folder made for the run")
        .variables(&["PET_LOG_DIR"]),
    own("--redirects", Kind::Streams(|it, streams| it.output.redirects = streams))
        .value("STREAMS")
        .help("Write to files only: 1 for stdout, 2 for stderr, 3 for both, or by local rank such as 0:3,1:2")
        .variables(&["PET_REDIRECTS"]),
    own("--tee", Kind::Streams(|it, streams| it.output.tee = streams))
        .value("STREAMS")
        .help("Write to files and show with a prefix, in the same form")
        .variables(&["PET_TEE"]),
    own("--duplicate-stdout-filters", Kind::Texts(|it, texts| it.output.out_filters = texts))
        .value("TEXTS")
        .help("Write lines of stdout that contain one of these texts, with commas between, to filtered_stdout.log as well")
        .variables(&["PET_DUPLICATE_STDOUT_FILTERS"]),
    own("--duplicate-stderr-filters", Kind::Texts(|it, texts| it.output.err_filters = texts))
        .value("TEXTS")
        .help("The same for stderr and filtered_stderr.log")
        .variables(&["PET_DUPLICATE_STDERR_FILTERS"]),
    own("--report", Kind::Text(|it, text| it.output.report = Some(text)))
        .value("FILE")
        .help("Write how the run went to this file as JSON, when it is over"),
    own("--events", Kind::Text(|it, text| it.output.events = Some(text)))
        .value("FILE")
        .help("Write what happens to this file as it happens, one JSON object a line"),
    own("--verbose", Kind::Count(|it, times| it.verbosity = it.verbosity.saturating_add(times)))
        .short('v')
        .help("Log more of what the launcher does; may be repeated"),
    own("--quiet", Kind::Count(|it, times| it.verbosity = it.verbosity.saturating_sub(times)))
        .short('q')
        .help("Log less of what the launcher does; may be repeated"),
];

/// What only `fabric doctor` takes besides; whoever has split the words has seen whether it is there.
pub(super) static JSON: Opt =
    own("--json", Kind::Flag(|_, _| {})).help("Print the findings as JSON, for programs");

/// What Lightning Fabric 2.6 takes.
const ACCELERATORS: &[&str] = &["cpu", "gpu", "cuda", "mps", "tpu", "auto"];

/// What Lightning Fabric 2.6 registers and its command line offers.
const STRATEGIES: &[&str] = &[
    "ddp",
    "ddp_find_unused_parameters_true",
    "dp",
    "deepspeed",
    "deepspeed_stage_1",
    "deepspeed_stage_2",
    "deepspeed_stage_3",
    "fsdp",
];

/// What Lightning Fabric 2.6 takes, names first, then their short forms.
const PRECISIONS: &[&str] = &[
    "transformer-engine",
    "transformer-engine-float16",
    "16-true",
    "16-mixed",
    "bf16-true",
    "bf16-mixed",
    "32-true",
    "64-true",
    "64",
    "32",
    "16",
    "bf16",
];

/// The option of a long name as typed, such as `--num_nodes`.
pub(super) fn named(typed: &str) -> Option<&'static Opt> {
    let name = typed.strip_prefix("--")?.replace('_', "-");
    OPTIONS.iter().find(|it| it.is_called(&name))
}

/// The option of a short name.
pub(super) fn abbreviated(short: char) -> Option<&'static Opt> {
    OPTIONS.iter().find(|it| it.short == Some(short))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::OsStr;

    use super::super::request::Request;
    use crate::environ::Environ;
    use crate::source::Source;

    use super::*;

    #[test]
    fn names_are_unique_and_every_row_is_complete() {
        let (mut flags, mut shorts) = (HashSet::new(), HashSet::new());
        for it in OPTIONS {
            for flag in [Some(it.flag), it.alias].into_iter().flatten() {
                assert!(flags.insert(flag), "{flag} twice");
            }
            assert!(it.short.is_none_or(|short| shorts.insert(short)));
            assert!(
                !it.help.is_empty() && !it.help.ends_with('.'),
                "{}",
                it.flag
            );
            assert_eq!(
                it.kind.takes_value(),
                !it.value_name.is_empty(),
                "{}",
                it.flag
            );
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for it in OPTIONS.iter().filter(|it| it.default.is_some()) {
            let text = OsStr::new(it.default.unwrap_or_default());
            let read = it.kind.read(&mut Request::default(), text, Source::Default);
            assert_eq!(read, Ok(()), "{}", it.flag);
        }
    }

    #[test]
    fn every_accelerator_can_be_chosen() {
        for name in ACCELERATORS {
            assert_eq!(Accelerator::named(name).map(Accelerator::name), Some(*name));
        }
    }

    #[test]
    fn both_spellings_name_the_option() {
        let flag = |typed| named(typed).map(|it| it.flag);
        assert_eq!(flag("--num_nodes"), Some("--num-nodes"));
        assert_eq!(flag("--num-nodes"), Some("--num-nodes"));
        assert_eq!(flag("--dry_run"), Some("--dry-run"));
        assert_eq!(flag("--rdzv_id"), Some("--run-id"));
        assert_eq!(flag("-_devices"), None);
        assert_eq!(flag("--dev"), None);
        assert_eq!(flag("--Devices"), None);
    }

    #[test]
    fn own_options_have_a_variable_of_their_own() {
        let names = |flag| named(flag).unwrap().variable_names();
        assert_eq!(names("--devices"), [""; 0]);
        assert_eq!(
            names("--shutdown-timeout"),
            [
                "FABRIC_SHUTDOWN_TIMEOUT",
                "PET_SHUTDOWN_TIMEOUT",
                "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
            ]
        );
    }

    #[test]
    fn every_variable_sets_its_option_and_no_other() {
        for opt in OPTIONS {
            for name in opt.variable_names() {
                let environ: Environ = [("FABRIC", "1"), (&name, "2")].into_iter().collect();
                let sets = |it: &&Opt| it.set_by(&environ).is_some();
                let set: Vec<&str> = OPTIONS.iter().filter(sets).map(|it| it.flag).collect();
                assert_eq!(set, [opt.flag], "{name}");
            }
        }
    }

    #[test]
    fn an_own_variable_wins_and_an_empty_one_is_none() {
        let set_by = |pairs: &[(&str, &str)]| {
            let environ: Environ = pairs.iter().copied().collect();
            let set = named("--role").unwrap().set_by(&environ);
            set.map(|(name, value)| format!("{name}={}", value.display()))
        };
        let both = set_by(&[("PET_ROLE", "a"), ("FABRIC_ROLE", "b")]);
        assert_eq!(both.as_deref(), Some("FABRIC_ROLE=b"));
        let empty = set_by(&[("PET_ROLE", "a"), ("FABRIC_ROLE", "")]);
        assert_eq!(empty.as_deref(), Some("PET_ROLE=a"));
        assert_eq!(set_by(&[("FABRIC_ROLE", ""), ("fabric_role", "c")]), None);
    }
}
