//! Threads that leave every signal to the main one, and the bell by which threads wake each other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread in which no signal is ever handled. They are blocked before the start, because the
/// new thread inherits the mask and there must be no moment without it. `stack` is in bytes.
pub(crate) fn spawn(
    name: &str,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new()
        .name(name.into())
        .stack_size(stack)
        .spawn(body);
    before.thread_set_mask()?;
    thread
}

/// Readable from a ring until it is silenced; clones are the same bell.
#[derive(Clone)]
pub(crate) struct Bell(Arc<EventFd>);

impl Bell {
    /// A silent bell.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    /// Wakes whoever polls the bell.
    pub(crate) fn ring(&self) {
        // Fails only when the counter is full, and then the bell is ringing.
        let _ringing = self.0.write(1);
    }

    /// To be called before looking at what the bell announces: what comes later rings again.
    pub(crate) fn silence(&self) {
        // Fails only when the bell is silent.
        let _silent = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
