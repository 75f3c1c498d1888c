//! What happened to a run: the events folded into one record, and the exit code that follows from it.

use std::collections::BTreeMap;

use super::event::{Event, Pid, Step, Why};
use super::message::Stamped;
use super::policy::Moment;
use crate::relay::{Tail, Words};
use crate::rendezvous::Cause;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// One worker's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Record {
    pub(crate) pid: Option<Pid>,
    pub(crate) started: Option<Moment>,
    pub(crate) end: Option<End>,
}

/// How a worker's life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) at: Moment,
    pub(crate) status: Status,
    /// After we had told it to end.
    pub(crate) asked: bool,
}

/// A worker that could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    pub(crate) step: Step,
}

/// Everything known about how the run went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) workers: Vec<Record>,
    /// Why it was stopped; `None` when every worker ended by itself.
    pub(crate) why: Option<Why>,
    pub(crate) refusal: Option<Refusal>,
    /// SIGKILL was needed.
    pub(crate) killed: bool,
    /// Processes that even SIGKILL did not end, with their state letter.
    pub(crate) stuck: Vec<(Pid, u8)>,
    /// The guardian itself ended before its work was done, in this way.
    pub(crate) guardian_lost: Option<Status>,
    pub(crate) done: bool,
    /// Global rank of our first worker, once it is known.
    pub(crate) first_rank: u32,
    /// Where there are other nodes: the root cause of the end, the same on every node.
    pub(crate) cause: Option<Cause>,
    /// What ended the attempts before this one.
    pub(crate) earlier: Vec<Cause>,
    /// The nodes never came together, for this reason; reads after "failed to".
    pub(crate) unmet: Option<String>,
    /// The error files of workers that did not succeed, as they were written.
    pub(crate) confessions: BTreeMap<u32, Vec<u8>>,
    /// What workers wrote last, where we have seen it.
    pub(crate) last_words: Words,
    /// What those wrote last that ended the attempts before this one, as far as they were ours.
    pub(crate) earlier_words: Vec<Tail>,
}

/// How the launcher shall leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Code(u8),
    /// By this signal, so that the shell that waits sees it.
    Signal(Signal),
}

impl Outcome {
    pub(crate) fn new(workers: u32) -> Self {
        Self {
            workers: vec![Record::default(); workers as usize],
            why: None,
            refusal: None,
            killed: false,
            stuck: Vec::new(),
            guardian_lost: None,
            done: false,
            first_rank: 0,
            cause: None,
            earlier: Vec::new(),
            unmet: None,
            confessions: BTreeMap::new(),
            last_words: Words::new(),
            earlier_words: Vec::new(),
        }
    }

    /// That of the attempt that comes next.
    pub(crate) fn again(&self) -> Self {
        Self {
            stuck: self.stuck.clone(),
            first_rank: self.first_rank,
            earlier: self.earlier.clone(),
            ..Self::new(self.workers.len() as u32)
        }
    }

    /// With the error files that `read` finds for workers that did not succeed. One that was told to end may
    /// have met the cause of it all and been slower to die: Python takes half a second to leave torch.
    pub(crate) fn with_confessions(mut self, read: impl Fn(LocalRank) -> Option<Vec<u8>>) -> Self {
        let failed = (0..)
            .zip(&self.workers)
            .filter(|(_, it)| it.end.is_some_and(|end| !end.status.success()));
        let found = failed.filter_map(|(rank, _)| Some((rank, read(LocalRank(rank))?)));
        self.confessions = found.collect();
        self
    }

    /// Adds one event.
    pub(crate) fn add(&mut self, Stamped { at, event }: Stamped) {
        match event {
            Event::Started { worker, pid } => {
                let record = &mut self.workers[worker.0 as usize];
                (record.pid, record.started) = (Some(pid), Some(at));
            }
            Event::NotStarted { errno, step, .. } => self.refusal = Some(Refusal { errno, step }),
            Event::Exited {
                worker,
                status,
                asked,
            } => {
                self.workers[worker.0 as usize].end = Some(End { at, status, asked });
            }
            // Who wants the end has the last word, also where the workers were being ended already.
            Event::Stopping { .. } if matches!(self.why, Some(Why::Signal(_))) => {}
            Event::Stopping { why } => self.why = Some(why),
            Event::Killing => self.killed = true,
            Event::Stuck { pid, state } => self.stuck.push((pid, state)),
            Event::Done => self.done = true,
            Event::Left { .. } | Event::Lingering | Event::Paused | Event::Heard => {}
            Event::StandsStill { .. } | Event::Uneven => {}
        }
    }

    /// The worker whose end is the root cause, and how it ended.
    pub(crate) fn root_cause(&self) -> Option<(LocalRank, End)> {
        let Some(Why::Failed(rank)) = self.why else {
            return None;
        };
        Some((rank, self.workers[rank.0 as usize].end?))
    }

    /// How the launcher leaves: the root cause's code, or the signal that was asked for.
    pub(crate) fn exit(&self) -> Exit {
        if let Some(status) = self.guardian_lost {
            return Exit::Code(status.shell_code().max(1));
        }
        match (self.why, &self.cause) {
            (Some(Why::Signal(signal)), _) => Exit::Signal(signal),
            (_, Some(cause)) => Exit::Code(cause.exit_code),
            (why, None) => self.own_exit(why),
        }
    }

    /// As if there were no other node.
    pub(crate) fn own_exit(&self, why: Option<Why>) -> Exit {
        match why {
            None => Exit::Code(0),
            Some(Why::Signal(signal)) => Exit::Signal(signal),
            Some(Why::TimeLimit) => Exit::Code(TIMED_OUT),
            Some(Why::Failed(_)) => Exit::Code(
                self.root_cause()
                    .map_or(1, |(_, end)| end.status.shell_code()),
            ),
            Some(Why::NotStarted(_) | Why::LauncherGone | Why::Elsewhere) => {
                Exit::Code(self.refused_code())
            }
        }
    }

    /// 126 and 127 as a shell has them for a program that cannot be run or is not there.
    fn refused_code(&self) -> u8 {
        match self.refusal {
            Some(Refusal {
                step: Step::Exec,
                errno,
            }) if errno == NOT_FOUND => 127,
            Some(Refusal {
                step: Step::Exec, ..
            }) => 126,
            _ => 1,
        }
    }
}

/// As timeout(1) has it, whatever the workers made of being told to end.
pub(crate) const TIMED_OUT: u8 = 124;

/// ENOENT, the same number on every system (errno(3)).
const NOT_FOUND: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(first: Why, second: Why, expected: Why) {
        let mut outcome = Outcome::new(1);
        outcome.why = Some(first);
        let event = Event::Stopping { why: second };
        let at = Moment::ZERO;
        outcome.add(Stamped { at, event });
        assert_eq!(outcome.why, Some(expected));
    }

    #[test]
    fn who_wants_the_end_has_the_last_word() {
        let signal = Why::Signal(Signal::INT);
        check(signal, Why::Elsewhere, signal);
        check(Why::Elsewhere, signal, signal);
        let failed = Why::Failed(LocalRank(0));
        check(Why::Elsewhere, failed, failed);
    }
}
