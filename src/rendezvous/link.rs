//! The way to the store of another node: look up, connect, try again, send and receive; never blocking.
//!
//! ```text
//!   Resting --> Resolving --> Connecting --> Open
//!      ^            |             |           |     an attempt that fails says why; the next begins with
//!      +------------+-------------+-----------+     the name again: it may resolve late, or to another pod
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{SockaddrStorage, connect, getsockopt, sockopt};

use super::protocol::Bytes;
use super::socket::{ip_literal, route, stream_socket, tune, words};
use super::thread::{Bell, spawn};
use super::trouble::Trouble;

/// The pause before the second attempt, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long one address may take to answer, while there are others to try and otherwise.
const PATIENCE_WITH_ONE: Duration = Duration::from_secs(3);
const PATIENCE_WITH_LAST: Duration = Duration::from_secs(10);
/// For getaddrinfo(3) and the modules it loads.
const STACK: usize = 512 << 10;
const READ: usize = 64 << 10;

/// A connection in the making, or made.
pub(crate) struct Link {
    address: String,
    port: u16,
    patience: Duration,
    epoll: Epoll,
    state: State,
    pause: Duration,
    out: Bytes,
}

enum State {
    Resting {
        until: Instant,
    },
    Resolving {
        bell: Bell,
        answer: Receiver<io::Result<Vec<SocketAddr>>>,
    },
    Connecting {
        socket: OwnedFd,
        to: SocketAddr,
        others: Vec<SocketAddr>,
        until: Instant,
    },
    Open(TcpStream),
    Closed,
}

/// What has come of looking at a link.
pub(crate) enum Step {
    /// Nothing more until its descriptor is readable or its deadline has come.
    Idle,
    Connected,
    Received(Bytes),
    /// An attempt has failed; the next will follow.
    Failed(Trouble),
    /// A connection that stood has gone, and none will follow unless `retry` is called; `None` where the other side closed it.
    Lost(Option<String>),
}

impl Link {
    /// A link to `address` (a name, or an IP address with or without brackets), not begun yet. A host that
    /// has been silent for `patience` counts as lost.
    pub(crate) fn new(
        address: &str,
        port: u16,
        patience: Duration,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            address: address.into(),
            port,
            patience,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            state: State::Resting { until: now },
            pause: FIRST_PAUSE,
            out: Bytes::new(),
        })
    }

    /// Readable when there is something to do; the same for the life of the link.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// When to call `advance` at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Resting { until } | State::Connecting { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Goes on by one step.
    pub(crate) fn advance(&mut self, now: Instant) -> Step {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Resting { until } if now < until => {
                self.state = State::Resting { until };
                Step::Idle
            }
            State::Resting { .. } => self.begin(now),
            State::Resolving { bell, answer } => self.resolve(bell, answer, now),
            State::Connecting {
                socket,
                to,
                others,
                until,
            } => self.await_connection((socket, to, others), until, now),
            State::Open(stream) => self.read(stream),
            State::Closed => Step::Idle,
        }
    }

    /// Sends, at once or as soon as the other side reads.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
        self.flush();
    }

    /// Gives up what there is and begins anew after a pause.
    pub(crate) fn retry(&mut self, now: Instant) {
        self.out.clear();
        self.state = State::Resting {
            until: now + self.pause,
        };
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
    }

    /// The address and the interface from which node 0 is reached, while it is.
    pub(crate) fn route(&self) -> Option<(IpAddr, String)> {
        match &self.state {
            State::Open(stream) => route(stream),
            _ => None,
        }
    }

    /// Hangs up.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }

    fn begin(&mut self, now: Instant) -> Step {
        match ip_literal(&self.address) {
            Some(ip) => self.connect(vec![SocketAddr::new(ip, self.port)], now),
            None => match self.ask_for_addresses() {
                Ok(state) => {
                    self.state = state;
                    Step::Idle
                }
                Err(error) => self.failed(Trouble::NoName(error.to_string()), now),
            },
        }
    }

    /// In a thread of its own, for getaddrinfo(3) cannot be interrupted; who has lost interest leaves it.
    fn ask_for_addresses(&mut self) -> io::Result<State> {
        let (reply, answer) = channel();
        let bell = Bell::new()?;
        self.epoll
            .add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let (ring, address, port) = (bell.clone(), self.address.clone(), self.port);
        spawn("resolver", STACK, move || {
            let found = (&*address, port).to_socket_addrs().map(Iterator::collect);
            if reply.send(found).is_ok() {
                ring.ring();
            }
        })?;
        Ok(State::Resolving { bell, answer })
    }

    fn resolve(
        &mut self,
        bell: Bell,
        answer: Receiver<io::Result<Vec<SocketAddr>>>,
        now: Instant,
    ) -> Step {
        let found = match answer.try_recv() {
            Err(TryRecvError::Empty) => {
                self.state = State::Resolving { bell, answer };
                return Step::Idle;
            }
            Err(TryRecvError::Disconnected) => Err(ErrorKind::NotFound.into()),
            Ok(found) => found,
        };
        // The resolver's thread may hold the bell a moment longer, and epoll with it.
        let _never_fails = self.epoll.delete(&bell);
        match found {
            Ok(addresses) => self.connect(addresses, now),
            Err(error) => self.failed(Trouble::NoName(error.to_string()), now),
        }
    }

    /// Tries the addresses in the order in which the resolver prefers them.
    fn connect(&mut self, mut addresses: Vec<SocketAddr>, now: Instant) -> Step {
        let mut trouble = Trouble::NoName("it has no address".into());
        while !addresses.is_empty() {
            let to = addresses.remove(0);
            let last = addresses.is_empty();
            match self.start_connecting(to) {
                Ok(socket) => {
                    let patience = if last {
                        PATIENCE_WITH_LAST
                    } else {
                        PATIENCE_WITH_ONE
                    };
                    let until = now + patience;
                    self.state = State::Connecting {
                        socket,
                        to,
                        others: addresses,
                        until,
                    };
                    return Step::Idle;
                }
                Err(errno) => trouble = self.trouble(to, errno, None),
            }
        }
        self.failed(trouble, now)
    }

    fn start_connecting(&self, to: SocketAddr) -> nix::Result<OwnedFd> {
        let socket = stream_socket(to)?;
        tune(&socket, self.patience)?;
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        self.epoll
            .add(&socket, EpollEvent::new(EpollFlags::EPOLLOUT, 0))?;
        Ok(socket)
    }

    fn await_connection(
        &mut self,
        (socket, to, others): (OwnedFd, SocketAddr, Vec<SocketAddr>),
        until: Instant,
        now: Instant,
    ) -> Step {
        let errno = match connected(&socket) {
            Some(Ok(())) => {
                let event = &mut EpollEvent::new(EpollFlags::EPOLLIN, 0);
                let _never_fails = self.epoll.modify(&socket, event);
                self.state = State::Open(socket.into());
                self.pause = FIRST_PAUSE;
                return Step::Connected;
            }
            Some(Err(errno)) => errno,
            None if now >= until => Errno::ETIMEDOUT,
            None => {
                self.state = State::Connecting {
                    socket,
                    to,
                    others,
                    until,
                };
                return Step::Idle;
            }
        };
        if !others.is_empty() {
            return self.connect(others, now);
        }
        let trouble = self.trouble(to, errno, Some(&socket));
        self.failed(trouble, now)
    }

    fn trouble(&self, to: SocketAddr, errno: Errno, socket: Option<&OwnedFd>) -> Trouble {
        let named = ip_literal(&self.address).is_none() && self.address != "localhost";
        match errno {
            Errno::ECONNREFUSED => Trouble::Refused {
                by: to.ip(),
                trap: named && to.ip().is_loopback(),
            },
            Errno::ETIMEDOUT => Trouble::NoAnswer {
                from: to.ip(),
                route: socket.and_then(route),
            },
            errno => Trouble::Other {
                to: to.ip(),
                error: errno.desc().into(),
            },
        }
    }

    fn failed(&mut self, trouble: Trouble, now: Instant) -> Step {
        self.retry(now);
        Step::Failed(trouble)
    }

    fn read(&mut self, stream: TcpStream) -> Step {
        let mut buffer = vec![0; READ];
        let read = (&stream).read(&mut buffer);
        self.state = State::Open(stream);
        match read {
            Ok(0) => self.lost(None),
            Ok(count) => {
                buffer.truncate(count);
                Step::Received(buffer)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.flush();
                Step::Idle
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Step::Received(Bytes::new()),
            Err(error) => self.lost(Some(words(&error))),
        }
    }

    fn lost(&mut self, error: Option<String>) -> Step {
        self.close();
        Step::Lost(error)
    }

    fn flush(&mut self) {
        let State::Open(stream) = &mut self.state else {
            return;
        };
        // Whatever is wrong with the connection shows when it is read.
        if let Ok(count) = stream.write(&self.out) {
            self.out.drain(..count);
        }
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, !self.out.is_empty());
        let _never_fails = self.epoll.modify(&*stream, &mut EpollEvent::new(flags, 0));
    }
}

/// What has come of connect(2): nothing yet, a connection, or an error.
fn connected(socket: &OwnedFd) -> Option<nix::Result<()>> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO) != Ok(1) {
        return None;
    }
    match getsockopt(socket, sockopt::SocketError) {
        Ok(0) => Some(Ok(())),
        Ok(errno) => Some(Err(Errno::from_raw(errno))),
        Err(errno) => Some(Err(errno)),
    }
}
