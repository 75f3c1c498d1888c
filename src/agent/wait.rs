//! waitid(2), raw: the safe wrapper knows no real-time signals and would never show a child that one ended.

use std::mem::MaybeUninit;

use nix::errno::Errno;

use super::event::Pid;
use crate::status::{Signal, Status};

/// Which children are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Any,
    One(Pid),
}

/// What waiting found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Dead(Pid, Status),
    /// There are such children, all alive.
    Alive,
    /// There is no such child.
    Nobody,
}

/// A dead child, left unreaped: its number stays its own.
pub(crate) fn peek(which: Which) -> Found {
    wait(which, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
}

/// A dead child, reaped: its number may be another's from now on.
pub(crate) fn reap(which: Which) -> Found {
    wait(which, libc::WEXITED | libc::WNOHANG)
}

/// True if somebody has stopped this child since the last call.
pub(crate) fn was_stopped(pid: Pid) -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: `info` is ours and of the right type; zeroed it is valid, and filled in when there is news.
    unsafe {
        libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), flags) == 0
            && info.assume_init().si_pid() == pid
    }
}

/// A child that somebody has stopped (true) or resumed (false), told once for each; nobody is reaped.
pub(crate) fn stopped_or_resumed() -> Option<(Pid, bool)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
    // SAFETY: as in `was_stopped`.
    let (done, info) = unsafe {
        let done = libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags);
        (done, info.assume_init())
    };
    // SAFETY: waitid fills it for every child, and zeroed it stands for none.
    let pid = unsafe { info.si_pid() };
    (done == 0 && pid != 0).then_some((pid, info.si_code != libc::CLD_CONTINUED))
}

/// Sleeps until such a child has died, and reaps it.
pub(crate) fn reap_blocking(which: Which) -> Found {
    wait(which, libc::WEXITED)
}

fn wait(which: Which, flags: i32) -> Found {
    let (kind, id) = match which {
        Which::Any => (libc::P_ALL, 0),
        Which::One(pid) => (libc::P_PID, pid as libc::id_t),
    };
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is ours and of the right type.
        let done = unsafe { libc::waitid(kind, id, info.as_mut_ptr(), flags) };
        match Errno::result(done) {
            Err(Errno::EINTR) => {}
            Err(_) => return Found::Nobody,
            // SAFETY: zeroed, which is a valid siginfo, and filled in when somebody was found.
            Ok(_) => return read(&unsafe { info.assume_init() }),
        }
    }
}

fn read(info: &libc::siginfo_t) -> Found {
    // SAFETY: waitid fills these two for every child; a process number of 0 means there was none.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Found::Alive;
    }
    let status = match info.si_code {
        libc::CLD_EXITED => Status::Code(value as u8),
        code => Status::Signal {
            signal: Signal(value),
            core: code == libc::CLD_DUMPED,
        },
    };
    Found::Dead(pid, status)
}
