//! The launcher's own signals: which were ignored when it started, which it takes in, and how it dies of one.
//!
//! The order of the steps is what makes none get lost (all seen to fail otherwise):
//! 1. [`Inherited::reset`], first thing: a parent may have left signals blocked or SIGCHLD ignored. Until the
//!    next step signals have their default effect, and there is nothing yet that they could leave behind.
//! 2. [`Inbox::open`] blocks all that are taken in, before there is a worker or a second thread. What comes
//!    from here on waits.
//! 3. ctrlc starts its thread, if the run is not over by then, which inherits that mask; the other way round the kernel would hand SIGUSR1
//!    to that thread and end us. It is used for SIGINT alone: with its `termination` feature it would answer
//!    a SIGHUP that nohup told us to ignore and could not tell SIGTERM from SIGHUP.
//! 4. SIGINT is unblocked; one that came in between is delivered now.
//! 5. [`Inbox::release`], when all workers have ended: from here on a signal ends us as it does any program,
//!    even if we wait for somebody to read our last words.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal as Name};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

use crate::status::Signal;

/// Signals whose being ignored at the start is somebody's wish, for the workers too: nohup ignores the first,
/// a shell's background job the others. The rest have their default effect on workers, as in the original.
const RESPECTED: [Name; 3] = [Name::SIGHUP, Name::SIGINT, Name::SIGQUIT];

/// Signals the launcher takes in besides SIGINT and the real-time ones; the others keep their effect.
const TAKEN: [Name; 11] = [
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
    Name::SIGXCPU,
];

/// What the process that started us wants ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    ignored: Vec<Signal>,
}

impl Inherited {
    /// Unblocks everything, gives SIGCHLD its default back, and notes which signals are ignored on purpose.
    pub(crate) fn reset() -> Self {
        set_default(libc::SIGTERM);
        set_default(libc::SIGCHLD);
        let ignored = RESPECTED.into_iter().map(|it| it as i32);
        let ignored = ignored.filter(|it| is_ignored(*it));
        let inherited = Self {
            ignored: ignored.map(Signal).collect(),
        };
        // For the first process of a PID namespace the kernel drops signals that have their default effect
        // (pid_namespaces(7)). Blocked, they wait until we can act on them.
        let waiting = match nix::unistd::getpid().as_raw() {
            1 => taken(&inherited, &[Signal::INT]),
            _ => Vec::new(),
        };
        Set::of(waiting).apply(libc::SIG_SETMASK);
        inherited
    }

    pub(crate) fn ignores(&self, signal: Signal) -> bool {
        self.ignored.contains(&signal)
    }
}

/// Where deaths of children show, to the process that reads it. SIGCHLD must be blocked there.
pub(crate) fn watch_deaths() -> Result<SignalFd, Errno> {
    let mut deaths = SigSet::empty();
    deaths.add(Name::SIGCHLD);
    SignalFd::with_flags(&deaths, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// In the guardian: every signal blocked, and every disposition as a worker shall inherit it, which is the
/// default but for what was ignored on purpose. (We ignore SIGPIPE.)
pub(crate) fn become_guardian(inherited: &Inherited) {
    let all = 1..=libc::SIGRTMAX();
    Set::of(all.clone().map(Signal)).apply(libc::SIG_SETMASK);
    all.filter(|it| !inherited.ignores(Signal(*it)))
        .for_each(set_default);
}

/// Where the launcher's signals arrive.
pub(crate) struct Inbox {
    taken: SignalFd,
    /// One byte for each SIGINT.
    interrupts: OwnedFd,
    /// Handed to the ctrlc thread by [`Inbox::listen_for_interrupts`].
    interrupter: Option<OwnedFd>,
    /// SIGINT is blocked and looked for: there is no thread yet.
    expects_interrupts: bool,
}

impl Inbox {
    /// Blocks what is taken in; from here on nothing is lost and nothing interrupts.
    pub(crate) fn open(inherited: &Inherited, handled: &[Signal]) -> io::Result<Self> {
        let mut signals = taken(inherited, handled);
        signals.retain(|it| *it != Signal::INT);
        let taken = Set::of(signals.iter().copied()).descriptor()?;
        signals.push(Signal::INT);
        Set::of(signals).apply(libc::SIG_BLOCK);
        let flags = nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK;
        let (interrupts, interrupter) = nix::unistd::pipe2(flags)?;
        Ok(Self {
            taken,
            interrupts,
            interrupter: Some(interrupter),
            expects_interrupts: !inherited.ignores(Signal::INT),
        })
    }

    /// Starts ctrlc's thread, unless it runs or SIGINT is ignored on purpose. Until then SIGINT wakes nobody, but
    /// `next` finds it. After the guardian's fork, since threads do not survive one.
    ///
    /// # Errors
    /// The thread was refused.
    pub(crate) fn listen_for_interrupts(&mut self) -> io::Result<()> {
        // Where it is ignored the pipe stays open and empty: closed, it would wake poll(2) for ever.
        if self.expects_interrupts
            && let Some(interrupter) = self.interrupter.take()
        {
            ctrlc::set_handler(move || {
                // A full pipe holds more interrupts than anybody means.
                let _ = nix::unistd::write(&interrupter, &[0]);
            })
            .map_err(|error| match error {
                ctrlc::Error::System(error) => error,
                other => io::Error::other(other),
            })?;
        }
        self.expects_interrupts = false;
        Set::of([Signal::INT]).apply(libc::SIG_UNBLOCK);
        Ok(())
    }

    /// What poll(2) shall watch.
    pub(crate) fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.taken.as_fd(), self.interrupts.as_fd()]
    }

    /// The next signal that has arrived, if any.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        if self.expects_interrupts && take_pending(Signal::INT) {
            return Some(Signal::INT);
        }
        let mut byte = [0];
        if let Ok(1) = nix::unistd::read(&self.interrupts, &mut byte) {
            return Some(Signal::INT);
        }
        let info = self.taken.read_signal().ok()??;
        Some(Signal(info.ssi_signo as i32))
    }

    /// Gives the signals that end a run their default effect back. What has arrived by now came too late to
    /// change anything, and the report is worth more than a second death.
    pub(crate) fn release(mut self, inherited: &Inherited, handled: &[Signal]) {
        while self.next().is_some() {}
        let ending = handled.iter().filter(|it| !inherited.ignores(**it));
        for signal in ending {
            set_default(signal.0);
            Set::of([*signal]).apply(libc::SIG_UNBLOCK);
        }
    }
}

/// Takes in a blocked signal, if it has arrived.
fn take_pending(signal: Signal) -> bool {
    let (set, at_once) = (Set::of([signal]), TimeSpec::new(0, 0));
    // SAFETY: both are only read, and nothing is asked about the signal.
    let taken = unsafe { libc::sigtimedwait(&set.0, std::ptr::null_mut(), at_once.as_ref()) };
    taken == signal.0
}

/// Stops this process as SIGTSTP does by default, and returns when it goes on: at once where nobody could
/// resume it, for the kernel stops neither the first process of a namespace nor an orphaned process group
/// (setpgid(2)), such as one whose shell has ended.
pub(crate) fn stop() {
    let only = Set::of([Signal::TSTP]);
    only.apply(libc::SIG_UNBLOCK);
    // SAFETY: no memory is involved; delivered before kill returns, as the only thread that lets it through.
    unsafe { libc::kill(libc::getpid(), libc::SIGTSTP) };
    only.apply(libc::SIG_BLOCK);
}

/// Ends this process by `signal`, as its default action does, so that a waiting shell sees what happened
/// (a script's loop goes on after exit code 130 but stops after a death by SIGINT). Returns where that is
/// impossible: PID 1 of a container does not die of signals, and some do not kill.
pub(crate) fn die_by(signal: Signal) {
    if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal.0) {
        return;
    }
    // SIGQUIT would dump the launcher's core, which is of no use to anybody.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    set_default(signal.0);
    Set::of([signal]).apply(libc::SIG_UNBLOCK);
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), signal.0) };
}

/// All signals that are to be taken in.
fn taken(inherited: &Inherited, handled: &[Signal]) -> Vec<Signal> {
    let named = TAKEN.iter().map(|it| *it as i32);
    let signals = named.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).map(Signal);
    let signals = signals.chain(handled.iter().copied());
    signals.filter(|it| !inherited.ignores(*it)).collect()
}

/// A set of signals; the safe ones hold no real-time signals.
struct Set(libc::sigset_t);

impl Set {
    fn of(signals: impl IntoIterator<Item = Signal>) -> Self {
        // SAFETY: the set is initialised before signals are added; a number that is none is refused.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals {
                libc::sigaddset(&mut set, signal.0);
            }
            Self(set)
        }
    }

    /// To this thread's mask, as pthread_sigmask(3) says; threads made later inherit it.
    fn apply(&self, how: libc::c_int) {
        // SAFETY: the set is initialised, the old one is not wanted.
        unsafe { libc::pthread_sigmask(how, &self.0, std::ptr::null_mut()) };
    }

    fn descriptor(&self) -> Result<SignalFd, Errno> {
        // SAFETY: every bit of the set was put there by sigaddset; the wrapper adds no meaning to them.
        let set = unsafe { SigSet::from_sigset_t_unchecked(self.0) };
        SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null new action only asks; `old` is filled in on success.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

fn set_default(signal: i32) {
    // SAFETY: the default action has no code of ours; SIGKILL and SIGSTOP refuse, which is fine.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
