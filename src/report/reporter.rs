//! The only place that prints.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use anyhow::Result;

use super::attempt::failed_attempt;
use super::cause::{Memory, bytes};
use super::clues::{Baseline, shared_memory};
use super::files::Files;
use super::line::{Paint, ranks, span};
use super::processes::{described, owned};
use super::refusal;
use super::summary::{Summary, went_well};
use crate::accelerator::Busy;
use crate::agent::{Event, Hosted, Outcome, Pid, Stamped, Told, Why};
use crate::clock::local_time;
use crate::environ::Environ;
use crate::plan::Plan;
use crate::relay::Voice;
use crate::status::Status;
use crate::topology::LocalRank;

/// Processes left behind that are named one by one.
const NAMED: usize = 8;

/// Prints a run as it goes and sums it up.
pub(crate) struct Reporter<'a> {
    plan: &'a Plan,
    first_rank: u32,
    voice: &'a Voice,
    paint: Paint,
    baseline: Baseline,
    /// The first failure that nobody asked for, and the time of day when it was heard of.
    failure: Option<(Status, String)>,
    /// /dev/shm at that time.
    shared_memory: Option<Memory>,
    left: Vec<Pid>,
    /// How many have failed and were followed by another.
    attempts: usize,
    /// Workers that run, and ranks of those that have ended.
    running: BTreeMap<LocalRank, Pid>,
    ended: Vec<u32>,
    files: Option<Files>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(plan: &'a Plan, voice: &'a Voice) -> Self {
        let paint = Paint {
            on: plan.environ.wants_colours() && io::stderr().is_terminal(),
        };
        Self {
            plan,
            first_rank: 0,
            voice,
            paint,
            baseline: Baseline::default(),
            failure: None,
            shared_memory: None,
            left: Vec::new(),
            attempts: 0,
            running: BTreeMap::new(),
            ended: Vec::new(),
            files: None,
        }
    }

    /// Opens what `--events` and `--report` name; `origin` is when the run began.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn open_files(&mut self, origin: Instant) -> Result<()> {
        self.files = Some(Files::open(self.plan, origin)?);
        Ok(())
    }

    /// Advice on a plan that is right but perhaps not meant.
    pub(crate) fn give_hints(&self) {
        self.plan
            .hints
            .iter()
            .for_each(|it| self.voice.say(&format!("hint: {it}\n")));
    }

    /// What may go wrong, or other than asked.
    pub(crate) fn warn(&self) {
        if let Some(said) = without_effect(&self.plan.ignored) {
            self.voice.say(&format!("fabric: {said}\n"));
        }
        for busy in &self.plan.busy {
            self.voice.say(&format!("fabric: {}\n", already_used(busy)));
        }
        if !self.plan.busy.is_empty() {
            self.voice.say(
                "hint: end that, or choose other GPUs with --devices or CUDA_VISIBLE_DEVICES\n",
            );
        }
    }

    /// Another port than the usual one is worth a line.
    pub(crate) fn tell_port(&self, hosted: &Hosted) {
        if !hosted.moved {
            return;
        }
        let (wanted, port) = (self.plan.main_port.value, hosted.server.local_port());
        self.voice.say(&format!(
            "fabric: port {wanted} is taken; workers meet at port {port}\n"
        ));
    }

    /// Says what a person wants to know at once; this happened, or was heard of, at that time.
    pub(crate) fn hear(&mut self, told: &Told, at: Instant) {
        if let Some(files) = &mut self.files {
            files.hear(told, at, self.plan, self.first_rank);
        }
        match told {
            Told::Event(stamped) => self.hear_event(stamped),
            Told::Waiting(text) | Told::Notice(text) => {
                self.voice.say(&format!("fabric: {text}\n"))
            }
            Told::Ready(first_rank) => {
                self.first_rank = *first_rank;
                // Beside the starts of the workers, which have yet to need memory.
                self.baseline = Baseline::take();
            }
            Told::Restarting(cause) => {
                (self.failure, self.shared_memory) = (None, None);
                self.left.clear();
                self.ended.clear();
                self.attempts += 1;
                let failed = failed_attempt(self.attempts, self.plan, cause);
                self.voice
                    .say(&format!("fabric: {failed}; all workers start again\n"));
            }
            Told::Elsewhere(cause) => {
                self.voice.say(&format!(
                    "fabric: {cause}; ending the workers of this node\n"
                ));
            }
            Told::Lasting => {}
        }
    }

    fn hear_event(&mut self, stamped: &Stamped) {
        match stamped.event {
            Event::Started { worker, pid } => {
                tracing::debug!("rank {} started as pid {pid}", self.global(worker));
                self.running.insert(worker, pid);
            }
            Event::Exited {
                worker,
                status,
                asked,
            } => {
                tracing::debug!("rank {} ended: {status}", self.global(worker));
                self.running.remove(&worker);
                self.ended.push(self.global(worker));
                if !asked && !status.success() && self.failure.is_none() {
                    self.failure = Some((status, local_time()));
                    self.shared_memory = shared_memory();
                }
            }
            Event::Stopping {
                why: Why::Failed(worker),
            } if self.plan.workers() > 1 => {
                self.notice_failure(worker);
            }
            Event::Stopping {
                why: Why::Signal(signal),
            } => {
                tracing::info!("{signal} passed on to all workers");
            }
            Event::StandsStill { worker } => self.notice_standstill(worker),
            Event::Uneven => self.notice_uneven(),
            Event::Stopping {
                why: Why::TimeLimit,
            } => self.notice_time_limit(),
            Event::Killing => self.voice.say("fabric: killing what has not ended yet\n"),
            Event::Left { pid } => self.left.push(pid),
            Event::Lingering if !self.left.is_empty() => self.tell_left(),
            _ => {}
        }
    }

    /// The summary of a run that did not go well, last of all.
    pub(crate) fn sum_up(&mut self, outcome: &Outcome) {
        if let Some(files) = &mut self.files {
            files.conclude(outcome, self.plan, self.first_rank);
        }
        if went_well(outcome) {
            return;
        }
        let refused = outcome.refusal.map(|it| refusal::describe(it, self.plan));
        let failed_at = self.failure.as_ref().map(|(_, at)| at.clone());
        let summary = Summary {
            plan: self.plan,
            outcome,
            first_rank: self.first_rank,
            failed_at: failed_at.unwrap_or_default(),
            clues: self.baseline.compare(self.shared_memory),
            refusal_reason: refused.unwrap_or_default(),
            paint: self.paint,
        };
        self.voice.say(&summary.text());
    }

    fn notice_standstill(&self, worker: LocalRank) {
        let Some(pid) = self.running.get(&worker) else {
            return;
        };
        let rank = self.global(worker);
        self.voice.say(&format!(
            "fabric: rank {rank} was stopped and stands still\nhint: `kill -CONT {pid}` lets it go on\n"
        ));
    }

    /// Right for ranks that have less to do; wrong where the others wait for them.
    fn notice_uneven(&mut self) {
        self.ended.sort_unstable();
        let running: Vec<u32> = self.running.keys().map(|it| self.global(*it)).collect();
        let (ended, running) = (ranks(&self.ended), ranks(&running));
        let id = std::process::id();
        self.voice.say(&format!(
            "fabric: {ended} ended with exit code 0 a minute ago, {running} still running\n\
             hint: a rank that waits for one that has ended waits for ever; `fabric stop {id}` ends the run\n"
        ));
    }

    fn notice_failure(&self, worker: LocalRank) {
        let (rank, grace) = (self.global(worker), span(self.plan.settings.grace));
        let status = self.failure.as_ref().map(|(status, _)| *status);
        let status = status.map_or_else(String::new, |it| format!(" ({it})"));
        self.voice.say(&format!(
            "fabric: rank {rank} failed{status}, ending the others (they have {grace})\n"
        ));
    }

    fn notice_time_limit(&self) {
        let limit = self.plan.settings.limit.map_or_else(String::new, span);
        let grace = span(self.plan.settings.grace);
        self.voice.say(&format!(
            "fabric: the time limit of {limit} is over, ending the workers (they have {grace})\n"
        ));
    }

    /// `pid 71 (sleep 70), pid 72 (python)`: what workers left behind, and for how long it may stay.
    fn tell_left(&mut self) {
        self.left.sort_unstable();
        let mut names = described(&self.left[..self.left.len().min(NAMED)]);
        if self.left.len() > NAMED {
            names.push(format!("and {} more", self.left.len() - NAMED));
        }
        let linger = span(self.plan.settings.linger);
        self.voice.say(&format!(
            "fabric: workers left {} behind; ended in {linger} (--linger SECONDS, --keep-daemons)\n",
            names.join(", ")
        ));
        self.left.clear();
    }

    fn global(&self, worker: LocalRank) -> u32 {
        self.first_rank + worker.0
    }
}

/// A sentence on variables that ask for what we do not do, and the way out behind `hint: `.
pub(crate) fn without_effect(variables: &[&str]) -> Option<String> {
    let names = variables.join(", ");
    (!variables.is_empty()).then(|| {
        format!(
            "set, but without effect here: {names}\n\
             hint: unset what this run does not need; for what it needs use torchrun"
        )
    })
}

/// `GPU 1 is already in use by pid 71 (python a.py) of anna, 3 GiB`.
fn already_used(busy: &Busy) -> String {
    let users = busy.users.iter().map(|it| {
        let memory = it
            .memory
            .map_or_else(String::new, |it| format!(", {}", bytes(it)));
        owned(it.pid as Pid) + &memory
    });
    let users = users.collect::<Vec<_>>().join("; ");
    format!("GPU {} is already in use by {users}", busy.gpu)
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
            on: terminal && environ.wants_colours(),
        },
        clears: terminal && environ.get("TERM") != Some(OsStr::new("dumb")),
    }
}
