//! What only Linux has. Elsewhere a run still ends its process groups in order; what is lost there is named
//! at each item.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};

use super::event::Pid;
use crate::status::Signal;

/// Orphans among our descendants become our children (PR_SET_CHILD_SUBREAPER, prctl(2), Linux 3.4), so that
/// a process that left its group and session is still found. Elsewhere: only groups are.
pub(crate) fn adopt_orphans() -> Result<(), Errno> {
    prctl::set_child_subreaper(true)
}

/// `signal` for the calling process when the thread that made it ends (PR_SET_PDEATHSIG, prctl(2)); cleared by
/// a change of user. Elsewhere: a launcher that is killed while its guardian is stopped leaves workers.
pub(crate) fn signal_at_end_of_parent(signal: Signal) -> Result<(), Errno> {
    // SAFETY: a system call without pointers; this also runs between clone and exec.
    let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal.0, 0, 0, 0) };
    Errno::result(done).map(drop)
}

/// SIGKILL for the calling process when its parent ends. It is set, then the parent is compared with the one
/// that made us, for it may have gone in between and then no signal ever comes.
/// Elsewhere: workers of a killed guardian live on.
///
/// # Errors
/// ESRCH when the parent has gone already.
pub(crate) fn die_with_parent(parent: Pid) -> Result<(), Errno> {
    signal_at_end_of_parent(Signal::KILL)?;
    // SAFETY: as above.
    match unsafe { libc::getppid() } == parent {
        true => Ok(()),
        false => Err(Errno::ESRCH),
    }
}

/// Closes every descriptor from 3 on but these, so that the guardian holds no port, pipe or lock of the
/// launcher's, and workers get 0, 1 and 2 only.
pub(crate) fn close_all_but(mut kept: Vec<c_int>) {
    kept.sort_unstable();
    let mut from = 3;
    for descriptor in kept {
        close_range(from, descriptor - 1);
        from = descriptor + 1;
    }
    close_range(from, c_int::MAX);
}

/// close_range(2), Linux 5.9; with older kernels one by one up to the limit.
fn close_range(first: c_int, last: c_int) {
    if first > last {
        return;
    }
    // SAFETY: the descriptors' owners are in the parent; in this process nobody uses or drops them any more.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft.min(65_536));
    for descriptor in first..=last.min(limit as c_int) {
        // SAFETY: as above.
        unsafe { libc::close(descriptor) };
    }
}

unsafe extern "C" {
    /// glibc and musl keep a pointer to the first byte of the argument area here (program_invocation_name(3)).
    static program_invocation_name: *mut c_char;
}

/// Gives this process another name and command line, so that `pkill fabric` and `pkill -f train.py` end the
/// launcher and the workers but spare the one that cleans up after them. `arguments` is the length in bytes
/// of the original arguments with their closing zeros: what may be written over.
pub(crate) fn rename_process(name: &str, arguments: usize) {
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = prctl::set_name(&name);
    }
    // SAFETY: the kernel laid the arguments out one after the other in `arguments` writable bytes, and
    // nobody reads them any more in this process.
    unsafe {
        if program_invocation_name.is_null() {
            return;
        }
        let area = std::slice::from_raw_parts_mut(program_invocation_name.cast::<u8>(), arguments);
        area.fill(0);
        let kept = name.len().min(arguments.saturating_sub(1));
        area[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    }
}

/// A file without a name, which is gone with its last descriptor (memfd_create(2), Linux 3.17). Not by glibc's
/// function, which is younger than the oldest glibc that the published program runs with. Elsewhere: `fabric ps` shows
/// nothing.
pub(crate) fn nameless_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with a zero; the descriptor returned is ours alone.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    let descriptor = Errno::result(made)? as c_int;
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A handle that stays with one process even when its number is given to another (pidfd_open(2), Linux 5.3).
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    pub(crate) fn open(pid: Pid) -> Result<Self, Errno> {
        // SAFETY: no pointers; the descriptor returned is ours alone.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let descriptor = Errno::result(descriptor)? as c_int;
        // SAFETY: just opened, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub(crate) fn send(&self, signal: c_int) -> Result<(), Errno> {
        let (descriptor, info) = (self.0.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: a null siginfo means "as kill(2) would fill it" (pidfd_send_signal(2)).
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, info, 0) };
        Errno::result(sent).map(drop)
    }

    /// Sleeps until the process has ended; false if it has not after `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            // Readable once the process has ended, reaped or not (pidfd_open(2)).
            let mut end = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut end, timeout) {
                Ok(1..) => return true,
                _ if left.is_zero() => return false,
                _ => {}
            }
        }
    }
}
