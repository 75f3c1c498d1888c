//! Node 0 at the meeting: the roster's decisions, carried out on the running store.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::decision::Action;
use super::event::{Cause, Event, Party};
use super::limits::Limits;
use super::reminder::Reminder;
use super::roster::Roster;
use super::secret::secret;
use super::server::{Running, Server};
use super::service::Activity;
use super::socket::route_to;

/// After a failure: how long to wait for nodes that may not be able to hear of it.
const LINGER: Duration = Duration::from_secs(2);

/// The host's part, with its store.
pub(crate) struct Hosting {
    roster: Roster,
    store: Running,
    limits: Limits,
    started: Instant,
    reminder: Reminder,
    /// When to leave those who do not hang up.
    leaving: Option<Instant>,
    /// Where the first node that came is.
    guest: Option<IpAddr>,
    /// What is known from the start.
    first: Vec<Event>,
}

impl Hosting {
    /// Opens the meeting on a bound server. `address` is node 0's, as all nodes were told.
    pub(crate) fn open(
        mut server: Server,
        party: Party,
        address: &str,
        limits: Limits,
        now: Instant,
    ) -> io::Result<Self> {
        let token = party.token.clone().map_or_else(secret, Ok)?;
        let (roster, actions) = Roster::open(party, token, address, server.local_port());
        roster.watched().iter().for_each(|it| server.watch(it));
        let mut first = Vec::new();
        for action in actions {
            match action {
                Action::Set { key, value } => server.set(&key, value.as_bytes()),
                Action::Tell(event) => first.push(event),
                Action::Count { .. } | Action::Close(_) | Action::Clear { .. } => {}
            }
        }
        Ok(Self {
            store: server.open(limits.node)?,
            roster,
            limits,
            started: now,
            reminder: Reminder::from(now),
            leaving: None,
            guest: None,
            first,
        })
    }

    /// Which ranks workers wait for, as a sentence.
    pub(crate) fn absent(&mut self) -> Option<String> {
        self.store.absent()
    }

    /// Readable when `advance` has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.store.fd()
    }

    /// When to call `advance` at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.first.is_empty() {
            return Some(self.started);
        }
        let reminder = self.roster.waiting().then(|| self.reminder.next());
        let join = self
            .roster
            .gathering()
            .then(|| self.started + self.limits.join);
        [reminder, join, self.leaving].into_iter().flatten().min()
    }

    /// Reacts to what clients did and to the time.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.first);
        for activity in self.store.activities() {
            let actions = match activity {
                Activity::Set {
                    client,
                    peer,
                    key,
                    value,
                    ..
                } => {
                    self.guest = self.guest.or(peer.parse().ok());
                    self.roster.heard(client, &peer, &key, &value)
                }
                Activity::Closed { client, error } => self.roster.left(client, error.as_deref()),
            };
            events.extend(self.perform(actions));
        }
        if self.roster.gathering() && now >= self.started + self.limits.join {
            let actions = self.roster.give_up(self.limits.join.as_secs());
            events.extend(self.perform(actions));
        }
        if self.roster.waiting() && self.reminder.due(now) {
            let actions = self.roster.remind();
            events.extend(self.perform(actions));
        }
        events.extend(self.leave(now));
        events
    }

    /// Whether somebody has come whom nobody serves yet.
    pub(crate) fn is_needed(&self) -> bool {
        self.store.is_needed()
    }

    /// Serves, if it does not yet.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.store.start()
    }

    /// Ends the run on every node.
    pub(crate) fn abort(&mut self, cause: Cause, now: Instant) -> Vec<Event> {
        let actions = self.roster.abort(cause);
        let mut events = self.perform(actions);
        events.extend(self.leave(now));
        events
    }

    /// The workers of this node have ended well.
    pub(crate) fn finish(&mut self, now: Instant) -> Vec<Event> {
        self.reminder = Reminder::from(now);
        let actions = self.roster.finish();
        let mut events = self.perform(actions);
        events.extend(self.leave(now));
        events
    }

    /// The workers of this node have ended, so that they can be started again.
    pub(crate) fn renew(&mut self, now: Instant) -> Vec<Event> {
        self.reminder = Reminder::from(now);
        let actions = self.roster.renew();
        self.perform(actions)
    }

    /// The address and the interface from which the first node that came is reached.
    pub(crate) fn route(&self) -> Option<(IpAddr, String)> {
        route_to(self.guest?)
    }

    /// Once the end is decided, does not wait for ever for the others to hang up.
    fn leave(&mut self, now: Instant) -> Vec<Event> {
        let Some(ending) = self.roster.ending() else {
            self.leaving = None;
            return Vec::new();
        };
        let patience = if ending.aborted {
            LINGER
        } else {
            self.limits.node
        };
        let leaving = *self.leaving.get_or_insert(now + patience);
        if now < leaving {
            return Vec::new();
        }
        self.leaving = None;
        let actions = self.roster.close();
        self.perform(actions)
    }

    fn perform(&mut self, actions: Vec<Action>) -> Vec<Event> {
        let mut events = Vec::new();
        for action in actions {
            match action {
                Action::Set { key, value } => self.store.set(&key, value.as_bytes()),
                Action::Count { key } => self.store.count(&key),
                Action::Close(client) => self.store.close(client),
                Action::Clear { kept } => self.store.clear(kept),
                Action::Tell(event) => events.push(event),
            }
        }
        events
    }
}
