//! What machines get to read: the files of `--events` and `--report`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use serde_json::Value;

use super::json::Frame;
use crate::agent::{Outcome, Told};
use crate::plan::Plan;
use crate::source::Sourced;

/// Files that are open from the start, so that what cannot be written is known before hours of training.
#[derive(Debug)]
pub(crate) struct Files {
    events: Option<File>,
    report: Option<File>,
    origin: Instant,
    /// The same moment, since 1970.
    began: Duration,
}

impl Files {
    /// `origin` is when the run began: events count from there.
    ///
    /// # Errors
    /// One of the files cannot be made; the text says which.
    pub(crate) fn open(plan: &Plan, origin: Instant) -> Result<Self> {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Self {
            events: plan.output.events.as_ref().map(open).transpose()?,
            report: plan.output.report.as_ref().map(open).transpose()?,
            began: today.unwrap_or_default().saturating_sub(origin.elapsed()),
            origin,
        })
    }

    /// One event, of which the launcher knew at that time.
    pub(crate) fn hear(&mut self, told: &Told, at: Instant, plan: &Plan, first_rank: u32) {
        let frame = self.frame(plan, first_rank);
        let now = at.saturating_duration_since(self.origin);
        if let Some(file) = &mut self.events
            && let Some(event) = frame.event(told, now)
        {
            put(file, &format!("{event}\n"));
        }
    }

    /// The end of both.
    pub(crate) fn conclude(&mut self, outcome: &Outcome, plan: &Plan, first_rank: u32) {
        let frame = self.frame(plan, first_rank);
        let now = self.origin.elapsed();
        if let Some(file) = &mut self.events {
            let lines = frame.ending(outcome, now);
            let lines: String = lines.iter().map(|it| format!("{it}\n")).collect();
            put(file, &lines);
        }
        if let Some(file) = &mut self.report {
            let report: Value = frame.report(outcome, now);
            put(file, &format!("{report:#}\n"));
        }
    }

    fn frame<'p>(&self, plan: &'p Plan, first_rank: u32) -> Frame<'p> {
        Frame {
            plan,
            first_rank,
            began: self.began,
        }
    }
}

fn open(named: &Sourced<std::ffi::OsString>) -> Result<File> {
    let path = Path::new(&named.value);
    File::create(path)
        .with_context(|| format!("failed to write `{}` ({})", path.display(), named.source))
}

/// A full disk or a reader that has gone is no reason to end a training.
fn put(file: &mut File, text: &str) {
    if let Err(error) = file.write_all(text.as_bytes()) {
        tracing::warn!("cannot write events or the report: {error}");
    }
}
