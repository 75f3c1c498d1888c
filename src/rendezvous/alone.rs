//! The meeting of a single node: all are there from the start, and nobody else will come. So it is not opened before
//! somebody asks the store for something, the run lasts, or it fails.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::event::{Event, Party, Ready};
use super::hosting::Hosting;
use super::limits::Limits;
use super::server::Server;
use crate::topology::GlobalRank;

/// What the meeting will be made of.
pub(super) struct Alone {
    server: Server,
    party: Party,
    address: String,
    limits: Limits,
    started: Instant,
    /// That all are there.
    told: bool,
    finished: bool,
}

impl Alone {
    /// On a bound server; `address` is node 0's, as it was given.
    pub(super) fn new(
        server: Server,
        party: Party,
        address: &str,
        limits: Limits,
        started: Instant,
    ) -> Self {
        Self {
            server,
            party,
            address: address.to_owned(),
            limits,
            started,
            told: false,
            finished: false,
        }
    }

    /// The meeting, opened; this is of no use any more then.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(super) fn open(&self) -> io::Result<Hosting> {
        let (server, party) = (self.server.duplicate()?, self.party.clone());
        let (address, started) = (&self.address, self.started);
        let mut hosting = Hosting::open(server, party, address, self.limits, started)?;
        if self.told {
            // It begins with the same.
            hosting.advance(started);
        }
        Ok(hosting)
    }

    /// Readable when somebody has come.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.server.as_fd()
    }

    /// When to call `advance` at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.told).then_some(self.started)
    }

    /// What is known from the start, once.
    pub(super) fn advance(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.told, true) {
            return Vec::new();
        }
        let workers = self.party.local_world_size;
        vec![Event::Ready(Ready {
            base: GlobalRank(0),
            world_size: workers,
            role_base: 0,
            role_world_size: workers,
        })]
    }

    /// Whether somebody has come and waits for an answer.
    pub(super) fn is_needed(&self) -> bool {
        !self.finished && self.server.has_visitor()
    }

    /// Nothing is left to open the meeting for.
    pub(super) fn is_over(&self) -> bool {
        self.finished
    }

    /// The workers have ended well, and with them the meeting.
    pub(super) fn finish(&mut self) -> Vec<Event> {
        self.finished = true;
        vec![Event::Over]
    }
}
