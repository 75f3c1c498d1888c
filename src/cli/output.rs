//! What shall become of what workers write.

use std::ffi::OsString;

use super::ranks::Ranks;
use super::streams::{StreamMap, Streams};
use crate::source::{Source, Sourced};

/// The options on output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Output {
    /// Workers write to our own streams instead of through us.
    pub(crate) direct: bool,
    /// A label in front of every line.
    pub(crate) prefix: bool,
    /// What the label is made of.
    pub(crate) template: Option<Sourced<String>>,
    /// Whose output is shown, by global and by local rank; that of both where both are given.
    pub(crate) ranks: Option<Ranks>,
    pub(crate) local_ranks: Option<Ranks>,
    /// Where a file is written for every stream of every worker.
    pub(crate) log_dir: Option<Sourced<OsString>>,
    /// What goes to files and is not shown.
    pub(crate) redirects: StreamMap,
    /// What goes to files and is shown, with a label.
    pub(crate) tee: StreamMap,
    /// Texts whose lines are written to a file of all workers, too: of stdout, and of stderr.
    pub(crate) out_filters: Vec<Vec<u8>>,
    pub(crate) err_filters: Vec<Vec<u8>>,
    /// Where the report is written as JSON.
    pub(crate) report: Option<Sourced<OsString>>,
    /// Where every event is written as it happens, one JSON object a line.
    pub(crate) events: Option<Sourced<OsString>>,
}

impl Output {
    /// Whether every line gets a label. A template in a variable says what labels look like and not that
    /// there are any: so it is in the original.
    pub(crate) fn labels_all(&self) -> bool {
        let template = self.template.as_ref();
        self.prefix || template.is_some_and(|it| matches!(it.source, Source::Flag(_)))
    }

    /// An option that workers' output has to pass through us for, if there is one.
    pub(crate) fn needs_relay(&self) -> Option<&'static str> {
        let needs = [
            (self.prefix, "--prefix"),
            (self.labels_all(), "--log-line-prefix-template"),
            (self.ranks.is_some(), "--ranks"),
            (self.local_ranks.is_some(), "--local-ranks-filter"),
            (self.log_dir.is_some(), "--log-dir"),
            (self.redirects.any(Streams::any), "--redirects"),
            (self.tee.any(Streams::any), "--tee"),
            (!self.out_filters.is_empty(), "--duplicate-stdout-filters"),
            (!self.err_filters.is_empty(), "--duplicate-stderr-filters"),
        ];
        needs
            .into_iter()
            .find(|(wanted, _)| *wanted)
            .map(|(_, flag)| flag)
    }
}
