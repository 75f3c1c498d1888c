//! What happens to the workers, as the guardian sees it and the launcher hears it.

use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// A process id as the launcher's own namespace numbers it.
pub(crate) type Pid = i32;

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A worker runs its program.
    Started { worker: LocalRank, pid: Pid },
    /// A worker could not be started; `errno` says why (errno(3)).
    NotStarted {
        worker: LocalRank,
        errno: i32,
        step: Step,
    },
    /// A worker ended; `asked` when we had already told it to.
    Exited {
        worker: LocalRank,
        status: Status,
        asked: bool,
    },
    /// The polite stop of all workers began.
    Stopping { why: Why },
    /// The grace period is over, or somebody wants the end now: SIGKILL to all.
    Killing,
    /// A process that a worker left behind is still there after all workers succeeded.
    Left { pid: Pid },
    /// All of them have been told: they are given the time that the settings say.
    Lingering,
    /// SIGKILL did not end this process in time; `state` is its letter in proc(5), `?` unknown.
    Stuck { pid: Pid, state: u8 },
    /// Somebody has stopped this worker, and it has stood still for a while.
    StandsStill { worker: LocalRank },
    /// Some workers have ended with 0 a while ago, and others still run.
    Uneven,
    /// All workers are stopped (Ctrl-Z): the launcher may stop itself.
    Paused,
    /// The guardian has taken in a command: it is alive.
    Heard,
    /// Nothing is left to watch.
    Done,
}

impl Event {
    /// The process that this is about, if it is told by its number.
    pub(crate) fn pid(&mut self) -> Option<&mut Pid> {
        match self {
            Self::Started { pid, .. } | Self::Left { pid } | Self::Stuck { pid, .. } => Some(pid),
            _ => None,
        }
    }
}

/// Where a start failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The new process itself was refused (clone(2)).
    Process,
    /// Its standard streams, session, CPUs or parent-death signal could not be set up.
    Setup,
    /// It could not go to its directory (chdir(2)).
    Directory,
    /// The program could not be executed (execve(2)).
    Exec,
    /// The PID namespace of its own could not be set up.
    Isolation,
}

/// Why a run is being stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// This worker failed first.
    Failed(LocalRank),
    /// This worker could not be started.
    NotStarted(LocalRank),
    /// A signal to the launcher asks for the end.
    Signal(Signal),
    /// The time limit is over.
    TimeLimit,
    /// The launcher itself has gone.
    LauncherGone,
    /// Another node failed, or was lost.
    Elsewhere,
}
