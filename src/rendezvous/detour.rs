//! When torch's libraries may take another network than the one on which nodes have met.
//!
//! Gloo listens at the address that this machine's own name stands for, NCCL takes the interface it likes
//! best; both obey a variable. So a name that `/etc/hosts` gives to the loopback interface, as Debian's
//! installer does, or a network of its own for training deserves a word before workers hang.

use core::net::IpAddr;

/// What is known of this machine's networks.
pub(crate) struct Surroundings<'a> {
    /// The address and the interface from which the other nodes are reached.
    pub(crate) route: &'a (IpAddr, String),
    /// What /proc/net/route says (proc(5)).
    pub(crate) routes: &'a str,
    /// What /etc/hosts says (hosts(5)).
    pub(crate) hosts: &'a str,
    /// This machine's name.
    pub(crate) name: &'a str,
}

impl Surroundings<'_> {
    /// Advice, where there is a reason; none where the other nodes are on this machine.
    pub(crate) fn hint(&self) -> Option<String> {
        let (address, interface) = self.route;
        if address.is_loopback() {
            return None;
        }
        let why = match (self.loopback(), default_interface(self.routes)) {
            (Some(loopback), _) => {
                let name = self.name;
                format!("/etc/hosts gives this machine's name `{name}` to {loopback}")
            }
            (None, Some(default)) if default != interface => {
                format!("the default route of this machine is on `{default}`")
            }
            _ => return None,
        };
        Some(format!(
            "the other nodes are reached on `{interface}` ({address}), but {why}; if workers do not find \
             each other, export GLOO_SOCKET_IFNAME={interface} NCCL_SOCKET_IFNAME={interface}"
        ))
    }

    /// The loopback address that the name stands for; the first line with the name counts.
    fn loopback(&self) -> Option<IpAddr> {
        let lines = self
            .hosts
            .lines()
            .map(|it| it.split('#').next().unwrap_or_default());
        let mut words = lines.map(str::split_whitespace);
        let address = words.find_map(|mut it| {
            let address = it.next()?;
            it.any(|name| name == self.name).then_some(address)
        });
        address?.parse().ok().filter(IpAddr::is_loopback)
    }
}

/// The interface of the default route: destination and mask are zero.
fn default_interface(routes: &str) -> Option<&str> {
    let rows = routes
        .lines()
        .map(|it| it.split_whitespace().collect::<Vec<_>>());
    let mut rows = rows.filter(|it| it.len() > 7);
    let row = rows.find(|it| it[1] == "00000000" && it[7] == "00000000")?;
    Some(row[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
ib0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
";

    #[track_caller]
    fn check(address: &str, interface: &str, hosts: &str, expected: Option<&str>) {
        let surroundings = Surroundings {
            route: &(address.parse().unwrap(), interface.to_owned()),
            routes: ROUTES,
            hosts,
            name: "gpu-1",
        };
        let why = surroundings.hint().map(|it| {
            let (_, rest) = it.split_once(", but ").unwrap();
            rest.split_once(';').unwrap().0.to_owned()
        });
        assert_eq!(why.as_deref(), expected);
    }

    #[test]
    fn a_network_beside_the_default_one_is_worth_a_word() {
        check("172.17.0.2", "eth0", "", None);
        let expected = "the default route of this machine is on `eth0`";
        check("10.0.0.2", "ib0", "", Some(expected));
    }

    #[test]
    fn so_is_a_name_that_means_loopback() {
        let trap = "127.0.0.1 localhost\n127.0.1.1 gpu-1.lab gpu-1 # installer\n";
        let expected = "/etc/hosts gives this machine's name `gpu-1` to 127.0.1.1";
        check("172.17.0.2", "eth0", trap, Some(expected));
        check(
            "172.17.0.2",
            "eth0",
            "172.17.0.2 gpu-1\n127.0.1.1 gpu-1",
            None,
        );
        check("172.17.0.2", "eth0", "127.0.1.1 gpu-10 # gpu-1", None);
    }

    #[test]
    fn nodes_on_one_machine_find_each_other() {
        check("127.0.0.1", "lo", "127.0.1.1 gpu-1", None);
    }
}
