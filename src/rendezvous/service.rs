//! What the store's thread does: epoll over the listener, the launcher's orders and the clients.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{SockFlag, accept4};

use super::connection::{Connection, End};
use super::protocol::{Bytes, STOP_WAITING};
use super::socket::{tune, tune_accepted, words};
use super::store::{ClientId, Store};
use super::thread::Bell;

/// How many clients are accepted before the others are looked at again.
const ACCEPTS: usize = 128;
const EVENTS: usize = 256;
/// While there are no descriptors for new clients: when to try again, in milliseconds.
const RETRY: u16 = 1000;

// What an epoll event is about; clients count up from `FIRST_CLIENT`.
const LISTENER: u64 = 0;
const ORDERS: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// What happened in the store that the launcher asked to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// A watched key was given a value.
    Set {
        client: ClientId,
        /// The client's process, where it said so (torch 2.5 and later).
        pid: Option<u32>,
        /// The address it comes from.
        peer: String,
        key: Bytes,
        value: Bytes,
    },
    /// A client that had set a watched key has closed its connection or lost it; `error` says how,
    /// where it was not a plain end.
    Closed {
        client: ClientId,
        error: Option<String>,
    },
}

/// A client as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) pid: Option<u32>,
    /// The keys it waits for; empty when it does not wait.
    pub(crate) awaits: Vec<Bytes>,
}

/// What the launcher asks of the thread.
pub(crate) enum Order {
    Set(Bytes, Bytes),
    Count(Bytes),
    Close(ClientId),
    /// Forget all but what begins so.
    Clear(Vec<Bytes>),
    Clients(Sender<Vec<Client>>),
    Stop,
}

/// What the thread works with.
pub(crate) struct Service {
    epoll: Epoll,
    listener: OwnedFd,
    store: Store,
    clients: HashMap<u64, Connection>,
    next: u64,
    /// There are no descriptors left, and the listener is not looked at until there are.
    full: bool,
    patience: Duration,
    scratch: Vec<u8>,
    orders: Receiver<Order>,
    order_bell: Bell,
    reports: Sender<Activity>,
    event_bell: Bell,
}

impl Service {
    /// `listener` is listening; who is silent for `patience` is dropped; each bell announces what its
    /// channel holds.
    pub(crate) fn new(
        listener: OwnedFd,
        mut store: Store,
        patience: Duration,
        (orders, order_bell): (Receiver<Order>, Bell),
        (reports, event_bell): (Sender<Activity>, Bell),
    ) -> nix::Result<Self> {
        // The launcher knows what it has set itself.
        store.take_changed();
        tune(&listener, patience)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(
            order_bell.as_fd(),
            EpollEvent::new(EpollFlags::EPOLLIN, ORDERS),
        )?;
        Ok(Self {
            epoll,
            listener,
            store,
            clients: HashMap::new(),
            next: FIRST_CLIENT,
            full: false,
            patience,
            scratch: Vec::new(),
            orders,
            order_bell,
            reports,
            event_bell,
        })
    }

    /// Whether a client has come, while there is no thread yet.
    pub(crate) fn has_visitor(&self) -> bool {
        let mut ready = [EpollEvent::empty(); 1];
        matches!(self.epoll.wait(&mut ready, EpollTimeout::ZERO), Ok(1))
    }

    /// To be called before `run`, by the thread that made it: in a new thread malloc(3) would clear the memory,
    /// and so take it.
    pub(crate) fn allocate(&mut self) {
        self.scratch = vec![0; Connection::READ];
    }

    /// Serves until the launcher says stop.
    pub(crate) fn run(mut self) {
        let mut ready = [EpollEvent::empty(); EVENTS];
        loop {
            let timeout = if self.full {
                EpollTimeout::from(RETRY)
            } else {
                EpollTimeout::NONE
            };
            let count = match self.epoll.wait(&mut ready, timeout) {
                Err(Errno::EINTR) => continue,
                other => other.expect("epoll_wait(2) fails only when it is called wrongly"),
            };
            if count == 0 {
                self.listen(true);
            }
            for event in &ready[..count] {
                match event.data() {
                    LISTENER => self.accept(),
                    ORDERS if self.obey().is_break() => return,
                    ORDERS => {}
                    client => self.serve(client),
                }
                self.wake();
            }
        }
    }

    fn accept(&mut self) {
        for nth in 0..ACCEPTS {
            match accept4(
                &self.listener,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            ) {
                Ok(socket) => self.admit(socket),
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    // Said before the kernel looks whether anybody is there: sure only the first time.
                    if nth == 0 {
                        self.make_room();
                    }
                    return;
                }
                Err(Errno::EAGAIN) => return,
                // One connection that failed before it was accepted (accept(2)).
                Err(_) => {}
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let id = self.next;
        self.next += 1;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, id);
        // Either fails only when the client has gone already or the kernel has no memory for it.
        if tune_accepted(&socket, self.patience).is_ok() && self.epoll.add(&socket, event).is_ok() {
            self.clients
                .insert(id, Connection::new(ClientId(id), socket));
        }
    }

    /// Closes the oldest connection that has never said a word. Where there is none, new ones stay in the
    /// backlog, and epoll must not report them for ever.
    fn make_room(&mut self) {
        let silent = self.clients.iter().filter(|(_, it)| !it.greeted());
        match silent.map(|(id, _)| *id).min() {
            Some(oldest) => self.close(oldest, End::Closed),
            None => self.listen(false),
        }
    }

    fn listen(&mut self, on: bool) {
        self.full = !on;
        let flags = if on {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        let _never_fails = self
            .epoll
            .modify(&self.listener, &mut EpollEvent::new(flags, LISTENER));
    }

    fn serve(&mut self, id: u64) {
        // One batch of events may hold news of a client that was closed by an earlier one.
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let outcome = client.serve(&mut self.store, &mut self.scratch);
        self.report_changes(id);
        match outcome {
            Ok(()) => self.rearm(id),
            Err(end) => self.close(id, end),
        }
    }

    fn rearm(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let wanted = client.wants();
        if client.interest != wanted {
            client.interest = wanted;
            let _never_fails = self
                .epoll
                .modify(&*client, &mut EpollEvent::new(wanted, id));
        }
    }

    fn close(&mut self, id: u64, end: End) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        // Closing does not suffice while a fork of ours holds a copy that it has not closed by exec yet.
        let _never_fails = self.epoll.delete(&client);
        self.store.forget(ClientId(id));
        if client.reported {
            let error = match end {
                End::Closed => None,
                End::Lost(error) => Some(words(&error)),
                End::Violated(violation) => Some(violation.to_string()),
            };
            self.report(Activity::Closed {
                client: ClientId(id),
                error,
            });
        }
        if self.full {
            self.listen(true);
        }
    }

    /// Tells those whose wait is over.
    fn wake(&mut self) {
        for ClientId(id) in self.store.take_woken() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.answer(STOP_WAITING);
                self.rearm(id);
            }
        }
    }

    fn report_changes(&mut self, id: u64) {
        for (key, value) in self.store.take_changed() {
            let Some(client) = self.clients.get_mut(&id) else {
                return;
            };
            client.reported = true;
            let (client, pid, peer) = (ClientId(id), client.pid, client.peer());
            self.report(Activity::Set {
                client,
                pid,
                peer,
                key,
                value,
            });
        }
    }

    fn report(&self, event: Activity) {
        // Nobody hears it when the launcher is about to stop the thread.
        if self.reports.send(event).is_ok() {
            self.event_bell.ring();
        }
    }

    /// Does what the launcher asks.
    pub(crate) fn obey(&mut self) -> ControlFlow<()> {
        self.order_bell.silence();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Set(key, value) => self.store.set(key, value),
                // A counter that holds no number is some client's doing, and its business.
                Order::Count(key) => drop(self.store.add(key, 1)),
                Order::Close(ClientId(id)) => self.close(id, End::Closed),
                Order::Clear(kept) => self.store.clear(&kept),
                Order::Clients(reply) => answer(&reply, self.census()),
                Order::Stop => return ControlFlow::Break(()),
            }
        }
        self.store.take_changed();
        ControlFlow::Continue(())
    }

    fn census(&self) -> Vec<Client> {
        let clients = self.clients.iter().map(|(id, connection)| Client {
            id: ClientId(*id),
            pid: connection.pid,
            awaits: self.store.awaited(ClientId(*id)),
        });
        clients.collect()
    }
}

impl AsFd for Service {
    /// Readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

fn answer<T>(reply: &Sender<T>, value: T) {
    // Nobody hears it when the asking thread has died.
    let _heard = reply.send(value);
}
