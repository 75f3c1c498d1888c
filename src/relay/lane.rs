//! A pump's thread and how to talk to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::output::Output;
use super::pump::{Pump, Remains};
use super::voice::Orders;

/// A pump that was started.
pub(super) struct Lane {
    pub(super) orders: Orders,
    /// Reads as ended once the pump has.
    life: OwnedFd,
    remains: Receiver<Remains>,
    ended: Option<Remains>,
}

impl Lane {
    /// # Errors
    /// No thread or no descriptor can be had.
    pub(super) fn start(output: Output, alone: bool) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_flags(flags)?);
        let (sender, orders) = mpsc::channel();
        let (last_will, remains) = mpsc::channel();
        let (life, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let pump = Pump::new(output, alone, Arc::clone(&bell), orders)?;
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

    /// Whether the pump has ended.
    pub(super) fn ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.remains.try_recv().ok();
        }
        self.ended.is_some()
    }

    /// What poll(2) shall watch to see it end; `None` once it was seen.
    pub(super) fn life(&self) -> Option<BorrowedFd<'_>> {
        self.ended.is_none().then(|| self.life.as_fd())
    }

    /// What it left; `None` if it has not ended.
    pub(super) fn remains(self) -> Option<Remains> {
        self.ended
    }
}
