//! Gathers the way to the main address: names, interfaces, the port. Nothing here waits for long.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use super::facts::{Interface, Network, Port};
use crate::agent::host;
use crate::plan::Plan;
use crate::rendezvous::holder_of;
use crate::report::described;

/// How long a name server may take, and then another node.
const NAME_PATIENCE: Duration = Duration::from_secs(5);
const NODE_PATIENCE: Duration = Duration::from_secs(3);

/// An address of no network that anybody is in (RFC 5737): the default route leads there.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// A look at the network with the eyes of this launch.
pub(super) fn look(plan: &Plan) -> Network {
    let addresses = resolve(&plan.main_address.value);
    let first = addresses.as_ref().ok().and_then(|it| it.first()).copied();
    Network {
        interfaces: interfaces(),
        hosts_line: hosts_line(&plan.main_address.value),
        own_addresses: resolve(&plan.machine.host).unwrap_or_default(),
        local_end: first.and_then(local_end),
        outer_end: local_end(ELSEWHERE),
        port: port(plan, first),
        addresses,
    }
}

/// The addresses of a name; of a literal itself, without a question to anybody.
fn resolve(name: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let (sender, receiver) = mpsc::channel();
    let asked = name.to_owned();
    std::thread::spawn(move || {
        let found = (asked.as_str(), 0).to_socket_addrs();
        let found = found.map(|it| it.map(|it| it.ip()).collect::<Vec<_>>());
        let _nobody_waits = sender.send(found.map_err(|error| error.to_string()));
    });
    match receiver.recv_timeout(NAME_PATIENCE) {
        Ok(found) => found,
        Err(_) => Err(format!("no answer within {} s", NAME_PATIENCE.as_secs())),
    }
}

/// The first line of /etc/hosts that has the name (hosts(5)).
fn hosts_line(name: &str) -> Option<String> {
    let text = fs::read_to_string("/etc/hosts").ok()?;
    line_with(&text, name).map(str::to_owned)
}

fn line_with<'t>(hosts: &'t str, name: &str) -> Option<&'t str> {
    let lines = hosts
        .lines()
        .map(|it| it.split('#').next().unwrap_or(it).trim());
    let mut lines = lines.filter(|it| {
        let mut names = it.split_ascii_whitespace().skip(1);
        names.any(|it| it.eq_ignore_ascii_case(name))
    });
    lines.next()
}

/// Which of our addresses the kernel would send from: connecting a UDP socket sends nothing (udp(7)).
fn local_end(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Port 9, "discard": any would do.
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn interfaces() -> Vec<Interface> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for it in getifaddrs().into_iter().flatten() {
        if !it.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let interface = found.entry(it.interface_name.clone()).or_insert(Interface {
            name: it.interface_name,
            addresses: Vec::new(),
            loopback: it.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        });
        interface.addresses.extend(it.address.as_ref().and_then(ip));
    }
    found.into_values().collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
}

/// Node 0 takes the port as a launch would, and gives it back; any other node knocks at it.
fn port(plan: &Plan, main: Option<IpAddr>) -> Port {
    if plan.place.leads {
        return match host(plan).map(|it| it.moved) {
            Ok(false) => Port::Free,
            // A launch has no time for this.
            Ok(true) => {
                let holder = holder_of(plan.main_port.value);
                Port::Another(holder.map(|it| described(&[it]).concat()))
            }
            Err(error) => Port::Refused(error.to_string()),
        };
    }
    let Some(main) = main else {
        return Port::Unknown;
    };
    let address = SocketAddr::new(main, plan.main_port.value);
    match TcpStream::connect_timeout(&address, NODE_PATIENCE) {
        Ok(_) => Port::Answers,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Port::NobodyYet,
        Err(error) => Port::Silent(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_the_hosts_file() {
        let hosts = "# a\n127.0.0.1 localhost\n127.0.1.1\tbox.example  Box # node-0\n";
        assert_eq!(line_with(hosts, "box"), Some("127.0.1.1\tbox.example  Box"));
        assert_eq!(line_with(hosts, "node-0"), None);
        assert_eq!(line_with(hosts, "127.0.0.1"), None);
    }

    #[test]
    fn literals_are_nobodys_question() {
        assert_eq!(resolve("::1"), Ok(vec!["::1".parse().unwrap()]));
        assert_eq!(
            local_end([127, 0, 0, 1].into()),
            Some([127, 0, 0, 1].into())
        );
    }

    #[test]
    fn there_is_a_loopback_interface() {
        let found = interfaces();
        let loopback = found.iter().find(|it| it.loopback).unwrap();
        assert!(
            loopback.addresses.contains(&[127, 0, 0, 1].into()),
            "{found:?}"
        );
    }
}
