//! A node that is not node 0 at the meeting: the guest's words, carried over a link.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::event::{Cause, Event, Party};
use super::guest::Guest;
use super::limits::Limits;
use super::link::{Link, Step};
use super::reminder::Reminder;
use super::trouble::Trouble;

/// How long a connection may stand without a first answer. Torch's server looks up the name of each
/// client before it serves the next one, which may take 5 s each.
const SILENCE: Duration = Duration::from_secs(60);
/// How long to wait for node 0 to say what the root cause is, when this node has failed.
const LINGER: Duration = Duration::from_secs(2);
/// How often node 0 is asked again what it is, where it has not said so yet.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A guest's part, with its link.
pub(crate) struct Joining {
    guest: Guest,
    link: Link,
    /// Where node 0 is, for people.
    target: String,
    limits: Limits,
    started: Instant,
    reminder: Reminder,
    trouble: Option<Trouble>,
    /// When the guest is asked to do something although nothing was heard.
    alarm: Option<Instant>,
}

impl Joining {
    /// Sets out to node 0 at `address`.
    pub(crate) fn set_out(
        address: &str,
        port: u16,
        party: Party,
        nonce: String,
        limits: Limits,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            guest: Guest::new(party, address, nonce),
            link: Link::new(address, port, limits.node, now)?,
            target: target(address, port),
            limits,
            started: now,
            reminder: Reminder::from(now),
            trouble: None,
            alarm: None,
        })
    }

    /// Readable when `advance` has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    /// When to call `advance` at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let reminder = self.guest.waiting().then(|| self.reminder.next());
        let join =
            (!self.guest.greeted() && !self.guest.over()).then(|| self.started + self.limits.join);
        [reminder, join, self.alarm, self.link.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Reacts to what node 0 says and to the time.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Event> {
        while !self.guest.over() && self.step(now) {
            self.link.send(&self.guest.take_output());
        }
        if self.alarm.is_some_and(|it| now >= it) {
            self.alarm(now);
        }
        if !self.guest.greeted() && !self.guest.over() && now >= self.started + self.limits.join {
            self.give_up();
        }
        let mut events = self.guest.take_events();
        if self.guest.waiting() && self.reminder.due(now) {
            events.push(Event::Waiting(self.sentence(now)));
        }
        self.close(events)
    }

    /// Asks node 0 to end the run on every node.
    pub(crate) fn abort(&mut self, cause: Cause, now: Instant) -> Vec<Event> {
        self.guest.abort(cause);
        self.alarm = self.guest.has_reported().then(|| now + LINGER);
        self.say()
    }

    /// The workers of this node have ended well.
    pub(crate) fn finish(&mut self, now: Instant) -> Vec<Event> {
        self.reminder = Reminder::from(now);
        self.guest.finish();
        self.say()
    }

    /// The workers of this node have ended, so that they can be started again.
    pub(crate) fn renew(&mut self) -> Vec<Event> {
        self.guest.renew();
        self.say()
    }

    /// The address and the interface from which node 0 is reached.
    pub(crate) fn route(&self) -> Option<(IpAddr, String)> {
        self.link.route()
    }

    fn say(&mut self) -> Vec<Event> {
        self.link.send(&self.guest.take_output());
        let events = self.guest.take_events();
        self.close(events)
    }

    /// The host waits for us to hang up when it has told us the last thing.
    fn close(&mut self, events: Vec<Event>) -> Vec<Event> {
        if self.guest.over() {
            self.link.send(&self.guest.take_output());
            self.link.close();
            self.alarm = None;
        }
        events
    }

    /// Looks at the link once; false when there is nothing more to see now.
    fn step(&mut self, now: Instant) -> bool {
        match self.link.advance(now) {
            Step::Idle => return false,
            Step::Connected => {
                self.guest.connected();
                self.trouble = Some(Trouble::Silent);
                self.alarm = Some(now + SILENCE);
            }
            Step::Received(bytes) => {
                if self.guest.hear(&bytes).is_err() {
                    self.lost(Trouble::NoStore, None, now);
                } else if self.guest.must_ask_again() {
                    self.alarm = Some(now + ASK_AGAIN);
                } else if self.guest.greeted() && !self.guest.has_reported() {
                    self.alarm = None;
                }
            }
            Step::Failed(trouble) => self.trouble = Some(trouble),
            Step::Lost(error) => self.lost(Trouble::Lost(error.clone()), error.as_deref(), now),
        }
        true
    }

    fn lost(&mut self, trouble: Trouble, error: Option<&str>, now: Instant) {
        self.alarm = None;
        if self.guest.lost(error) {
            self.trouble = Some(trouble);
            self.link.retry(now);
        }
    }

    fn alarm(&mut self, now: Instant) {
        self.alarm = None;
        if self.guest.must_ask_again() {
            self.guest.ask_again();
            self.link.send(&self.guest.take_output());
        } else {
            self.lost(Trouble::Silent, None, now);
        }
    }

    fn give_up(&mut self) {
        let seconds = self.limits.join.as_secs();
        let why = self
            .trouble
            .as_ref()
            .map_or("no connection".into(), ToString::to_string);
        let target = &self.target;
        self.guest.give_up(format!(
            "reach node 0 at {target} within {seconds} s: {why}\n\
             hint: is this node 0's address, and does fabric run there? --join-timeout SECONDS waits longer"
        ));
    }

    fn sentence(&self, now: Instant) -> String {
        let seconds = (now - self.started).as_secs();
        match &self.trouble {
            _ if self.guest.greeted() => {
                "waiting for node 0, which runs the Python original".into()
            }
            Some(why) => format!(
                "cannot reach node 0 at {}: {why}; tried for {seconds} s, next try within a second",
                self.target
            ),
            None => format!("connecting to node 0 at {} for {seconds} s", self.target),
        }
    }
}

/// Address and port as people write them.
fn target(address: &str, port: u16) -> String {
    if address.contains(':') && !address.starts_with('[') {
        format!("`[{address}]:{port}`")
    } else {
        format!("`{address}:{port}`")
    }
}
