//! What is behind one of our streams: waits for what workers write, and for nobody while they are silent.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;

use super::lines::Moment;
use super::output::Output;
use super::source::{Brought, Channel, ROOM, Source};
use super::tail::Tail;
use super::treatment::Stream;
use crate::topology::LocalRank;

/// How long the beginning of a line waits for the rest: with a late timer and the way it is shown within 50 ms.
pub(crate) const PATIENCE: Duration = Duration::from_millis(45);
/// A channel holds no more than this (/proc/sys/fs/pipe-max-size, pipe(7)): what comes after as much was not
/// there when we began to look.
const CHANNEL: usize = 1024 * 1024;
/// How many sources are looked at in one turn.
const TURN: usize = 64;
/// Who writes many short lines would wake us for each; after a turn we let them gather for so long. A line
/// that comes after a silence is passed on at once.
const GATHER: Duration = Duration::from_micros(500);
/// A read of this many bytes, a quarter of a usual pipe, shows that a writer would soon have to wait.
const MUCH: usize = 16 * 1024;
/// Attempts of which last words are kept.
const ATTEMPTS: usize = 100;
/// The number of the bell among the sources.
const BELL: u64 = u64::MAX;

/// What the pump is told; the bell rings for each.
#[derive(Debug)]
pub(super) enum Order {
    /// Pass on what comes from this channel.
    Add(Box<Channel>),
    /// Print a text of our own.
    Say(Vec<u8>),
    /// An attempt has failed, by this worker if it is one of ours: what it wrote last is to be kept.
    Keep(Option<LocalRank>),
    /// Every worker has ended: pass on what is there and end.
    Finish,
}

/// What each stream of each worker ended with.
pub(super) type Tails = BTreeMap<(LocalRank, Stream), Tail>;

/// What is left of a pump that has ended.
pub(super) struct Remains {
    pub(super) tails: Tails,
    /// What was to be kept, in the order of the attempts.
    pub(super) kept: Vec<Tail>,
    pub(super) output: Output,
    /// There may be some that came too late.
    pub(super) orders: Receiver<Order>,
}

/// Everything its thread owns. Until it has one, whoever holds it looks after it with [`Pump::is_needed`].
pub(super) struct Pump {
    epoll: Epoll,
    bell: Arc<EventFd>,
    orders: Receiver<Order>,
    output: Output,
    patience: Duration,
    origin: Instant,
    sources: BTreeMap<u64, Source>,
    added: u64,
    tails: Tails,
    kept: Vec<Tail>,
    buffer: Vec<u8>,
}

impl Pump {
    /// `alone`: there is one worker, so its lines cannot mix with others' and nothing is held back.
    pub(super) fn new(
        output: Output,
        alone: bool,
        bell: Arc<EventFd>,
        orders: Receiver<Order>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self {
            epoll,
            bell,
            orders,
            output,
            patience: if alone { Duration::ZERO } else { PATIENCE },
            origin: Instant::now(),
            sources: BTreeMap::new(),
            added: 0,
            tails: Tails::new(),
            kept: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// To be called before it reads, by the thread that makes it: there the memory comes fresh from the kernel and
    /// is taken when it is used; in a new thread malloc(3) would clear it.
    pub(super) fn allocate(&mut self) {
        self.buffer = vec![0; ROOM];
    }

    /// Pumps until it is told to finish.
    pub(super) fn run(mut self) -> Remains {
        let mut events = [EpollEvent::empty(); TURN];
        loop {
            let count = self.epoll.wait(&mut events, self.timeout()).unwrap_or(0);
            let (mut finish, mut most) = (false, 0);
            for event in &events[..count] {
                match event.data() {
                    BELL => finish = self.take_orders(),
                    number => most = most.max(self.turn(number)),
                }
            }
            self.release_overdue();
            if finish {
                return self.finish();
            }
            self.tell_trouble();
            if (1..MUCH).contains(&most) {
                self.gather();
            }
        }
    }

    /// Whether there is something to write, which may have to wait for a reader. Channels that ended without a
    /// word are dropped here.
    pub(super) fn is_needed(&mut self) -> bool {
        let mut events = [EpollEvent::empty(); TURN];
        while let Ok(count @ 1..) = self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            for event in &events[..count] {
                // Only what has been read to its end hangs up without being readable.
                if event.events().contains(EpollFlags::EPOLLIN) {
                    return true;
                }
                self.drop_source(event.data());
            }
        }
        false
    }

    /// Ends a pump that has not been needed.
    pub(super) fn close(mut self) -> Remains {
        let numbers: Vec<u64> = self.sources.keys().copied().collect();
        numbers.into_iter().for_each(|it| self.retire(it));
        self.remains()
    }

    fn now(&self) -> Moment {
        self.origin.elapsed()
    }

    /// Until the oldest beginning of a line has waited long enough.
    fn timeout(&self) -> EpollTimeout {
        let Some(oldest) = self.sources.values().filter_map(Source::since).min() else {
            return EpollTimeout::NONE;
        };
        let left = (oldest + self.patience).saturating_sub(self.now());
        // Rounded up, or the last millisecond would be spent awake.
        EpollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(EpollTimeout::ZERO)
    }

    /// True if it is time to finish.
    fn take_orders(&mut self) -> bool {
        let _ = self.bell.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Add(channel) => self.add(*channel),
                Order::Say(text) => {
                    // What made us speak comes first: the last words of a worker that has failed.
                    self.drain();
                    self.output.say(&text);
                }
                Order::Keep(rank) => {
                    self.drain();
                    self.keep(rank);
                }
                Order::Finish => return true,
            }
        }
        false
    }

    fn keep(&mut self, rank: Option<LocalRank>) {
        let words = rank.map_or_else(Tail::default, |it| self.words(it));
        self.kept.push(words);
        if let Some(old) = self.kept.len().checked_sub(ATTEMPTS + 1) {
            self.kept[old] = Tail::default();
        }
    }

    /// What this worker has written last, whether or not it has ended.
    fn words(&self, rank: LocalRank) -> Tail {
        let mut words = Tail::default();
        for stream in [Stream::Out, Stream::Err] {
            let mut open = self.sources.values().rev();
            let open = open.find(|it| (it.rank, it.stream) == (rank, stream));
            let ended = || self.tails.get(&(rank, stream));
            if let Some(tail) = open.map(|it| &it.tail).or_else(ended) {
                words.follow(tail.clone());
            }
        }
        words
    }

    pub(super) fn add(&mut self, channel: Channel) {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.added);
        if let Err(errno) = self.epoll.add(channel.end.as_fd(), event) {
            let rank = channel.rank;
            tracing::warn!("cannot watch the output of local rank {rank}: {errno}");
            return;
        }
        let source = Source::new(self.added, channel);
        self.sources.insert(self.added, source);
        self.added += 1;
    }

    /// Sleeps for a moment, but for an order.
    fn gather(&self) {
        let mut bell = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        let _ = ppoll(&mut bell, Some(TimeSpec::from_duration(GATHER)), None);
    }

    /// Passes on what one read of this source brings, and drops a source that has ended. The number of bytes
    /// that were read.
    fn turn(&mut self, number: u64) -> usize {
        let now = self.now();
        let Some(source) = self.sources.get_mut(&number) else {
            return 0;
        };
        match source.read(&mut self.buffer, now, &mut self.output) {
            Brought::Bytes(count) => count,
            Brought::Nothing => 0,
            Brought::End => {
                self.drop_source(number);
                0
            }
        }
    }

    fn drop_source(&mut self, number: u64) {
        if let Some(source) = self.sources.get(&number) {
            // The launcher may know the descriptor for a moment more, and that long it would be watched.
            let _ = self.epoll.delete(source.end());
        }
        self.retire(number);
    }

    fn retire(&mut self, number: u64) {
        if let Some(source) = self.sources.remove(&number) {
            let whose = (source.rank, source.stream);
            self.tails.insert(whose, source.end_files());
        }
    }

    /// Passes on what is there, and does not wait for more.
    fn drain(&mut self) {
        let numbers: Vec<u64> = self.sources.keys().copied().collect();
        for number in numbers {
            let mut left = CHANNEL;
            while left > 0 {
                left = match self.turn(number) {
                    0 => 0,
                    count => left.saturating_sub(count),
                };
            }
        }
    }

    /// Passes on beginnings of lines that have waited long enough, but for those whose end is there by now.
    fn release_overdue(&mut self) {
        let latest = self.now().saturating_sub(self.patience);
        let overdue = |it: &Source| it.since().is_some_and(|since| since <= latest);
        let waiting = self.sources.iter().filter(|(_, it)| overdue(it));
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in numbers {
            self.turn(number);
            if let Some(source) = self.sources.get_mut(&number).filter(|it| overdue(it)) {
                source.release(&mut self.output);
            }
        }
    }

    fn tell_trouble(&mut self) {
        if let Some(trouble) = self.output.trouble() {
            tracing::warn!("{trouble}");
        }
    }

    /// Writes what is left. What workers wrote before they ended is all there by now; somebody else may still
    /// have their channels.
    pub(super) fn finish(mut self) -> Remains {
        self.take_orders();
        self.drain();
        while let Some((&number, source)) = self.sources.iter_mut().next() {
            source.release(&mut self.output);
            self.retire(number);
        }
        self.tell_trouble();
        self.remains()
    }

    fn remains(self) -> Remains {
        Remains {
            tails: self.tails,
            kept: self.kept,
            output: self.output,
            orders: self.orders,
        }
    }
}

impl AsFd for Pump {
    /// Readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
