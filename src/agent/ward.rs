//! The launcher's side of its guardian: the process, and the socket between the two.

use std::io::{IoSliceMut, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::poll;
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    UnixCredentials, recvmsg, send, setsockopt, shutdown, socketpair, sockopt,
};
use nix::unistd::{ForkResult, fork};

use super::descendants;
use super::event::Pid;
use super::guardian::{Birth, Guardian};
use super::isolate::{self, Unsettled};
use super::linux;
use super::message::{Command, SIZE, Stamped};
use super::polling::wait as wait_for;
use super::private;
use super::signals;
use super::uplink::Uplink;
use super::wait::{self, Found, Which};
use crate::status::Signal;

/// How long a guardian that has nothing to do may take to end.
const GOODBYE: Duration = Duration::from_secs(1);

/// A guardian that was started.
pub(crate) struct Ward {
    pid: Pid,
    socket: OwnedFd,
}

/// What a look at the socket brought.
#[derive(Debug)]
pub(crate) enum Heard {
    /// With our ends of the channels of a worker that was started.
    Event(Stamped, Vec<OwnedFd>),
    Nothing,
    /// The guardian has ended.
    End,
}

impl Ward {
    /// Forks the guardian. There must be no second thread yet.
    ///
    /// # Errors
    /// The kernel's refusal of a descriptor, a process or a namespace.
    pub(crate) fn start(birth: &Birth<'_>) -> Result<Self> {
        let kind = SockType::SeqPacket;
        let (socket, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        // Made here, where a refusal can still be told; it shows the signals of whoever reads it.
        let deaths = signals::watch_deaths()?;
        let (forked, unsettled) = match birth.plan.isolate {
            None => {
                // SAFETY: this process has one thread, so the child may do whatever we may.
                (unsafe { fork() }?, None)
            }
            Some(_) => {
                // So that process numbers can be translated, see `hear`.
                setsockopt(&socket, sockopt::PassCred, &true)?;
                let (forked, unsettled) = isolate::fork()?;
                (forked, Some(unsettled))
            }
        };
        if let ForkResult::Parent { child } = forked {
            let pid = child.as_raw();
            return Ok(Self { pid, socket });
        }
        // Or the guardian would keep the launcher's end open and never see it close.
        drop(socket);
        guard(birth, theirs, deaths, unsettled);
        // SAFETY: ends this copy of the process without running the launcher's clean-up a second time.
        unsafe { libc::_exit(0) }
    }

    /// Lets the guardian have its first turn: it begins its life on our processor, and waits there until we sleep. Not
    /// for long, where it has nothing to say yet.
    pub(crate) fn give_way(&self, at_most: Duration) {
        wait_for([self.source()].into_iter(), Some(at_most));
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for room at most until the guardian listens, which it does at once: it waits for nobody. A
    /// guardian that has gone will be noticed when we listen.
    pub(crate) fn tell(&self, command: Command) {
        self.wake();
        while send(
            self.socket.as_raw_fd(),
            &command.encode(),
            MsgFlags::MSG_NOSIGNAL,
        ) == Err(Errno::EINTR)
        {}
    }

    /// Somebody may have stopped it.
    pub(crate) fn wake(&self) {
        descendants::kill(self.pid, Signal::CONT);
    }

    /// True if somebody has stopped it since the last call.
    pub(crate) fn was_stopped(&self) -> bool {
        wait::was_stopped(self.pid)
    }

    pub(crate) fn kill(&self) {
        descendants::kill(self.pid, Signal::KILL);
    }

    /// The next event, its process number as this process's namespace has it, and the descriptors that come
    /// with it (unix(7), SCM_RIGHTS).
    pub(crate) fn hear(&self) -> Heard {
        let mut bytes = [0; SIZE];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(UnixCredentials, [RawFd; 2]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let (sender, ends) = loop {
            let socket = self.socket.as_raw_fd();
            match recvmsg::<UnixAddr>(socket, &mut parts, Some(&mut space), flags) {
                // The latter comes once if the guardian ended with words of ours unread, and goes before
                // what it said last (unix(7) says nothing of it; Linux does it since 2.4).
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(Errno::EAGAIN) => return Heard::Nothing,
                Ok(message) if message.bytes == SIZE => {
                    break message.cmsgs().map_or((None, Vec::new()), unpacked);
                }
                Ok(_) | Err(_) => return Heard::End,
            }
        };
        let Some(mut stamped) = Stamped::decode(&bytes) else {
            return Heard::Nothing;
        };
        if let (Some(pid), Some(sender)) = (stamped.event.pid(), sender) {
            *pid = sender;
        }
        Heard::Event(stamped, ends)
    }
}

/// Where something fails before there is anything to watch, the guardian shall not outlive us: it ends when
/// it hears no more from us. After a run it has been reaped, and there is nothing to wait for.
impl Drop for Ward {
    fn drop(&mut self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
        let deadline = Instant::now() + GOODBYE;
        while wait::reap(Which::One(self.pid)) == Found::Alive && Instant::now() < deadline {
            let _ = poll(&mut [], 1u8);
        }
    }
}

/// What came along: a process number, translated by the kernel between the namespaces of the two ends, and
/// descriptors.
fn unpacked(control: impl Iterator<Item = ControlMessageOwned>) -> (Option<Pid>, Vec<OwnedFd>) {
    let (mut pid, mut ends) = (None, Vec::new());
    for message in control {
        match message {
            ControlMessageOwned::ScmCredentials(it) => pid = Some(it.pid()),
            ControlMessageOwned::ScmRights(numbers) => {
                // SAFETY: the kernel has just made them, for us alone.
                let owned = numbers
                    .into_iter()
                    .map(|it| unsafe { OwnedFd::from_raw_fd(it) });
                ends.extend(owned);
            }
            _ => {}
        }
    }
    (pid, ends)
}

/// The guardian's life, in the child of the fork.
fn guard(birth: &Birth<'_>, socket: OwnedFd, deaths: SignalFd, unsettled: Option<Unsettled>) {
    signals::become_guardian(birth.inherited);
    // Out of the terminal's reach and of `kill -9 -GROUP`. It cannot fail: a new process leads no group.
    let _ = nix::unistd::setsid();
    linux::close_all_but(vec![socket.as_raw_fd(), deaths.as_raw_fd()]);
    linux::rename_process("guardian", birth.argument_bytes);
    let settled = match unsettled {
        None => {
            // Refused by very old kernels only, and the launcher has said so for itself.
            let _ = linux::adopt_orphans();
            // A guardian that somebody has stopped could not see the launcher go.
            let _ = linux::signal_at_end_of_parent(Signal::CONT);
            Ok(())
        }
        // After the change of user, which would clear it.
        Some(it) => it
            .settle()
            .and_then(|()| linux::signal_at_end_of_parent(Signal::KILL)),
    };
    let uplink = Uplink::new(socket, unsettled.is_some());
    let mut guardian = Guardian::new(birth, uplink, deaths);
    match settled {
        Ok(()) => guardian.begin(),
        Err(errno) => guardian.refuse(errno),
    }
    let launcher_gone = guardian.run();
    if let (true, Some(path)) = (launcher_gone, birth.error_dir) {
        private::remove(path);
    }
}
