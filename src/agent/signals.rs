//! The launcher's own signals: which were ignored when it started, which it takes in, and how it dies of one.
//!
//! The order of the steps is what makes none get lost (all seen to fail otherwise):
//! 1. [`Inherited::reset`], first thing: a parent may have left signals blocked or SIGCHLD ignored.
//! 2. [`Inbox::open`] blocks all that are taken in, before there is a worker or a second thread. What comes
//!    from here on waits.
//! 3. ctrlc starts its thread, which inherits that mask; the other way round the kernel would hand SIGUSR1
//!    to that thread and end us. It is used for SIGINT alone: with its `termination` feature it would answer
//!    a SIGHUP that nohup told us to ignore and could not tell SIGTERM from SIGHUP.
//! 4. SIGINT is unblocked; one that came in between is delivered now.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Name, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::status::Signal;

/// Signals whose being ignored at the start is somebody's wish: nohup, or a shell's background job.
const RESPECTED: [Name; 3] = [Name::SIGHUP, Name::SIGINT, Name::SIGQUIT];

/// Signals the launcher takes in besides SIGINT and the real-time ones; the others keep their effect.
const TAKEN: [Name; 10] = [
    Name::SIGTERM,
    Name::SIGHUP,
    Name::SIGQUIT,
    Name::SIGUSR1,
    Name::SIGUSR2,
    Name::SIGCHLD,
    Name::SIGTSTP,
    Name::SIGCONT,
    Name::SIGWINCH,
    Name::SIGALRM,
];

/// What the process that started us wants ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    ignored: Vec<Signal>,
}

impl Inherited {
    /// Unblocks everything, gives SIGCHLD its default back, and notes which signals are ignored on purpose.
    pub(crate) fn reset() -> Self {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
        set_default(libc::SIGCHLD);
        let ignored = RESPECTED.into_iter().filter(|it| is_ignored(*it as i32));
        Self { ignored: ignored.map(|it| Signal(it as i32)).collect() }
    }

    pub(crate) fn ignores(&self, signal: Signal) -> bool {
        self.ignored.contains(&signal)
    }
}

/// In the guardian: every signal blocked, and every disposition as a worker shall inherit it, which is the
/// default but for what was ignored on purpose. (Rust itself ignores SIGPIPE.) Returns where deaths show.
pub(crate) fn prepare_guardian(inherited: &Inherited) -> Result<SignalFd, Errno> {
    block_all();
    for signal in 1..=libc::SIGRTMAX() {
        if !inherited.ignores(Signal(signal)) {
            set_default(signal);
        }
    }
    let mut deaths = SigSet::empty();
    deaths.add(Name::SIGCHLD);
    SignalFd::with_flags(&deaths, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Where the launcher's signals arrive.
pub(crate) struct Inbox {
    taken: SignalFd,
    /// One byte for each SIGINT.
    interrupts: OwnedFd,
    /// Handed to the ctrlc thread by [`Inbox::listen_for_interrupts`].
    interrupter: Option<OwnedFd>,
}

impl Inbox {
    /// Blocks what is taken in; from here on nothing is lost and nothing interrupts.
    pub(crate) fn open(inherited: &Inherited, handled: &[Signal]) -> io::Result<Self> {
        let mut mask = mask_of(inherited, handled);
        let taken = signal_fd(&mask)?;
        // SAFETY: adding a valid signal to an initialised set.
        unsafe { libc::sigaddset(&mut mask, libc::SIGINT) };
        // SAFETY: the set is initialised, the old one is not wanted.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &mask, std::ptr::null_mut()) };
        let flags = nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK;
        let (interrupts, interrupter) = nix::unistd::pipe2(flags)?;
        Ok(Self { taken, interrupts, interrupter: Some(interrupter) })
    }

    /// Starts ctrlc's thread, unless SIGINT is ignored on purpose. After the guardian's fork, since threads
    /// do not survive one.
    pub(crate) fn listen_for_interrupts(&mut self, inherited: &Inherited) -> anyhow::Result<()> {
        if let Some(interrupter) = self.interrupter.take()
            && !inherited.ignores(Signal::INT)
        {
            ctrlc::set_handler(move || {
                // A full pipe holds more interrupts than anybody means.
                let _ = nix::unistd::write(&interrupter, &[0]);
            })?;
        }
        let mut interrupt = SigSet::empty();
        interrupt.add(Name::SIGINT);
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&interrupt), None)?;
        Ok(())
    }

    /// What poll(2) shall watch.
    pub(crate) fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.taken.as_fd(), self.interrupts.as_fd()]
    }

    /// The next signal that has arrived, if any.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        let mut byte = [0];
        if let Ok(1) = nix::unistd::read(&self.interrupts, &mut byte) {
            return Some(Signal::INT);
        }
        let info = self.taken.read_signal().ok()??;
        Some(Signal(info.ssi_signo as i32))
    }
}

/// Ends this process by `signal`, as its default action does, so that a waiting shell sees what happened
/// (a script's loop goes on after exit code 130 but stops after a death by SIGINT). Returns where that is
/// impossible: PID 1 of a container does not die of signals.
pub(crate) fn die_by(signal: Signal) {
    // SIGQUIT would dump the launcher's core, which is of no use to anybody.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    set_default(signal.0);
    // SAFETY: system calls on an initialised set and on ourselves.
    unsafe {
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal.0);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal.0);
    }
}

fn mask_of(inherited: &Inherited, handled: &[Signal]) -> libc::sigset_t {
    let taken = TAKEN.iter().map(|it| *it as i32).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    let taken = taken.chain(handled.iter().map(|it| it.0));
    // SAFETY: the set is initialised before signals are added.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        for signal in taken.filter(|it| *it != libc::SIGINT && !inherited.ignores(Signal(*it))) {
            libc::sigaddset(&mut mask, signal);
        }
        mask
    }
}

fn signal_fd(mask: &libc::sigset_t) -> io::Result<SignalFd> {
    // SAFETY: every bit of the set was put there by sigaddset; the wrapper adds no meaning to them.
    let mask = unsafe { SigSet::from_sigset_t_unchecked(*mask) };
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Raw, since the safe sets hold no real-time signals.
fn block_all() {
    // SAFETY: as in `mask_of`.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigfillset(&mut mask);
        libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null new action only asks; `old` is filled in on success.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

fn set_default(signal: i32) {
    // SAFETY: the default action has no code of ours; SIGKILL and SIGSTOP refuse, which is fine.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
