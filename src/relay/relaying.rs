//! The launcher's side of its pumps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::channel::{Wiring, resize};
use super::output::{Output, Stream};
use super::pump::{Order, Pump, Remains};
use super::tail::Words;
use super::voice::{Orders, Voice};
use crate::topology::LocalRank;

/// Descriptors that the launcher needs for itself, besides one connection to the store per worker.
const OTHERS: u64 = 24;

/// Passes on what workers write.
pub(crate) struct Relay {
    /// One for each channel of a worker; the last one has stderr.
    lanes: Vec<Lane>,
    voice: Voice,
    /// Those that are still open are told the terminal's size.
    ends: Vec<Weak<OwnedFd>>,
}

/// A pump and how to talk to it.
struct Lane {
    orders: Orders,
    /// Ends with the pump.
    life: OwnedFd,
    remains: Receiver<Remains>,
    ended: Option<Remains>,
}

impl Wiring {
    /// The wiring for so many workers: to our own streams where descriptors are short, which is said.
    pub(crate) fn for_workers(workers: u32, voice: &Voice) -> Self {
        let wiring = Self::of_our_streams();
        let needed = u64::from(workers) * u64::from(wiring.channels() + 1) + OTHERS;
        match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((_, most)) if most < needed => {
                voice.say(&format!(
                    "fabric: workers write directly: that takes {needed} open files, and {most} are allowed \
                     (`ulimit -Hn`)\n"
                ));
                Self::Direct
            }
            _ => wiring,
        }
    }
}

impl Relay {
    /// Starts the pumps; `None` where workers write to our own streams. Our limit of open files is raised as
    /// far as it goes, so the guardian must have been forked already: workers inherit the user's.
    ///
    /// # Errors
    /// No thread or no descriptor can be had.
    pub(crate) fn start(wiring: &Wiring, workers: u32, voice: &Voice) -> io::Result<Option<Self>> {
        let streams = match wiring {
            Wiring::Direct => return Ok(None),
            Wiring::Joined(_) => &[Stream::Out][..],
            Wiring::Apart { .. } => &[Stream::Out, Stream::Err],
        };
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        let lanes = streams.iter().map(|it| Lane::start(*it, workers == 1));
        let lanes: Vec<Lane> = lanes.collect::<io::Result<_>>()?;
        if let Some(lane) = lanes.last() {
            voice.go_through(lane.orders.clone());
        }
        Ok(Some(Self {
            lanes,
            voice: voice.clone(),
            ends: Vec::new(),
        }))
    }

    /// From now on what comes from `ends`, our ends of this worker's channels, is passed on.
    pub(crate) fn add(&mut self, rank: LocalRank, ends: Vec<OwnedFd>) {
        if ends.len() < self.lanes.len() {
            self.voice.say(&format!(
                "fabric: no pipe can be had for what local rank {rank} writes: it writes directly\n"
            ));
        }
        self.ends.retain(|it| it.strong_count() > 0);
        for (lane, end) in self.lanes.iter().zip(ends) {
            let end = Arc::new(end);
            self.ends.push(Arc::downgrade(&end));
            lane.orders.give(Order::Add(rank, end));
        }
        // It may have changed since the guardian was forked.
        self.resize();
    }

    /// Our terminal has another size. Workers are not in its process group: somebody has to tell them.
    pub(crate) fn resize(&self) {
        let open: Vec<Arc<OwnedFd>> = self.ends.iter().filter_map(Weak::upgrade).collect();
        resize(open.iter().map(Arc::as_ref));
    }

    /// To be called when every worker has ended: the pumps write what is left and end.
    pub(crate) fn finish(&self) {
        self.lanes
            .iter()
            .for_each(|it| it.orders.give(Order::Finish));
    }

    /// Whether every pump has ended.
    pub(crate) fn ended(&mut self) -> bool {
        for lane in self.lanes.iter_mut().filter(|it| it.ended.is_none()) {
            lane.ended = lane.remains.try_recv().ok();
        }
        self.lanes.iter().all(|it| it.ended.is_some())
    }

    /// What poll(2) shall watch to see pumps end.
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = self.lanes.iter().filter(|it| it.ended.is_none());
        running.map(|it| it.life.as_fd())
    }

    /// The last words of each worker. A pump that has not ended, since nobody reads what it writes, is left
    /// behind with that.
    pub(crate) fn end(mut self) -> Words {
        let last = self.lanes.pop().and_then(|it| it.ended);
        let (words, output) = last.map(|it| (it.words, it.output)).unzip();
        self.voice.go_straight(output);
        words.unwrap_or_default()
    }
}

impl Lane {
    fn start(stream: Stream, alone: bool) -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (sender, orders) = mpsc::channel();
        let (last_will, remains) = mpsc::channel();
        let (life, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let pump = Pump::new(Output::new(stream), alone, Arc::clone(&bell), orders)?;
        thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                let _ = last_will.send(pump.run());
                drop(held);
            })?;
        Ok(Self {
            orders: Orders { sender, bell },
            life,
            remains,
            ended: None,
        })
    }
}
