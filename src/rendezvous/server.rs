//! The host of the store: one thread, one epoll, any number of clients.
//!
//! ```text
//!   Server::bind ---- set, watch ---- open ------> Running (the launcher's side)
//!   the port is ours;                 one thread     set, count, clients ------> commands + eventfd
//!   clients queue up                  if need be     activities <--------------- events + eventfd
//! ```
//!
//! The port is taken first thing, the thread starts when somebody comes or the launcher has time for it; who
//! connects meanwhile waits in the kernel's backlog. Without traffic the thread sleeps: there is no timer. A
//! client costs what it has sent and not yet completed, and what it was answered and has not yet read;
//! one that reads no answers is asked nothing more. Nothing is ever looked up in DNS (torch's own server
//! asks for the name of each client on its only thread, and one silent DNS server stops it for seconds).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::absent::sentence;
use super::protocol::Bytes;
use super::service::{Activity, Client, Order, Service};
use super::socket::{BindError, listen_on, local_port};
use super::store::{ClientId, Store};
use super::thread::{Bell, spawn};

/// The thread needs little: its buffers are on the heap.
const STACK: usize = 128 << 10;
/// A store whose port is taken and whose thread has not started.
pub(crate) struct Server {
    listener: OwnedFd,
    port: u16,
    store: Store,
}

impl Server {
    /// Takes the port (0: one of the kernel's choice), on `address` where that is an IP address of this
    /// machine, else on all addresses.
    pub(crate) fn bind(address: &OsStr, port: u16) -> Result<Self, BindError> {
        let listener = listen_on(address, port)?;
        let port = local_port(&listener).map_err(|errno| BindError::Other { port, errno })?;
        Ok(Self {
            listener,
            port,
            store: Store::default(),
        })
    }

    /// The same port once more, with nothing stored.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            listener: self.listener.try_clone()?,
            port: self.port,
            store: Store::default(),
        })
    }

    /// Whether somebody has connected.
    pub(crate) fn has_visitor(&self) -> bool {
        let mut port = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut port, PollTimeout::ZERO), Ok(1))
    }

    /// The port that was taken.
    pub(crate) fn local_port(&self) -> u16 {
        self.port
    }

    /// Stores a value before anybody can ask for it. Keys are as on the wire: torch's clients put a `/`
    /// before theirs.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        self.store.set(key.into(), value.into());
    }

    /// Values stored under keys that begin with `prefix` will be reported as events.
    pub(crate) fn watch(&mut self, prefix: &str) {
        self.store.watch(prefix.into());
    }

    /// Ready to serve. A client whose host has been silent for `patience` is dropped.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn open(self, patience: Duration) -> io::Result<Running> {
        let (commands, orders) = channel();
        let (reports, events) = channel();
        let order_bell = Bell::new()?;
        let event_bell = Bell::new()?;
        let orders = (orders, order_bell.clone());
        let reports = (reports, event_bell.clone());
        let service = Service::new(self.listener, self.store, patience, orders, reports)?;
        Ok(Running {
            commands,
            order_bell,
            events,
            event_bell,
            waiting: Some(Box::new(service)),
            thread: None,
        })
    }
}

impl AsFd for Server {
    /// Readable when somebody has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// The launcher's hold on the store. Dropping it stops the thread and closes every connection.
pub(crate) struct Running {
    commands: Sender<Order>,
    order_bell: Bell,
    events: Receiver<Activity>,
    event_bell: Bell,
    /// What will serve the first client that comes.
    waiting: Option<Box<Service>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Stores a value, after everything that was asked before.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        self.order(Order::Set(key.into(), value.into()));
    }

    /// Raises a counter by one.
    pub(crate) fn count(&mut self, key: &str) {
        self.order(Order::Count(key.into()));
    }

    /// Ends a client's connection.
    pub(crate) fn close(&mut self, client: ClientId) {
        self.order(Order::Close(client));
    }

    /// Forgets everything but what is stored under keys that begin with one of `kept`.
    pub(crate) fn clear(&mut self, kept: impl IntoIterator<Item = String>) {
        let kept = kept.into_iter().map(Bytes::from);
        self.order(Order::Clear(kept.collect()));
    }

    /// Everybody who is connected.
    pub(crate) fn clients(&mut self) -> Vec<Client> {
        self.ask(Order::Clients)
    }

    /// Which ranks workers wait for in the start of a process group, as a sentence; none where none does.
    pub(crate) fn absent(&mut self) -> Option<String> {
        let clients = self.clients();
        sentence(clients.iter().flat_map(|it| &it.awaits).map(Vec::as_slice))
    }

    /// For poll(2): readable while there are activities, and when the first client comes.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.waiting {
            Some(service) => service.as_fd(),
            None => self.event_bell.as_fd(),
        }
    }

    /// What has happened since the last call, in order; empty when nothing has.
    pub(crate) fn activities(&self) -> Vec<Activity> {
        self.event_bell.silence();
        self.events.try_iter().collect()
    }

    /// Whether a client has come and there is no thread to serve it.
    pub(crate) fn is_needed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|it| it.has_visitor())
    }

    /// Starts the thread, if there is none.
    ///
    /// # Errors
    /// No thread can be had: the port is closed and nothing is served.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if let Some(mut service) = self.waiting.take() {
            service.allocate();
            self.thread = Some(spawn("store", STACK, move || service.run())?);
        }
        Ok(())
    }

    /// The default where nothing is served.
    fn ask<T: Default>(&mut self, order: impl FnOnce(Sender<T>) -> Order) -> T {
        let (reply, answer) = channel();
        self.order(order(reply));
        answer.recv().unwrap_or_default()
    }

    fn order(&mut self, order: Order) {
        // Nobody hears it where the thread was refused, and the run is being given up.
        let _ = self.commands.send(order);
        match &mut self.waiting {
            Some(service) => drop(service.obey()),
            None => self.order_bell.ring(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.order(Order::Stop);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Bytes, Request, STOP_WAITING, put_blob, put_hello};
    use super::super::socket::stream_socket;
    use super::*;
    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::{SockaddrStorage, connect as connect_to};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsRawFd;

    const PATIENCE: Duration = Duration::from_secs(15);
    /// For what takes no time, on a machine that has none.
    const SOON: Duration = Duration::from_secs(180);

    fn bind() -> Server {
        Server::bind(OsStr::new("127.0.0.1"), 0).unwrap()
    }

    impl Server {
        fn serve(self, patience: Duration) -> io::Result<Running> {
            let mut store = self.open(patience)?;
            store.start()?;
            Ok(store)
        }
    }

    fn serve() -> (u16, Running) {
        let server = bind();
        (server.local_port(), server.serve(PATIENCE).unwrap())
    }

    fn connect(port: u16) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client
    }

    fn hello(pid: u32) -> Bytes {
        let mut bytes = Bytes::new();
        put_hello(&mut bytes);
        Request::Ping { nonce: pid }.write(&mut bytes);
        bytes
    }

    fn bytes(request: Request) -> Bytes {
        let mut bytes = Bytes::new();
        request.write(&mut bytes);
        bytes
    }

    #[track_caller]
    fn expect(client: &mut TcpStream, expected: &[u8]) {
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).unwrap();
        assert!(answer == expected, "another answer than expected");
    }

    #[track_caller]
    fn greet(port: u16) -> TcpStream {
        let mut client = connect(port);
        client.write_all(&hello(7)).unwrap();
        expect(&mut client, &7_u32.to_le_bytes());
        client
    }

    #[track_caller]
    fn closed(client: &mut TcpStream) {
        // A reset where the server closed it with bytes unread.
        match client.read(&mut [0]) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    /// The next `count` events.
    #[track_caller]
    fn events(store: &Running, count: usize) -> Vec<Activity> {
        let mut found = Vec::new();
        while found.len() < count {
            let mut fds = [PollFd::new(store.fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(SOON).unwrap();
            assert_eq!(poll(&mut fds, timeout), Ok(1), "no event came");
            found.extend(store.activities());
        }
        found
    }

    #[test]
    fn who_comes_before_the_thread_is_served_by_it() {
        let mut server = bind();
        server.set("/a", b"1");
        let mut client = connect(server.local_port());
        client.write_all(&hello(7)).unwrap();
        client
            .write_all(&bytes(Request::Get { key: b"/a".into() }))
            .unwrap();
        let _store = server.serve(PATIENCE).unwrap();
        expect(&mut client, &7_u32.to_le_bytes());
        expect(&mut client, b"\x01\0\0\0\0\0\0\x001");
    }

    #[test]
    fn the_thread_starts_when_somebody_comes() {
        let server = bind();
        let port = server.local_port();
        let mut store = server.open(PATIENCE).unwrap();
        store.set("/a", b"1");
        assert_eq!(store.clients(), []);
        assert!(!store.is_needed());
        let mut client = connect(port);
        let mut fds = [PollFd::new(store.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::try_from(SOON).unwrap()), Ok(1));
        assert!(store.is_needed());
        store.start().unwrap();
        assert!(!store.is_needed());
        client.write_all(&hello(7)).unwrap();
        expect(&mut client, &7_u32.to_le_bytes());
        client
            .write_all(&bytes(Request::Get { key: b"/a".into() }))
            .unwrap();
        expect(&mut client, b"\x01\0\0\0\0\0\0\x001");
    }

    #[test]
    fn strangers_and_silent_ones_harm_nobody() {
        let (port, _store) = serve();
        let _silent: Vec<TcpStream> = (0..1000).map(|_| connect(port)).collect();
        let mut half = greet(port);
        half.write_all(b"\x01\x05\0\0").unwrap();
        let mut scanner = connect(port);
        scanner.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        closed(&mut scanner);
        let mut cut = connect(port);
        for byte in hello(9) {
            cut.write_all(&[byte]).unwrap();
        }
        expect(&mut cut, &9_u32.to_le_bytes());
    }

    #[test]
    fn as_many_clients_as_a_big_job_has_are_all_answered() {
        const CLIENTS: u32 = 512;
        let (port, mut store) = serve();
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(port)).collect();
        let key = |of: u32| Bytes::from(format!("/{of}"));
        let go = || Bytes::from(b"/go");
        for (me, client) in (0..).zip(&mut clients) {
            let mut words = hello(me);
            for request in [
                Request::Add {
                    key: b"init/".into(),
                    delta: 1,
                },
                Request::Set {
                    key: key(me),
                    value: key(me),
                },
                Request::Wait { keys: vec![go()] },
            ] {
                request.write(&mut words);
            }
            client.write_all(&words).unwrap();
        }
        let mut counts: Vec<i64> = Vec::new();
        for (me, client) in (0_u32..).zip(&mut clients) {
            expect(client, &me.to_le_bytes());
            let mut count = [0; 8];
            client.read_exact(&mut count).unwrap();
            counts.push(i64::from_le_bytes(count));
        }
        counts.sort_unstable();
        assert!(counts.into_iter().eq(1..=i64::from(CLIENTS)));
        store.set("/go", b"");
        for (me, client) in (0..).zip(&mut clients) {
            expect(client, &[STOP_WAITING]);
            let next = key((me + 1) % CLIENTS);
            let request = Request::Get { key: next.clone() };
            client.write_all(&bytes(request)).unwrap();
            let mut answer = Bytes::new();
            put_blob(&mut answer, &next);
            expect(client, &answer);
        }
        assert_eq!(store.clients().len(), CLIENTS as usize);
    }

    #[test]
    fn the_launcher_hears_of_watched_keys_and_their_clients() {
        let mut server = bind();
        server.watch("/w/");
        let port = server.local_port();
        let mut store = server.serve(PATIENCE).unwrap();
        let mut client = greet(port);
        let (key, value) = (Bytes::from(b"/w/a"), Bytes::from(b"1"));
        client
            .write_all(&bytes(Request::Set {
                key: key.clone(),
                value: value.clone(),
            }))
            .unwrap();
        let found = events(&store, 1);
        let Activity::Set {
            client: id,
            pid: Some(7),
            ..
        } = found[0]
        else {
            panic!("{found:?}");
        };
        assert_eq!(
            found,
            [Activity::Set {
                client: id,
                pid: Some(7),
                peer: "127.0.0.1".into(),
                key,
                value
            }]
        );
        client
            .write_all(&bytes(Request::Wait {
                keys: vec![b"/b".into()],
            }))
            .unwrap();
        client
            .write_all(&bytes(Request::Ping { nonce: 8 }))
            .unwrap();
        expect(&mut client, &8_u32.to_le_bytes());
        let awaits = vec![b"/b".into()];
        assert_eq!(
            store.clients(),
            [Client {
                id,
                pid: Some(8),
                awaits
            }]
        );
        store.set("/b", b"");
        expect(&mut client, &[STOP_WAITING]);
        drop(client);
        assert_eq!(
            events(&store, 1),
            [Activity::Closed {
                client: id,
                error: None
            }]
        );
    }

    #[test]
    fn who_reads_no_answers_is_asked_nothing_more_and_gets_them_all() {
        let mut server = bind();
        let value = vec![b'x'; 1 << 20];
        server.set("/big", &value);
        let port = server.local_port();
        let _store = server.serve(PATIENCE).unwrap();
        let mut lazy = greet(port);
        let request = bytes(Request::Get {
            key: b"/big".into(),
        });
        // 200 MiB of answers, asked for with 4 KiB.
        lazy.write_all(&request.repeat(200)).unwrap();
        lazy.write_all(&bytes(Request::Ping { nonce: 5 })).unwrap();
        drop(greet(port));
        let mut answer = Bytes::new();
        put_blob(&mut answer, &value);
        (0..200).for_each(|_| expect(&mut lazy, &answer));
        expect(&mut lazy, &5_u32.to_le_bytes());
    }

    #[test]
    fn stopping_closes_every_connection() {
        let (port, store) = serve();
        let mut client = greet(port);
        drop(store);
        closed(&mut client);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }

    /// In a thread with a descriptor table of its own, which the store's thread shares.
    #[test]
    fn without_descriptors_left_silent_clients_make_room() {
        let body = || {
            unshare(CloneFlags::CLONE_FILES).unwrap();
            let (port, _store) = serve();
            let mut silent = connect(port);
            let mut known = greet(port);
            let [first, second] = [begin(port), begin(port)];
            let mut filling = Vec::new();
            while let Ok(fd) = known.try_clone() {
                filling.push(fd);
            }
            let mut first = finish(first, port);
            closed(&mut silent);
            first.write_all(&hello(3)).unwrap();
            expect(&mut first, &3_u32.to_le_bytes());
            // Now everybody is known, and the second has to wait until somebody leaves.
            let mut second = finish(second, port);
            second.write_all(&hello(4)).unwrap();
            known.write_all(&bytes(Request::Ping { nonce: 5 })).unwrap();
            expect(&mut known, &5_u32.to_le_bytes());
            drop(first);
            expect(&mut second, &4_u32.to_le_bytes());
        };
        std::thread::spawn(body).join().unwrap();
    }

    /// A socket that will connect to the port when there may be no descriptors left.
    fn begin(port: u16) -> OwnedFd {
        stream_socket(([127, 0, 0, 1], port).into()).unwrap()
    }

    fn finish(socket: OwnedFd, port: u16) -> TcpStream {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let started = connect_to(socket.as_raw_fd(), &SockaddrStorage::from(address));
        assert_eq!(started, Err(Errno::EINPROGRESS));
        let client = TcpStream::from(socket);
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client
    }
}
