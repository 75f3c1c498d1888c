//! The launcher's loop: hears the guardian, passes signals on, and keeps the record.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::descendants::{self, Process};
use super::error_file;
use super::event::Event;
use super::linux;
use super::message::{Command, Stamped};
use super::outcome::Outcome;
use super::private::{self, PrivateDir};
use super::signals::{Inbox, Inherited};
use super::wait::{Found, Which, peek, reap};
use super::ward::{Birth, Heard, Ward};
use crate::plan::{Plan, World, error_file as error_path};
use crate::relay::{Relay, Voice, Wiring};
use crate::rendezvous::Server;
use crate::status::Signal;
use crate::topology::LocalRank;

/// How long the launcher tries to end what a killed guardian left to it.
const SWEEP: Duration = Duration::from_secs(5);
/// A signal gives up output that nobody reads, but not sooner than this after the last worker's end: it may
/// be an echo of the one that ended the run.
const READERS_TIME: Duration = Duration::from_secs(1);

/// What the launcher was born into.
pub(crate) struct Start<'a> {
    pub(crate) inherited: &'a Inherited,
    /// Length in bytes of our argument area, see [`linux::rename_process`].
    pub(crate) argument_bytes: usize,
    /// The store, where this node hosts it.
    pub(crate) server: Option<Server>,
    pub(crate) voice: &'a Voice,
}

/// After this long without a sign of life a client of the store counts as gone.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs the plan to its end. `hear` is told every event as it comes.
///
/// # Errors
/// The system refused what a run needs before there was a worker; the text says what.
pub(crate) fn run(
    plan: &Plan,
    start: Start<'_>,
    hear: &mut dyn FnMut(&Stamped),
) -> Result<Outcome> {
    let mut inbox = Inbox::open(start.inherited, &plan.settings.handled)
        .context("failed to take in signals")?;
    let directory = PrivateDir::make(&plan.machine.temp);
    let strangers = strangers();
    if linux::adopt_orphans().is_err() {
        tracing::warn!("this kernel cannot hand orphans to their ancestors");
    }
    let workers = plan.local_world_size.value;
    let wiring = if plan.direct_output {
        Wiring::Direct
    } else {
        Wiring::for_workers(workers, start.voice)
    };
    let birth = Birth {
        plan,
        wiring,
        inherited: start.inherited,
        error_dir: directory.as_ref().map(PrivateDir::path),
        origin: Instant::now(),
        argument_bytes: start.argument_bytes,
    };
    let ward = Ward::start(&birth).context("failed to start the guardian process")?;
    let relay = Relay::start(&wiring, workers, start.voice)
        .context("failed to start the relay of output")?;
    inbox
        .listen_for_interrupts(start.inherited)
        .context("failed to listen for Ctrl-C")?;
    let first_rank = workers * plan.node_rank.value.0;
    let world_size = workers * plan.num_nodes.value;
    let port = start
        .server
        .as_ref()
        .map_or(plan.main_port.value, Server::local_port);
    ward.tell(Command::Begin {
        first_rank,
        world_size,
        port,
    });
    // Workers that come before the thread runs wait in the kernel's queue.
    let store = start
        .server
        .map(|it| it.serve(PATIENCE))
        .transpose()
        .context("failed to serve the store")?;
    let mut launcher = Launcher {
        inbox,
        ward,
        relay,
        outcome: Outcome::new(workers),
        handled: &plan.settings.handled,
        hear,
    };
    launcher.watch();
    launcher.conclude(&strangers);
    launcher.finish_output();
    drop(store);
    let world = World {
        first_rank,
        world_size,
        port,
        error_dir: birth.error_dir.map(Into::into),
    };
    let outcome = launcher
        .outcome
        .with_confessions(|rank| confession(&world, rank));
    pass_on(plan, &outcome);
    Ok(outcome)
}

/// A launcher around us reads its own error file: it gets the root cause's, as from torch's launcher.
fn pass_on(plan: &Plan, outcome: &Outcome) {
    let (Some(file), Some((rank, end))) = (
        plan.environ.text("TORCHELASTIC_ERROR_FILE"),
        outcome.root_cause(),
    ) else {
        return;
    };
    if let Some(bytes) = outcome.confessions.get(&rank.0) {
        private::write(
            file.as_ref(),
            &error_file::with_exit_code(bytes, end.status.python_code()),
        );
    }
}

fn confession(world: &World, rank: LocalRank) -> Option<Vec<u8>> {
    private::read(&error_path(world, rank)?)
}

/// Children that we had before we started anything: a shell may start a job and then become us by `exec`.
/// They are none of our business, and neither is what they start.
fn strangers() -> Vec<Process> {
    match peek(Which::Any) {
        Found::Nobody => Vec::new(),
        _ => descendants::below(nix::unistd::getpid().as_raw()),
    }
}

struct Launcher<'a> {
    inbox: Inbox,
    ward: Ward,
    relay: Option<Relay>,
    outcome: Outcome,
    handled: &'a [Signal],
    hear: &'a mut dyn FnMut(&Stamped),
}

impl Launcher<'_> {
    /// Returns once the guardian has ended.
    fn watch(&mut self) {
        loop {
            wait(self.inbox.sources().into_iter().chain([self.ward.source()]));
            while let Some(signal) = self.inbox.next() {
                self.take(signal);
            }
            loop {
                match self.ward.hear() {
                    Heard::Event(stamped, ends) => self.note(stamped, ends),
                    Heard::Nothing => break,
                    Heard::End => return,
                }
            }
        }
    }

    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::CHLD => self.reap_orphans(),
            Signal::WINCH => {
                if let Some(relay) = &self.relay {
                    relay.resize();
                }
                self.ward.tell(Command::Signal(signal));
            }
            _ => self.ward.tell(Command::Signal(signal)),
        }
    }

    fn note(&mut self, stamped: Stamped, ends: Vec<OwnedFd>) {
        if let (Event::Started { worker, .. }, Some(relay)) = (stamped.event, &mut self.relay) {
            relay.add(worker, ends);
        }
        self.outcome.add(stamped);
        (self.hear)(&stamped);
        if stamped.event == Event::Paused {
            // The workers stand still; so shall we, until `fg` sends SIGCONT.
            descendants::kill(nix::unistd::getpid().as_raw(), Signal::STOP);
        }
    }

    /// As PID 1 of a container we inherit every orphan there.
    fn reap_orphans(&self) {
        while let Found::Dead(pid, _) = peek(Which::Any) {
            if pid == self.ward.pid() {
                return;
            }
            reap(Which::One(pid));
        }
    }

    /// The guardian has ended: as it should, or before its work was done.
    fn conclude(&mut self, strangers: &[Process]) {
        let status = self.ward.end();
        if self.outcome.done {
            return;
        }
        self.outcome.guardian_lost = Some(status);
        let deadline = Instant::now() + SWEEP;
        while Instant::now() < deadline {
            while let Found::Dead(pid, _) = peek(Which::Any) {
                reap(Which::One(pid));
            }
            let left = ours(strangers);
            if left.is_empty() {
                return;
            }
            left.iter()
                .for_each(|it| descendants::send(it, Signal::KILL));
            // SIGCHLD is in the inbox's mask: this sleeps until a death or for a moment.
            wait_for_a_moment(self.inbox.sources());
            while self.inbox.next().is_some() {}
        }
        let left = ours(strangers).into_iter();
        self.outcome.stuck.extend(left.map(|it| (it.pid, it.state)));
    }

    /// Waits until everything that workers wrote has been passed on, or its readers are gone, or somebody
    /// who waits for us has had enough.
    fn finish_output(&mut self) {
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        relay.finish();
        let patient_until = Instant::now() + READERS_TIME;
        let mut enough = false;
        while !relay.ended() {
            let left = patient_until.saturating_duration_since(Instant::now());
            if enough && left.is_zero() {
                break;
            }
            let sources = self.inbox.sources().into_iter().chain(relay.sources());
            wait_at_most(sources, enough.then_some(left));
            while let Some(signal) = self.inbox.next() {
                enough |= self.handled.contains(&signal);
            }
        }
        self.outcome.last_words = relay.end();
    }
}

/// Everything below us but what was there before.
fn ours(strangers: &[Process]) -> Vec<Process> {
    let mut below = descendants::below(nix::unistd::getpid().as_raw());
    let mut foreign: Vec<_> = strangers.iter().map(|it| (it.pid, it.born)).collect();
    // Nearest first, so a parent has been judged before its children.
    below.retain(|it| {
        let stranger = foreign.contains(&(it.pid, it.born))
            || foreign.iter().any(|(pid, _)| *pid == it.parent);
        if stranger {
            foreign.push((it.pid, it.born));
        }
        !stranger
    });
    below
}

fn wait<'s>(sources: impl Iterator<Item = BorrowedFd<'s>>) {
    wait_at_most(sources, None);
}

fn wait_at_most<'s>(sources: impl Iterator<Item = BorrowedFd<'s>>, time: Option<Duration>) {
    let mut sources: Vec<_> = sources
        .map(|it| PollFd::new(it, PollFlags::POLLIN))
        .collect();
    let time = time.map_or(PollTimeout::NONE, |it| {
        it.try_into().unwrap_or(PollTimeout::MAX)
    });
    let _ = poll(&mut sources, time);
}

fn wait_for_a_moment(sources: [BorrowedFd<'_>; 2]) {
    let mut sources = sources.map(|it| PollFd::new(it, PollFlags::POLLIN));
    let _ = poll(&mut sources, PollTimeout::from(10u8));
}
