//! One client of the server: its socket, what it has asked, and what it has not yet read of the answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::EpollFlags;

use super::parser::Parser;
use super::protocol::{Bytes, Request, Violation};
use super::store::{ClientId, Store};

/// With so many bytes of answers unread, a client is asked nothing more.
const HIGH_WATER: usize = 64 << 10;

/// A client as the server sees it.
pub(crate) struct Connection {
    id: ClientId,
    socket: TcpStream,
    parser: Parser,
    /// Bytes of requests that came and have to wait until the answers are read; at most `READ`.
    unread: Bytes,
    answers: Bytes,
    /// How many bytes of `answers` have left.
    sent: usize,
    /// What epoll looks for.
    pub(crate) interest: EpollFlags,
    pub(crate) pid: Option<u32>,
    /// Whether the launcher has heard of this client.
    pub(crate) reported: bool,
}

/// Why a connection is over.
pub(crate) enum End {
    Closed,
    Lost(io::Error),
    Violated(Violation),
}

impl Connection {
    /// The most bytes read at once.
    pub(crate) const READ: usize = 64 << 10;

    /// `socket` does not block.
    pub(crate) fn new(id: ClientId, socket: OwnedFd) -> Self {
        Self {
            id,
            socket: socket.into(),
            parser: Parser::default(),
            unread: Bytes::new(),
            answers: Bytes::new(),
            sent: 0,
            interest: EpollFlags::EPOLLIN,
            pid: None,
            reported: false,
        }
    }

    /// The address the client comes from; empty where it has gone already.
    pub(crate) fn peer(&self) -> String {
        let peer = self.socket.peer_addr();
        peer.map_or_else(|_| String::new(), |it| it.ip().to_canonical().to_string())
    }

    /// Whether the client has said anything that makes sense yet.
    pub(crate) fn greeted(&self) -> bool {
        self.parser.greeted()
    }

    /// Reads once, does what is asked, and sends the answers. `scratch` is `READ` bytes of nobody.
    pub(crate) fn serve(&mut self, store: &mut Store, scratch: &mut [u8]) -> Result<(), End> {
        let mut outcome = Ok(());
        if self.listens() {
            let count = some_io(self.socket.read(scratch))?;
            match count {
                Some(0) => return Err(End::Closed),
                Some(count) => outcome = self.work(&scratch[..count], store),
                None => {}
            }
        }
        self.flush()?;
        while outcome.is_ok() && !self.unread.is_empty() && self.pending() < HIGH_WATER {
            let unread = std::mem::take(&mut self.unread);
            outcome = self.work(&unread, store);
            self.flush()?;
        }
        outcome
    }

    /// Ends this client's wait.
    pub(crate) fn answer(&mut self, byte: u8) {
        self.answers.push(byte);
        // A connection that is lost says so when it is read.
        let _reported_later = self.flush();
    }

    /// What epoll has to look for now.
    pub(crate) fn wants(&self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.listens());
        flags.set(EpollFlags::EPOLLOUT, self.pending() > 0);
        flags
    }

    fn listens(&self) -> bool {
        self.unread.is_empty() && self.pending() < HIGH_WATER
    }

    fn pending(&self) -> usize {
        self.answers.len() - self.sent
    }

    fn work(&mut self, mut input: &[u8], store: &mut Store) -> Result<(), End> {
        while self.pending() < HIGH_WATER {
            let Some(request) = self.parser.next(&mut input).map_err(End::Violated)? else {
                return Ok(());
            };
            if let Request::Ping { nonce } = request {
                self.pid = Some(nonce);
            }
            store
                .apply(self.id, request, &mut self.answers)
                .map_err(End::Violated)?;
        }
        self.unread = input.into();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        while self.pending() > 0 {
            match some_io(self.socket.write(&self.answers[self.sent..]))? {
                Some(count) => self.sent += count,
                None => break,
            }
        }
        if self.pending() == 0 && self.answers.capacity() > HIGH_WATER {
            self.answers = Bytes::new();
            self.sent = 0;
        } else if self.sent >= self.pending() {
            self.answers.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How many bytes went through; `None` where the socket has to be waited for.
fn some_io(result: io::Result<usize>) -> Result<Option<usize>, End> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(End::Lost(error)),
    }
}
