//! From the C library's start to our own and back, instead of the standard library's way.
//!
//! That one reads /proc/self/maps to tell a full stack from other bad accesses, and maps a stack to say so on:
//! a tenth of all a launch does before its first worker. What else it does for us is done here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// First thing in `main`; returns the words of the command line.
///
/// # Safety
/// The arguments are those that the C library gave to `main`.
pub(crate) unsafe fn begin(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    open_standard_streams();
    // SAFETY: SIG_IGN has no code of ours. A reader who has gone shall show as an error of write(2).
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let words = (0..count as usize).map(|it| {
        // SAFETY: there are `count` strings that end with zero and live as long as we do.
        let word = unsafe { CStr::from_ptr(*words.add(it)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    });
    words.collect()
}

/// Last thing in `main`. Whatever was written has been flushed, and nothing waits for the end to do anything.
pub(crate) fn end(code: u8) -> ! {
    // SAFETY: ends the process, whatever its other threads do.
    unsafe { libc::_exit(code.into()) }
}

/// Gives descriptors 0, 1 and 2 to /dev/null where they are closed: what we open first would take their numbers, and
/// output would go there.
fn open_standard_streams() {
    // SAFETY: only looked at, and a descriptor that is closed shows as such.
    let streams = [0, 1, 2].map(|it| unsafe { BorrowedFd::borrow_raw(it) });
    let mut streams = streams.map(|it| PollFd::new(it, PollFlags::empty()));
    let _ = poll(&mut streams, PollTimeout::ZERO);
    let closed = |it: &&PollFd| {
        let seen = it.revents().unwrap_or(PollFlags::empty());
        seen.contains(PollFlags::POLLNVAL)
    };
    for _ in streams.iter().filter(closed) {
        // SAFETY: the path ends with zero; the lowest number that is free is the one we want.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}
