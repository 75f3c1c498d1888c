//! A pump and how to talk to it, whether it has a thread yet or not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::output::Output;
use super::pump::{Order, Pump, Remains};
use super::source::Channel;
use super::voice::Orders;

/// One of our streams. Its thread is started when there is something to write: workers that end without a
/// word do not need one.
pub(super) struct Lane {
    pub(super) orders: Orders,
    state: State,
    /// The pump does not know yet of all that has been added.
    added: bool,
}

enum State {
    /// Nobody has written yet.
    Silent(Box<Pump>),
    /// `life` reads as ended once the thread has.
    Running {
        life: OwnedFd,
        remains: Receiver<Remains>,
    },
    /// Its thread was refused: all waits for the end.
    Refused(Box<Pump>),
    Ended(Box<Remains>),
    /// While it changes.
    None,
}

impl Lane {
    /// # Errors
    /// No descriptor can be had.
    pub(super) fn open(output: Output, alone: bool) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_flags(flags)?);
        let (sender, orders) = mpsc::channel();
        let pump = Pump::new(output, alone, Arc::clone(&bell), orders)?;
        Ok(Self {
            orders: Orders { sender, bell },
            state: State::Silent(Box::new(pump)),
            added: false,
        })
    }

    /// From the next [`Lane::pass_on`] on what comes from this channel is passed on.
    pub(super) fn add(&mut self, channel: Channel) {
        match &mut self.state {
            State::Silent(pump) | State::Refused(pump) => pump.add(channel),
            _ => {
                self.orders.put(Order::Add(Box::new(channel)));
                self.added = true;
            }
        }
    }

    /// Wakes the pump once for all that has been added.
    pub(super) fn pass_on(&mut self) {
        if std::mem::take(&mut self.added) {
            self.orders.ring();
        }
    }

    /// To be called when [`Lane::source`] is readable.
    ///
    /// # Errors
    /// There is something to write, and no thread can be had for it.
    pub(super) fn attend(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Silent(pump) => {
                if pump.is_needed() {
                    self.start()?;
                }
            }
            State::Running { remains, .. } => {
                if let Ok(remains) = remains.try_recv() {
                    self.state = State::Ended(Box::new(remains));
                }
            }
            State::Refused(_) | State::Ended(_) | State::None => {}
        }
        Ok(())
    }

    /// Gives the pump its thread, if it has none.
    ///
    /// # Errors
    /// No thread or no descriptor can be had; what workers write is shown at their end.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let State::Silent(_) = self.state else {
            return Ok(());
        };
        let started = start();
        if let State::Silent(mut pump) = self.take() {
            pump.allocate();
            self.state = match started {
                Ok((pumps, running)) => {
                    let _taken = pumps.send(pump);
                    running
                }
                Err(error) => {
                    self.state = State::Refused(pump);
                    return Err(error);
                }
            };
        }
        Ok(())
    }

    /// Every worker has ended: what is left is to be written, and then the pump ends.
    pub(super) fn finish(&mut self) {
        // If a thread is refused now, this one writes.
        let _ = self.attend();
        self.state = match self.take() {
            State::Silent(pump) => State::Ended(Box::new(pump.close())),
            State::Refused(pump) => State::Ended(Box::new(pump.finish())),
            other => other,
        };
        self.orders.give(Order::Finish);
    }

    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::None)
    }

    /// Whether the pump has ended.
    pub(super) fn ended(&mut self) -> bool {
        // A running one needs nothing that could be refused.
        let _ = self.attend();
        matches!(self.state, State::Ended(_))
    }

    /// What poll(2) shall watch: readable when there is something to attend to.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Silent(pump) => Some(pump.as_fd()),
            State::Running { life, .. } => Some(life.as_fd()),
            State::Refused(_) | State::Ended(_) | State::None => None,
        }
    }

    /// What it left; `None` if it has not ended.
    pub(super) fn remains(self) -> Option<Remains> {
        match self.state {
            State::Ended(remains) => Some(*remains),
            _ => None,
        }
    }
}

/// A thread that waits for the pump it is given, since one that is given to a refused thread is lost.
fn start() -> io::Result<(Sender<Box<Pump>>, State)> {
    let (pumps, pump) = mpsc::channel::<Box<Pump>>();
    let (last_will, remains) = mpsc::channel();
    let (life, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let body = move || {
        if let Ok(pump) = pump.recv() {
            let _ = last_will.send(pump.run());
        }
        drop(held);
    };
    thread::Builder::new()
        .name("relay".to_owned())
        .spawn(body)?;
    Ok((pumps, State::Running { life, remains }))
}
