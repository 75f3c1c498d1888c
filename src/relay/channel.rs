//! What stands between a worker and us: nothing, or a pipe or a pseudo-terminal for each of our streams.

use std::io::IsTerminal;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::stat::fstat;

use super::treatment::{Stream, wants_files};
use crate::cli::{Output, Streams};

/// How the output of every worker reaches our streams. Decided once, before the first worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wiring {
    /// Workers write to our own streams.
    Direct,
    /// Our two streams are the same file, so workers have one channel for both: what they write to one and
    /// to the other stays in order.
    Joined(Kind),
    /// One channel for stdout, another for stderr.
    Apart { out: Kind, err: Kind },
}

/// What kind of file a worker writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Pipe,
    /// Where our own stream is a terminal: colours and progress bars ask for one.
    Pty(Terminal),
}

/// Size and modes of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    size: libc::winsize,
    modes: libc::termios,
}

/// Both ends of the channels of one worker; none where it writes to our streams.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// For stdout and, where it has its own, for stderr.
    theirs: Vec<OwnedFd>,
    /// The other ends of these, in the same order; reading never waits.
    pub(crate) ours: Vec<OwnedFd>,
}

impl Wiring {
    /// The wiring that fits our own streams and what is wanted. Where a stream goes to a file of its own it is
    /// a pipe: no colours, no bars.
    pub(crate) fn of_our_streams(output: &Output) -> Self {
        let (out, err) = (Stream::Out.descriptor(), Stream::Err.descriptor());
        if same_file() && !wants_files(output) {
            return Self::Joined(Kind::like(out));
        }
        let filed = |has: fn(Streams) -> bool| {
            let maps = [&output.redirects, &output.tee];
            maps.into_iter().any(|it| it.any(has))
        };
        let kind = |filed: bool, like| if filed { Kind::Pipe } else { Kind::like(like) };
        Self::Apart {
            out: kind(filed(|it| it.out), out),
            err: kind(filed(|it| it.err), err),
        }
    }

    /// How many descriptors one worker costs us.
    pub(crate) fn channels(&self) -> u32 {
        match self {
            Self::Direct => 0,
            Self::Joined(_) => 1,
            Self::Apart { .. } => 2,
        }
    }

    /// Makes the channels of one worker.
    ///
    /// # Errors
    /// There is no descriptor left for them, in this process or in the system.
    pub(crate) fn open(&self) -> Result<Ends, Errno> {
        let mut ends = Ends::default();
        let kinds = match self {
            Self::Direct => return Ok(ends),
            Self::Joined(kind) => &[*kind][..],
            Self::Apart { out, err } => &[*out, *err],
        };
        for kind in kinds {
            let (ours, theirs) = kind.open()?;
            ends.ours.push(ours);
            ends.theirs.push(theirs);
        }
        Ok(ends)
    }
}

impl Kind {
    fn like(stream: BorrowedFd<'_>) -> Self {
        if !stream.is_terminal() {
            return Self::Pipe;
        }
        Terminal::look(stream).map_or(Self::Pipe, Self::Pty)
    }

    /// Our end and the worker's. Where pseudo-terminals cannot be had (no /dev/pts), a pipe does.
    fn open(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        let pair = match self {
            Self::Pty(terminal) => terminal.open(),
            Self::Pipe => Err(Errno::ENOTTY),
        };
        let (ours, theirs) = pair.or_else(|_| nix::unistd::pipe2(OFlag::O_CLOEXEC))?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((ours, theirs))
    }
}

impl Terminal {
    fn look(terminal: BorrowedFd<'_>) -> Option<Self> {
        let size = size_of(terminal)?;
        let modes = nix::sys::termios::tcgetattr(terminal).ok()?;
        Some(Self {
            size,
            modes: modes.into(),
        })
    }

    /// A pseudo-terminal with the size and the modes of this one, except that it changes no byte: `\n` becomes
    /// `\r\n` in our own terminal, and once is enough. It is no worker's controlling terminal, as ours is none.
    fn open(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        let mut modes = self.modes;
        modes.c_oflag &= !libc::OPOST;
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: the descriptors are written, size and modes only read, and no name is asked for.
        let done = unsafe {
            libc::openpty(
                &mut ours,
                &mut theirs,
                std::ptr::null_mut(),
                &modes,
                &self.size,
            )
        };
        Errno::result(done)?;
        // SAFETY: both were just opened and belong to nobody else.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        for end in [&ours, &theirs] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        Ok((ours, theirs))
    }
}

impl Ends {
    /// What the worker shall have as stdout and stderr; `None` leaves it ours.
    pub(crate) fn of_worker(&self) -> Option<[RawFd; 2]> {
        let (first, last) = (self.theirs.first()?, self.theirs.last()?);
        Some([first.as_raw_fd(), last.as_raw_fd()])
    }
}

/// Gives the pseudo-terminals behind `ours` the size that our own terminal has by now.
pub(crate) fn resize<'a>(ours: impl Iterator<Item = &'a OwnedFd>) {
    let own = [Stream::Out, Stream::Err];
    let Some(size) = own.iter().find_map(|it| size_of(it.descriptor())) else {
        return;
    };
    for pty in ours {
        // SAFETY: TIOCSWINSZ reads a winsize, which `size` is; on a pipe it fails.
        unsafe { libc::ioctl(pty.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    }
}

fn size_of(terminal: BorrowedFd<'_>) -> Option<libc::winsize> {
    let mut size = std::mem::MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: TIOCGWINSZ fills in a winsize, which `size` is.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) };
    // SAFETY: zeroed is a valid winsize, too.
    (done == 0).then(|| unsafe { size.assume_init() })
}

/// Whether our own two streams are one.
pub(crate) fn same_file() -> bool {
    match (
        fstat(Stream::Out.descriptor()),
        fstat(Stream::Err.descriptor()),
    ) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}
