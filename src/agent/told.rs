//! What the launcher says as it happens.

use super::event::Event;
use super::message::Stamped;
use crate::rendezvous::Cause;

/// What whoever reports is told.
#[derive(Debug)]
pub(crate) enum Told {
    Event(Stamped),
    /// A sentence on what is being waited for.
    Waiting(String),
    /// A sentence that people should read once.
    Notice(String),
    /// Every node is there; the global rank of our first worker.
    Ready(u32),
    /// The run has lasted long enough for people to look at it.
    Lasting,
    /// This attempt has failed, and all workers start again.
    Restarting(Cause),
    /// The root cause, where it lies on another node.
    Elsewhere(Cause),
}

impl Told {
    /// Nobody needs to hear of it before it is known how the run goes on.
    pub(crate) fn can_wait(&self) -> bool {
        match self {
            Self::Event(stamped) => match stamped.event {
                Event::Started { .. } | Event::Heard | Event::Done => true,
                Event::Exited { status, .. } => status.success(),
                _ => false,
            },
            Self::Ready(_) => true,
            _ => false,
        }
    }
}
