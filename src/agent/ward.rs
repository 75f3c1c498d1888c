//! The launcher's side of its guardian: the process, and the socket between the two.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, send, socketpair,
};
use nix::unistd::{ForkResult, fork};

use super::descendants;
use super::event::Pid;
use super::guardian::Guardian;
use super::linux;
use super::message::{Command, SIZE, Stamped};
use super::policy::Policy;
use super::private;
use super::signals::{Inherited, prepare_guardian};
use super::wait::{Found, Which, reap_blocking};
use crate::plan::Plan;
use crate::relay::Wiring;
use crate::status::{Signal, Status};

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

/// What the guardian is born with besides the plan.
pub(crate) struct Birth<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) wiring: Wiring,
    pub(crate) inherited: &'a Inherited,
    pub(crate) error_dir: Option<&'a std::path::Path>,
    pub(crate) origin: Instant,
    /// Length in bytes of our argument area, see [`linux::rename_process`].
    pub(crate) argument_bytes: usize,
}

impl Ward {
    /// Forks the guardian. There must be no second thread yet.
    pub(crate) fn start(birth: &Birth<'_>) -> Result<Self, Errno> {
        let kind = SockType::SeqPacket;
        let (socket, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: this process has one thread, so the child may do whatever we may.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self {
                pid: child.as_raw(),
                socket,
            }),
            ForkResult::Child => {
                // Or the guardian would keep the launcher's end open and never see it close.
                drop(socket);
                guard(birth, theirs);
                // SAFETY: ends this copy of the process without running the launcher's clean-up a second time.
                unsafe { libc::_exit(0) }
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Never waits. SIGCONT goes along, so that a guardian that somebody has stopped hears it.
    pub(crate) fn tell(&self, command: Command) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = send(self.socket.as_raw_fd(), &command.encode(), flags);
        descendants::kill(self.pid, Signal::CONT);
    }

    pub(crate) fn hear(&self) -> Heard {
        let mut bytes = [0; SIZE];
        loop {
            match receive(self.source(), &mut bytes) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Heard::Nothing,
                Ok((SIZE, ends)) => {
                    return Stamped::decode(&bytes)
                        .map_or(Heard::Nothing, |it| Heard::Event(it, ends));
                }
                Ok(_) | Err(_) => return Heard::End,
            }
        }
    }

    /// Reaps it; to be called once [`Heard::End`] was heard.
    pub(crate) fn end(&self) -> Status {
        match reap_blocking(Which::One(self.pid)) {
            Found::Dead(_, status) => status,
            // Somebody else reaped it: nothing is known but that it has gone.
            _ => Status::Code(1),
        }
    }
}

/// One message and the descriptors that came with it (SCM_RIGHTS, unix(7)). Never waits.
fn receive(from: BorrowedFd<'_>, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let mut space = nix::cmsg_space!([RawFd; 2]);
    let mut parts = [IoSliceMut::new(into)];
    let message = recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel has just made them for us.
            let owned = descriptors
                .into_iter()
                .map(|it| unsafe { OwnedFd::from_raw_fd(it) });
            received.extend(owned);
        }
    }
    Ok((message.bytes, received))
}

/// The guardian's life, in the child of the fork.
fn guard(birth: &Birth<'_>, launcher: OwnedFd) {
    let Ok(deaths) = prepare_guardian(birth.inherited) else {
        return;
    };
    // Out of the terminal's reach and of `kill -9 -GROUP`.
    let _ = nix::unistd::setsid();
    linux::hide_descriptors();
    linux::rename_process("guardian", birth.argument_bytes);
    if linux::adopt_orphans().is_err() {
        tracing::warn!("processes that leave their group cannot be followed on this kernel");
    }
    let policy = Policy::new(
        birth.plan.local_world_size.value,
        birth.plan.settings.clone(),
    );
    let error_dir = birth.error_dir.map(Into::into);
    let guardian = Guardian::new(
        birth.plan,
        birth.wiring,
        launcher,
        deaths,
        birth.origin,
        policy,
        error_dir,
    );
    let launcher_gone = guardian.run();
    if let (true, Some(path)) = (launcher_gone, birth.error_dir) {
        private::remove(path);
    }
}
