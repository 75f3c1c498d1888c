//! Tests only: a crowd of meetings in one thread, each with everything that a launcher's has.
//!
//! `tests/bench/scale` has this play all nodes but node 0 at a real launcher: then `FABRIC_CROWD` says where, and what is
//! to be done next comes line by line through stdin.

use std::ffi::OsStr;
use std::io::{Write, stdin, stdout};
use std::ops::Range;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};

use super::event::{Cause, Event, Party};
use super::limits::Limits;
use super::meeting::Meeting;
use super::server::Server;
use crate::topology::NodeRank;

const LIMITS: Limits = Limits {
    join: Duration::from_secs(600),
    node: Duration::from_secs(600),
};
/// How often deadlines are looked at; the shortest is 50 ms.
const SWEEP: u16 = 25;
/// For what takes a moment, on a machine that has none.
const SOON: Duration = Duration::from_secs(300);
/// Workers of each node.
const WORKERS: u32 = 8;

/// Meetings and what each has told.
struct Crowd {
    epoll: Epoll,
    members: Vec<(Meeting, Vec<Event>)>,
    swept: Instant,
}

impl Crowd {
    fn of(meetings: impl Iterator<Item = Meeting>) -> Self {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let members = meetings.map(|it| (it, Vec::new())).collect();
        let swept = Instant::now();
        let mut crowd = Self {
            epoll,
            members,
            swept,
        };
        for (at, (meeting, _)) in (0_u64..).zip(&mut crowd.members) {
            // Its descriptor is another one after that.
            meeting.settle().unwrap();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, at);
            crowd.epoll.add(meeting.fd(), event).unwrap();
        }
        crowd
    }

    /// Does something with one member.
    fn act(&mut self, at: usize, act: impl FnOnce(&mut Meeting, Instant) -> Vec<Event>) {
        let (meeting, told) = &mut self.members[at];
        told.extend(act(meeting, Instant::now()));
    }

    /// Goes on until `done` is true of everything that each has told.
    #[track_caller]
    fn until(&mut self, done: impl Fn(&[Event]) -> bool) {
        let end = Instant::now() + SOON;
        let mut open: Vec<bool> = self.members.iter().map(|(_, it)| !done(it)).collect();
        let mut left = open.iter().filter(|it| **it).count();
        while left > 0 {
            for at in self.wait() {
                self.act(at, Meeting::advance);
                if open[at] && done(&self.members[at].1) {
                    (open[at], left) = (false, left - 1);
                }
            }
            assert!(Instant::now() < end, "{left} are still waiting");
        }
    }

    /// Who has something to do.
    fn wait(&mut self) -> Vec<usize> {
        let now = Instant::now();
        if now >= self.swept {
            self.swept = now + Duration::from_millis(SWEEP.into());
            let due = |it: &Meeting| it.deadline().is_some_and(|it| it <= now);
            let all = self.members.iter().enumerate();
            return all
                .filter(|(_, (it, _))| due(it))
                .map(|(at, _)| at)
                .collect();
        }
        let mut ready = [EpollEvent::empty(); 256];
        match self.epoll.wait(&mut ready, SWEEP) {
            Ok(count) => ready[..count].iter().map(|it| it.data() as usize).collect(),
            Err(Errno::EINTR) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn party(node: u32, num_nodes: u32, script: &str) -> Party {
    Party {
        node: NodeRank(node),
        num_nodes,
        local_world_size: WORKERS,
        host: format!("gpu-{node:05}"),
        role: "default".into(),
        run_id: "none".into(),
        launcher: env!("CARGO_PKG_VERSION").into(),
        max_restarts: 0,
        script: script.into(),
        identical: false,
        token: None,
    }
}

fn guests(
    port: u16,
    nodes: Range<u32>,
    num_nodes: u32,
    script: &str,
) -> impl Iterator<Item = Meeting> {
    let now = Instant::now();
    nodes.map(move |node| {
        let party = party(node, num_nodes, script);
        Meeting::join("127.0.0.1", port, party, LIMITS, now).unwrap()
    })
}

fn cause(node: u32) -> Cause {
    Cause {
        node: NodeRank(node),
        host: format!("gpu-{node:05}"),
        rank: None,
        exit_code: 7,
        message: "exit code 7".into(),
        lived: None,
    }
}

/// Node 0 and as many guests as fit in; a descriptor for each connection's other end, too.
fn full_house(num_nodes: u32) -> Crowd {
    raise_limit();
    let server = Server::bind(OsStr::new("127.0.0.1"), 0).unwrap();
    let port = server.local_port();
    let me = party(0, num_nodes, "train.py");
    let host = Meeting::host(server, me, "127.0.0.1", LIMITS, Instant::now()).unwrap();
    let guests = guests(port, 1..num_nodes, num_nodes, "train.py");
    Crowd::of(std::iter::once(host).chain(guests))
}

fn raise_limit() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

fn is_ready(told: &[Event]) -> bool {
    told.iter().any(|it| matches!(it, Event::Ready(_)))
}

fn is_told(told: &[Event]) -> bool {
    told.iter().any(|it| matches!(it, Event::Aborted(_)))
}

fn is_over(told: &[Event]) -> bool {
    told.contains(&Event::Over)
}

#[test]
fn hundreds_of_nodes_get_their_ranks_and_part() {
    let mut crowd = full_house(300);
    crowd.until(is_ready);
    for (node, (_, told)) in (0..).zip(&crowd.members) {
        let ready = told.iter().find_map(|it| match it {
            Event::Ready(ready) => Some((ready.base.0, ready.world_size)),
            _ => None,
        });
        assert_eq!(ready, Some((node * WORKERS, 300 * WORKERS)));
    }
    for at in 0..crowd.members.len() {
        crowd.act(at, Meeting::finish);
    }
    crowd.until(is_over);
    assert!(!crowd.members.iter().any(|(_, it)| is_told(it)));
}

#[test]
fn hundreds_of_nodes_hear_of_one_failure() {
    let mut crowd = full_house(300);
    crowd.until(is_ready);
    crowd.act(299, |it, now| it.abort(cause(299), now));
    // Who fails next fails because of it.
    crowd.act(1, |it, now| it.abort(cause(1), now));
    crowd.until(is_over);
    let first = |told: &[Event]| match told.iter().find(|it| matches!(it, Event::Aborted(_))) {
        Some(Event::Aborted(cause)) => Some(cause.node.0),
        _ => None,
    };
    let roots: Vec<_> = crowd.members.iter().map(|(_, it)| first(it)).collect();
    assert!(matches!(roots[0], Some(1 | 299)));
    assert!(roots.iter().all(|it| *it == roots[0]));
}

/// For `tests/bench/scale`; without it, as a check of itself, a crowd that nobody asks for anything.
#[test]
fn plays_the_guests_of_a_real_host() {
    let Some(asked) = asked() else {
        return full_house(2).until(is_ready);
    };
    let words: Vec<&str> = asked.splitn(5, ' ').collect();
    let [port, num_nodes, first, last, script] = words[..] else {
        panic!("FABRIC_CROWD=`{asked}`");
    };
    let number = |it: &str| it.parse::<u32>().unwrap();
    let nodes = number(first)..number(last);
    raise_limit();
    let guests = guests(
        port.parse().unwrap(),
        nodes.clone(),
        number(num_nodes),
        script,
    );
    let mut crowd = Crowd::of(guests);
    say("here");
    hear();
    crowd.until(is_ready);
    say("ready");
    let failed: u32 = hear().parse().unwrap();
    if nodes.contains(&failed) {
        let at = (failed - nodes.start) as usize;
        say("failed");
        crowd.act(at, |it, now| it.abort(cause(failed), now));
    }
    crowd.until(is_told);
    say("told");
    crowd.until(is_over);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a setting of the test, not of the launcher"
)]
fn asked() -> Option<String> {
    std::env::var("FABRIC_CROWD").ok()
}

fn hear() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    line.trim().into()
}

/// A word and when, in nanoseconds of CLOCK_MONOTONIC.
fn say(word: &str) {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    let nanoseconds = now.tv_sec() * 1_000_000_000 + now.tv_nsec();
    writeln!(stdout(), "{word} {nanoseconds}").unwrap();
}
