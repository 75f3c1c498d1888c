//! The last thing a failed run prints: what failed first, in its own words, and what became of the others.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cause::{Clues, explain};
use super::line::{Paint, ranks, span, wrap};
use crate::agent::{End, Exit, Outcome, Record, Step, Why, parse_error_file};
use crate::plan::Plan;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// Columns of the labels on the left, and of the whole.
const LABEL: usize = 14;
const WIDTH: usize = 80;
/// Lines of a traceback that are shown: its end, where the exception is.
const TRACEBACK: usize = 40;

/// What the summary is about.
pub(crate) struct Summary<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) outcome: &'a Outcome,
    /// Global rank of local rank 0.
    pub(crate) first_rank: u32,
    pub(crate) clues: Clues,
    /// The system's words for why a worker could not be started.
    pub(crate) refusal_reason: String,
    pub(crate) paint: Paint,
}

impl Summary<'_> {
    /// The text, empty for a run that went well.
    pub(crate) fn text(&self) -> String {
        if self.outcome.exit() == Exit::Code(0) && self.outcome.stuck.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "{}\n",
            self.paint.red(&format!("fabric: {}", self.headline()))
        );
        self.row(&mut text, "script", &self.plan.script.to_string_lossy());
        if let Some((rank, end)) = self.outcome.root_cause() {
            self.root_cause(&mut text, rank, end);
        }
        self.others(&mut text);
        self.stuck(&mut text);
        text
    }

    fn headline(&self) -> String {
        if let Some(status) = self.outcome.guardian_lost {
            return format!("the guardian process died ({status}); all workers have been ended");
        }
        match self.outcome.why {
            Some(Why::Failed(rank)) => {
                let status = self.outcome.root_cause().map(|(_, end)| end.status);
                let status = status.map_or_else(String::new, |it| format!(": {it}"));
                format!("rank {} failed{status}", self.global(rank))
            }
            Some(Why::NotStarted(rank)) => {
                format!(
                    "rank {} could not be started: {}",
                    self.global(rank),
                    self.refusal()
                )
            }
            Some(Why::Signal(signal)) => format!("stopped by {signal}"),
            Some(Why::TimeLimit) => {
                let limit = self.plan.settings.limit.map_or_else(String::new, span);
                format!("ended by the time limit of {limit} (--timeout)")
            }
            Some(Why::LauncherGone) | None => "some processes could not be ended".to_owned(),
        }
    }

    fn root_cause(&self, text: &mut String, rank: LocalRank, end: End) {
        let record = &self.outcome.workers[rank.0 as usize];
        let pid = record.pid.unwrap_or_default();
        let (node, host) = (self.plan.node_rank.value, &self.plan.machine.host);
        let global = self.global(rank);
        let who = format!("rank {global} (local rank {rank}, node {node} on {host}, pid {pid})");
        self.row(text, "root cause", &self.paint.bold(&who));
        self.row(
            text,
            "",
            &format!("{} after {}", end.status, span(lived(record, end))),
        );
        if let Some(meaning) = explain(end.status, &self.clues) {
            self.row(text, "", &meaning);
        }
        let confession = self.outcome.confessions.get(&rank.0);
        let Some(confession) = confession.and_then(|it| parse_error_file(it)) else {
            return;
        };
        self.row(text, "message", &confession.message);
        if let Some(traceback) = confession.traceback {
            self.row(text, "traceback", "");
            let lines: Vec<&str> = traceback.lines().collect();
            for line in &lines[lines.len().saturating_sub(TRACEBACK)..] {
                let _ = writeln!(text, "    {line}");
            }
        }
    }

    /// One row for all workers with the same fate.
    fn others(&self, text: &mut String) {
        let root = self.outcome.root_cause().map(|(rank, _)| rank.0);
        let mut fates: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (rank, record) in (0..).zip(&self.outcome.workers) {
            if Some(rank) != root && !self.is_refused(rank) {
                fates
                    .entry(fate(record))
                    .or_default()
                    .push(self.first_rank + rank);
            }
        }
        let mut fates: Vec<(String, Vec<u32>)> = fates.into_iter().collect();
        fates.sort_by_key(|(_, numbers)| numbers[0]);
        let mut label = if root.is_some() { "others" } else { "workers" };
        for (fate, numbers) in fates {
            self.row(text, label, &format!("{}: {fate}", ranks(&numbers)));
            label = "";
        }
    }

    fn is_refused(&self, rank: u32) -> bool {
        self.outcome.why == Some(Why::NotStarted(LocalRank(rank)))
    }

    fn stuck(&self, text: &mut String) {
        for (pid, state) in &self.outcome.stuck {
            let state = match state {
                b'D' => "in uninterruptible sleep, often a driver or a file server".to_owned(),
                state => format!("state {}", char::from(*state)),
            };
            self.row(
                text,
                "still there",
                &format!("pid {pid} survived SIGKILL ({state})"),
            );
        }
    }

    fn refusal(&self) -> String {
        let Some(refusal) = self.outcome.refusal else {
            return String::new();
        };
        let reason = &self.refusal_reason;
        match refusal.step {
            Step::Process => format!("{reason}{}", self.process_limit(refusal.errno)),
            Step::Setup => format!("{reason}, while it was set up"),
            Step::Directory => {
                let cwd = self.plan.cwd.as_deref().unwrap_or_default();
                format!("directory `{}` (--cwd): {reason}", cwd.display())
            }
            Step::Exec => format!("`{}`: {reason}", self.plan.program.display()),
        }
    }

    /// clone(2) has one error for several limits; the one a user can see and raise is named.
    fn process_limit(&self, errno: i32) -> String {
        match (errno, &self.plan.machine.process_limit) {
            (EAGAIN, Some(limit)) => {
                format!(
                    " (at most {limit} processes for this user: `ulimit -u`, or the container's pids limit)"
                )
            }
            (ENOMEM, _) => " (no memory for another process)".to_owned(),
            _ => String::new(),
        }
    }

    fn global(&self, rank: LocalRank) -> u32 {
        self.first_rank + rank.0
    }

    fn row(&self, text: &mut String, label: &str, value: &str) {
        let mut label = label;
        for line in value.lines().flat_map(|it| wrap(it, WIDTH - LABEL)) {
            let _ = writeln!(text, "  {label:<width$}{line}", width = LABEL - 2);
            label = "";
        }
        if value.is_empty() {
            let _ = writeln!(text, "  {label}");
        }
    }
}

/// errno(3) on Linux.
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;

fn fate(record: &Record) -> String {
    let Some(end) = record.end else {
        return if record.pid.is_some() {
            "ended with the guardian"
        } else {
            "not started"
        }
        .to_owned();
    };
    let by_us = matches!(
        end.status,
        Status::Signal {
            signal: Signal::TERM | Signal::KILL,
            ..
        }
    );
    match (end.asked, end.status) {
        (true, Status::Signal { signal, .. }) if by_us => format!("ended by fabric ({signal})"),
        (true, status) => format!("{status} when told to end"),
        (false, Status::Code(0)) => "exit code 0".to_owned(),
        (false, status) => format!("{status} by itself, after {}", span(lived(record, end))),
    }
}

fn lived(record: &Record, end: End) -> std::time::Duration {
    end.at.saturating_sub(record.started.unwrap_or(end.at))
}
