//! The variables that the original obeys without saying so: it hands its work to torchrun, and every option of torchrun has a
//! variable. What this launcher does not have is named, never ignored in silence.
//!
//! An option that lists a variable in the table of options has it; nothing needs to be said of it here.

use super::options::OPTIONS;
use crate::environ::Environ;

/// A variable that no option of ours reads.
struct Foreign {
    name: &'static str,
    /// Values that ask for nothing, besides the empty one.
    idle: &'static [&'static str],
}

const fn foreign(name: &'static str, idle: &'static [&'static str]) -> Foreign {
    Foreign { name, idle }
}

/// torch 2.15, `torch/distributed/run.py` and `torch/distributed/elastic/agent/server/local_elastic_agent.py`.
///
/// Left out, as it makes no difference there either: PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT (the
/// original gives these options itself), PET_MONITOR_INTERVAL (nothing polls here) and PET_START_METHOD (of Python functions).
#[rustfmt::skip]
const FOREIGN: &[Foreign] = &[
    foreign("PET_RDZV_BACKEND", &["static"]),
    foreign("PET_RDZV_ENDPOINT", &[]),
    foreign("PET_RDZV_CONF", &[]),
    foreign("PET_STANDALONE", &["0"]),
    foreign("PET_LOCAL_ADDR", &[]),
    foreign("PET_EVENT_LOG_HANDLER", &["null"]),
    foreign("PET_RUN_PATH", &["0"]),
    foreign("TORCHELASTIC_ENABLE_FILE_TIMER", &["0"]),
    foreign("TORCHELASTIC_HEALTH_CHECK_PORT", &[]),
    foreign("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", &["0"]),
];

/// The set variables that ask for something this launcher does not do.
pub(super) fn ignored(environ: &Environ) -> Vec<&'static str> {
    let asks = |it: &&Foreign| {
        let value = environ.get(it.name).filter(|value| !value.is_empty());
        value.is_some_and(|value| it.idle.iter().all(|idle| value != *idle))
    };
    let names = FOREIGN.iter().filter(asks).map(|it| it.name);
    names.filter(|it| !is_ours(it)).collect()
}

fn is_ours(name: &str) -> bool {
    OPTIONS.iter().any(|it| it.variables.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What makes no difference, see [`FOREIGN`].
    const NO_DIFFERENCE: [&str; 7] = [
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "PET_MONITOR_INTERVAL",
        "PET_START_METHOD",
    ];

    /// What asks the original itself.
    mod live {
        use super::*;

        #[test]
        fn every_variable_of_torchruns_parser_is_accounted_for() {
            const LIST: &str = "\
from torch.distributed.argparse_util import check_env, env
from torch.distributed.run import get_args_parser
for it in get_args_parser()._actions:
    if isinstance(it, (env, check_env)):
        print('PET_' + it.dest.upper())
";
            let environ = Environ::of_this_process();
            let python = environ.text("FABRIC_TEST_PYTHON");
            let python = python.expect("FABRIC_TEST_PYTHON names a Python that has torch");
            let output = Command::new(python).args(["-c", LIST]).output().unwrap();
            let names = String::from_utf8(output.stdout).unwrap();
            assert!(names.lines().count() > 20, "{names}");
            for name in names.lines() {
                let foreign = FOREIGN.iter().any(|it| it.name == name);
                assert!(
                    foreign || is_ours(name) || NO_DIFFERENCE.contains(&name),
                    "{name}"
                );
            }
        }
    }

    #[track_caller]
    fn check(set: &[(&str, &str)], expected: &[&str]) {
        let environ = set.iter().copied().collect();
        assert_eq!(ignored(&environ), expected);
    }

    #[test]
    fn what_is_not_obeyed_is_named() {
        check(
            &[("PET_STANDALONE", "1"), ("PET_LOCAL_ADDR", "x")],
            &["PET_STANDALONE", "PET_LOCAL_ADDR"],
        );
        check(
            &[("TORCHELASTIC_ENABLE_FILE_TIMER", "1")],
            &["TORCHELASTIC_ENABLE_FILE_TIMER"],
        );
    }

    #[test]
    fn what_makes_no_difference_is_not() {
        check(
            &[
                ("PET_STANDALONE", "0"),
                ("PET_RDZV_BACKEND", "static"),
                ("PET_LOCAL_ADDR", ""),
            ],
            &[],
        );
        check(
            &[
                ("PET_NNODES", "4"),
                ("PET_MONITOR_INTERVAL", "1"),
                ("PET_ROLE", "x"),
            ],
            &[],
        );
    }
}
