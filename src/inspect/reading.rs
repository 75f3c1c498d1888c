//! What launches use at one moment: plain data.

use std::time::Duration;

use super::launch::Launch;

/// A launch and what its workers use, in their order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Seen {
    pub(crate) launch: Launch,
    /// Since its launcher was started.
    pub(crate) age: Duration,
    pub(crate) readings: Vec<Reading>,
}

/// What one worker uses.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reading {
    pub(crate) state: State,
    /// Percent of one CPU, the worker and everything below it together.
    pub(crate) cpu: f32,
    /// Bytes of memory of the worker itself: what is below it shares much of that, so a sum would lie.
    pub(crate) memory: u64,
    /// The GPUs that it or something below it uses.
    pub(crate) gpus: Vec<Share>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// By a signal such as SIGSTOP, or by a debugger.
    Stopped,
    Ended,
}

impl State {
    /// Of the letter in /proc/PID/stat (proc(5)).
    pub(crate) fn of_letter(letter: u8) -> Self {
        match letter {
            b'T' | b't' => Self::Stopped,
            b'Z' | b'X' => Self::Ended,
            _ => Self::Running,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
        }
    }
}

/// A worker's part of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// As the driver numbers them.
    pub(crate) gpu: u32,
    /// Bytes that this worker has there, where the driver tells.
    pub(crate) memory: Option<u64>,
    /// Percent of the time in which the GPU computes, for whomever.
    pub(crate) busy: Option<u32>,
}
