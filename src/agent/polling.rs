//! How the launcher waits: poll(2).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Until then.
pub(crate) fn from_now(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

/// The shortest of what there is.
pub(crate) fn until_first(spans: [Option<Duration>; 2]) -> Option<Duration> {
    spans.into_iter().flatten().min()
}

/// Sleeps until one of `sources` is readable, or so long.
pub(crate) fn wait<'s>(sources: impl Iterator<Item = BorrowedFd<'s>>, at_most: Option<Duration>) {
    let sources = sources.map(|it| PollFd::new(it, PollFlags::POLLIN));
    let timeout = at_most.and_then(|it| PollTimeout::try_from(it).ok());
    let _ = poll(
        &mut sources.collect::<Vec<_>>(),
        timeout.unwrap_or(PollTimeout::NONE),
    );
}
