//! What follows for the host from what happens at the meeting.

use super::event::Event;
use super::store::ClientId;

/// What the host has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Set {
        key: String,
        value: String,
    },
    /// Raise a counter by one.
    Count {
        key: String,
    },
    /// End a client's connection.
    Close(ClientId),
    /// Forget what workers have stored.
    Clear {
        kept: [String; 4],
    },
    /// Tell the launcher of this node.
    Tell(Event),
}

/// How a run has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) aborted: bool,
}
