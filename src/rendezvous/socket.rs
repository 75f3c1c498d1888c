//! Sockets as the store wants them: where to listen, and how to notice that the other side has gone.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    SockaddrStorage, bind, getsockname, getsockopt, listen, setsockopt, socket, sockopt,
};

/// Why a port cannot be listened on; reads after "failed to".
#[derive(Debug)]
pub(crate) enum BindError {
    /// Somebody else has the port.
    InUse {
        port: u16,
    },
    /// Ports under 1024 are for privileged users.
    Denied {
        port: u16,
    },
    Other {
        port: u16,
        errno: Errno,
    },
}

impl BindError {
    fn new(port: u16, errno: Errno) -> Self {
        match errno {
            Errno::EADDRINUSE => Self::InUse { port },
            Errno::EACCES => Self::Denied { port },
            errno => Self::Other { port, errno },
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { port } => write!(f, "listen on port `{port}`: another program has it"),
            Self::Denied { port } => {
                write!(
                    f,
                    "listen on port `{port}`: ports under 1024 need a privileged user"
                )
            }
            Self::Other { port, errno } => write!(f, "listen on port `{port}`: {}", errno.desc()),
        }
    }
}

impl std::error::Error for BindError {}

/// Listens on `address` where that is an IP address (with or without brackets) of this machine, else on
/// every address. A name is not looked up: this must work, and at once, when DNS does not.
pub(crate) fn listen_on(address: &OsStr, port: u16) -> Result<OwnedFd, BindError> {
    let literal = address.to_str().and_then(ip_literal);
    let all = [
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    ];
    let mut last = Errno::EADDRNOTAVAIL;
    for ip in literal.into_iter().chain(all) {
        match listener(SocketAddr::new(ip, port)) {
            Ok(fd) => return Ok(fd),
            // Not an address of this machine, or a machine without IPv6: the next candidate may do.
            Err(errno @ (Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT)) => last = errno,
            Err(errno) => return Err(BindError::new(port, errno)),
        }
    }
    Err(BindError::new(port, last))
}

/// The IP address in a text that is nothing else; IPv6 also in brackets.
pub(crate) fn ip_literal(text: &str) -> Option<IpAddr> {
    let inside = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inside.unwrap_or(text).parse().ok()
}

fn listener(address: SocketAddr) -> nix::Result<OwnedFd> {
    let fd = stream_socket(address)?;
    // Else the port stays taken for a minute after a run, by connections in TIME_WAIT (tcp(7)).
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        // One socket for both families, whatever net.ipv6.bindv6only says; before bind (ipv6(7)).
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&fd, Backlog::MAXALLOWABLE)?;
    Ok(fd)
}

/// A TCP socket that blocks nobody and that no worker inherits.
pub(crate) fn stream_socket(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(family, SockType::Stream, flags, SockProtocol::Tcp)
}

/// What an error means, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().into(),
        None => error.to_string(),
    }
}

/// The port a socket is bound to.
pub(crate) fn local_port(fd: impl AsFd) -> nix::Result<u16> {
    let address: SockaddrStorage = getsockname(fd.as_fd().as_raw_fd())?;
    let v4 = address.as_sockaddr_in().map(SockaddrIn::port);
    let v6 = address.as_sockaddr_in6().map(SockaddrIn6::port);
    v4.or(v6).ok_or(Errno::EAFNOSUPPORT)
}

/// The local address the kernel has chosen for a connection, and the interface that has it.
pub(crate) fn route(fd: impl AsFd) -> Option<(IpAddr, String)> {
    let ip = ip_of(&getsockname(fd.as_fd().as_raw_fd()).ok()?)?;
    let has_it = |it: &InterfaceAddress| it.address.as_ref().and_then(ip_of) == Some(ip);
    let interface = getifaddrs().ok()?.find(has_it)?;
    Some((ip, interface.interface_name))
}

/// The same for a machine that nothing is sent to: connecting a UDP socket sends no packet (udp(7)).
pub(crate) fn route_to(ip: IpAddr) -> Option<(IpAddr, String)> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Discard's port; any will do.
    socket.connect((ip, 9)).ok()?;
    route(&socket)
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
}

/// Sends small messages at once, and ends the connection when the other side has been silent for
/// `patience`: a host that lost its power or its network says no goodbye. A listener gives it to those it
/// accepts.
pub(crate) fn tune(fd: impl AsFd, patience: Duration) -> nix::Result<()> {
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    // The first probe after a third of the time, then one each second, without a verdict of their own
    // (127 is the most): TCP_USER_TIMEOUT decides, for probes and for data alike (tcp(7)). It is looked
    // at when a probe is due, so it ends one second early.
    let seconds = seconds(patience);
    setsockopt(&fd, sockopt::TcpKeepIdle, &(seconds / 3).max(1))?;
    setsockopt(&fd, sockopt::TcpKeepInterval, &1)?;
    setsockopt(&fd, sockopt::TcpKeepCount, &127)?;
    // Last, so that whoever has it has all.
    setsockopt(&fd, sockopt::TcpUserTimeout, &((seconds - 1) * 1000))
}

/// The same for a connection that was accepted, which mostly has it from its listener: one question instead of
/// six orders, and thousands may come at once.
pub(crate) fn tune_accepted(fd: impl AsFd, patience: Duration) -> nix::Result<()> {
    let limit = getsockopt(&fd, sockopt::TcpUserTimeout)?;
    match limit == (seconds(patience) - 1) * 1000 {
        true => Ok(()),
        false => tune(fd, patience),
    }
}

/// As many as the kernel takes.
fn seconds(patience: Duration) -> u32 {
    let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
    seconds.clamp(2, 32_767)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            ip_literal(text).map(|it| it.to_string()).as_deref(),
            expected
        );
    }

    #[test]
    fn addresses_are_told_from_names() {
        check("127.0.0.1", Some("127.0.0.1"));
        check("::1", Some("::1"));
        check("[::1]", Some("::1"));
        check("[::1", None);
        check("localhost", None);
        check("127.0.0.1:80", None);
        check("", None);
    }

    #[test]
    fn a_foreign_address_means_every_address() {
        let fd = listen_on(OsStr::new("192.0.2.1"), 0).unwrap();
        let port = local_port(&fd).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let fd = listen_on(OsStr::new("127.0.0.1"), 0).unwrap();
        let port = local_port(&fd).unwrap();
        for address in ["127.0.0.1", "node-0.example", "192.0.2.1"] {
            let error = listen_on(OsStr::new(address), port).unwrap_err();
            assert!(
                matches!(error, BindError::InUse { port: it } if it == port),
                "{error}"
            );
        }
    }
}
