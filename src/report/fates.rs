//! What became of the workers that are not the root cause: one row for all with the same fate.

use std::time::Duration;

use super::line::{ranks, span};
use crate::agent::{End, Outcome, Record, Why};
use crate::status::{Signal, Status};

/// How a worker's life ended, as far as it makes a difference to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    NotStarted,
    /// Nobody saw the end: the guardian had gone.
    Unseen,
    ByItself(Status),
    /// We sent this signal, and it worked.
    ByUs(Signal),
    /// It was told to end and did so in its own way.
    InItsWay(Status),
}

/// Workers of the same fate, and the shortest and longest of their lives.
struct Group {
    fate: Fate,
    ranks: Vec<u32>,
    lives: (Duration, Duration),
}

/// The rows, in the order of their first ranks. `first_rank` is the global rank of local rank 0, `apart` the
/// local rank that is not to be told of.
pub(crate) fn fates(outcome: &Outcome, first_rank: u32, apart: Option<u32>) -> Vec<String> {
    let mut groups: Vec<Group> = Vec::new();
    for (rank, record) in (0..).zip(&outcome.workers) {
        if Some(rank) == apart {
            continue;
        }
        let (fate, life) = (fate(record, outcome.why), lived(record));
        match groups.iter_mut().find(|it| it.fate == fate) {
            Some(group) => group.add(first_rank + rank, life),
            None => groups.push(Group {
                fate,
                ranks: vec![first_rank + rank],
                lives: (life, life),
            }),
        }
    }
    groups.iter().map(Group::text).collect()
}

/// How long a worker ran; zero where that is not known.
pub(crate) fn lived(record: &Record) -> Duration {
    let lived = record
        .end
        .and_then(|end| end.at.checked_sub(record.started?));
    lived.unwrap_or_default()
}

fn fate(record: &Record, why: Option<Why>) -> Fate {
    match record.end {
        None if record.pid.is_none() => Fate::NotStarted,
        None => Fate::Unseen,
        Some(End {
            asked: true,
            status,
            ..
        }) => match status {
            Status::Signal { signal, .. } if is_ours(signal, why) => Fate::ByUs(signal),
            _ => Fate::InItsWay(status),
        },
        Some(End { status, .. }) => Fate::ByItself(status),
    }
}

/// Signals that we end workers with: the polite one, the hard one, and the one that was passed on.
fn is_ours(signal: Signal, why: Option<Why>) -> bool {
    signal == Signal::TERM || signal == Signal::KILL || why == Some(Why::Signal(signal))
}

impl Group {
    fn add(&mut self, rank: u32, life: Duration) {
        self.ranks.push(rank);
        self.lives = (self.lives.0.min(life), self.lives.1.max(life));
    }

    fn text(&self) -> String {
        let ranks = ranks(&self.ranks);
        match self.fate {
            Fate::NotStarted => format!("{ranks}: not started"),
            Fate::Unseen => format!("{ranks}: ended with the guardian"),
            Fate::ByUs(Signal::KILL) => format!("{ranks}: killed by fabric (SIGKILL)"),
            Fate::ByUs(signal) => format!("{ranks}: ended by fabric ({signal})"),
            Fate::InItsWay(status) => format!("{ranks}: {status}, when told to end"),
            Fate::ByItself(Status::Code(0)) => format!("{ranks}: done, exit code 0"),
            Fate::ByItself(status) => {
                format!("{ranks}: failed, too: {status} after {}", self.life())
            }
        }
    }

    fn life(&self) -> String {
        let (shortest, longest) = (span(self.lives.0), span(self.lives.1));
        if shortest == longest {
            shortest
        } else {
            format!("{shortest} to {longest}")
        }
    }
}
