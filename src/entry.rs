//! From the C library's start to [`crate::run`] and back, instead of the standard library's way.
//!
//! That one reads /proc/self/maps to tell a full stack from other bad accesses, and maps a stack to say so on:
//! a tenth of all a launch does before its first worker. What else it does for us is done here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The program. Whatever it wrote has been flushed by its end, after which the C library has nothing to do either.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "tests have a start of their own"))]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    open_standard_streams();
    // SAFETY: SIG_IGN has no code of ours. A reader who has gone shall show as an error of write(2).
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let words = (0..count as usize).map(|it| {
        // SAFETY: the C library gives us `count` strings that end with zero and live as long as we do.
        let word = unsafe { CStr::from_ptr(*words.add(it)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    });
    let words: Vec<OsString> = words.collect();
    let code = crate::run(&words);
    // SAFETY: ends the process; there is nothing that would want to hear of it.
    unsafe { libc::_exit(code.into()) }
}

/// Gives descriptors 0, 1 and 2 to /dev/null where they are closed: what we open first would take their numbers, and
/// output would go there.
fn open_standard_streams() {
    // SAFETY: only looked at, and a descriptor that is closed shows as such.
    let streams = [0, 1, 2].map(|it| unsafe { std::os::fd::BorrowedFd::borrow_raw(it) });
    let mut streams = streams.map(|it| PollFd::new(it, PollFlags::empty()));
    let _ = poll(&mut streams, PollTimeout::ZERO);
    let closed = |it: &PollFd| {
        it.revents()
            .is_some_and(|it| it.contains(PollFlags::POLLNVAL))
    };
    for _ in streams.iter().filter(|it| closed(it)) {
        // SAFETY: the path ends with zero; the lowest number that is free is the one we want.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}
