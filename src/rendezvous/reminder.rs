//! When to say again that somebody is being waited for.

use std::time::{Duration, Instant};

/// Soon enough that nobody wonders, then more and more rarely.
const FIRST: Duration = Duration::from_secs(5);
const RAREST: Duration = Duration::from_secs(60);

/// Due after 5 s, 15 s, 35 s, 75 s, and each minute from there.
pub(crate) struct Reminder {
    next: Instant,
    interval: Duration,
}

impl Reminder {
    /// The first is due 5 s from now.
    pub(crate) fn from(now: Instant) -> Self {
        Self {
            next: now + FIRST,
            interval: FIRST,
        }
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Whether it is time, once for each time.
    pub(crate) fn due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.interval = (self.interval * 2).min(RAREST);
            self.next = now + self.interval;
        }
        due
    }
}
