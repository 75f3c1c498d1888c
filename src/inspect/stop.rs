//! `fabric stop`: ends one launch, as a signal to its launcher would, and waits for the end.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::board::launch_of;
use super::launch::{Launch, Worker};
use crate::agent::{Pid, PidFd, look_up};
use crate::cli::Stop;
use crate::status::Signal;

/// What a launch may take beyond the time that its workers have: to kill, to sweep, to sum up.
const MARGIN: Duration = Duration::from_secs(15);

/// Returns what to say once the launch has ended.
///
/// # Errors
/// There is no such launch of this user, or it has not ended in time.
pub(crate) fn stop(asked: &Stop) -> Result<String> {
    let (handle, launch) = find(asked.launch)?;
    let signal = if asked.now {
        Signal::KILL
    } else {
        Signal::TERM
    };
    // A launcher that stands still (Ctrl-Z) sees a signal only once it goes on.
    for signal in [signal, Signal::CONT] {
        match handle.send(signal.0) {
            // It has ended in the meantime, which is what was wanted.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => bail!("failed to send {signal} to launch {}: {errno}", launch.id),
        }
    }
    let patience = Duration::from_secs(launch.grace) + MARGIN;
    if !handle.wait_for_end(patience) || !launch.workers.iter().all(has_ended) {
        let (id, seconds) = (launch.id, patience.as_secs());
        bail!(
            "launch {id} still runs {seconds} s after {signal}\nhint: `fabric stop {id} --now` ends it without waiting for its workers"
        );
    }
    Ok(format!(
        "launch {} ({}) has ended\n",
        launch.id, launch.script
    ))
}

/// The handle first and then the look: so what is looked at is what is signalled, whatever becomes of the number.
fn find(id: Pid) -> Result<(PidFd, Launch)> {
    let none = || {
        format!(
            "there is no launch {id} of yours on this machine\nhint: `fabric ps` lists those that run"
        )
    };
    let handle = PidFd::open(id).ok().with_context(none)?;
    let launch = launch_of(id).with_context(none)?;
    Ok((handle, launch))
}

/// Workers of a launcher that was killed end a moment after it.
fn has_ended(worker: &Worker) -> bool {
    let Ok(handle) = PidFd::open(worker.pid) else {
        return true;
    };
    let it = look_up(worker.pid).is_some_and(|it| it.born == worker.born);
    !it || handle.wait_for_end(MARGIN)
}
