//! For the tests: meetings that are driven by hand.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::event::{Event, Party, Ready};
use super::limits::Limits;
use super::meeting::Meeting;
use super::server::Server;
use crate::topology::NodeRank;

/// So long that nothing ends by them, unless something hangs.
pub(crate) const LIMITS: Limits = Limits {
    join: Duration::from_secs(60),
    node: Duration::from_secs(15),
};
/// For what takes no time, on a machine that has none.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// Node `node` with one worker.
pub(crate) fn party(node: u32, num_nodes: u32) -> Party {
    Party {
        node: NodeRank(node),
        num_nodes,
        local_world_size: 1,
        host: format!("gpu-{node}"),
        role: "default".into(),
        run_id: "none".into(),
        launcher: "1.0.0".into(),
        max_restarts: 0,
        script: "train.py".into(),
        identical: false,
        token: None,
    }
}

/// A meeting that node 0 hosts, and its port.
pub(crate) fn host(num_nodes: u32) -> (u16, Meeting) {
    let server = Server::bind(OsStr::new("127.0.0.1"), 0).unwrap();
    let port = server.local_port();
    let now = Instant::now();
    (
        port,
        Meeting::host(server, party(0, num_nodes), "127.0.0.1", LIMITS, now).unwrap(),
    )
}

/// The meeting at that port, as another node joins it.
pub(crate) fn join(port: u16, node: u32, num_nodes: u32) -> Meeting {
    Meeting::join(
        "127.0.0.1",
        port,
        party(node, num_nodes),
        LIMITS,
        Instant::now(),
    )
    .unwrap()
}

/// Drives all meetings until all are `done`, and returns what each has told.
#[track_caller]
pub(crate) fn drive_until(
    meetings: &mut [&mut Meeting],
    done: impl Fn(&Vec<Event>) -> bool,
) -> Vec<Vec<Event>> {
    let end = Instant::now() + SOON;
    let mut told = vec![Vec::new(); meetings.len()];
    loop {
        let now = Instant::now();
        for (meeting, told) in meetings.iter_mut().zip(&mut told) {
            if meeting.is_needed() {
                meeting.settle().unwrap();
            }
            told.extend(meeting.advance(now));
        }
        if told.iter().all(&done) {
            return told;
        }
        assert!(now < end, "only {told:?}");
        let next = meetings
            .iter()
            .filter_map(|it| it.deadline())
            .min()
            .unwrap_or(end);
        let timeout = next.saturating_duration_since(now) + Duration::from_millis(1);
        let fds = meetings
            .iter()
            .map(|it| PollFd::new(it.fd(), PollFlags::POLLIN));
        poll(
            &mut fds.collect::<Vec<_>>(),
            PollTimeout::try_from(timeout).unwrap(),
        )
        .unwrap();
    }
}

fn decides(event: &&Event) -> bool {
    !matches!(event, Event::Waiting(_) | Event::Notice(_))
}

/// Drives all meetings until each has told `wanted` things that matter, and returns those.
#[track_caller]
pub(crate) fn drive(meetings: &mut [&mut Meeting], wanted: usize) -> Vec<Vec<Event>> {
    let told = drive_until(meetings, |it| it.iter().filter(decides).count() >= wanted);
    told.iter()
        .map(|it| it.iter().filter(decides).cloned().collect())
        .collect()
}

/// The global rank with which this node begins, where it was told nothing else.
#[track_caller]
pub(crate) fn base(events: &[Event]) -> u32 {
    match events {
        [Event::Ready(Ready { base, .. })] => base.0,
        other => panic!("{other:?}"),
    }
}
