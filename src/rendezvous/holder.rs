//! Who has a port: for people whose port is taken.

use std::fs;
use std::path::Path;

/// The process that listens on this TCP port, as far as this user may see it.
pub(crate) fn holder_of(port: u16) -> Option<i32> {
    let sockets =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|it| fs::read_to_string(it).unwrap_or_default());
    let inodes: Vec<&str> = sockets.iter().flat_map(|it| listeners(it, port)).collect();
    let links: Vec<String> = inodes.iter().map(|it| format!("socket:[{it}]")).collect();
    let folders = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = folders.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| holds(*pid, &links))
}

/// Inodes of the listening sockets with this port in the text of /proc/net/tcp (proc(5)): the local address
/// is field 1, the state field 3 (0A listens) and the inode field 9.
fn listeners(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        (local.ends_with(&ending) && *state == "0A").then_some(*inode)
    })
}

fn holds(pid: i32, links: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|it| {
        let target = fs::read_link(it.path());
        target.is_ok_and(|target| links.iter().any(|link| Path::new(link) == target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_find_ourselves() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(holder_of(port), Some(std::process::id() as i32));
        drop(listener);
        assert_eq!(holder_of(port), None);
    }
}
