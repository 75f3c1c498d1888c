//! What becomes of each stream of each worker: a function of the plan.

use std::path::{Path, PathBuf};

use super::prefix::{Names, expand};
use crate::cli::{Output, Streams};
use crate::plan::Plan;
use crate::topology::LocalRank;

/// torchrun's label of a line that it shows and writes to a file.
const TORCHRUNS: &str = "[${role_name}${local_rank}]:";

/// One of a worker's two streams, or both through one channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What becomes of what comes from one channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Treatment {
    pub(crate) shown: bool,
    /// Stands in front of every line that is shown.
    pub(crate) label: Option<String>,
    pub(crate) file: Option<PathBuf>,
    pub(crate) filtered: Option<Filtered>,
}

/// Lines that go to a file which all workers share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filtered {
    /// Those that contain one of these texts.
    pub(crate) texts: Vec<Vec<u8>>,
    /// Stands in front of every one.
    pub(crate) label: String,
    pub(crate) file: PathBuf,
}

/// A worker that was started, and how often that rank was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// Its index among our workers.
    pub(crate) index: LocalRank,
    /// Global rank of our first worker.
    pub(crate) first_rank: u32,
    pub(crate) attempt: u32,
}

/// Whether any worker's output goes to files.
pub(crate) fn wants_files(output: &Output) -> bool {
    let filters = [&output.out_filters, &output.err_filters];
    output.log_dir.is_some()
        || output.redirects.any(Streams::any)
        || output.tee.any(Streams::any)
        || filters.iter().any(|it| !it.is_empty())
}

impl Treatment {
    /// Of one channel; `logs` is where the run's files are, `colour` whether our stream shows colours.
    pub(crate) fn of(
        plan: &Plan,
        worker: Started,
        stream: Stream,
        logs: Option<&Path>,
        colour: bool,
    ) -> Self {
        let output = &plan.output;
        let local_rank = plan.local_rank(worker.index).0;
        let rank = worker.first_rank + worker.index.0;
        let has = |it: Streams| match stream {
            Stream::Out => it.out,
            Stream::Err => it.err,
        };
        let redirected = has(output.redirects.of(local_rank));
        let teed = has(output.tee.of(local_rank));
        let listed = output.ranks.as_ref().is_none_or(|it| it.contains(rank))
            && output
                .local_ranks
                .as_ref()
                .is_none_or(|it| it.contains(local_rank));
        let filed = redirected || teed || output.log_dir.is_some();
        let labelled = teed || output.labels_all();
        let logs = logs.map(|it| it.join(format!("attempt_{}", worker.attempt)));
        let texts = match stream {
            Stream::Out => &output.out_filters,
            Stream::Err => &output.err_filters,
        };
        let filtered = logs.as_ref().filter(|_| !texts.is_empty());
        Self {
            shown: listed && (teed || !redirected),
            label: labelled.then(|| label(plan, rank, local_rank, colour)),
            filtered: filtered.map(|it| Filtered {
                texts: texts.clone(),
                label: label(plan, rank, local_rank, false),
                file: it.join(format!("filtered_{}", file(stream))),
            }),
            file: logs
                .filter(|_| filed)
                .map(|it| it.join(local_rank.to_string()).join(file(stream))),
        }
    }
}

/// As torchrun names them (torch 2.15, `elastic/multiprocessing/api.py`). torchrun filters what is teed only.
fn file(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "stdout.log",
        Stream::Err => "stderr.log",
    }
}

fn label(plan: &Plan, rank: u32, local_rank: u32, colour: bool) -> String {
    let output = &plan.output;
    let names = Names {
        role_name: &plan.role.value,
        local_rank,
        rank,
        hostname: &plan.machine.host,
    };
    if let Some(template) = &output.template {
        return painted(&expand(&template.value, &names), rank, colour);
    }
    if !output.labels_all() {
        return painted(&expand(TORCHRUNS, &names), rank, colour);
    }
    let ours = match plan.num_nodes.value {
        1 => "[rank ${rank}]",
        _ => "[rank ${rank} ${hostname}]",
    };
    painted(&expand(ours, &names), rank, colour) + " "
}

/// Neighbours differ: six colours (ECMA-48, 8.3.117) without those of backgrounds.
fn painted(label: &str, rank: u32, colour: bool) -> String {
    if !colour {
        return label.to_owned();
    }
    format!("\x1b[{}m{label}\x1b[0m", 31 + rank % 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Ranks, StreamMap};
    use crate::plan::sample;
    use crate::source::{Source, Sourced};

    const SHOWN: (bool, Option<&str>, Option<&str>) = (true, None, None);

    /// Local rank 1 of 2 on the second of two nodes, global rank 3; its stdout.
    #[track_caller]
    fn check(change: impl Fn(&mut Plan), expected: (bool, Option<&str>, Option<&str>)) {
        let mut plan = sample::plan(2, &[]);
        change(&mut plan);
        let worker = Started {
            index: LocalRank(1),
            first_rank: 2,
            attempt: 0,
        };
        let found = Treatment::of(&plan, worker, Stream::Out, Some(Path::new("logs")), false);
        let (shown, label, file) = expected;
        assert_eq!(found.shown, shown);
        assert_eq!(found.label.as_deref(), label);
        assert_eq!(found.file.as_deref(), file.map(Path::new));
    }

    const FILE: Option<&str> = Some("logs/attempt_0/1/stdout.log");

    fn map(text: &str) -> StreamMap {
        StreamMap::parse(text).unwrap()
    }

    fn template(source: Source) -> Option<Sourced<String>> {
        Some(Sourced::new("${hostname}:${rank} ".to_owned(), source))
    }

    #[test]
    fn by_default_all_is_shown_as_it_is() {
        check(|_| {}, SHOWN);
    }

    #[test]
    fn labels_name_the_node_where_there_are_several() {
        check(
            |it| it.output.prefix = true,
            (true, Some("[rank 3] "), None),
        );
        let several = |it: &mut Plan| {
            it.output.prefix = true;
            it.num_nodes.value = 2;
        };
        check(several, (true, Some("[rank 3 gpu-1] "), None));
    }

    #[test]
    fn a_template_in_a_variable_asks_for_no_labels() {
        let flag = Source::Flag("--log-line-prefix-template");
        check(
            |it| it.output.template = template(flag.clone()),
            (true, Some("gpu-1:3 "), None),
        );
        let variable = Source::Variable("PET_LOG_LINE_PREFIX_TEMPLATE".into());
        check(|it| it.output.template = template(variable.clone()), SHOWN);
        let both = |it: &mut Plan| {
            it.output.template = template(variable.clone());
            it.output.tee = map("3");
        };
        check(both, (true, Some("gpu-1:3 "), FILE));
    }

    #[test]
    fn filters_hide_by_global_and_by_local_rank() {
        let ranks = |text: &str| Ranks::parse(text);
        check(|it| it.output.ranks = ranks("3"), SHOWN);
        check(|it| it.output.ranks = ranks("0-2"), (false, None, None));
        check(|it| it.output.local_ranks = ranks("1"), SHOWN);
        check(
            |it| it.output.local_ranks = ranks("0,3"),
            (false, None, None),
        );
    }

    #[test]
    fn files_are_torchruns() {
        check(|it| it.output.redirects = map("1"), (false, None, FILE));
        check(|it| it.output.redirects = map("2"), SHOWN);
        check(|it| it.output.redirects = map("1:1"), (false, None, FILE));
        check(|it| it.output.redirects = map("0:3"), SHOWN);
        check(
            |it| it.output.tee = map("3"),
            (true, Some("[default1]:"), FILE),
        );
        let both = |it: &mut Plan| (it.output.redirects, it.output.tee) = (map("3"), map("3"));
        check(both, (true, Some("[default1]:"), FILE));
    }

    #[test]
    fn a_log_dir_takes_a_copy_of_all() {
        let dir =
            |it: &mut Plan| it.output.log_dir = Some(Sourced::new("d".into(), Source::Default));
        check(dir, (true, None, FILE));
    }

    #[test]
    fn filtered_lines_of_all_workers_go_to_one_file() {
        let mut plan = sample::plan(2, &[]);
        plan.output.out_filters = vec![b"loss".to_vec()];
        let worker = |index| Started {
            index: LocalRank(index),
            first_rank: 2,
            attempt: 1,
        };
        let filtered = |index, stream| {
            let logs = Some(Path::new("logs"));
            Treatment::of(&plan, worker(index), stream, logs, true).filtered
        };
        for index in [0, 1] {
            let it = filtered(index, Stream::Out).unwrap();
            assert_eq!(it.file, Path::new("logs/attempt_1/filtered_stdout.log"));
            assert_eq!(it.label, format!("[default{index}]:"));
            assert_eq!(filtered(index, Stream::Err), None);
        }
        assert!(wants_files(&plan.output));
    }

    #[test]
    fn ranks_have_colours() {
        assert_eq!(painted("[rank 7]", 7, true), "\x1b[32m[rank 7]\x1b[0m");
        assert_eq!(painted("[rank 7]", 7, false), "[rank 7]");
    }
}
