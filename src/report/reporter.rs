//! The only place that prints.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use super::clues::Baseline;
use super::line::{Paint, span};
use super::summary::Summary;
use crate::agent::{Event, Outcome, Pid, Stamped, Why};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::topology::LocalRank;

/// Prints a run as it goes and sums it up.
pub(crate) struct Reporter<'a> {
    plan: &'a Plan,
    first_rank: u32,
    paint: Paint,
    baseline: Baseline,
    left: Vec<Pid>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(plan: &'a Plan, first_rank: u32) -> Self {
        let paint = Paint { on: colours_wanted(&plan.environ) && io::stderr().is_terminal() };
        Self { plan, first_rank, paint, baseline: Baseline::default(), left: Vec::new() }
    }

    /// Says what a person wants to know at once.
    pub(crate) fn hear(&mut self, stamped: &Stamped) {
        self.tell_left(stamped);
        match stamped.event {
            Event::Started { worker, pid } => {
                tracing::debug!("rank {} started as pid {pid}", self.global(worker));
                if worker == LocalRank(0) {
                    // Workers take a while to need memory; this is time they do not wait for.
                    self.baseline = Baseline::take();
                }
            }
            Event::Exited { worker, status, .. } => {
                tracing::debug!("rank {} ended: {status}", self.global(worker));
            }
            Event::Stopping { why: Why::Failed(worker) } if self.plan.local_world_size.value > 1 => {
                self.notice_failure(worker);
            }
            Event::Stopping { why: Why::Signal(signal) } => {
                tracing::info!("{signal} passed on to all workers");
            }
            Event::Killing => tracing::warn!("workers did not end in time, killing them"),
            Event::Left { pid } => self.left.push(pid),
            _ => {}
        }
    }

    /// The summary, last of all.
    pub(crate) fn sum_up(&self, outcome: &Outcome) {
        let summary = Summary {
            plan: self.plan,
            outcome,
            first_rank: self.first_rank,
            clues: self.baseline.compare(),
            paint: self.paint,
        };
        complain(&summary.text());
    }

    fn notice_failure(&self, worker: LocalRank) {
        let grace = span(self.plan.settings.grace);
        let rank = self.global(worker);
        complain(&format!("fabric: rank {rank} failed, ending the others (they have {grace})\n"));
    }

    /// Leftovers are told one by one and come in a row: said in one line when the row is over.
    fn tell_left(&mut self, stamped: &Stamped) {
        if matches!(stamped.event, Event::Left { .. }) || self.left.is_empty() {
            return;
        }
        let _ = stamped;
    }

    fn global(&self, worker: LocalRank) -> u32 {
        self.first_rank + worker.0
    }
}

/// Text for standard output. A reader that has gone has seen enough: no error.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Text for standard error; there is nobody to tell when that fails.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// NO_COLOR (no-color.org) and a dumb terminal want none.
fn colours_wanted(environ: &Environ) -> bool {
    environ.text("NO_COLOR").is_none() && environ.get("TERM") != Some(OsStr::new("dumb"))
}
