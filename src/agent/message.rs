//! What launcher and guardian say to each other: records of fixed size over a SOCK_SEQPACKET pair, which
//! keeps their boundaries (unix(7)). Both ends are the same binary, forked, so there is no version to mind.

use std::time::Duration;

use super::event::{Event, Step, Why};
use super::policy::Moment;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// Bytes of one record in either direction.
pub(crate) const SIZE: usize = 24;

/// What the launcher tells the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// All nodes are there: start the workers, the first of which has this global rank.
    Begin {
        first_rank: u32,
        world_size: u32,
        /// The same two, counted among the workers of the same role.
        first_role_rank: u32,
        role_world_size: u32,
        port: u16,
        /// How often there have been workers before.
        attempt: u16,
    },
    /// The launcher was sent this signal.
    Signal(Signal),
    /// Another node failed, or all begins anew: end the workers.
    Abort,
    /// No workers will be started any more.
    Leave,
}

/// An event and the moment at which the guardian saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamped {
    pub(crate) at: Moment,
    pub(crate) event: Event,
}

impl Command {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            Self::Begin {
                first_rank,
                world_size,
                first_role_rank,
                role_world_size,
                port,
                attempt,
            } => {
                let roles = u64::from(first_role_rank) << 32 | u64::from(role_world_size);
                record(
                    0,
                    u32::from(port) | u32::from(attempt) << 16,
                    first_rank,
                    world_size,
                    roles,
                )
            }
            Self::Signal(signal) => record(1, 0, signal.0 as u32, 0, 0),
            Self::Abort => record(2, 0, 0, 0, 0),
            Self::Leave => record(3, 0, 0, 0, 0),
        }
    }

    /// `None` for bytes that no `encode` made.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, c, a, b] = fields(bytes)?;
        Some(match kind {
            0 => {
                let roles = last_field(bytes)?;
                Self::Begin {
                    first_rank: a,
                    world_size: b,
                    first_role_rank: (roles >> 32) as u32,
                    role_world_size: roles as u32,
                    port: c as u16,
                    attempt: (c >> 16) as u16,
                }
            }
            1 => Self::Signal(Signal(a as i32)),
            2 => Self::Abort,
            3 => Self::Leave,
            _ => return None,
        })
    }
}

impl Stamped {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        let at = self.at.as_nanos() as u64;
        let (kind, a, b, c) = match self.event {
            Event::Started { worker, pid } => (0, worker.0, pid as u32, 0),
            Event::NotStarted {
                worker,
                errno,
                step,
            } => (1, worker.0, errno as u32, step as u32),
            Event::Exited {
                worker,
                status,
                asked,
            } => {
                let (kind, value) = status_fields(status);
                (2, worker.0, value, kind | u32::from(asked) << 8)
            }
            Event::Stopping { why } => match why {
                Why::Failed(worker) => (3, worker.0, 0, 0),
                Why::NotStarted(worker) => (3, worker.0, 0, 1),
                Why::Signal(signal) => (3, signal.0 as u32, 0, 2),
                Why::LauncherGone => (3, 0, 0, 3),
                Why::TimeLimit => (3, 0, 0, 5),
                Why::Elsewhere => (3, 0, 0, 4),
            },
            Event::Killing => (4, 0, 0, 0),
            Event::Left { pid } => (5, pid as u32, 0, 0),
            Event::Stuck { pid, state } => (6, pid as u32, state.into(), 0),
            Event::Paused => (7, 0, 0, 0),
            Event::Done => (8, 0, 0, 0),
            Event::Lingering => (9, 0, 0, 0),
            Event::Heard => (10, 0, 0, 0),
            Event::StandsStill { worker } => (11, worker.0, 0, 0),
            Event::Uneven => (12, 0, 0, 0),
        };
        record(kind, c, a, b, at)
    }

    /// `None` for bytes that no `encode` made.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, c, a, b] = fields(bytes)?;
        let worker = LocalRank(a);
        let event = match kind {
            0 => Event::Started {
                worker,
                pid: b as i32,
            },
            1 => Event::NotStarted {
                worker,
                errno: b as i32,
                step: step(c)?,
            },
            2 => Event::Exited {
                worker,
                status: status(c & 0xff, b)?,
                asked: c >> 8 != 0,
            },
            3 => Event::Stopping { why: why(c, a)? },
            4 => Event::Killing,
            5 => Event::Left { pid: a as i32 },
            6 => Event::Stuck {
                pid: a as i32,
                state: b as u8,
            },
            7 => Event::Paused,
            8 => Event::Done,
            9 => Event::Lingering,
            10 => Event::Heard,
            11 => Event::StandsStill { worker },
            12 => Event::Uneven,
            _ => return None,
        };
        let at = last_field(bytes)?;
        Some(Self {
            at: Duration::from_nanos(at),
            event,
        })
    }
}

fn record(kind: u32, c: u32, a: u32, b: u32, at: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (slot, field) in bytes.chunks_exact_mut(4).zip([kind, c, a, b]) {
        slot.copy_from_slice(&field.to_ne_bytes());
    }
    bytes[16..].copy_from_slice(&at.to_ne_bytes());
    bytes
}

fn fields(bytes: &[u8]) -> Option<[u32; 4]> {
    if bytes.len() != SIZE {
        return None;
    }
    let mut fields = [0; 4];
    for (field, slot) in fields.iter_mut().zip(bytes.chunks_exact(4)) {
        *field = u32::from_ne_bytes(slot.try_into().ok()?);
    }
    Some(fields)
}

fn last_field(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes[16..24].try_into().ok()?))
}

fn status_fields(status: Status) -> (u32, u32) {
    match status {
        Status::Code(code) => (0, code.into()),
        Status::Signal { signal, core } => (1 + u32::from(core), signal.0 as u32),
    }
}

fn status(kind: u32, value: u32) -> Option<Status> {
    let signal = Signal(value as i32);
    Some(match kind {
        0 => Status::Code(u8::try_from(value).ok()?),
        1 | 2 => Status::Signal {
            signal,
            core: kind == 2,
        },
        _ => return None,
    })
}

fn step(field: u32) -> Option<Step> {
    let steps = [
        Step::Process,
        Step::Setup,
        Step::Directory,
        Step::Exec,
        Step::Isolation,
    ];
    steps.into_iter().find(|it| *it as u32 == field)
}

fn why(kind: u32, value: u32) -> Option<Why> {
    Some(match kind {
        0 => Why::Failed(LocalRank(value)),
        1 => Why::NotStarted(LocalRank(value)),
        2 => Why::Signal(Signal(value as i32)),
        3 => Why::LauncherGone,
        5 => Why::TimeLimit,
        4 => Why::Elsewhere,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(event: Event) {
        let stamped = Stamped {
            at: Duration::from_nanos(123_456_789_012),
            event,
        };
        assert_eq!(Stamped::decode(&stamped.encode()), Some(stamped));
    }

    #[test]
    fn every_event_survives_the_trip() {
        let worker = LocalRank(4_000_000_000);
        check(Event::Started {
            worker,
            pid: 4_194_304,
        });
        check(Event::NotStarted {
            worker,
            errno: 11,
            step: Step::Process,
        });
        for step in [Step::Setup, Step::Exec, Step::Isolation] {
            check(Event::NotStarted {
                worker,
                errno: 2,
                step,
            });
        }
        let killed = Status::Signal {
            signal: Signal::KILL,
            core: false,
        };
        let crashed = Status::Signal {
            signal: Signal(11),
            core: true,
        };
        for status in [Status::Code(255), killed, crashed] {
            check(Event::Exited {
                worker,
                status,
                asked: false,
            });
            check(Event::Exited {
                worker,
                status,
                asked: true,
            });
        }
        for why in [
            Why::Failed(worker),
            Why::NotStarted(worker),
            Why::LauncherGone,
            Why::TimeLimit,
            Why::Elsewhere,
        ] {
            check(Event::Stopping { why });
        }
        check(Event::Stopping {
            why: Why::Signal(Signal(64)),
        });
        check(Event::Left { pid: 77 });
        check(Event::Stuck {
            pid: 78,
            state: b'D',
        });
        check(Event::StandsStill { worker });
        check(Event::Uneven);
        check(Event::Killing);
        for event in [Event::Lingering, Event::Paused, Event::Heard, Event::Done] {
            check(event);
        }
    }

    #[test]
    fn every_command_survives_the_trip() {
        let begin = Command::Begin {
            first_rank: 8,
            world_size: 16,
            first_role_rank: 3,
            role_world_size: u32::MAX,
            port: 65535,
            attempt: 65534,
        };
        for command in [
            begin,
            Command::Signal(Signal(10)),
            Command::Abort,
            Command::Leave,
        ] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
    }

    #[test]
    fn other_bytes_are_no_message() {
        assert_eq!(Command::decode(b"short"), None);
        assert_eq!(Stamped::decode(&[99; SIZE]), None);
    }
}
