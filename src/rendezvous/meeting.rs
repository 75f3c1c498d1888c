//! One launcher's part in the meeting, whichever node it is on: driven by poll(2), never blocking.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::alone::Alone;
use super::event::{Cause, Event, Party};
use super::hosting::Hosting;
use super::joining::Joining;
use super::limits::Limits;
use super::secret::secret;
use super::server::Server;

/// What the main loop holds. Poll `fd` for reading until `deadline`, then call `advance`; `Event::Over` is
/// the last event, and only after it may this be dropped without harm to other nodes.
pub(crate) struct Meeting {
    side: Side,
}

enum Side {
    /// Node 0 of one, until the meeting is opened.
    Alone(Box<Alone>),
    Host(Box<Hosting>),
    Guest(Box<Joining>),
}

impl Meeting {
    /// Node 0: opens the meeting on the port it has bound. `address` is the main address as it was given.
    pub(crate) fn host(
        server: Server,
        party: Party,
        address: &str,
        limits: Limits,
        now: Instant,
    ) -> io::Result<Self> {
        let side = if party.num_nodes == 1 {
            Side::Alone(Box::new(Alone::new(server, party, address, limits, now)))
        } else {
            Side::Host(Box::new(Hosting::open(
                server, party, address, limits, now,
            )?))
        };
        Ok(Self { side })
    }

    /// Any other node: sets out to node 0 at `address`.
    pub(crate) fn join(
        address: &str,
        port: u16,
        party: Party,
        limits: Limits,
        now: Instant,
    ) -> io::Result<Self> {
        let joining = Joining::set_out(address, port, party, secret()?, limits, now)?;
        let side = Side::Guest(Box::new(joining));
        Ok(Self { side })
    }

    /// Readable when `advance` has something to do. To be asked for anew before each wait.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.side {
            Side::Alone(it) => it.fd(),
            Side::Host(it) => it.fd(),
            Side::Guest(it) => it.fd(),
        }
    }

    /// When to call `advance` at the latest; never, where there is nothing to wait for but `fd`.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.side {
            Side::Alone(it) => it.deadline(),
            Side::Host(it) => it.deadline(),
            Side::Guest(it) => it.deadline(),
        }
    }

    /// What has happened since the last call.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Event> {
        match &mut self.side {
            Side::Alone(it) => it.advance(),
            Side::Host(it) => it.advance(now),
            Side::Guest(it) => it.advance(now),
        }
    }

    /// Whether somebody has come whom nobody serves yet: then `settle` is to be called.
    pub(crate) fn is_needed(&self) -> bool {
        match &self.side {
            Side::Alone(it) => it.is_needed(),
            Side::Host(it) => it.is_needed(),
            Side::Guest(_) => false,
        }
    }

    /// Starts what was not needed at first.
    ///
    /// # Errors
    /// No thread or no descriptor can be had, and nobody will be served.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.open()?;
        match &mut self.side {
            Side::Host(it) => it.settle(),
            Side::Alone(_) | Side::Guest(_) => Ok(()),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        if let Side::Alone(it) = &self.side
            && !it.is_over()
        {
            self.side = Side::Host(Box::new(it.open()?));
        }
        Ok(())
    }

    /// This node fails, or is told to stop: every node of ours will. The root cause comes back as an event,
    /// and may be another one that the host had heard of before. Has no effect after the first end.
    pub(crate) fn abort(&mut self, cause: Cause, now: Instant) -> Vec<Event> {
        // Where it cannot be opened there is nobody to tell.
        let _ = self.open();
        match &mut self.side {
            Side::Alone(_) => vec![Event::Aborted(cause), Event::Over],
            Side::Host(it) => it.abort(cause, now),
            Side::Guest(it) => it.abort(cause, now),
        }
    }

    /// All workers of this node have ended well. The others' may still fail.
    pub(crate) fn finish(&mut self, now: Instant) -> Vec<Event> {
        match &mut self.side {
            Side::Alone(it) => it.finish(),
            Side::Host(it) => it.finish(now),
            Side::Guest(it) => it.finish(now),
        }
    }

    /// The address and the interface from which other nodes are reached, where there are any.
    pub(crate) fn route(&self) -> Option<(IpAddr, String)> {
        match &self.side {
            Side::Alone(_) => None,
            Side::Host(it) => it.route(),
            Side::Guest(it) => it.route(),
        }
    }

    /// All workers of this node have ended, as `Event::Restarting` wants it.
    pub(crate) fn renew(&mut self, now: Instant) -> Vec<Event> {
        match &mut self.side {
            // It is open since the failure.
            Side::Alone(_) => Vec::new(),
            Side::Host(it) => it.renew(now),
            Side::Guest(it) => it.renew(),
        }
    }

    /// Which ranks workers wait for in the start of a process group, as a sentence; none where none does, and
    /// where the store is another's.
    pub(crate) fn absent(&mut self) -> Option<String> {
        match &mut self.side {
            Side::Host(it) => it.absent(),
            Side::Alone(_) | Side::Guest(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Bytes, Request, put_hello};
    use super::super::testing::{LIMITS, SOON, base, drive, drive_until, host, join, party};
    use super::*;
    use crate::topology::NodeRank;
    use std::ffi::OsStr;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const SHORT: Limits = Limits {
        join: Duration::from_millis(300),
        node: Duration::from_secs(15),
    };
    fn cause(node: u32) -> Cause {
        Cause {
            node: NodeRank(node),
            host: format!("gpu-{node}"),
            rank: None,
            exit_code: 7,
            message: "exit code 7".into(),
            lived: None,
        }
    }

    #[test]
    fn a_single_node_is_complete_and_serves_whoever_comes() {
        let (port, mut host) = host(1);
        let told = drive(&mut [&mut host], 1);
        assert_eq!(base(&told[0]), 0);
        assert!(!host.is_needed() && host.deadline().is_none());

        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        let mut greeting = Bytes::new();
        put_hello(&mut greeting);
        Request::Ping { nonce: 7 }.write(&mut greeting);
        client.write_all(&greeting).unwrap();
        let end = Instant::now() + SOON;
        while !host.is_needed() {
            assert!(Instant::now() < end);
        }
        host.settle().unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, 7_u32.to_le_bytes());

        // What has been told is not told again.
        assert_eq!(host.advance(Instant::now()), []);
        assert_eq!(host.finish(Instant::now()), [Event::Over]);
    }

    #[test]
    fn a_single_node_ends_with_its_workers() {
        let (_, mut well) = host(1);
        drive(&mut [&mut well], 1);
        assert_eq!(well.finish(Instant::now()), [Event::Over]);
        // Nothing is opened for those who come too late.
        assert!(!well.is_needed());
        well.settle().unwrap();
        assert!(matches!(well.side, Side::Alone(_)));

        let (_, mut ill) = host(1);
        drive(&mut [&mut ill], 1);
        let told = ill.abort(cause(0), Instant::now());
        assert_eq!(told, [Event::Aborted(cause(0)), Event::Over]);
    }

    #[test]
    fn fifty_nodes_meet_and_part() {
        const NODES: u32 = 50;
        let (port, mut host) = host(NODES);
        let mut guests: Vec<Meeting> = (1..NODES).map(|it| join(port, it, NODES)).collect();
        let mut all: Vec<&mut Meeting> = std::iter::once(&mut host).chain(&mut guests).collect();
        let bases: Vec<u32> = drive(&mut all, 1).iter().map(|it| base(it)).collect();
        assert_eq!(bases, (0..NODES).collect::<Vec<_>>());
        for meeting in &mut all {
            assert_eq!(meeting.finish(Instant::now()), []);
        }
        assert!(drive(&mut all, 1).iter().all(|it| *it == [Event::Over]));
    }

    #[test]
    fn a_failure_reaches_every_node_at_once() {
        let (port, mut host) = host(3);
        let (mut one, mut two) = (join(port, 1, 3), join(port, 2, 3));
        drive(&mut [&mut host, &mut one, &mut two], 1);
        let failed = Instant::now();
        let mut told = two.abort(cause(2), failed);
        told.extend(drive(&mut [&mut host, &mut one, &mut two], 2).concat());
        assert!(failed.elapsed() < Duration::from_secs(1));
        let expected = [Event::Aborted(cause(2)), Event::Over];
        assert_eq!(told, [&expected[..], &expected, &expected].concat());
    }

    #[test]
    fn a_launcher_that_is_killed_ends_the_run() {
        let (port, mut first) = host(2);
        let mut second = join(port, 1, 2);
        drive(&mut [&mut first, &mut second], 1);
        drop(second);
        let told = drive(&mut [&mut first], 2);
        assert!(matches!(&told[0][..], [Event::Aborted(cause), Event::Over] if cause.node.0 == 1));

        let (port, mut first) = host(2);
        let mut second = join(port, 1, 2);
        drive(&mut [&mut first, &mut second], 1);
        drop(first);
        let told = drive(&mut [&mut second], 2);
        assert!(matches!(&told[0][..], [Event::Aborted(cause), Event::Over] if cause.node.0 == 0));
    }

    #[test]
    fn a_host_that_does_not_answer_holds_nobody_up() {
        let (port, mut host) = host(2);
        let mut guest = join(port, 1, 2);
        drive(&mut [&mut host, &mut guest], 1);
        assert_eq!(guest.abort(cause(1), Instant::now()), []);
        let told = drive(&mut [&mut guest], 2);
        assert_eq!(told, [[Event::Aborted(cause(1)), Event::Over]]);
    }

    /// On an address of its own, so that nobody else is given the port meanwhile.
    #[test]
    fn who_comes_before_the_host_waits_for_it() {
        let address = "127.0.0.77";
        let bind = |port| Server::bind(OsStr::new(address), port).unwrap();
        let port = bind(0).local_port();
        let now = Instant::now();
        let mut guest = Meeting::join(address, port, party(1, 2), LIMITS, now).unwrap();
        let told = drive_until(&mut [&mut guest], |it| !it.is_empty());
        let refused = format!(
            "cannot reach node 0 at `{address}:{port}`: refused by {address}: no launcher listens there yet"
        );
        assert!(
            matches!(&told[0][..], [Event::Waiting(it)] if it.starts_with(&refused)),
            "{told:?}"
        );
        let mut host = Meeting::host(bind(port), party(0, 2), address, LIMITS, now).unwrap();
        drive(&mut [&mut host, &mut guest], 1);
    }

    #[track_caller]
    fn fails(address: &str, port: u16, expected: &str) {
        let now = Instant::now();
        let mut guest = Meeting::join(address, port, party(1, 2), SHORT, now).unwrap();
        let told = drive(&mut [&mut guest], 2);
        let [Event::Failed(why), Event::Over] = &told[0][..] else {
            panic!("{told:?}");
        };
        assert!(
            why.starts_with("reach node 0 at ") && why.contains(expected),
            "{why}"
        );
    }

    #[test]
    fn a_node_that_cannot_join_says_why() {
        fails("no..name", 1, ")");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        fails("127.0.0.1", port, "what listens there has not answered yet");
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // Who has hung up meanwhile needs no answer.
                let _sent = client
                    .unwrap()
                    .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        fails("127.0.0.1", port, "no store");
    }
}
