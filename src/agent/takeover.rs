//! What the launcher does when the guardian has ended, or was lost and left it what it watched over.

use std::time::{Duration, Instant};

use super::descendants::{self, NOBODY, Process, below, kill_all_below};
use super::event::Pid;
use super::polling::wait;
use super::signals::Inbox;
use super::wait::{Found, Which, peek, reap};
use super::ward::Ward;
use crate::status::{Signal, Status};

/// How long the launcher tries to end what a killed guardian left to it.
const SWEEP: Duration = Duration::from_secs(5);
/// How long dying may take a process that SIGKILL was sent to or that has closed its files.
pub(crate) const DYING: Duration = Duration::from_secs(2);

const KILLED: Status = Status::Signal {
    signal: Signal::KILL,
    core: false,
};

/// Children that we had before we started anything: a shell may start a job and then become us by `exec`.
/// They are none of our business, and neither is what they start.
pub(crate) fn strangers() -> Vec<Process> {
    match peek(Which::Any) {
        Found::Nobody => Vec::new(),
        _ => below(NOBODY),
    }
}

/// How the guardian ended. It has closed its files; that it is dead is a matter of microseconds, unless a
/// debugger holds it or the first process of a namespace waits for the others there to die.
pub(crate) fn reap_guardian(ward: &Ward, inbox: &mut Inbox) -> Status {
    let deadline = Instant::now() + DYING;
    loop {
        match reap(Which::One(ward.pid())) {
            Found::Dead(_, status) => return status,
            Found::Alive if Instant::now() < deadline => wait_for_a_death(inbox),
            // Killed by us in vain, or reaped by somebody else.
            _ => return KILLED,
        }
    }
}

/// The guardian was lost before its work was done: ends what it left to us, but neither what was there before
/// nor what is in our session. All workers left that and none can come back, so who is there is a stranger's
/// orphan. Returns what cannot be ended, with its state.
pub(crate) fn take_over(strangers: &[Process], inbox: &mut Inbox) -> Vec<(Pid, u8)> {
    let session = descendants::own_session();
    let foreign = |it: &Process| {
        let identity = it.identity();
        it.session == session || strangers.iter().any(|old| old.identity() == identity)
    };
    let deadline = Instant::now() + SWEEP;
    while Instant::now() < deadline {
        while let Found::Dead(..) = reap(Which::Any) {}
        if !kill_all_below(&foreign) {
            return Vec::new();
        }
        wait_for_a_death(inbox);
    }
    let left = below(&foreign).into_iter().filter(Process::is_stuck);
    left.map(|it| (it.pid, it.state)).collect()
}

/// Or for a moment: not every death is that of a child of ours.
fn wait_for_a_death(inbox: &mut Inbox) {
    wait(inbox.sources().into_iter(), Some(Duration::from_millis(5)));
    while inbox.next().is_some() {}
}
