//! One channel of one worker, and what becomes of what comes from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use super::filter::Filter;
use super::lines::{LONGEST, Lines, Moment};
use super::logs::Log;
use super::output::Output;
use super::prefix::Prefix;
use super::tail::Tail;
use super::treatment::{Stream, Treatment};
use crate::topology::LocalRank;

/// Bytes of one read.
const READ: usize = 64 * 1024;
/// Room that a source wants for what it holds and one read.
pub(super) const ROOM: usize = LONGEST + READ;

/// A channel as it is handed to a pump.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) rank: LocalRank,
    pub(crate) stream: Stream,
    /// Our end of it; the launcher knows it, too, to tell it a terminal's size.
    pub(crate) end: Arc<OwnedFd>,
    pub(crate) treatment: Treatment,
}

/// A channel that is being read.
pub(super) struct Source {
    pub(super) rank: LocalRank,
    pub(super) stream: Stream,
    number: u64,
    end: Arc<OwnedFd>,
    shown: bool,
    lines: Lines,
    prefix: Option<Prefix>,
    log: Option<Log>,
    filter: Option<(Filter, Log)>,
    pub(super) tail: Tail,
}

/// What one read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Brought {
    Bytes(usize),
    Nothing,
    /// Nobody writes to it any more.
    End,
}

impl Source {
    /// `number` tells it from the other sources of its pump.
    pub(super) fn new(number: u64, channel: Channel) -> Self {
        let treatment = channel.treatment;
        Self {
            rank: channel.rank,
            stream: channel.stream,
            number,
            end: channel.end,
            shown: treatment.shown,
            lines: Lines::default(),
            prefix: treatment.label.map(Prefix::new),
            log: treatment.file.map(|it| Log::make(&it)),
            filter: treatment
                .filtered
                .map(|it| (Filter::new(it.texts, it.label), Log::make(&it.file))),
            tail: Tail::default(),
        }
    }

    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// When the oldest byte that is held back came.
    pub(super) fn since(&self) -> Option<Moment> {
        self.lines.since()
    }

    /// Reads once, and passes on what has become whole. `buffer` has [`ROOM`].
    pub(super) fn read(&mut self, buffer: &mut [u8], now: Moment, output: &mut Output) -> Brought {
        let lead = self.lines.lead(buffer);
        let brought = read(&self.end, &mut buffer[lead..lead + READ]);
        match brought {
            Brought::Bytes(count) => self.take(&buffer[..lead + count], lead, now, output),
            Brought::Nothing => {}
            Brought::End => self.release(output),
        }
        brought
    }

    /// The first `lead` bytes have been taken in before.
    fn take(&mut self, bytes: &[u8], lead: usize, now: Moment, output: &mut Output) {
        self.tail.push(&bytes[lead..]);
        if let Some(log) = &mut self.log {
            log.write(&bytes[lead..]);
        }
        if let Some((filter, log)) = &mut self.filter {
            log.write(&filter.take(&bytes[lead..]));
        }
        if self.shown {
            let whole = self.lines.take(bytes, now);
            self.show(whole, output);
        }
    }

    /// Shows the beginning of a line that is held back.
    pub(super) fn release(&mut self, output: &mut Output) {
        let held = self.lines.release();
        self.show(&held, output);
    }

    /// Nothing more will come.
    pub(super) fn end_files(mut self) -> Tail {
        if let Some((filter, log)) = &mut self.filter {
            log.write(&filter.rest());
        }
        self.tail
    }

    /// Without labels bytes are not changed, so a line that another has begun goes on here.
    fn show(&mut self, bytes: &[u8], output: &mut Output) {
        let Some(prefix) = self.prefix.as_mut().filter(|_| !bytes.is_empty()) else {
            return output.write(bytes);
        };
        if output.turn_to(self.number) {
            prefix.restart();
        }
        let mut labelled = Vec::with_capacity(bytes.len() * 2);
        prefix.add(bytes, &mut labelled);
        output.write(&labelled);
    }
}

fn read(from: &OwnedFd, into: &mut [u8]) -> Brought {
    loop {
        match nix::unistd::read(from, into) {
            Ok(0) => return Brought::End,
            Ok(count) => return Brought::Bytes(count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Brought::Nothing,
            // EIO is how the end of a pseudo-terminal reads.
            Err(_) => return Brought::End,
        }
    }
}
