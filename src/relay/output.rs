//! Our own standard streams, written to without a buffer of ours in between.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::tail::uncoloured;
use super::treatment::Stream;
use crate::clock::exact_local_time;

impl Stream {
    /// Our own, of this name.
    pub(crate) fn descriptor(self) -> BorrowedFd<'static> {
        let number = match self {
            Self::Out => libc::STDOUT_FILENO,
            Self::Err => libc::STDERR_FILENO,
        };
        // SAFETY: Rust's runtime opens 0, 1 and 2 before `main` if they are closed, and nobody closes them.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}

/// A stream that is being written to.
#[derive(Debug)]
pub(crate) struct Output {
    stream: Stream,
    /// Nobody reads it any more: what comes is dropped, for that is no reason to stop a training.
    deserted: bool,
    /// The last byte was not the end of a line.
    mid_line: bool,
    /// Who wrote last, if it was a source.
    owner: Option<u64>,
    /// The first refusal that may pass, and whether it has been told.
    trouble: Option<Errno>,
    told: bool,
    /// Has a copy of what we say ourselves.
    log: Option<File>,
}

impl Output {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            deserted: false,
            mid_line: false,
            owner: None,
            trouble: None,
            told: false,
            log: None,
        }
    }

    /// Writes all of it, and waits for the reader if it has to.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.mid_line = *last != b'\n';
        if self.deserted {
            return;
        }
        match write_all(self.stream.descriptor(), bytes) {
            Ok(()) => {}
            // The reader has gone; the terminal has been closed.
            Err(Errno::EPIPE | Errno::EIO) => self.deserted = true,
            // A full disk may be emptied again: what does not fit now is lost, the next may fit.
            Err(errno) => self.trouble = self.trouble.or(Some(errno)),
        }
    }

    /// A sentence on the first output that was lost, once. Not told where it happens: what we log may be
    /// written here.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        let errno = self.trouble.filter(|_| !self.told)?;
        self.told = true;
        let name = match self.stream {
            Stream::Out => "standard output",
            Stream::Err => "standard error",
        };
        Some(format!(
            "cannot write to {name}, what workers write is lost: {errno}"
        ))
    }

    pub(crate) fn keep_log(&mut self, log: File) {
        self.log = Some(log);
    }

    /// Lines of our own, which start on a new one.
    pub(crate) fn say(&mut self, text: &[u8]) {
        if self.mid_line {
            self.write(b"\n");
        }
        self.owner = None;
        self.write(text);
        if let Some(log) = &mut self.log {
            // A full disk: what is said is said here, too.
            let _ = log.write_all(dated(text).as_bytes());
        }
    }

    /// From now on a source writes; ends the line that another has begun. True if another has written since.
    pub(crate) fn turn_to(&mut self, source: u64) -> bool {
        if self.owner == Some(source) {
            return false;
        }
        if self.mid_line {
            self.write(b"\n");
        }
        self.owner = Some(source);
        true
    }
}

/// Without colours, and with the time of day in front of every line.
fn dated(text: &[u8]) -> String {
    let now = exact_local_time();
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(uncoloured);
    lines.map(|it| format!("{now} {it}\n")).collect()
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match nix::unistd::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            // Somebody who shares the file has made it non-blocking (fcntl(2)): node and ssh do.
            Err(Errno::EAGAIN) => {
                let _ = poll(
                    &mut [PollFd::new(to, PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                );
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
