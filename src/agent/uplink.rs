//! The guardian's side of its launcher: the socket between the two, and what waits to be said there.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixCredentials, recv, sendmsg};

use super::event::Event;
use super::message::{Command, SIZE, Stamped};
use super::policy::Moment;

/// Of so many starts and successes, or of those within so long, the launcher is told at once, for it and its threads
/// wake up each time. More would keep too many descriptors here.
const BATCH: usize = 16;
const GATHERING: Duration = Duration::from_millis(5);

/// Never waits: a launcher that is slow to listen must not delay a kill.
pub(crate) struct Uplink {
    socket: OwnedFd,
    /// The launcher numbers processes differently: the kernel has to translate.
    isolated: bool,
    /// Events that the launcher has not taken yet, each with the descriptors that it shall have.
    unsent: VecDeque<(Stamped, Vec<OwnedFd>)>,
}

/// What a look at the socket brought.
pub(crate) enum Heard {
    /// `None` for bytes that no launcher of ours sends.
    Command(Option<Command>),
    Nothing,
    /// The launcher is no more.
    End,
}

impl Uplink {
    pub(crate) fn new(socket: OwnedFd, isolated: bool) -> Self {
        Self {
            socket,
            isolated,
            unsent: VecDeque::new(),
        }
    }

    /// What poll(2) shall watch: also for room, where something waits for it.
    pub(crate) fn source(&self) -> PollFd<'_> {
        let mut interest = PollFlags::POLLIN;
        interest.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        PollFd::new(self.socket.as_fd(), interest)
    }

    pub(crate) fn hear(&self) -> Heard {
        let mut bytes = [0; SIZE];
        match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(SIZE) => Heard::Command(Command::decode(&bytes)),
            Err(Errno::EAGAIN | Errno::EINTR) => Heard::Nothing,
            // The end of the stream, or a broken one.
            Ok(_) | Err(_) => Heard::End,
        }
    }

    /// To be told at the next [`Uplink::flush`], with these descriptors.
    pub(crate) fn put(&mut self, stamped: Stamped, descriptors: Vec<OwnedFd>) {
        self.unsent.push_back((stamped, descriptors));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether there is room for another start.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.len() < BATCH
    }

    /// Whether more can gather before the launcher is told: there is nothing but starts and successes, not old yet.
    pub(crate) fn can_wait(&self, now: Moment) -> bool {
        let can_wait = |it: &Stamped| match it.event {
            Event::Started { .. } => true,
            Event::Exited { status, .. } => status.success(),
            _ => false,
        };
        let first = self.unsent.front().map(|(first, _)| first.at);
        let fresh = first.is_none_or(|it| now < it + GATHERING);
        fresh && self.unsent.iter().all(|(it, _)| can_wait(it))
    }

    /// Says what the launcher takes.
    pub(crate) fn flush(&mut self) {
        while let Some((stamped, descriptors)) = self.unsent.front() {
            match self.say(*stamped, descriptors) {
                Ok(_) => drop(self.unsent.pop_front()),
                Err(Errno::EINTR) => {}
                // Full, or gone; the latter shows when we next listen.
                Err(_) => return,
            }
        }
    }

    fn say(&self, mut stamped: Stamped, descriptors: &[OwnedFd]) -> Result<usize, Errno> {
        let bytes = stamped.encode();
        let descriptors: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let along = (!descriptors.is_empty()).then_some(ControlMessage::ScmRights(&descriptors));
        let say = |sender: Option<ControlMessage<'_>>| {
            let control: Vec<_> = along.iter().copied().chain(sender).collect();
            let (socket, parts) = (self.socket.as_raw_fd(), [IoSlice::new(&bytes)]);
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            sendmsg::<()>(socket, &parts, &control, flags, None)
        };
        let Some(pid) = stamped.event.pid().filter(|_| self.isolated) else {
            return say(None);
        };
        // The kernel takes any process for the sender's if the sender is privileged, which the first process
        // of a namespace is there, and numbers it for the receiver (unix(7), SCM_CREDENTIALS).
        let named = UnixCredentials::from(libc::ucred {
            pid: *pid,
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
        });
        match say(Some(ControlMessage::ScmCredentials(&named))) {
            // It has been reaped meanwhile: nobody has a number for it any more.
            Err(Errno::ESRCH) => say(None),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;
    use crate::status::Status;
    use crate::topology::LocalRank;

    fn exited(code: u8) -> Event {
        Event::Exited {
            worker: LocalRank(0),
            status: Status::Code(code),
            asked: false,
        }
    }

    #[track_caller]
    fn check(events: &[Event], age: Duration, waits: bool) {
        let pair = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::empty(),
        );
        let (_launcher, socket) = pair.unwrap();
        let mut uplink = Uplink::new(socket, false);
        let at = Duration::from_secs(7);
        for event in events {
            let event = *event;
            uplink.put(Stamped { at, event }, Vec::new());
        }
        assert_eq!(uplink.can_wait(at + age), waits, "{events:?}");
        uplink.flush();
        assert!(uplink.is_empty() && uplink.has_room());
    }

    #[test]
    fn starts_and_successes_gather_for_a_moment_and_nothing_else_does() {
        let (worker, pid) = (LocalRank(0), 4711);
        let started = Event::Started { worker, pid };
        let young = Duration::from_millis(1);
        check(&[], young, true);
        check(&[started, exited(0)], young, true);
        check(&[started, exited(0)], GATHERING, false);
        check(&[started, exited(3)], young, false);
        check(&[started, Event::Heard], young, false);
    }
}
