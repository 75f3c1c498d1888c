//! The launcher's loop: passes signals on to the guardian, hears what it says, and takes over if it is lost.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::company::{Company, FAREWELL};
use super::descendants::{self, NOBODY, Process, below, kill_all_below};
use super::event::{Event, Why};
use super::message::{Command, Stamped};
use super::outcome::{Exit, Outcome};
use super::signals::{self, Inbox};
use super::told::Told;
use super::wait::{Found, Which, peek, reap};
use super::ward::{Heard, Ward};
use crate::relay::Relay;
use crate::rendezvous::{Cause, Event as News};
use crate::status::{Signal, Status};

/// How long the launcher tries to end what a killed guardian left to it.
const SWEEP: Duration = Duration::from_secs(5);
/// A guardian that has not taken in a command after so long waits for the kernel, say in execve(2) on a file
/// server that does not answer. It is killed, and the launcher does the rest.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long dying may take a process that SIGKILL was sent to or that has closed its files.
const DYING: Duration = Duration::from_secs(2);
/// A wait that is longer says nothing: the machine may have been suspended.
const TURN: Duration = Duration::from_secs(1);

/// A signal gives up output that nobody reads, but not sooner than this after the workers' end: it may be an
/// echo of the one that ended the run.
const READERS_TIME: Duration = Duration::from_secs(1);

const KILLED: Status = Status::Signal {
    signal: Signal::KILL,
    core: false,
};

/// The launcher while there are workers.
pub(crate) struct Launcher<'a> {
    inbox: Inbox,
    ward: Ward,
    relay: Option<Relay<'a>>,
    company: Company<'a>,
    outcome: Outcome,
    /// Where news go on to. The report may be read by a pager that stands still, so another thread waits.
    told: Sender<(Instant, Told)>,
    /// Commands that the guardian has not taken in yet, and for how long nothing was heard meanwhile.
    unanswered: usize,
    silence: Duration,
    /// All workers of all nodes are being ended, to be started again.
    restarting: bool,
    /// The signal that asked for the end.
    asked: Option<Signal>,
    /// The guardian has been told that there is no further attempt.
    dismissed: bool,
    /// SIGTSTP has come, and no SIGCONT since.
    pausing: bool,
}

impl Launcher<'_> {
    pub(crate) fn new<'a>(
        inbox: Inbox,
        ward: Ward,
        relay: Option<Relay<'a>>,
        company: Company<'a>,
        told: Sender<(Instant, Told)>,
    ) -> Launcher<'a> {
        Launcher {
            inbox,
            ward,
            relay,
            outcome: Outcome::new(company.workers()),
            told,
            unanswered: 0,
            silence: Duration::ZERO,
            restarting: false,
            asked: None,
            dismissed: !company.restarts(),
            company,
            pausing: false,
        }
    }

    fn tell(&mut self, command: Command) {
        self.ward.tell(command);
        self.unanswered += 1;
    }

    /// Returns when all workers have ended, here and where they would fail without us, or nothing more can be
    /// done; with what happened. `strangers` are processes below us that we did not start.
    pub(crate) fn watch(mut self, strangers: &[Process]) -> (Outcome, Inbox) {
        while self.turn() {}
        let status = self.reap_guardian();
        if !(self.outcome.done && self.dismissed) {
            self.outcome.guardian_lost = Some(status);
            self.take_over(strangers);
        }
        self.outcome = self.company.confess(self.outcome.clone());
        self.part();
        self.finish_output();
        (self.outcome, self.inbox)
    }

    /// Waits until everything that workers wrote has been passed on, or its readers are gone, or somebody who
    /// waits for us has had enough.
    fn finish_output(&mut self) {
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        relay.finish();
        let patient_until = Instant::now() + READERS_TIME;
        let mut enough = false;
        while !relay.ended() {
            if enough && Instant::now() >= patient_until {
                break;
            }
            let sources = self.inbox.sources().into_iter().chain(relay.sources());
            wait(sources, enough.then(|| from_now(patient_until)));
            while let Some(signal) = self.inbox.next() {
                enough |= self.company.handles(signal);
            }
        }
        let remembered = relay.end();
        self.outcome.last_words = remembered.words;
        self.outcome.earlier_words = remembered.earlier;
    }

    /// The workers of this node have ended: waits for the others', so that success is everybody's, and until
    /// all have heard of a failure.
    fn part(&mut self) {
        if self.company.over() {
            return;
        }
        if self.outcome.exit() == Exit::Code(0) {
            self.company.finish();
        } else {
            self.company.stop(&self.outcome);
        }
        let mut until = self.farewell();
        loop {
            self.attend();
            let over = self.company.over() || until.is_some_and(|it| Instant::now() >= it);
            if over {
                return;
            }
            let sources = self
                .inbox
                .sources()
                .into_iter()
                .chain([self.company.source()]);
            wait(
                sources,
                until_first([self.company.timeout(), until.map(from_now)]),
            );
            while let Some(signal) = self.inbox.next() {
                if signal == Signal::CHLD {
                    self.reap_orphans();
                } else if self.company.handles(signal) && self.outcome.why.is_none() {
                    self.outcome.why = Some(Why::Signal(signal));
                    self.company.stop(&self.outcome);
                }
            }
            until = until.or(self.farewell());
        }
    }

    /// Until when the others get to hear of a failure.
    fn farewell(&self) -> Option<Instant> {
        let failed = self.outcome.exit() != Exit::Code(0);
        failed.then(|| Instant::now() + FAREWELL)
    }

    /// Takes in what has happened at the meeting of the nodes.
    fn attend(&mut self) {
        for news in self.company.advance() {
            match news {
                News::Waiting(text) => self.report(Told::Waiting(text)),
                News::Notice(text) => self.report(Told::Notice(text)),
                News::Ready(ready) => {
                    self.outcome.first_rank = ready.base.0;
                    self.outcome.done = false;
                    self.report(Told::Ready(ready.base.0));
                    if let Some(hint) = self.company.hint() {
                        self.report(Told::Notice(hint));
                    }
                    let begin = self.company.begin(&ready);
                    self.tell(begin);
                }
                News::Restarting(cause) => self.restart(cause),
                News::Aborted(cause) => self.abort(cause),
                News::Failed(why) => {
                    self.outcome.unmet = Some(why);
                    self.tell(Command::Abort);
                }
                News::Over => {}
            }
        }
    }

    /// The workers of this attempt are to be ended, and started again when they have.
    fn restart(&mut self, failure: Cause) {
        if self.outcome.guardian_lost.is_some() {
            return;
        }
        let (relay, first) = (self.relay.iter(), self.outcome.first_rank);
        relay.for_each(|it| it.keep(failure.rank, first));
        self.report(Told::Restarting(failure.clone()));
        self.outcome.earlier.push(failure);
        self.outcome.why.get_or_insert(Why::Elsewhere);
        self.restarting = true;
        self.company.restart();
        self.tell(Command::Abort);
        if self.asked.is_some() {
            self.insist();
        } else if self.outcome.done {
            self.renew();
        }
    }

    /// Nothing of this attempt is left: the next may begin.
    fn renew(&mut self) {
        self.restarting = false;
        // Until there are workers, nothing is left to be ended.
        self.outcome = Outcome {
            done: true,
            ..self.outcome.again()
        };
        self.company.renew();
    }

    /// Somebody wants the end while all is about to begin again.
    fn insist(&mut self) {
        self.restarting = false;
        self.outcome.why = self.asked.map(Why::Signal);
        self.company.stop(&self.outcome);
    }

    /// The workers of this attempt have ended.
    fn attempt_over(&mut self) {
        if self.restarting {
            self.renew();
        } else if self.outcome.exit() == Exit::Code(0) {
            self.company.finish();
        } else {
            self.company.stop(&self.outcome);
        }
    }

    /// Lets the guardian go once it is known that nothing more will be started.
    fn dismiss(&mut self) {
        if !self.dismissed && self.outcome.done && self.company.over() {
            self.dismissed = true;
            self.tell(Command::Leave);
        }
    }

    fn abort(&mut self, cause: Cause) {
        self.restarting = false;
        if self.outcome.why.is_none() {
            self.outcome.why = Some(Why::Elsewhere);
            self.report(Told::Elsewhere(cause.clone()));
            self.tell(Command::Abort);
        }
        self.outcome.cause = Some(cause);
    }

    fn report(&self, told: Told) {
        // The other end is there as long as we are.
        let _ = self.told.send((Instant::now(), told));
    }

    /// One wait and what follows from it; false once the guardian has ended.
    fn turn(&mut self) -> bool {
        self.sleep();
        while let Some(signal) = self.inbox.next() {
            self.take(signal);
        }
        self.attend();
        loop {
            match self.ward.hear() {
                Heard::Event(stamped, ends) => self.note(stamped, ends),
                Heard::Nothing => break,
                Heard::End => return false,
            }
        }
        self.dismiss();
        if self.silence >= PATIENCE {
            self.ward.kill();
        }
        self.silence < PATIENCE + DYING
    }

    fn sleep(&mut self) {
        let others = [self.ward.source(), self.company.source()];
        let sources = self.inbox.sources().into_iter().chain(others);
        if self.unanswered == 0 {
            return wait(sources, self.company.timeout());
        }
        let before = Instant::now();
        wait(sources, until_first([Some(TURN), self.company.timeout()]));
        self.silence += before.elapsed().min(TURN);
    }

    fn take(&mut self, signal: Signal) {
        if signal == Signal::CHLD {
            if self.ward.was_stopped() {
                self.ward.wake();
            }
            return self.reap_orphans();
        }
        match signal {
            Signal::TSTP => self.pausing = true,
            Signal::CONT => self.pausing = false,
            // Before the workers hear of it.
            Signal::WINCH => self.relay.iter().for_each(Relay::resize),
            _ => {}
        }
        self.tell(Command::Signal(signal));
        if !self.dismissed && self.company.handles(signal) {
            self.asked.get_or_insert(signal);
            // Where no worker runs, the guardian has nothing to make of a signal.
            if self.restarting || self.outcome.done && self.outcome.why.is_none() {
                self.insist();
            }
        }
    }

    fn note(&mut self, stamped: Stamped, ends: Vec<OwnedFd>) {
        self.silence = Duration::ZERO;
        if let (Event::Started { worker, .. }, Some(relay)) = (stamped.event, &mut self.relay) {
            relay.add(worker, self.outcome.first_rank, ends);
        }
        match stamped.event {
            Event::Heard => self.unanswered = self.unanswered.saturating_sub(1),
            Event::Paused if self.pausing => self.pause(),
            _ => {}
        }
        self.outcome.add(stamped);
        self.report(Told::Event(stamped));
        match stamped.event {
            // That has been heard of, or follows from what has.
            Event::Stopping {
                why: Why::Failed(_) | Why::Elsewhere,
            } if self.restarting => {}
            Event::Stopping { .. } => self.company.stop(&self.outcome),
            Event::Done if !self.dismissed => self.attempt_over(),
            _ => {}
        }
    }

    /// The workers stand still; so shall we, until `fg` sends SIGCONT, which is then in the inbox. If it is
    /// not, the kernel did not stop us, because nobody could have resumed us: the workers shall go on, too.
    fn pause(&mut self) {
        signals::stop();
        let arrived: Vec<Signal> = std::iter::from_fn(|| self.inbox.next()).collect();
        if !arrived.contains(&Signal::CONT) {
            self.take(Signal::CONT);
        }
        arrived.into_iter().for_each(|it| self.take(it));
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

    /// It has closed its files; that it is dead is a matter of microseconds, unless a debugger holds it or the
    /// first process of a namespace waits for the others there to die.
    fn reap_guardian(&mut self) -> Status {
        let deadline = Instant::now() + DYING;
        loop {
            match reap(Which::One(self.ward.pid())) {
                Found::Dead(_, status) => return status,
                Found::Alive if Instant::now() < deadline => self.wait_for_a_death(),
                // Killed by us in vain, or reaped by somebody else.
                _ => return KILLED,
            }
        }
    }

    /// The guardian was lost before its work was done: ends what it left to us, but neither what was there
    /// before nor what is in our session. All workers left that and none can come back, so who is there is a
    /// stranger's orphan.
    fn take_over(&mut self, strangers: &[Process]) {
        let session = descendants::own_session();
        let foreign = |it: &Process| {
            let identity = it.identity();
            it.session == session || strangers.iter().any(|old| old.identity() == identity)
        };
        let deadline = Instant::now() + SWEEP;
        while Instant::now() < deadline {
            while let Found::Dead(..) = reap(Which::Any) {}
            if !kill_all_below(&foreign) {
                return;
            }
            self.wait_for_a_death();
        }
        let left = below(&foreign).into_iter().filter(Process::is_stuck);
        self.outcome.stuck.extend(left.map(|it| (it.pid, it.state)));
    }

    /// Or for a moment: not every death is that of a child of ours.
    fn wait_for_a_death(&mut self) {
        let sources = self.inbox.sources().into_iter();
        wait(sources, Some(Duration::from_millis(5)));
        while self.inbox.next().is_some() {}
    }
}

/// Children that we had before we started anything: a shell may start a job and then become us by `exec`.
/// They are none of our business, and neither is what they start.
pub(crate) fn strangers() -> Vec<Process> {
    match peek(Which::Any) {
        Found::Nobody => Vec::new(),
        _ => below(NOBODY),
    }
}

fn from_now(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

fn until_first(spans: [Option<Duration>; 2]) -> Option<Duration> {
    spans.into_iter().flatten().min()
}

fn wait<'s>(sources: impl Iterator<Item = BorrowedFd<'s>>, at_most: Option<Duration>) {
    let sources = sources.map(|it| PollFd::new(it, PollFlags::POLLIN));
    let timeout = at_most.and_then(|it| PollTimeout::try_from(it).ok());
    let _ = poll(
        &mut sources.collect::<Vec<_>>(),
        timeout.unwrap_or(PollTimeout::NONE),
    );
}
