//! The launcher's loop: passes signals on to the guardian, hears what it says, and takes over if it is lost.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::company::{Company, FAREWELL};
use super::descendants::Process;
use super::event::{Event, Why};
use super::limits::refused;
use super::message::{Command, Stamped};
use super::outcome::{Exit, Outcome};
use super::polling::{from_now, until_first, wait};
use super::signals::{self, Inbox};
use super::takeover::{DYING, reap_guardian, take_over};
use super::telling::Telling;
use super::told::Told;
use super::wait::{Found, Which, peek, reap};
use super::ward::{Heard, Ward};
use crate::relay::Relay;
use crate::rendezvous::{Cause, Event as News};
use crate::status::Signal;

/// A guardian that has not taken in a command after so long waits for the kernel, say in execve(2) on a file
/// server that does not answer. It is killed, and the launcher does the rest.
const PATIENCE: Duration = Duration::from_secs(10);
/// A wait that is longer says nothing: the machine may have been suspended.
const TURN: Duration = Duration::from_secs(1);

/// What a run needs that takes longer than this is started before it is needed, for later the system may have
/// nothing left; a shorter one does without.
const LULL: Duration = Duration::from_millis(20);

/// A signal gives up output that nobody reads, but not sooner than this after the workers' end: it may be an
/// echo of the one that ended the run.
const READERS_TIME: Duration = Duration::from_secs(1);

/// The launcher while there are workers.
pub(crate) struct Launcher<'s, 'e> {
    inbox: Inbox,
    ward: Ward,
    relay: Option<Relay<'e>>,
    company: Company<'e>,
    outcome: Outcome,
    telling: Telling<'s, 'e>,
    /// When to start what has not been needed so far; `None` when that is done.
    lull: Option<Instant>,
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
    /// The guardian has begun without being told.
    begun: bool,
}

impl<'s, 'e> Launcher<'s, 'e> {
    pub(crate) fn new(
        inbox: Inbox,
        ward: Ward,
        relay: Option<Relay<'e>>,
        company: Company<'e>,
        telling: Telling<'s, 'e>,
        begun: bool,
    ) -> Self {
        Self {
            inbox,
            ward,
            relay,
            outcome: Outcome::new(company.workers()),
            telling,
            lull: Some(Instant::now() + LULL),
            unanswered: 0,
            silence: Duration::ZERO,
            restarting: false,
            asked: None,
            dismissed: !company.restarts(),
            company,
            pausing: false,
            begun,
        }
    }

    fn tell(&mut self, command: Command) {
        self.ward.tell(command);
        self.unanswered += 1;
    }

    /// What is known from the start, which on one node is that all are there.
    pub(crate) fn begin(&mut self) {
        self.attend();
    }

    /// Returns when all workers have ended, here and where they would fail without us, or nothing more can be
    /// done; with what happened. `strangers` are processes below us that we did not start.
    pub(crate) fn watch(&mut self, strangers: &[Process]) -> &Outcome {
        while self.turn() {}
        self.telling.pass_on();
        // Then the guardian is dying, and there are better things to do than to watch that.
        if !self.has_done_its_work() {
            self.outcome.guardian_lost = Some(reap_guardian(&self.ward, &mut self.inbox));
            let stuck = take_over(strangers, &mut self.inbox);
            self.outcome.stuck.extend(stuck);
        }
        self.outcome = self.company.confess(self.outcome.clone());
        self.part();
        self.finish_output();
        &self.outcome
    }

    fn has_done_its_work(&self) -> bool {
        self.outcome.done && self.dismissed
    }

    /// The last process of ours goes, and with it the launcher's part.
    pub(crate) fn end(mut self) -> (Outcome, Inbox) {
        self.telling.hear_kept();
        if self.has_done_its_work() {
            reap_guardian(&self.ward, &mut self.inbox);
        }
        (self.outcome, self.inbox)
    }

    /// Starts what has not been needed so far.
    fn settle(&mut self) {
        let first = self.lull.take().is_some();
        if let Err(error) = self.inbox.listen_for_interrupts() {
            self.fail(format!("listen for Ctrl-C: {}", refused(error)));
        }
        self.telling.settle();
        if first {
            self.report(Told::Lasting);
        }
        self.company.settle();
        let relayed = self.relay.as_mut().map_or(Ok(()), Relay::settle);
        self.heed(relayed);
    }

    /// Where what workers write cannot be passed on, they are ended, and what they wrote is shown then.
    fn heed(&mut self, relayed: io::Result<()>) {
        if let (Err(error), None) = (relayed, self.outcome.why) {
            let reason = refused(error);
            self.fail(format!("start a thread that relays output: {reason}"));
        }
    }

    fn fail(&mut self, why: String) {
        self.outcome.unmet.get_or_insert(why);
        self.tell(Command::Abort);
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
            self.settle();
            self.telling.pass_on();
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
            self.settle();
            self.telling.pass_on();
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
                // Somebody has wanted the end in the moment in which all was about to begin again.
                News::Ready(_) if self.outcome.why.is_some() => {}
                News::Ready(ready) => {
                    self.outcome.first_rank = ready.base.0;
                    self.outcome.done = false;
                    let begin = self.company.begin(&ready);
                    if !std::mem::take(&mut self.begun) {
                        self.tell(begin);
                    }
                    self.report(Told::Ready(ready.base.0));
                    // Waits for nobody, and looks at the machine before the workers have done much to it.
                    self.telling.hear_kept();
                    if let Some(hint) = self.company.hint() {
                        self.report(Told::Notice(hint));
                    }
                }
                News::Restarting(cause) => self.restart(cause),
                News::Aborted(cause) => self.abort(cause),
                News::Failed(why) => self.fail(why),
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

    fn report(&mut self, told: Told) {
        self.telling.tell(told);
    }

    /// One wait and what follows from it; false once the guardian has ended.
    fn turn(&mut self) -> bool {
        self.sleep();
        if self.lull.is_some_and(|it| Instant::now() >= it) {
            self.settle();
        }
        while let Some(signal) = self.inbox.next() {
            self.take(signal);
        }
        self.attend();
        let relayed = self.relay.as_mut().map_or(Ok(()), Relay::attend);
        self.heed(relayed);
        loop {
            match self.ward.hear() {
                Heard::Event(stamped, ends) => self.note(stamped, ends),
                Heard::Nothing => break,
                Heard::End => return false,
            }
        }
        self.relay.iter_mut().for_each(Relay::pass_on);
        self.dismiss();
        if self.silence >= PATIENCE {
            self.ward.kill();
        }
        self.silence < PATIENCE + DYING
    }

    fn sleep(&mut self) {
        self.telling.pass_on();
        let others = [self.ward.source(), self.company.source()];
        let sources = self.inbox.sources().into_iter().chain(others);
        let sources = sources.chain(self.relay.iter().flat_map(Relay::sources));
        let timeout = until_first([self.lull.map(from_now), self.company.timeout()]);
        if self.unanswered == 0 {
            return wait(sources, timeout);
        }
        let before = Instant::now();
        wait(sources, until_first([Some(TURN), timeout]));
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
}
