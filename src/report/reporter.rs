//! The only place that prints.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use super::clues::Baseline;
use super::line::{Paint, span};
use super::processes::described;
use super::summary::Summary;
use crate::agent::{Event, Hosted, Outcome, Pid, Stamped, Why};
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
        let paint = Paint {
            on: colours_wanted(&plan.environ) && io::stderr().is_terminal(),
        };
        Self {
            plan,
            first_rank,
            paint,
            baseline: Baseline::default(),
            left: Vec::new(),
        }
    }

    /// Advice on a plan that is right but perhaps not meant.
    pub(crate) fn give_hints(&self) {
        self.plan
            .hints
            .iter()
            .for_each(|it| complain(&format!("hint: {it}\n")));
    }

    /// Another port than the usual one is worth a line.
    pub(crate) fn tell_port(&self, hosted: &Hosted) {
        let Some(holder) = &hosted.moved else { return };
        let holder = holder.map_or_else(String::new, |pid| {
            format!(" by {}", described(&[pid]).concat())
        });
        let (wanted, port) = (self.plan.main_port.value, hosted.server.local_port());
        complain(&format!(
            "fabric: port {wanted} is taken{holder}; workers meet at port {port}\n"
        ));
    }

    /// Says what a person wants to know at once.
    pub(crate) fn hear(&mut self, stamped: &Stamped) {
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
            Event::Stopping {
                why: Why::Failed(worker),
            } if self.plan.local_world_size.value > 1 => {
                self.notice_failure(worker);
            }
            Event::Stopping {
                why: Why::Signal(signal),
            } => {
                tracing::info!("{signal} passed on to all workers");
            }
            Event::Killing => tracing::warn!("workers did not end in time, killing them"),
            Event::Left { pid } => self.left.push(pid),
            Event::Lingering if !self.left.is_empty() => self.tell_left(),
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
            refusal_reason: outcome
                .refusal
                .map_or_else(String::new, |it| reason(it.errno)),
            paint: self.paint,
        };
        complain(&summary.text());
    }

    fn notice_failure(&self, worker: LocalRank) {
        let grace = span(self.plan.settings.grace);
        let rank = self.global(worker);
        complain(&format!(
            "fabric: rank {rank} failed, ending the others (they have {grace})\n"
        ));
    }

    /// `pid 71 (sleep 70), pid 72 (python)`: what workers left behind, and for how long it may stay.
    fn tell_left(&mut self) {
        let names = described(&self.left);
        let linger = span(self.plan.settings.linger);
        complain(&format!(
            "fabric: workers left {} behind; ended in {linger} (--linger SECONDS, --keep-daemons)\n",
            names.join(", ")
        ));
        self.left.clear();
    }

    fn global(&self, worker: LocalRank) -> u32 {
        self.first_rank + worker.0
    }
}

/// The system's words for an error number, such as "No such file or directory".
fn reason(errno: i32) -> String {
    nix::errno::Errno::from_raw(errno).desc().to_owned()
}

/// Columns of the terminal that shows our output, if one does.
pub(crate) fn terminal_width() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ fills in a winsize, which `size` is.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (done == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
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

/// What standard output can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Output {
    pub(crate) paint: Paint,
    /// A terminal whose screen can be cleared.
    pub(crate) clears: bool,
}

/// Looks at standard output.
pub(crate) fn output(environ: &Environ) -> Output {
    let terminal = io::stdout().is_terminal();
    Output {
        paint: Paint {
            on: terminal && colours_wanted(environ),
        },
        clears: terminal && environ.get("TERM") != Some(OsStr::new("dumb")),
    }
}

/// NO_COLOR (no-color.org) and a dumb terminal want none.
pub(super) fn colours_wanted(environ: &Environ) -> bool {
    environ.text("NO_COLOR").is_none() && environ.get("TERM") != Some(OsStr::new("dumb"))
}
